//! Runs a check on a thread of its own, with a time limit, so that a panic or a hang does not end the other checks.

use std::any::Any;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::outcome::Outcome;

/// A check exceeded this time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hung(pub(crate) Duration);

/// Runs a check on a thread called `name`. A panic is a failure. If the check exceeds `limit`, its thread keeps running,
/// because nothing can stop it.
pub(crate) fn run(
    name: &str,
    limit: Duration,
    check: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<Outcome, Hung> {
    let (sender, outcome) = mpsc::channel();
    let run = move || {
        let result = check();
        // Fails if the check exceeded its limit.
        let _ = sender.send(result);
    };
    let thread = match thread::Builder::new().name(name.to_owned()).spawn(run) {
        Ok(thread) => thread,
        Err(error) => return Ok(Outcome::Failed(format!("cannot start a thread for the check: {error}"))),
    };
    Ok(match outcome.recv_timeout(limit) {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Failure { message, unsupported: true, .. })) => Outcome::Unsupported(message),
        Ok(Err(Failure { message, at, .. })) => Outcome::Failed(format!("{message}\nat {at}")),
        Err(RecvTimeoutError::Timeout) => return Err(Hung(limit)),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(()) => Outcome::Failed("it ended without an outcome".to_owned()),
            Err(panic) => Outcome::Failed(format!("it panicked: {}", panic_message(&*panic))),
        },
    })
}

/// The message of a panic.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_result_of_a_check_is_its_outcome() {
        assert_eq!(run("passes", LONG, || Ok(())), Ok(Outcome::Passed));
        let unsupported = run("unsupported", LONG, || Err(Failure::unsupported("no timed events")));
        assert_eq!(unsupported, Ok(Outcome::Unsupported("no timed events".to_owned())));
    }

    #[test]
    fn a_failure_has_its_place_in_the_check() {
        let Ok(Outcome::Failed(message)) = run("fails", LONG, || Err(Failure::new("got 0x00"))) else {
            panic!()
        };
        let (first, second) = message.split_once('\n').unwrap();
        assert_eq!(first, "got 0x00");
        assert!(second.starts_with("at ") && second.contains("watchdog.rs:"), "{second}");
    }

    #[test]
    fn a_panic_is_a_failure() {
        let outcome = run("panics", LONG, || panic!("on {}", "purpose"));
        assert_eq!(outcome, Ok(Outcome::Failed("it panicked: on purpose".to_owned())));
    }

    #[test]
    fn a_check_that_hangs_is_reported_and_keeps_running() {
        let limit = Duration::from_millis(20);
        let hangs = || loop {
            thread::park();
        };
        assert_eq!(run("hangs", limit, hangs), Err(Hung(limit)));
    }
}
