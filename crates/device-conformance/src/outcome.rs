//! What came of one check on one device.

use std::fmt;

use crate::isolate::Hung;

/// What came of one check on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a failure that nobody looks at is lost"]
pub enum Outcome {
    /// The device does what the check asks.
    Passed,
    /// It does not: what was expected and what came instead, or that the check did not end in time.
    Failed(String),
    /// The device does not offer what the check is about, with the reason.
    Unsupported(String),
}

impl From<Hung> for Outcome {
    fn from(Hung(limit): Hung) -> Self {
        Self::Failed(format!("it did not end within {limit:?}"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(message) => write!(f, "failed: {message}"),
            Self::Unsupported(reason) => write!(f, "unsupported: {reason}"),
        }
    }
}
