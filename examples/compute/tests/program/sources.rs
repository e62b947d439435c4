//! Kernels of the user's.

use std::fs;

use crate::compute;

#[test]
fn a_device_whose_kernels_are_rust_compiles_no_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernels.cl");
    fs::write(&path, "kernel void add() {}").unwrap();
    for device in ["cpu", "openreg"] {
        let run = compute(&["--device", device, "--source", path.to_str().unwrap()], &[]);
        run.fails_with("kernels.cl` cannot be compiled for `");
        run.fails_with("whose kernels are Rust");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_its_name() {
    let run = compute(&["--source", "no-such-file.cl"], &[]);
    run.fails_with("error: cannot read no-such-file.cl\ncaused by: ");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernels.spv");
    fs::write(&path, [0x03, 0x02, 0x23, 0x07, 0xff]).unwrap();
    compute(&["--source", path.to_str().unwrap()], &[]).fails_with("valid UTF-8");
}
