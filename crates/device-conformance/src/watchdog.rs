//! Runs a check on its own thread, with a time limit, so that a panic or a hang does not end the other
//! checks.

use std::any::Any;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use device_registry::{CallWatch, Device};

use crate::failure::Failure;
use crate::hung::Hung;
use crate::outcome::Outcome;

/// Why a function on a thread of its own has no result.
#[derive(Debug)]
pub enum Unfinished {
    /// The system started no thread.
    NoThread(io::Error),
    /// It exceeded this limit. Its thread keeps running, because nothing can stop it.
    Exceeded(Duration, JoinHandle<()>),
    /// It panicked, with this message.
    Panicked(String),
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThread(error) => write!(f, "cannot start a thread for the check: {error}"),
            Self::Exceeded(limit, _) => write!(f, "it exceeded the time limit of {limit:?}"),
            Self::Panicked(message) => write!(f, "it panicked: {message}"),
        }
    }
}

/// Runs a function on a thread called `name`, so that a panic or a hang does not end the caller.
///
/// # Errors
///
/// If it panics or exceeds `limit`, or if there is no thread for it.
pub fn within<T: Send + 'static>(
    limit: Duration,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unfinished> {
    let (sender, result) = mpsc::channel();
    let send = move || {
        let result = run();
        // Fails if it exceeded its limit.
        let _ = sender.send(result);
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(send).map_err(Unfinished::NoThread)?;
    result.recv_timeout(limit).map_err(|error| match error {
        RecvTimeoutError::Timeout => Unfinished::Exceeded(limit, thread),
        RecvTimeoutError::Disconnected => {
            let panic = thread.join().err();
            let message = panic.as_deref().map_or("it ended without a result", panic_message);
            Unfinished::Panicked(message.to_owned())
        }
    })
}

/// Runs a check of a device on a thread called `name`. A panic is a failure. If the check exceeds `limit`,
/// its thread keeps running, because nothing can stop it.
pub(crate) fn run(
    name: &str,
    device: Device,
    limit: Duration,
    check: impl FnOnce() -> Result<(), Failure> + Send + 'static,
) -> Result<Outcome, Hung> {
    let watch = CallWatch::start();
    Ok(match within(limit, name, check) {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Failure { message, unsupported: true, .. })) => Outcome::Unsupported(message),
        Ok(Err(Failure { message, at, .. })) => Outcome::Failed(format!("{message}\nat {at}")),
        Err(Unfinished::Exceeded(_, thread)) => {
            return Err(Hung::new(name, device, limit, watch.calls(), thread));
        }
        Err(unfinished) => Outcome::Failed(unfinished.to_string()),
    })
}

/// Runs the function of [`Suite::after_each`](crate::Suite::after_each). A panic is an error, and so is a
/// function that exceeds `limit`, whose thread keeps running.
pub(crate) fn after_each(
    limit: Duration,
    run: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    within(limit, "after each check", run).unwrap_or_else(|unfinished| {
        Err(match unfinished {
            Unfinished::NoThread(error) => format!("cannot start a thread: {error}"),
            Unfinished::Exceeded(limit, _) => {
                format!("the function of `Suite::after_each` exceeded the time limit of {limit:?}")
            }
            Unfinished::Panicked(message) => {
                format!("the function of `Suite::after_each` panicked: {message}")
            }
        })
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
    use device_registry::backend::{
        Backend, BackendDescriptor, BackendError, DeviceProperties, OpenedDevice,
    };
    use device_registry::{backends, device};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn outcome(check: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Outcome {
        run("watchdog", Device::cpu(), LONG, check).unwrap()
    }

    #[test]
    fn the_result_of_a_check_is_its_outcome() {
        assert_eq!(outcome(|| Ok(())), Outcome::Passed);
        let unsupported = outcome(|| Err(Failure::unsupported("no timed events")));
        assert_eq!(unsupported, Outcome::Unsupported("no timed events".to_owned()));
    }

    #[test]
    fn a_failure_has_its_place_in_the_check() {
        let Outcome::Failed(message) = outcome(|| Err(Failure::new("got 0x00"))) else { panic!() };
        let (first, second) = message.split_once('\n').unwrap();
        assert_eq!(first, "got 0x00");
        assert!(second.starts_with("at ") && second.contains("watchdog.rs:"), "{second}");
    }

    #[test]
    fn a_panic_is_a_failure() {
        let outcome = outcome(|| panic!("on {}", "purpose"));
        assert_eq!(outcome, Outcome::Failed("it panicked: on purpose".to_owned()));
    }

    #[test]
    fn a_check_that_hangs_keeps_running_and_its_call_is_reported() {
        static HANGING: BackendDescriptor =
            BackendDescriptor::new("watchdog_hangs", || Ok(Box::new(Hanging)));
        backends().register(&HANGING).unwrap();
        let limit = Duration::from_millis(200);
        let opens = || Ok(device("watchdog_hangs:0")?.open()?);
        let hung = run("watchdog opens", device("watchdog_hangs").unwrap(), limit, opens).unwrap_err();
        assert!(hung.is_running());
        assert_eq!(hung.callers(), ["watchdog opens".into()]);
        let message = hung.to_string();
        let start = "it exceeded the time limit of 200ms; under way: `watchdog_hangs:0` open for ";
        assert!(message.starts_with(start), "{message}");
        assert!(message.contains("ms, on the thread `watchdog opens`"), "{message}");
    }

    /// A backend that never opens a device.
    struct Hanging;

    impl Backend for Hanging {
        fn device_count(&self) -> Result<usize, BackendError> {
            Ok(1)
        }

        fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
            Ok(DeviceProperties::new("hanging"))
        }

        fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
            loop {
                thread::park();
            }
        }
    }
}
