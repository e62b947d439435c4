//! The operator on `opencl`, in the conformance suite of kernel sets.

use std::process::ExitCode;

use device_kernels_conformance::Suite;
use swiglu as _;

device_registry::autoload!();

fn main() -> ExitCode {
    Suite::new("opencl:0").only("custom::*").only("claims::*").requires("*").run()
}
