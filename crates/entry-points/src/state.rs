//! What has become of an entry point.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{LoadError, and};

/// What has become of an entry point.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum State {
    /// It is part of the program and not loaded: nobody has asked for it, or its failure was forgotten.
    Linked,
    /// A switch turned it off.
    #[non_exhaustive]
    Disabled {
        /// The variable and its value, such as `CODEC_DECODER_DISABLE=vorb*`, or the program.
        by: Arc<str>,
    },
    /// Its `load` is running, or was running in the parent when this process was forked.
    #[non_exhaustive]
    Loading {
        /// For how long.
        elapsed: Duration,
    },
    /// It is in use.
    #[non_exhaustive]
    Loaded {
        /// How long its `load` took.
        took: Duration,
    },
    /// It has nothing to work with on this machine.
    #[non_exhaustive]
    Unavailable {
        /// What it said.
        cause: LoadError,
    },
    /// Its `load` returned an error or panicked.
    #[non_exhaustive]
    Failed {
        /// The error that everybody gets who asks for it.
        cause: LoadError,
    },
    /// Its name is taken, or offered more than once.
    #[non_exhaustive]
    Duplicate {
        /// What else claims the name.
        of: Arc<[String]>,
    },
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linked => f.write_str("linked"),
            Self::Disabled { by } => write!(f, "disabled by {by}"),
            Self::Loading { elapsed } => write!(f, "loading for {elapsed:.1?}"),
            Self::Loaded { took } => write!(f, "loaded in {took:.1?}"),
            Self::Unavailable { cause } => write!(f, "unavailable: {}", Told(cause)),
            Self::Failed { cause } => write!(f, "failed: {}", Told(cause)),
            Self::Duplicate { of } => write!(f, "duplicate of {}", and(of)),
        }
    }
}

/// An error as a state tells it: the name stands beside it already, and there is room for the whole chain.
///
/// Of each message it is the first line, and of that a part: a message may quote a whole report, this one's
/// predecessor included, and what quotes all of what quotes all of it soon fills the memory.
struct Told<'a>(&'a LoadError);

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

impl fmt::Display for Told<'_> {
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
