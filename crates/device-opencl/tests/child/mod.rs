//! Tests that run once more in a process of their own, with other variables.
#![allow(dead_code, unused_imports, reason = "not every test program needs all of it")]

use std::process::{Command, Output};

use device_conformance::process;
pub(crate) use device_conformance::process::is_child as is_this;

/// Runs the test of this name once more, in a process with these variables, and none of the machine's that decide which
/// OpenCL there is.
pub(crate) fn again(test: &str, variables: &[(&str, &str)]) -> Output {
    process::again(test, |child| prepare(child, variables))
}

/// The same, and fails if the test does.
pub(crate) fn passes(test: &str, variables: &[(&str, &str)]) {
    process::passes(test, |child| prepare(child, variables));
}

fn prepare<'a>(child: &'a mut Command, variables: &[(&str, &str)]) -> &'a mut Command {
    for name in ["OPENCL_DYLIB_PATH", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"] {
        child.env_remove(name);
    }
    child.envs(variables.iter().copied())
}
