//! The kernels of `cuda` in the conformance suite of kernel sets, on the GPUs of this machine.

use std::process::ExitCode;

device_registry::autoload!();

fn main() -> ExitCode {
    device_kernels_conformance::run("cuda")
}
