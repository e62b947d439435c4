//! The kernels of `cpu` in the conformance suite of kernel sets.

use std::process::ExitCode;

device_registry::autoload!();

fn main() -> ExitCode {
    device_kernels_conformance::run("cpu")
}
