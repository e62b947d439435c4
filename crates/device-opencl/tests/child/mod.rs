//! Tests that run once more in a process of their own, with other variables.

use std::env;
use std::process::{Command, Output};

/// Set in a process that a test has started.
pub(crate) const CHILD: &str = "OPENCL_TEST_CHILD";

/// What decides which OpenCL there is.
const VARIABLES: [&str; 4] =
    ["OPENCL_DYLIB_PATH", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "DEVICE_CONFORMANCE_REQUIRE"];

/// Whether this process is one that [`again`] has started.
pub(crate) fn is_this() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs the test of this name once more, in a process with these variables.
pub(crate) fn again(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env::current_exe().expect("the test has a file"));
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .env("RUST_BACKTRACE", "0")
        .envs(variables.iter().copied());
    let output = command.output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("running 1 test"), "there is no test `{test}`: {printed}");
    output
}

/// The same, and fails if the test does.
pub(crate) fn passes(test: &str, variables: &[(&str, &str)]) {
    let output = again(test, variables);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} with {variables:?} ends with {}: {printed}", output.status);
}
