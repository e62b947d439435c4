//! The suite on several devices of the library that stands in for OpenCL's loader, as few machines have two.
//!
//! Two of three devices are on one platform and equal: one of these is left out, and is a peer of the others.
//!
//! The stand-in does commands at once, so this says nothing about queues that run in parallel with the host.

mod child;
#[allow(dead_code, reason = "not every test program needs all of it")]
mod standin;

use std::env;
use std::process::ExitCode;

use device_conformance::process;

device_registry::autoload!();

fn main() -> ExitCode {
    if process::is_child() {
        return device_conformance::Suite::new().backend("opencl").run();
    }
    let status = process::program()
        .args(["--skip", "opencl:1::"])
        .args(env::args_os().skip(1))
        .env("OPENCL_DYLIB_PATH", standin::library())
        // Nothing passes by skipping.
        .env("DEVICE_CONFORMANCE_REQUIRE", "opencl")
        .status()
        .expect("it starts");
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
