//! The outcome of one check.

use std::fmt;

/// The outcome of one check on one device, or on what runs there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an ignored failure is lost"]
pub enum Outcome {
    /// What is tested behaves as the check requires.
    Passed,
    /// It does not. Says what was expected and what was found, or that the check exceeded its time limit
    /// and which calls into drivers were under way.
    Failed(String),
    /// It does not offer what the check tests. Says why.
    Unsupported(String),
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
