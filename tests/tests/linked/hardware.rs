//! All backends of the repository in one program: the quickstart, with those for real hardware linked too. It
//! has to run on whatever the machine has.

// `LD_DEBUG` is glibc's.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::process::Command;

use device_conformance::device_or_skip;
use device_registry::registry::Switches;
use device_registry_tests::{Outcome, run};

// For `device_or_skip`: this program has them all as well.
/// The backends for hardware, and a part of the name of the library that each opens.
const HARDWARE: [(&str, &str); 3] = [("cuda", "libcuda"), ("opencl", "libOpenCL"), ("wgpu", "libvulkan")];

fn all_backends() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_all-backends"));
    for variable in Switches::variables("DEVICE_BACKEND") {
        command.env_remove(variable);
    }
    command
}

/// Makes the loaders that are there find no driver.
fn without_drivers(command: &mut Command) -> &mut Command {
    for variable in ["VK_ICD_FILENAMES", "VK_DRIVER_FILES", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"] {
        command.env(variable, "/nonexistent");
    }
    command.env("CUDA_VISIBLE_DEVICES", "")
}

/// The row of a backend in the report.
fn row<'a>(outcome: &'a Outcome, backend: &str) -> &'a str {
    let mut lines = outcome.stdout.lines();
    lines.find(|line| line.trim_start().starts_with(&format!("{backend} "))).expect("it is listed")
}

#[test]
fn a_list_has_all_backends_and_opens_no_library_of_a_driver() {
    // The C library says there which libraries it looks for.
    let looked_for =
        |arguments: &[&str]| run(all_backends().args(arguments).env("LD_DEBUG", "libs")).success();
    let list = looked_for(&["--list"]);
    let probe = looked_for(&["--list", "--probe"]);
    for (backend, library) in HARDWARE {
        assert!(row(&list, backend).ends_with("linked"), "{}", list.stdout);
        assert!(!list.stderr.contains(library), "--list has looked for {library}");
        assert!(probe.stderr.contains(library), "--list --probe did not look for {library}");
    }
}

#[test]
fn a_probe_shows_each_with_its_devices_or_its_reason() {
    let probe = run(all_backends().args(["--list", "--probe"])).success();
    for backend in ["cpu", "openreg", "cuda", "opencl", "wgpu"] {
        // A heading, with the devices below, or a line with the reason.
        let has_devices = probe.stdout.lines().any(|line| line == format!("{backend}:"));
        let has_reason = probe.stdout.lines().any(|line| line.starts_with(&format!("{backend}: ")));
        assert_ne!(has_devices, has_reason, "{backend}: {}", probe.stdout);
    }
}

#[test]
fn without_drivers_each_says_so_and_the_others_work() {
    let probe = run(without_drivers(all_backends().args(["--list", "--probe"]))).success();
    for (backend, _) in HARDWARE {
        assert!(row(&probe, backend).contains("unavailable"), "{}", probe.stdout);
    }
    assert!(probe.stdout.contains("\n  openreg:0 "), "{}", probe.stdout);

    let error = run(without_drivers(all_backends().args(["--device", "opencl"]))).failure();
    assert_eq!(error.status.code(), Some(1));
    error.shows("backend `opencl`");
    error.shows("is unavailable: ");
    let tensor = run(without_drivers(all_backends().args(["--device", "openreg"]))).success();
    assert_eq!(tensor.stdout, "tensor([1, 2, 3], device='openreg:0')\n");
}

#[test]
fn a_tensor_on_each_device_that_is_here() {
    for (backend, _) in HARDWARE {
        let Some(device) = device_or_skip(backend) else { continue };
        // Without it a layer of Mesa's that sorts Vulkan's devices complains where no desktop is.
        let mut program = all_backends();
        let tensor =
            run(program.env("NODEVICE_SELECT", "1").args(["--device", backend, "0.5", "-2"])).success();
        assert_eq!(tensor.stdout, format!("tensor([ 0.5000, -2.0000], device='{}')\n", device.resolve()));
        assert_eq!(tensor.stderr, "", "nothing prints but the program");
    }
}
