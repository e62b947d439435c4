//! Tests that run once more in a process of their own: with other variables, or with less memory.

use std::env;
use std::process::{Command, Output};

const CHILD: &str = "WGPU_TEST_CHILD";

/// Whether this process is one that [`again`] has started.
pub(crate) fn is_this() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs the test of this name once more, in a process with these variables, and none of the machine's that choose
/// drivers.
pub(crate) fn again(test: &str, variables: &[(&str, &str)]) -> Output {
    let path = env::current_exe().expect("the test has a file");
    run(Command::new(path).args([test, "--exact", "--nocapture"]), test, variables)
}

/// Has it run with so many KiB of address space.
#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "not every test program needs it")]
pub(crate) fn again_within(kib: u64, test: &str) -> Output {
    let path = env::current_exe().expect("the test has a file");
    let limited = format!("ulimit -v {kib} && exec \"$0\" {test} --exact --nocapture");
    run(Command::new("sh").arg("-c").arg(limited).arg(path), test, &[])
}

fn run(command: &mut Command, test: &str, variables: &[(&str, &str)]) -> Output {
    for name in ["WGPU_BACKEND", "VK_ICD_FILENAMES", "VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES"] {
        command.env_remove(name);
    }
    // A layer of Mesa's prints where there is no desktop.
    command.env(CHILD, "1").env("RUST_BACKTRACE", "0").env("NODEVICE_SELECT", "1");
    let output = command.envs(variables.iter().copied()).output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("running 1 test"), "there is no test `{test}`: {printed}");
    output
}
