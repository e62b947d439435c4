//! Runs a check in a process of its own, for what others in the process would change: how many threads it has, say.
//!
//! The program is started once more, for the one test that the check is in the suite; there the check finds by a variable
//! that it is alone.

use std::env;
use std::io::{self, Write, stdout};
use std::process::Output;

use crate::context::Context;
use crate::failure::Failure;
use crate::process;
use crate::suite::TIME_LIMIT;

/// The variable with the name of the test that a process is started for.
const ALONE: &str = "DEVICE_CONFORMANCE_ALONE";

/// What the line begins with by which the process tells the outcome.
const OUTCOME: &str = "device-conformance outcome: ";

/// Runs a check in a process of its own, with less time than there is for the check.
///
/// # Errors
///
/// The failure of the check there. It is unsupported where the program does not run the check by its name.
pub(crate) fn run(
    context: &Context,
    check: &str,
    run: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let test = format!("{}::{check}", context.device());
    if env::var_os(ALONE).is_some_and(|alone| alone == *test) {
        let outcome = run();
        tell(&outcome)
            .map_err(|error| Failure::new(format_args!("the outcome cannot be written: {error}")))?;
        return outcome;
    }
    let mut program = process::program();
    program.args([&test, "--exact"]).env(ALONE, &test);
    program.env(TIME_LIMIT, (context.limit().as_secs_f64() * 0.8).to_string());
    match program.output() {
        Ok(output) => outcome(&output),
        Err(error) => Err(Failure::new(format_args!("no process to run it in: {error}"))),
    }
}

fn tell(outcome: &Result<(), Failure>) -> io::Result<()> {
    let outcome = match outcome {
        Ok(()) => "passed".to_owned(),
        Err(failure) if failure.unsupported => format!("unsupported {}", failure.message),
        Err(failure) => format!("failed {}", failure.message),
    };
    // Not `println!`, which a test harness may capture. It may have begun a line, too.
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
            "this program does not run the check by its name in a process of its own",
        )),
        None => Err(Failure::new(format_args!(
            "in a process of its own it ends with {}: {printed}{}",
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
    fn what_the_process_says_is_the_outcome_and_without_a_word_it_is_none() {
        let line = |outcome: &str| format!("running 1 test\ntest cpu::x ... \n{OUTCOME}{outcome}\nok\n");
        assert_eq!(of(0, &line("passed")), Ok(()));
        assert_eq!(of(256, &line("failed 3 threads")), Err((false, "3 threads".to_owned())));
        assert_eq!(of(0, &line("unsupported on wasm")), Err((true, "on wasm".to_owned())));
        assert!(of(0, "running 0 tests").unwrap_err().0, "it is not known whether it would pass");
        let (unsupported, message) = of(6, "running 1 test").unwrap_err();
        assert!(
            !unsupported && message.contains("signal: 6") && message.contains("the last words"),
            "{message}"
        );
    }
}
