//! The program as its users run it.

#![allow(missing_docs)]

mod choosing;
mod computing;
mod sources;
mod usage;

use std::process::{Command, Output};

use device_registry::registry::Switches;

// So that the tests see which devices there are.
device_registry::autoload!();

/// The outcome of a run.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// Asserts that it failed with this error, without a panic, and without printing a success.
    #[track_caller]
    fn fails_with(&self, message: &str) {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        // Drivers' libraries may write there before.
        assert!(self.stderr.lines().any(|line| line.starts_with("error: ")), "{}", self.stderr);
        assert!(self.stderr.contains(message), "{message:?} in {}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(self.stdout.matches("as on the cpu").count() < 2, "{}", self.stdout);
    }

    #[track_caller]
    fn prints(&self, text: &str) {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        assert!(self.stdout.contains(text), "{text:?} in {}", self.stdout);
    }
}

/// Runs the program, with small work unless the arguments say otherwise.
fn compute(arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut all = arguments.to_vec();
    for (option, value) in [("--size", "33x17x65"), ("--length", "1000"), ("--runs", "2")] {
        if !arguments.contains(&option) && !arguments.contains(&"--list") {
            all.extend([option, value]);
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_compute"));
    for prefix in ["DEVICE_BACKEND", "COMPUTE_KERNELS"] {
        for variable in Switches::variables(prefix) {
            command.env_remove(variable);
        }
    }
    let Output { status, stdout, stderr } =
        command.args(all).envs(variables.iter().copied()).output().unwrap();
    Run {
        code: status.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    }
}
