//! The verdict on a check: its outcome, in the light of what the backend expects.

use libtest_mimic::{Completion, Failed};

use crate::outcome::Outcome;

/// What the report shows of a check: its outcome, in the light of what the author expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed, or passed against the expectation. Has the message.
    Failed(String),
    /// It failed, and the author expects that. Has the reason.
    ExpectedFailure(String),
    /// What it tests is not offered. Has the reason.
    Unsupported(String),
    /// It did not run, or cannot be judged.
    Skipped(String),
}

/// A verdict, and whether the check exceeded its time limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) verdict: Verdict,
    /// Not set if the backend expects the check to fail.
    pub(crate) exceeded: bool,
}

impl From<Verdict> for Judged {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, exceeded: false }
    }
}

impl Verdict {
    /// `expected` is the reason why the author expects a failure, if there is one.
    #[must_use]
    pub fn new(outcome: Outcome, expected: Option<&str>) -> Self {
        match (outcome, expected) {
            (Outcome::Passed, None) => Verdict::Passed,
            (Outcome::Passed, Some(reason)) => Verdict::Failed(format!(
                "expected a failure, and the check passes; the expectation's reason: {reason}\nhelp: remove the `expected_failure`"
            )),
            (Outcome::Failed(message), None) => Verdict::Failed(message),
            (Outcome::Failed(_), Some(reason)) => Verdict::ExpectedFailure(reason.to_owned()),
            (Outcome::Unsupported(reason), _) => Verdict::Unsupported(reason),
        }
    }

    /// How the report shows it: the result of a test.
    ///
    /// # Errors
    ///
    /// If the check failed, and should not.
    pub fn completion(self) -> Result<Completion, Failed> {
        match self {
            Self::Passed => Ok(Completion::Completed),
            Self::Failed(message) => Err(message.into()),
            Self::ExpectedFailure(reason) => {
                Ok(Completion::ignored_with(format_args!("expected failure: {}", one_line(&reason))))
            }
            Self::Unsupported(reason) => {
                Ok(Completion::ignored_with(format_args!("unsupported: {}", one_line(&reason))))
            }
            Self::Skipped(reason) => Ok(Completion::ignored_with(one_line(&reason))),
        }
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expected_failure_does_not_fail_and_an_unexpected_pass_does() {
        let failed = || Outcome::Failed("got 0x00".to_owned());
        assert_eq!(Verdict::new(failed(), Some("a bug")), Verdict::ExpectedFailure("a bug".to_owned()));
        assert_eq!(Verdict::new(failed(), None), Verdict::Failed("got 0x00".to_owned()));
        assert_eq!(Verdict::new(Outcome::Passed, None), Verdict::Passed);
        let Verdict::Failed(message) = Verdict::new(Outcome::Passed, Some("a bug")) else { panic!() };
        assert!(message.contains("reason: a bug"), "{message}");
        let unsupported = Outcome::Unsupported("no timed events".to_owned());
        assert_eq!(
            Verdict::new(unsupported, Some("a bug")),
            Verdict::Unsupported("no timed events".to_owned())
        );
    }
}
