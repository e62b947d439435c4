//! The conformance suite of kernel sets on the **simulated** driver and compiler, which are no hardware: the
//! texts that NVRTC compiles run on the processor, with the grids and arguments that the set gives the
//! driver.

device_registry::autoload!();

// With its kernel, which the suite tests too.
use swiglu as _;

#[cfg(target_os = "linux")]
mod child;

use std::process::ExitCode;

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("skipped: the simulated libraries are found by LD_LIBRARY_PATH, which is Linux's");
    ExitCode::SUCCESS
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    if device_conformance::process::is_child() {
        return device_kernels_conformance::run("cuda");
    }
    let mut again = child::program();
    // Nothing passes by skipping.
    again.args(std::env::args_os().skip(1)).env("DEVICE_CONFORMANCE_REQUIRE", "cuda");
    let status = again.status().expect("it starts");
    match status.code() {
        Some(0) => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
        None => {
            eprintln!("the suite on the simulated driver ended by a signal: {status}");
            ExitCode::FAILURE
        }
    }
}
