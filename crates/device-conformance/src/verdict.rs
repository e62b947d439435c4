//! The verdict on a check: its outcome, in the light of what the backend expects.

use crate::outcome::Outcome;

/// What the report shows of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    Failed(String),
    /// It failed, and the backend expects that.
    ExpectedFailure(String),
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
    /// `expected` is the reason why the backend expects a failure, if it does.
    pub(crate) fn new(outcome: Outcome, expected: Option<&str>) -> Self {
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
