//! Which device is taken, and which there are.

use crate::compute;

#[test]
fn the_first_of_a_list_that_is_there_is_taken_and_the_others_are_accounted_for() {
    let run = compute(&["--device", "no_such,openreg:9,openreg:1,cpu"], &[]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[0], "not no_such: no backend called `no_such` is linked into this program or installed");
    assert_eq!(
        lines[1],
        "not openreg:9: unknown device index 9: `openreg` has 2 devices (`openreg:0` to `openreg:1`)"
    );
    assert!(lines[2].starts_with("device openreg:1: OpenReg"), "{}", run.stdout);
}

#[test]
fn spaces_around_a_device_are_not_part_of_it() {
    let run = compute(&["--device", "no_such, openreg:1 ,cpu"], &[]);
    run.prints(
        "not no_such: no backend called `no_such` is linked into this program or installed\ndevice openreg:1: ",
    );
    compute(&["--device", " cpu "], &[]).prints("device cpu: ");
    compute(&["--device", "cpu, "], &[]).fails_with("it is empty");
    compute(&["--device", "c pu"], &[]).fails_with("c pu");
}

#[test]
fn a_list_of_which_none_is_there_is_an_error_and_does_not_fall_back_to_the_cpu() {
    let run = compute(&["--device", "no_such,openreg"], &[("DEVICE_BACKEND_DISABLE", "openreg")]);
    run.fails_with("none of these devices can be used");
    run.fails_with("no backend called `no_such` is linked");
    run.fails_with("is disabled by DEVICE_BACKEND_DISABLE=openreg");
    assert_eq!(run.stdout, "");
}

#[test]
fn devices_that_are_not_there_are_errors() {
    compute(&["--device", "no_such"], &[])
        .fails_with("no backend called `no_such` is linked into this program");
    compute(&["--device", "openreg:9"], &[]).fails_with("unknown device index 9: `openreg` has 2 devices");
    compute(&["--device", ""], &[]).fails_with("the device string is empty");
    compute(&["--device", "cpu,"], &[]).fails_with("it is empty");
}

#[test]
fn a_device_without_kernels_is_an_error_also_in_a_list() {
    for device in ["openreg", "openreg,cpu"] {
        let run = compute(&["--device", device], &[("COMPUTE_KERNELS_DISABLE", "openreg")]);
        run.fails_with("there are no kernels for `openreg:0`");
        run.fails_with("is disabled by COMPUTE_KERNELS_DISABLE=openreg");
    }
}

#[test]
fn the_list_shows_each_device_and_the_language_of_its_kernels() {
    let run = compute(&["--list"], &[("OPENREG_DEVICES", "3")]);
    run.prints("cpu: kernels in Rust\n  cpu           host");
    run.prints("openreg: kernels in Rust\n  openreg:0     OpenReg");
    run.prints("  openreg:2     OpenReg");
    let run = compute(&["--list"], &[("COMPUTE_KERNELS_DISABLE", "openreg"), ("OPENREG_DEVICES", "1")]);
    run.prints("openreg: no kernels: kernel set `openreg` (compute ");
    run.prints("is disabled by COMPUTE_KERNELS_DISABLE=openreg\n  openreg:0     OpenReg");
    compute(&["--list"], &[("OPENREG_DEVICES", "0")]).prints("openreg: no devices\n");
    compute(&["--list"], &[("OPENREG_DEVICES", "no")]).prints("openreg: backend `openreg` (device-openreg");
}

#[test]
fn a_switch_with_an_invalid_value_is_a_note() {
    let run = compute(&["--list"], &[("COMPUTE_KERNELS_DISABLE", "opnreg")]);
    assert!(run.stderr.starts_with("note: ") && run.stderr.contains("opnreg"), "{}", run.stderr);
}

/// A machine without drivers, or so it seems to the libraries that look for them.
#[test]
#[cfg(all(feature = "cuda", feature = "opencl", feature = "wgpu", target_os = "linux"))]
fn without_drivers_each_device_says_what_was_looked_for_and_the_list_ends_at_the_cpu() {
    let nowhere = [
        ("OCL_ICD_VENDORS", "/nonexistent"),
        ("VK_ICD_FILENAMES", "/nonexistent"),
        ("VK_DRIVER_FILES", "/nonexistent"),
    ];
    for backend in ["opencl", "wgpu"] {
        let run = compute(&["--device", backend], &nowhere);
        run.fails_with(&format!("backend `{backend}` (device-{backend} "));
        run.fails_with("is unavailable: ");
        assert_eq!(run.stdout, "");
    }
    let run = compute(&["--device", "wgpu,opencl,cpu"], &nowhere);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines[0].starts_with("not wgpu: backend `wgpu` (device-wgpu "), "{}", run.stdout);
    assert!(lines[1].starts_with("not opencl: backend `opencl` (device-opencl "), "{}", run.stdout);
    assert!(lines[2].starts_with("device cpu: "), "{}", run.stdout);
    run.prints("kernels: Rust");
}

/// Where there is one, the other tests have used it.
#[test]
#[cfg(feature = "cuda")]
fn without_a_driver_of_nvidias_cuda_says_what_was_looked_for() {
    use device_registry::registry::LoadError;
    use device_registry::{DeviceError, device};
    match device("cuda").unwrap().properties() {
        Err(DeviceError::Backend(LoadError::Unavailable { .. })) => {
            compute(&["--device", "cuda"], &[]).fails_with("is unavailable: ");
            let run = compute(&["--device", "cuda,cpu"], &[]);
            run.prints("not cuda: backend `cuda` (device-cuda ");
            run.prints("\ndevice cpu: ");
            compute(&["--list"], &[]).prints("cuda: backend `cuda` (device-cuda ");
        }
        other => eprintln!("skipped: `cuda` is not unavailable: {other:?}"),
    }
}

/// Exactly the backends whose features are on.
#[test]
fn features_decide_which_backends_there_are() {
    let listed = compute(&["--list"], &[]).stdout;
    for (backend, on) in [
        ("cpu", true),
        ("cuda", cfg!(feature = "cuda")),
        ("opencl", cfg!(feature = "opencl")),
        ("openreg", true),
        ("wgpu", cfg!(feature = "wgpu")),
    ] {
        let line = format!("{backend}: ");
        assert_eq!(listed.lines().any(|found| found.starts_with(&line)), on, "{backend}: {listed}");
        if !on {
            let run = compute(&["--device", backend], &[]);
            run.fails_with(&format!("no backend called `{backend}` is linked into this program"));
        }
    }
}
