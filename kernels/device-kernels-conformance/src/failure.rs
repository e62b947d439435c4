//! Why a check did not pass.

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A call did not give what the vocabulary says. Says which, what was expected and what was found.
    Failed(String),
    /// The sets claim no call of the check. Says one of them.
    Unsupported(String),
}
