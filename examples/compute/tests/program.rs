//! The program as its users run it.

#![allow(missing_docs)]

use std::io;
use std::process::{Command, Output};

use device_conformance::device_or_skip;
use device_registry::registry::Switches;

// So that the tests see which devices there are.
device_registry::autoload!();

/// The outcome of a run.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// Asserts that it failed with this error, without a panic, and without printing a success.
    #[track_caller]
    fn fails_with(&self, message: &str) {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        // Drivers' libraries may write there before.
        assert!(self.stderr.lines().any(|line| line.starts_with("error: ")), "{}", self.stderr);
        assert!(self.stderr.contains(message), "{message:?} in {}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(self.stdout.matches("as on the cpu").count() < 2, "{}", self.stdout);
    }

    #[track_caller]
    fn prints(&self, text: &str) {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        assert!(self.stdout.contains(text), "{text:?} in {}", self.stdout);
    }
}

const NO_VARIABLE: &str = "UNUSED=";

/// Runs the program, with small work unless the arguments say otherwise, and with variables `NAME=VALUE`.
fn compute(arguments: &str, variables: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compute"));
    command.args(arguments.split(' ').filter(|argument| !argument.is_empty()));
    for small in ["--size=33x17x65", "--length=1000", "--runs=2"] {
        if !arguments.contains(&small[..small.find('=').unwrap()]) && !arguments.contains("--list") {
            command.arg(small);
        }
    }
    for variable in ["DEVICE_BACKEND", "COMPUTE_KERNELS"].into_iter().flat_map(Switches::variables) {
        command.env_remove(variable);
    }
    let variables = variables.iter().map(|variable| variable.split_once('=').unwrap());
    let Output { status, stdout, stderr } = command.envs(variables).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

#[test]
fn on_the_cpu() {
    let run = compute("", &[]);
    for text in
        ["device cpu: host", "add 1000 + 1000 elements", "matmul 33 x 17 by 17 x 65", "GB/s", "GFLOP/s"]
    {
        run.prints(text);
    }
    // It would be as on the cpu whatever it were.
    run.prints("not compared");
    assert!(!run.stdout.contains("as on the cpu"), "{}", run.stdout);
}

#[test]
fn on_openreg() {
    computes_on("openreg", "Rust");
}

fn computes_on(backend: &str, language: &str) {
    let Some(device) = device_or_skip(backend) else { return };
    let properties = device.properties().unwrap();
    let run = compute(&format!("--device={backend}"), &[]);
    run.prints(&format!("device {device}: {}", properties.name));
    run.prints(&format!("kernels: {language}\n"));
    let clock = if properties.timed_events { "by timed events" } else { "by the host's clock" };
    for text in ["as on the cpu, in every bit", clock, "; median of 2"] {
        assert_eq!(run.stdout.matches(text).count(), 2, "{text}: {}", run.stdout);
    }
    // As many as kernels can count, if the device says that one allocation cannot have them.
    match properties.largest_allocation.map(|limit| u32::try_from(limit / 4 + 1)) {
        Some(Ok(length)) => compute(&format!("--device={backend} --length={length}"), &[])
            .fails_with("allocate: out of memory: "),
        _ => eprintln!("skipped: {device} may have room for any number of elements"),
    }
}

#[test]
fn what_fails_is_an_error_with_its_cause() {
    for (arguments, variable, message) in [
        ("--device=no_such", NO_VARIABLE, "no backend called `no_such` is linked into this program"),
        ("--device=openreg:9", NO_VARIABLE, "unknown device index 9: `openreg` has 2 devices"),
        ("--device=no_such,openreg", "DEVICE_BACKEND_DISABLE=openreg", "by DEVICE_BACKEND_DISABLE=openreg"),
        // It does not fall back to a device with kernels.
        ("--device=openreg,cpu", "COMPUTE_KERNELS_DISABLE=openreg", "there are no kernels for `openreg:0`"),
        ("--device=openreg", "COMPUTE_KERNELS_DISABLE=openreg", "by COMPUTE_KERNELS_DISABLE=openreg"),
        ("--device=openreg --length=100000", "OPENREG_MEMORY=64KiB", "out of memory: 400000 bytes asked for"),
        // One matrix fits, and the second does not.
        ("--device=openreg --size=100", "OPENREG_MEMORY=64KiB", "out of memory: 40000 bytes asked for"),
        ("--device=openreg", "OPENREG_FAIL_COPY=2", "`openreg:0` (device-openreg"),
        ("--device=openreg", "OPENREG_LOSE_DEVICE=4", "device lost"),
        ("--source=no-such-file.cl", NO_VARIABLE, "error: cannot read no-such-file.cl\ncaused by: "),
        ("--source=README.md", NO_VARIABLE, "`README.md` cannot be compiled for `cpu`, whose kernels are"),
    ] {
        compute(arguments, &[variable]).fails_with(message);
    }
}

#[test]
fn invalid_arguments_are_wrong_usage() {
    for (arguments, message) in [
        ("--size=0", "expected one number from 1 to 4294967295, or three such as 30x20x10"),
        ("--size=3x0x3", "expected one number"),
        ("--size=-3", "expected one number"),
        ("--size=many", "expected one number"),
        ("--size=3x3", "expected one number"),
        ("--size=3x3x3x3", "expected one number"),
        ("--size=65536x1x65536", "at most 4294967295 elements"),
        ("--size=1x16777217x1", "of more than 16777216 products"),
        ("--length=0", "0 is not in 1..=4294967295"),
        ("--length=4294967296", "4294967296 is not in 1..=4294967295"),
        ("--length=1e6", "invalid digit"),
        ("--runs=0", "0 is not in 1..=65535"),
        ("--runs=65536", "65536 is not in 1..=65535"),
        ("--device=", "the device string is empty"),
        ("--device=cpu,", "it is empty"),
        ("--list --device cpu", "cannot be used with"),
    ] {
        let run = compute(arguments, &[]);
        assert_eq!((run.code, &run.stdout[..]), (Some(2), ""), "{arguments}: {}", run.stderr);
        assert!(run.stderr.contains(message), "{arguments}: {}", run.stderr);
    }
}

#[test]
fn the_first_of_a_list_that_is_there_is_taken_and_the_others_are_accounted_for() {
    compute("--device=no_such,openreg:9,openreg:1,cpu", &[]).prints(
        "not no_such: no backend called `no_such` is linked into this program or installed\n\
         not openreg:9: unknown device index 9: `openreg` has 2 devices (`openreg:0` to `openreg:1`)\n\
         device openreg:1: OpenReg",
    );
}

/// A machine without drivers, or so it seems to the libraries that look for them. Where there is one for
/// `cuda`, it cannot be hidden.
#[test]
#[cfg(all(feature = "cuda", feature = "opencl", feature = "wgpu", target_os = "linux"))]
fn without_drivers_each_device_says_what_was_looked_for_and_the_list_ends_at_the_cpu() {
    let nowhere = ["OCL_ICD_VENDORS=/nowhere", "VK_ICD_FILENAMES=/nowhere", "VK_DRIVER_FILES=/nowhere"];
    for backend in ["opencl", "wgpu", "cuda"] {
        if backend == "cuda" && device_registry::is_available(backend) {
            continue;
        }
        compute(&format!("--device={backend}"), &nowhere).fails_with("is unavailable: ");
        let run = compute(&format!("--device={backend},cpu"), &nowhere);
        run.prints(&format!("not {backend}: backend `{backend}` (device-{backend} "));
        run.prints("\ndevice cpu: host");
    }
}

#[test]
fn the_list_shows_the_devices_of_the_backends_with_a_feature_and_which_have_kernels() {
    let run = compute("--list", &["COMPUTE_KERNELS_DISABLE=openreg,opnreg"]);
    run.prints("\n  openreg:1     OpenReg");
    run.prints("compute.kernels: ");
    run.prints("disabled by COMPUTE_KERNELS_DISABLE=openreg");
    assert!(run.stderr.starts_with("note: ") && run.stderr.contains("opnreg"), "{}", run.stderr);
    for (backend, on) in [
        ("\ncuda:", cfg!(feature = "cuda")),
        ("\nopencl:", cfg!(feature = "opencl")),
        ("\nwgpu:", cfg!(feature = "wgpu")),
    ] {
        assert_eq!(run.stdout.contains(backend), on, "{backend}: {}", run.stdout);
    }
}

#[test]
fn a_closed_pipe_is_an_error_and_no_panic() {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let Output { status, stderr, .. } =
        Command::new(env!("CARGO_BIN_EXE_compute")).stdout(writer).output().unwrap();
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: ") && !stderr.contains("panicked"), "{stderr}");
}

/// A device computes with the built-in text, and reports what is wrong with others: each change replaces a
/// piece, and has an error. Without its first or last term, a product is wrong however long it is.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
fn has_good_language(
    backend: &str,
    language: &str,
    text: &str,
    without_a_term: (&str, &str),
    changes: &[(&str, &str, &str)],
) {
    computes_on(backend, language);
    let Some(_) = device_or_skip(backend) else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernels.txt");
    let with_change = |piece: &str, other: &str, size: &str| {
        assert!(text.contains(piece), "{piece:?} in {text}");
        std::fs::write(&path, text.replace(piece, other)).unwrap();
        compute(&format!("--device={backend} --source={} --size={size}", path.display()), &[])
    };
    with_change("add", "add", "3").prints("as on the cpu, in every bit");
    let does_not_compile = format!("kernels.txt` does not compile as {language}\ncaused by: ");
    with_change(text, "", "3").fails_with(&does_not_compile);
    for &(piece, other, message) in changes {
        let run = with_change(piece, other, "33x17x65");
        run.fails_with(message);
        if message.contains("no_such_name") || message.contains("matmul") {
            run.fails_with(&does_not_compile);
        }
    }
    for size in ["3x17x5", "2x60000x2", "1x9000000x1"] {
        let run = with_change(without_a_term.0, without_a_term.1, size);
        run.fails_with("error: the result is wrong: element 0 is ");
        assert!(run.stdout.contains("matmul"), "the product is wrong: {}", run.stdout);
    }
}

#[test]
#[cfg(feature = "opencl")]
fn opencl_c() {
    has_good_language(
        "opencl",
        "OpenCL C",
        include_str!("../src/kernels/opencl.cl"),
        ("k = 0", "k = 1"),
        &[
            ("float sum = 0.0f", "float sum = no_such_name", "no_such_name"),
            ("void matmul", "void multiply", "the kernel `matmul`: CL_INVALID_KERNEL_NAME"),
            // What was in the memory before is not taken for a result.
            ("if (i < len)", "if (i + 1 < len)", "the result is wrong: element 999 is NaN and on the cpu "),
            ("[a_start + i] + b", "[a_start + i] - b", "1000 of 1000 elements differ"),
            ("= sum;", "= INFINITY;", "the result is wrong: element 0 is inf and on the cpu "),
            // Other arguments than it is given.
            ("uint len)\n", "char len)\n", "argument 6 of `add`: CL_INVALID_ARG_SIZE"),
            ("uint len)\n", "uint len, uint more)\n", "clEnqueueNDRangeKernel: CL_INVALID_KERNEL_ARGS"),
        ],
    );
}

#[test]
#[cfg(feature = "wgpu")]
fn wgsl() {
    has_good_language(
        "wgpu",
        "WGSL",
        include_str!("../src/kernels/wgpu.wgsl"),
        ("k = arguments.start", "k = max(arguments.start, 1u)"),
        &[
            ("var sum = 0.0", "var sum = no_such_name", "no_such_name"),
            ("fn matmul", "fn multiply", "matmul"),
            ("if i < arguments.len", "if i + 1 < arguments.len", "; 1 of 1000 elements differ"),
            ("[arguments.a_start + i] + b", "[arguments.a_start + i] - b", "1000 of 1000 elements differ"),
            ("= sum;", "= 0.0;", "the result is wrong: element 0 is 0 and on the cpu "),
        ],
    );
}

#[test]
#[cfg(feature = "cuda")]
fn ptx() {
    has_good_language(
        "cuda",
        "PTX",
        include_str!("../src/kernels/cuda.ptx"),
        ("setp.ne.u32     %more, %inner, 0", "setp.gt.u32 %more, %inner, 1"),
        &[
            ("add.rn.f32      %x, %x, %y", "add.rn.f32      %x, %x, %no_such_name", "no_such_name"),
            (".entry matmul", ".entry multiply", "the module has no entry `matmul`"),
            ("setp.ge.u32     %done", "sub.u32 %len, %len, 1;\nsetp.ge.u32 %done", "; 1 of 1000 elements"),
            ("add.rn.f32", "sub.rn.f32", "1000 of 1000 elements differ"),
            ("add.u64         %a, %a, 4;", "add.u64 %a, %a, 0;", "the result is wrong: element "),
            ("[%product], %total", "[%product], 0f7F800000", "the result is wrong: element 0 is inf "),
        ],
    );
}
