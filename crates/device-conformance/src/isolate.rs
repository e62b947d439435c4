//! Runs a check so that whatever it does, others go on: on a thread of its own, with a time limit.

use std::any::Any;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::outcome::Outcome;

/// A check that did not end within its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hung(pub(crate) Duration);

/// Runs a check on a thread that is called `name`. A panic is a failure. If it does not end within `limit`, the thread
/// is left behind, because nothing can stop it.
pub(crate) fn run(
    name: &str,
    limit: Duration,
    check: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<Outcome, Hung> {
    let (ended, end) = mpsc::channel();
    let run = move || {
        let result = check();
        // Nobody listens any more if it took too long.
        let _ = ended.send(result);
    };
    let thread = match thread::Builder::new().name(name.to_owned()).spawn(run) {
        Ok(thread) => thread,
        Err(error) => return Ok(Outcome::Failed(format!("no thread to run it on: {error}"))),
    };
    Ok(match end.recv_timeout(limit) {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Failure { message, unsupported: true, .. })) => Outcome::Unsupported(message),
        Ok(Err(Failure { message, at, .. })) => Outcome::Failed(format!("{message}\nat {at}")),
        Err(RecvTimeoutError::Timeout) => return Err(Hung(limit)),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Ok(()) => Outcome::Failed("it ended without a result".to_owned()),
            Err(panic) => Outcome::Failed(format!("it panicked: {}", panic_message(&*panic))),
        },
    })
}

/// What a panic said.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a value that is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_a_check_returns_is_its_outcome() {
        assert_eq!(run("passes", LONG, || Ok(())), Ok(Outcome::Passed));
        let unsupported = run("unsupported", LONG, || Err(Failure::unsupported("no timed events")));
        assert_eq!(unsupported, Ok(Outcome::Unsupported("no timed events".to_owned())));
    }

    #[test]
    fn a_failure_tells_where_in_the_check_it_is() {
        let Ok(Outcome::Failed(message)) = run("fails", LONG, || Err(Failure::new("got 0x00"))) else {
            panic!()
        };
        let (first, second) = message.split_once('\n').unwrap();
        assert_eq!(first, "got 0x00");
        assert!(second.starts_with("at ") && second.contains("isolate.rs:"), "{second}");
    }

    #[test]
    fn a_panic_is_a_failure() {
        let outcome = run("panics", LONG, || panic!("on {}", "purpose"));
        assert_eq!(outcome, Ok(Outcome::Failed("it panicked: on purpose".to_owned())));
    }

    #[test]
    fn a_check_that_does_not_end_is_left_behind() {
        let limit = Duration::from_millis(20);
        let hangs = || loop {
            thread::park();
        };
        assert_eq!(run("hangs", limit, hangs), Err(Hung(limit)));
    }
}
