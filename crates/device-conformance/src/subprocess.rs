//! Runs a check in a process of its own, because other checks would change what it measures: the number of threads, say.
//!
//! The check starts this program once more, with the name of its own test in the suite. An environment variable
//! marks the second run of the check as the one in the subprocess.

use std::env;
use std::io::{self, Write, stdout};
use std::process::Output;

use crate::context::Context;
use crate::environment::TIME_LIMIT;
use crate::failure::Failure;
use crate::process;

/// Set in a subprocess to the name of its test.
const SUBPROCESS: &str = "DEVICE_CONFORMANCE_SUBPROCESS";

/// The start of the line on which a subprocess prints its outcome.
const OUTCOME: &str = "device-conformance outcome: ";

/// Runs a check in a subprocess. Its time limit is shorter than that of the check, so that the outcome arrives in time.
///
/// # Errors
///
/// The check's failure in the subprocess. Unsupported if the program has no test with the check's name.
pub(crate) fn run(
    context: &Context,
    check: &str,
    run: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let test = format!("{}::{check}", context.device());
    if env::var_os(SUBPROCESS).is_some_and(|name| name == *test) {
        let outcome = run();
        print_outcome(&outcome)
            .map_err(|error| Failure::new(format_args!("cannot print the outcome: {error}")))?;
        return outcome;
    }
    let mut program = process::program();
    program.args([&test, "--exact"]).env(SUBPROCESS, &test);
    program.env(TIME_LIMIT, (context.limit().as_secs_f64() * 0.8).to_string());
    match program.output() {
        Ok(output) => outcome(&output),
        Err(error) => Err(Failure::new(format_args!("cannot start a subprocess: {error}"))),
    }
}

fn print_outcome(outcome: &Result<(), Failure>) -> io::Result<()> {
    let outcome = match outcome {
        Ok(()) => "passed".to_owned(),
        Err(failure) if failure.unsupported => format!("unsupported {}", failure.message),
        Err(failure) => format!("failed {}", failure.message),
    };
    // A test harness may capture `println!`, and may have printed the start of a line.
    let mut stdout = stdout().lock();
    writeln!(stdout, "\n{OUTCOME}{}", outcome.replace('\n', "; "))?;
    stdout.flush()
}

fn outcome(output: &Output) -> Result<(), Failure> {
    let printed = String::from_utf8_lossy(&output.stdout);
    let outcome = printed.lines().find_map(|line| line.strip_prefix(OUTCOME));
    match outcome.map(|outcome| outcome.split_once(' ').unwrap_or((outcome, ""))) {
        Some(("passed", _)) => Ok(()),
        Some(("unsupported", reason)) => Err(Failure::unsupported(reason)),
        Some((_, message)) => Err(Failure::new(message)),
        None if output.status.success() => Err(Failure::unsupported(
            "this program has no test with the check's name, so the check cannot run in a subprocess",
        )),
        None => Err(Failure::new(format_args!(
            "the subprocess ended with {} and without an outcome: {printed}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn of(status: i32, printed: &str) -> Result<(), (bool, String)> {
        let status = ExitStatus::from_raw(status);
        let output = Output { status, stdout: printed.into(), stderr: "the last words".into() };
        outcome(&output).map_err(|failure| (failure.unsupported, failure.message))
    }

    #[test]
    fn the_printed_outcome_counts_and_a_missing_one_is_unsupported_or_a_failure() {
        let line = |outcome: &str| format!("running 1 test\ntest cpu::x ... \n{OUTCOME}{outcome}\nok\n");
        assert_eq!(of(0, &line("passed")), Ok(()));
        assert_eq!(of(256, &line("failed 3 threads")), Err((false, "3 threads".to_owned())));
        assert_eq!(of(0, &line("unsupported on wasm")), Err((true, "on wasm".to_owned())));
        assert!(of(0, "running 0 tests").unwrap_err().0, "it may or may not pass");
        let (unsupported, message) = of(6, "running 1 test").unwrap_err();
        assert!(
            !unsupported && message.contains("signal: 6") && message.contains("the last words"),
            "{message}"
        );
    }
}
