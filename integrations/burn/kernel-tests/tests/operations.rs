//! burn's operations by the kernels of devices give what burn's own CPU engine gives.

use device_burn::KernelUse;

use crate::programs::{Tolerance, each_operation, random_programs};

#[path = "../../tests/tests/common/programs.rs"]
#[allow(dead_code)]
mod programs;

device_registry::autoload!();

/// Sums in another order, and functions of another library.
const TOLERANCE: Tolerance = Tolerance::Of(1e-4);

/// By kernels where they are faster, and only by kernels. The choice is the process's; on `openreg` it
/// changes nothing.
#[test]
fn operations_agree_on_cpu() {
    for choice in [KernelUse::Auto, KernelUse::Always] {
        choice.set();
        each_operation("cpu", TOLERANCE);
        random_programs("cpu", TOLERANCE);
    }
}

#[test]
fn each_operation_agrees_alone_on_openreg() {
    each_operation("openreg:0", TOLERANCE);
}

#[test]
fn random_programs_agree_on_openreg() {
    random_programs("openreg:1", TOLERANCE);
}
