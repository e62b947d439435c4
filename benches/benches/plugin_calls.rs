//! Calls of a backend in a file, beside the same backend linked.
//!
//! The libraries are built here, as cargo builds none for a benchmark.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use device_plugin::Plugins;
use device_registry::backend::Backend;
use device_registry::{Buffer, Device, device};
use device_registry_benches::beside;
use tempfile::TempDir;

device_registry::autoload!();

/// The backend in the file, and the same one linked.
fn devices() -> [Device; 2] {
    ["openreg_file", "openreg"].map(|name| device(name).expect("it is there"))
}

/// Calls that return a number: the border alone. The linked backend is a virtual call.
fn empty_calls(criterion: &mut Criterion) {
    let count = |backend: &dyn Backend| {
        black_box(black_box(backend).device_count().expect("it counts"));
    };
    let [in_rust, in_c, linked] = ["openreg_file", "myc", "openreg"]
        .map(|name| device(name).expect("it is there").backend().load().expect("it loads"));
    let mut group = criterion.benchmark_group("plugin calls/device count");
    beside(&mut group, "in Rust", || count(in_rust), || count(linked));
    beside(&mut group, "in C", || count(in_c), || count(linked));
}

fn calls(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plugin calls/openreg");
    let [loaded, linked] = devices();
    let info = |device: Device| {
        black_box(black_box(device).memory_info().expect("it is open"));
    };
    beside(&mut group, "memory info", || info(loaded), || info(linked));
    beside(
        &mut group,
        "allocate and free 64 bytes",
        || drop(black_box(loaded).allocate(64).expect("there is room")),
        || drop(black_box(linked).allocate(64).expect("there is room")),
    );
}

fn copies(criterion: &mut Criterion) {
    for len in [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20] {
        let mut group = criterion.benchmark_group(format!("plugin copies/openreg/{len}"));
        group.throughput(Throughput::Bytes(len as u64));
        let bytes = vec![1_u8; len];
        let mut reads = [vec![2_u8; len], vec![2_u8; len]];
        let [loaded, linked] = devices().map(|device| {
            [3, 4].map(|byte| {
                let buffer = device.allocate(len).expect("there is room");
                buffer.fill(0..len, &[byte]).expect("it is all of it");
                buffer
            })
        });
        let write =
            |buffers: &[Buffer; 2]| black_box(&buffers[0]).write(0, black_box(&bytes)).expect("it fits");
        beside(&mut group, "write", || write(&loaded), || write(&linked));
        let read = |buffers: &[Buffer; 2], to: &mut [u8]| buffers[0].read(0, black_box(to)).expect("it fits");
        let [to_loaded, to_linked] = &mut reads;
        beside(&mut group, "read", || read(&loaded, to_loaded), || read(&linked, to_linked));
        let copy = |[from, to]: &[Buffer; 2]| black_box(to).copy_from(from).expect("it fits");
        beside(&mut group, "copy", || copy(&loaded), || copy(&linked));
    }
}

/// Builds the libraries, and installs `openreg` as `openreg_file`. Returns their folder, which has to stay
/// until they are loaded.
fn install() -> TempDir {
    let program = env::current_exe().expect("this program has a file");
    let profile = program.parent().and_then(|deps| deps.parent()).expect("it lies in target/<profile>/deps");
    let is_release = profile.ends_with("release");
    let build = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", "device-plugin-tests", "--example", "openreg_file"])
        .args(is_release.then_some("--release"))
        .arg("--target-dir")
        .arg(profile.parent().expect("it has a parent"))
        .status();
    assert!(build.is_ok_and(|status| status.success()), "cargo does not build the library");
    let library: PathBuf = profile.join("examples/libopenreg_file.so");
    let folder = tempfile::tempdir().expect("there is room");
    fs::copy(library, folder.path().join("libopenreg_file.so")).expect("there is room");
    let manifest = format!(
        r#"{{"manifest": 1, "group": "device.backends", "name": "openreg_file", "entry": "openreg",
            "package": "device-openreg", "version": "{}", "library": "libopenreg_file.so",
            "abi": {{"major": 0, "minor": 3}}}}"#,
        env!("CARGO_PKG_VERSION")
    );
    fs::write(folder.path().join("openreg_file.plugin.json"), manifest).expect("there is room");
    // The backends in C, with their manifests.
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/custom-backend/c/build.sh");
    let built = Command::new("sh").arg(script).arg(folder.path()).status();
    assert!(built.is_ok_and(|status| status.success()), "{script} fails");
    let report = Plugins::new().folder(folder.path()).install().expect("the folder is absolute");
    assert_eq!(report.installed().len(), 3, "{report}");
    folder
}

fn all(criterion: &mut Criterion) {
    let _folder = install();
    empty_calls(criterion);
    calls(criterion);
    copies(criterion);
}

criterion_group! {
    name = benches;
    config = device_registry_benches::criterion();
    targets = all
}
criterion_main!(benches);
