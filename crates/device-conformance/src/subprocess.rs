//! Runs a check in its own process, because other checks would change what it measures: the number of
//! threads, say.
//!
//! The check starts this program once more. An environment variable has the name of its own test in the
//! suite, and marks the second run of the check as the one in the subprocess.

use std::env;
use std::ffi::OsString;
use std::io::{self, Read, Write, stdout};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::environment::TIME_LIMIT;
use crate::failure::Failure;
use crate::process;
use crate::process_resources::RETURNS_MEMORY;

/// Set in a subprocess to the name of its test.
const SUBPROCESS: &str = "DEVICE_CONFORMANCE_SUBPROCESS";

/// The start of the line on which a subprocess prints its outcome.
const OUTCOME: &str = "device-conformance outcome: ";

/// How long the end of a subprocess's output may take to arrive when it has ended: a process that it started
/// may hold the output open.
const ENDING: Duration = Duration::from_secs(5);

/// Whether the suite is what this program runs with its own arguments.
static IS_SUITE: AtomicBool = AtomicBool::new(false);

/// Notes that the program runs the suite. Returns the suite's arguments in a process that a check has
/// started. They differ from the program's, which may have handled other arguments before it gets to the
/// suite.
pub(crate) fn begin_suite() -> Option<[OsString; 3]> {
    IS_SUITE.store(true, Ordering::Relaxed);
    env::var_os(SUBPROCESS).map(|test| [OsString::new(), test, "--exact".into()])
}

/// Whether a check has started this process, only for itself.
pub(crate) fn is_one() -> bool {
    env::var_os(SUBPROCESS).is_some()
}

/// Runs a check in a subprocess. Its time limit is shorter than the check's, so that the outcome arrives in
/// time. A subprocess that exceeds its limit and does not end is killed.
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
    if IS_SUITE.load(Ordering::Relaxed) {
        program.args(env::args_os().skip(1));
    } else {
        program.args([&test, "--exact"]);
    }
    program.env(SUBPROCESS, &test);
    let (variable, value) = RETURNS_MEMORY;
    program.env(variable, value);
    program.env(TIME_LIMIT, (context.limit().as_secs_f64() * 0.8).to_string());
    match output_within(&mut program, context.limit().mul_f64(0.9)) {
        Ok(output) => outcome(&output),
        Err(error) => Err(Failure::new(format_args!("cannot run a subprocess: {error}"))),
    }
}

/// A subprocess that dropping this ends.
struct Subprocess(Child);

impl Drop for Subprocess {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Subprocess {
    fn wait_for(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let since = Instant::now();
        loop {
            let status = self.0.try_wait()?;
            if status.is_some() || since.elapsed() >= limit {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What a program has printed, and how it ended. An error if it does not start, or does not end in `limit`;
/// it is killed then.
fn output_within(program: &mut Command, limit: Duration) -> io::Result<Output> {
    let program = program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut subprocess = Subprocess(program.spawn()?);
    let stdout = subprocess.0.stdout.take().map(read).transpose()?;
    let stderr = subprocess.0.stderr.take().map(read).transpose()?;
    let status = subprocess.wait_for(limit)?;
    drop(subprocess);
    let [stdout, stderr] = [stdout, stderr].map(|printed| all_of(&printed.expect("both are piped")));
    let Some(status) = status else {
        let printed = [stdout, stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        let error = format!("it did not end in {limit:?}, and was killed: {printed}");
        return Err(io::Error::new(io::ErrorKind::TimedOut, error));
    };
    Ok(Output { status, stdout, stderr })
}

/// Reads on its own thread, and passes on what arrives.
fn read(mut from: impl Read + Send + 'static) -> io::Result<Receiver<Vec<u8>>> {
    let (sender, printed) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut bytes)
            && sender.send(bytes[..len].to_vec()).is_ok()
        {}
    })?;
    Ok(printed)
}

/// All that a process has printed which has ended.
fn all_of(printed: &Receiver<Vec<u8>>) -> Vec<u8> {
    let end = Instant::now() + ENDING;
    let mut all = Vec::new();
    while let Ok(bytes) = printed.recv_timeout(end.saturating_duration_since(Instant::now())) {
        all.extend(bytes);
    }
    all
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

    use super::*;

    #[test]
    fn a_subprocess_that_does_not_end_is_killed() {
        const TEST: &str = "subprocess::tests::a_subprocess_that_does_not_end_is_killed";
        if process::is_child() {
            println!("\nI am {}.", std::process::id());
            while env::var_os("SUBPROCESS_TEST").is_some() {
                thread::park();
            }
            return;
        }
        let mut program = process::program();
        program.args([TEST, "--exact", "--nocapture"]);
        let output = output_within(&mut program, Duration::from_secs(600)).unwrap();
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("I am "));
        program.env("SUBPROCESS_TEST", "hangs");
        let mut limit = Duration::from_millis(100);
        let process = loop {
            let error = output_within(&mut program, limit).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            let error = error.to_string();
            match error.split_once("I am ").and_then(|(_, rest)| rest.split_once('.')) {
                Some((process, _)) => break process.to_owned(),
                // It was killed before it came to that.
                None => limit *= 2,
            }
        };
        assert!(!std::path::Path::new("/proc").join(process).exists());
    }

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
