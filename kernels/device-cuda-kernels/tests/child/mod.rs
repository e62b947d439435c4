//! Tests that run once more in their own process, on the simulated driver of `device-cuda` and the simulated
//! compiler and cuBLASLt of this folder.

#![allow(dead_code, reason = "not every test program needs all of it")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use device_conformance::process::{self, Environment};

/// Without orders to the simulated driver.
const CHILD: Environment = Environment::without(&["SIMULATED_CUDA_*"]);

/// The folder of the libraries, which are built as examples, beside this program.
pub(crate) fn simulated() -> PathBuf {
    let program = env::current_exe().expect("the test has a file");
    let profile = program.parent().and_then(Path::parent).expect("it lies in target/<profile>/deps");
    let folder = profile.join("examples");
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified());
    for (library, sources) in [
        (
            "libcuda.so",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/device-cuda/tests/simulated_driver"),
        ),
        ("libnvrtc.so", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulated_nvrtc")),
        ("libcublasLt.so", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulated_cublaslt")),
    ] {
        let sources = fs::read_dir(sources).expect("they are there");
        let newest =
            sources.map(|entry| changed(&entry.expect("it is there").path()).expect("it has a time"));
        assert!(
            changed(&folder.join(library))
                .is_ok_and(|built| newest.max().is_some_and(|newest| newest <= built)),
            "{library} is not in {}, or is older than its sources: \
             `cargo build -p device-cuda-kernels --examples` makes it",
            folder.display()
        );
    }
    folder
}

/// This program, to be run with these libraries. What the compiler makes is not kept: it is for no GPU.
pub(crate) fn program() -> Command {
    let mut program = process::program();
    prepare(&mut program);
    program
}

pub(crate) fn prepare(child: &mut Command) -> &mut Command {
    let folder = simulated();
    child
        .env("LD_LIBRARY_PATH", &folder)
        .env("DEVICE_CUDA_NVRTC", folder.join("libnvrtc.so"))
        .env("DEVICE_CUDA_CUBLASLT", folder.join("libcublasLt.so"))
        .env("DEVICE_PROGRAM_CACHE", "0")
        .env_remove("CUDA_VISIBLE_DEVICES");
    CHILD.apply(child)
}
