//! The program on the backends in C of `examples/custom-backend`, from their files: with their kernels, and
//! under `deny` up to an operation that they do not have.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// The folder with the libraries and their manifests.
fn plugins() -> TempDir {
    let folder = tempfile::tempdir().expect("there is room");
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let build =
        folders.map(|folder| folder.join("examples/custom-backend/c/build.sh")).find(|file| file.exists());
    let build = build.expect("it is in the repository");
    assert!(Command::new("sh").arg(build).arg(folder.path()).status().expect("there is a shell").success());
    folder
}

fn run(device: &str, plugins: &Path, fallback: &str) -> (bool, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_unchanged"));
    program.args(["--device", device, "--plugins"]).arg(plugins).env("DEVICE_BURN_FALLBACK", fallback);
    let Output { status, stdout, stderr } = program.output().expect("the program starts");
    (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

/// How many operations of this name ran as kernels, and on the CPU.
fn counts(printed: &str, operation: &str) -> (u64, u64) {
    let line = printed.lines().find(|line| line.starts_with(operation));
    let line = line.unwrap_or_else(|| panic!("no {operation} in:\n{printed}"));
    let numbers: Vec<u64> = line.split_whitespace().skip(1).take(5).map(|n| n.parse().unwrap()).collect();
    (numbers[0], numbers[4])
}

#[test]
fn networks_train_on_a_backend_in_c_and_its_kernels_compute() {
    let plugins = plugins();
    let (_, expected) = run("cpu", plugins.path(), "allow");
    let answers = |printed: &str| {
        let lines = printed.lines().filter(|line| line.contains("xor") || line.contains("bars"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(answers(&expected).len(), 2, "{expected}");
    for device in ["myc:1", "mycqueue:1"] {
        let (success, printed) = run(device, plugins.path(), "allow");
        assert!(success, "{printed}");
        assert_eq!(answers(&printed), answers(&expected));
        for operation in ["Float.Matmul", "NumericFloat.Add ", "Activation.Relu "] {
            let (native, fallback) = counts(&printed, operation);
            assert!(native > 100 && fallback == 0, "{operation}: {printed}");
        }
        let (native, fallback) = counts(&printed, "NumericFloat.Mul ");
        assert!(native == 0 && fallback > 100, "{printed}");
    }
}

#[test]
fn under_deny_the_first_operation_that_the_library_lacks_is_named() {
    let plugins = plugins();
    for device in ["myc:1", "mycqueue:1"] {
        let (success, printed) = run(device, plugins.path(), "deny");
        let expected =
            format!("Float.Random() -> f32 [2, 16] on {device} failed: no kernel of the device does it");
        assert!(!success && printed.contains(&expected), "{printed}");
    }
}
