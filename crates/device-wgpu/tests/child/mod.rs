//! Tests that run once more in a process of their own: with other variables, or with less memory.
#![allow(dead_code, unused_imports, reason = "not every test program needs all of it")]

use std::process::{Command, Output};

use device_conformance::process;
pub(crate) use device_conformance::process::is_child as is_this;

/// Runs the test of this name once more, in a process with these variables, and none of the machine's that choose
/// drivers.
pub(crate) fn again(test: &str, variables: &[(&str, &str)]) -> Output {
    process::again(test, |child| prepare(child).envs(variables.iter().copied()))
}

/// Has it run with so many KiB of address space.
#[cfg(target_os = "linux")]
pub(crate) fn again_within(kib: u64, test: &str) -> Output {
    process::again(test, |child| {
        let program = prepare(child).get_program().to_owned();
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\"")]).arg(program);
        for (name, value) in child.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        *child = limited;
        child
    })
}

fn prepare(child: &mut Command) -> &mut Command {
    for name in ["WGPU_BACKEND", "VK_ICD_FILENAMES", "VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES"] {
        child.env_remove(name);
    }
    // A layer of Mesa's prints where there is no desktop.
    child.env("NODEVICE_SELECT", "1")
}
