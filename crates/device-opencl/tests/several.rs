//! The suite on several devices: those of the library that stands in for OpenCL's loader, as one machine seldom has two.
//!
//! The stand-in does commands at once, so that this says nothing of queues that run beside the host.

#[allow(dead_code, reason = "not every test program needs all of it")]
mod child;
#[allow(dead_code, reason = "not every test program needs all of it")]
mod standin;

use std::env;
use std::process::{Command, ExitCode};

device_registry::autoload!();

fn main() -> ExitCode {
    if child::is_this() {
        return device_conformance::Suite::new().backend("opencl").run();
    }
    let status = Command::new(env::current_exe().expect("it has a file"))
        .args(env::args_os().skip(1))
        .env(child::CHILD, "1")
        .env("OPENCL_DYLIB_PATH", standin::library())
        .status()
        .expect("it starts");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
