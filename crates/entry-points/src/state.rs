//! The state of an entry point, as data and in words.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{LoadError, and};

/// The state of an entry point: the outcome of the last attempt to load it. Reading it runs no plugin's code.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum State {
    /// It is linked or registered, and not loaded: its name was not used yet, or its failure was forgotten.
    Linked,
    /// It is in a file and not loaded. The file was not opened, unless a failure was forgotten.
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
    /// At the last attempt to load it, the driver or the hardware was missing. A use more than one second
    /// after that attempt tries again; reading the state does not.
    #[non_exhaustive]
    Unavailable {
        /// The error of the last attempt.
        cause: LoadError,
    },
    /// Its `load` returned an error or panicked. It stays so until a [`retry`](crate::Group::retry).
    #[non_exhaustive]
    Failed {
        /// The error that every use of the name returns.
        cause: LoadError,
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
            Self::Unavailable { cause } => write!(f, "unavailable: {}", Brief(cause)),
            Self::Failed { cause } => write!(f, "failed: {}", Brief(cause)),
            Self::Duplicate { of } => write!(f, "duplicate of {}", and(of)),
        }
    }
}

/// An error in one line of a report, which names the entry point already: the messages of the whole chain.
///
/// Each message is cut to the beginning of its first line. A message can quote a whole report, which quotes
/// an earlier one in turn, so that uncut messages would double in length each time.
struct Brief<'a>(&'a LoadError);

/// The beginning of a message.
fn beginning(message: &str) -> String {
    const LONGEST: usize = 200;
    let mut lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let mut beginning: String = first.chars().take(LONGEST).collect();
    if beginning.len() < first.len() || lines.next().is_some() {
        beginning.push('…');
    }
    beginning
}

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.0.failure()) {
            (_, Some(failure)) => {
                let messages: Vec<_> = failure.messages().iter().map(|message| beginning(message)).collect();
                f.write_str(&messages.join(": "))
            }
            (LoadError::Panicked { message, .. }, _) => write!(f, "panicked: {}", beginning(message)),
            (LoadError::Cycle { path, .. }, _) => write!(f, "needs itself: {}", path.join(" -> ")),
            (other, None) => other.fmt(f),
        }
    }
}
