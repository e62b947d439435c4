//! Failures on purpose, each with an identity in its message.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;

use device_registry::DeviceError;
use device_registry::backend::{BackendError, BackendErrorKind};
use parking_lot::Mutex;

/// Which failure it is: the round, the thread and the step in which it was enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity(u64);

const BEFORE: &str = "failing on purpose #";

impl Identity {
    pub(crate) fn new(round: u64, thread: usize, step: usize) -> Self {
        Self(round * 1_000_000 + thread as u64 * 1000 + step as u64)
    }

    /// The one in a message, if there is one.
    pub(crate) fn find(message: &str) -> Option<Self> {
        let (_, behind) = message.split_once(BEFORE)?;
        let digits = behind.split(|letter: char| !letter.is_ascii_digit()).next()?;
        digits.parse().ok().map(Self)
    }

    pub(crate) fn of(error: &DeviceError) -> Option<Self> {
        Self::find(&error.to_string())
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEFORE}{}", self.0)
    }
}

/// Whether the error says that a device is closed or lost.
pub(crate) fn is_gone(error: &DeviceError) -> bool {
    match error {
        DeviceError::Closed { .. } => true,
        // A copy from a peer fails, too, where its source is lost or closed after the core has looked.
        DeviceError::Call { error, .. } => {
            is_lost(error) || error.kind() == BackendErrorKind::Unavailable && cause(error).is_some()
        }
        _ => false,
    }
}

fn is_lost(error: &BackendError) -> bool {
    error.kind() == BackendErrorKind::Lost
}

fn cause(error: &BackendError) -> Option<&BackendError> {
    error.source()?.downcast_ref()
}

/// The failures that were logged, and how often.
static LOGGED: Mutex<Option<HashMap<Identity, usize>>> = Mutex::new(None);

pub(crate) fn logged() -> HashMap<Identity, usize> {
    LOGGED.lock().clone().unwrap_or_default()
}

pub(crate) fn forget_logged() {
    LOGGED.lock().take();
}

/// Looks for failures in what is logged.
struct Logger {
    process: u32,
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Error
    }

    fn log(&self, record: &log::Record<'_>) {
        // In a forked process the lock may be that of a thread that is not there.
        if record.level() > log::Level::Error || std::process::id() != self.process {
            return;
        }
        if let Some(identity) = Identity::find(&record.args().to_string()) {
            let mut logged = LOGGED.lock();
            *logged.get_or_insert_default().entry(identity).or_default() += 1;
        }
    }

    fn flush(&self) {}
}

pub(crate) fn install_logger() -> Result<(), log::SetLoggerError> {
    log::set_logger(Box::leak(Box::new(Logger { process: std::process::id() })))?;
    log::set_max_level(log::LevelFilter::Error);
    Ok(())
}
