//! Runs one test of this binary in its own process: settings of the process are read once.

use std::env;
use std::process::Command;

/// Runs the ignored test `name` with the variables `variables`, and returns what it printed. Panics if it
/// fails.
pub(crate) fn run(name: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    // A name that is no test's runs nothing, and succeeds.
    assert!(output.status.success() && printed.contains("1 passed"), "{name} with {variables:?}:\n{printed}");
    printed
}
