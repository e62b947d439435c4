//! The state of an entry point, as data and in words.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::message::and;

/// The state of an entry point: the outcome of the last attempt to load it. Reading it runs no plugin's code.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum State {
    /// It is linked or registered but not loaded: its name was not used yet, or its failure was forgotten.
    Linked,
    /// It is in a file and not loaded. The file was opened only if a failure was forgotten.
    Installed,
    /// A switch turned it off.
    #[non_exhaustive]
    Disabled {
        /// The switch: a variable and its value, such as `CODEC_DECODER_DISABLE=vorb*`, or the program.
        by: Arc<str>,
    },
    /// Its `load` is running, or was running in the parent process at the time of the fork.
    #[non_exhaustive]
    Loading {
        /// The time since `load` began.
        elapsed: Duration,
    },
    /// It is loaded.
    #[non_exhaustive]
    Loaded {
        /// The time that `load` took.
        took: Duration,
    },
    /// At the last attempt to load it, the driver or the hardware was missing. A use tries again after
    /// [`LoadFailure::UNAVAILABLE_FOR`](crate::LoadFailure::UNAVAILABLE_FOR); reading the state does not.
    #[non_exhaustive]
    Unavailable {
        /// The error of the last attempt, in words.
        cause: Cause,
    },
    /// Its `load` returned an error or panicked. It stays so until a [`retry`](crate::Group::retry).
    #[non_exhaustive]
    Failed {
        /// The error that every use of the name returns, in words.
        cause: Cause,
    },
    /// Other entry points claim the same name.
    #[non_exhaustive]
    Duplicate {
        /// The packages of the others, or their places in the source.
        of: Arc<[String]>,
    },
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linked => f.write_str("linked"),
            Self::Installed => f.write_str("installed"),
            Self::Disabled { by } => write!(f, "disabled by {by}"),
            Self::Loading { elapsed } => write!(f, "loading for {elapsed:.1?}"),
            Self::Loaded { took } => write!(f, "loaded in {took:.1?}"),
            Self::Unavailable { cause } => write!(f, "unavailable: {}", cause.brief),
            Self::Failed { cause } => write!(f, "failed: {}", cause.brief),
            Self::Duplicate { of } => write!(f, "duplicate of {}", and(of)),
        }
    }
}

/// The error of an attempt to load an entry point, in words. [`Group::load`](crate::Group::load) returns the
/// error itself.
///
/// `Display` prints the first message, and `Debug` all of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Cause {
    /// One line for a report, which already names the entry point.
    pub(crate) brief: String,
    pub(crate) messages: Vec<String>,
}

impl Cause {
    /// The messages of the error and of the errors that caused it, innermost last.
    #[must_use]
    pub fn messages(&self) -> &[String] {
        &self.messages
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.messages[0])
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.messages.join("\ncaused by: "))
    }
}
