//! The outcome of one check.

use std::fmt;

/// The outcome of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an ignored failure is lost"]
pub enum Outcome {
    /// All calls of the check gave what the vocabulary says.
    Passed,
    /// One did not. Says which, what was expected and what was found.
    Failed(String),
    /// The sets claim no call of the check. Says one of them.
    Unsupported(String),
}

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Failed(String),
    Unsupported(String),
}

impl From<Result<(), Failure>> for Outcome {
    fn from(result: Result<(), Failure>) -> Self {
        match result {
            Ok(()) => Self::Passed,
            Err(Failure::Failed(message)) => Self::Failed(message),
            Err(Failure::Unsupported(reason)) => Self::Unsupported(reason),
        }
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
