//! Results, compared with the cpu's.

use device_conformance::device_or_skip;

use crate::compute;

#[test]
fn on_the_cpu() {
    let run = compute(&[], &[]);
    run.prints("device cpu: host");
    run.prints("kernels: Rust");
    run.prints("add 1000 + 1000 elements");
    run.prints("matmul 33 x 17 by 17 x 65");
    run.prints(" GB/s");
    run.prints(" GFLOP/s");
    run.prints("median of 2");
    // It would be as on the cpu whatever it were.
    run.prints("not compared");
    assert!(!run.stdout.contains("as on the cpu"), "{}", run.stdout);
}

#[test]
fn on_openreg() {
    computes_on("openreg", "Rust");
}

#[test]
#[cfg(feature = "opencl")]
fn on_opencl() {
    computes_on("opencl", "OpenCL C");
}

#[test]
#[cfg(feature = "wgpu")]
fn on_wgpu() {
    computes_on("wgpu", "WGSL");
}

#[test]
#[cfg(feature = "cuda")]
fn on_cuda() {
    computes_on("cuda", "PTX");
}

fn computes_on(backend: &str, language: &str) {
    let Some(device) = device_or_skip(backend) else { return };
    let run = compute(&["--device", backend], &[]);
    run.prints(&format!("device {device}: {}", device.properties().unwrap().name));
    run.prints(&format!("kernels: {language}\n"));
    assert_eq!(run.stdout.matches("as on the cpu, in every bit").count(), 2, "{}", run.stdout);
    let by_events = device.properties().unwrap().timed_events;
    let clock = if by_events { "by timed events" } else { "by the host's clock" };
    assert_eq!(run.stdout.matches(clock).count(), 2, "{}", run.stdout);
    // One element, some that no work-group divides, and more terms than a driver may run a loop for.
    for (size, length) in
        [("1", "1"), ("127x1x3", "65"), ("1x1000x1", "64"), ("100", "100001"), ("2x200000x3", "63")]
    {
        let run = compute(&["--device", backend, "--size", size, "--length", length], &[]);
        assert_eq!(
            run.stdout.matches("as on the cpu, in every bit").count(),
            2,
            "{}{}",
            run.stdout,
            run.stderr
        );
    }
}

#[test]
fn more_than_the_device_has_is_out_of_memory() {
    let variables = [("OPENREG_MEMORY", "64KiB")];
    compute(&["--device", "openreg", "--length", "100000"], &variables)
        .fails_with("allocate: out of memory: 400000 bytes asked for, and one allocation can have 65536");
    // One matrix fits, and the second does not.
    compute(&["--device", "openreg", "--size", "100"], &variables)
        .fails_with("allocate: out of memory: 40000 bytes asked for, ");
}

#[test]
fn a_copy_that_fails_is_an_error_of_the_device() {
    compute(&["--device", "openreg"], &[("OPENREG_FAIL_COPY", "2")])
        .fails_with("`openreg:0` (device-openreg");
    compute(&["--device", "openreg"], &[("OPENREG_LOSE_DEVICE", "4")]).fails_with("device lost");
}

#[test]
#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
fn more_than_a_real_device_has_is_out_of_memory() {
    for backend in [
        #[cfg(feature = "cuda")]
        "cuda",
        #[cfg(feature = "opencl")]
        "opencl",
        #[cfg(feature = "wgpu")]
        "wgpu",
    ] {
        let Some(device) = device_or_skip(backend) else { continue };
        // As many as kernels can count, or as the device says that one allocation cannot have.
        let most = u64::from(u32::MAX);
        let limit = device.properties().unwrap().largest_allocation;
        let Some(length) = limit.map(|limit| limit / 4 + 1).filter(|&length| length <= most) else {
            eprintln!("skipped: {device} may have room for {} bytes", most * 4);
            continue;
        };
        compute(&["--device", backend, "--length", &length.to_string()], &[])
            .fails_with("allocate: out of memory: ");
    }
}
