//! Which work a stream without a driver's queue does at once, on the thread that enqueues it.

use crate::backend::BackendError;
use crate::runtime::switch;

/// The variable that changes it.
const VARIABLE: &str = "DEVICE_LAUNCH_AT_ONCE";

/// Copies and fills of host memory are done at once up to this length in bytes.
pub(crate) const SHORT_COPY: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtOnce {
    /// None.
    Never,
    /// Short work: launches that [say so](crate::LaunchOptions::short), records of events, and copies within
    /// host memory.
    Short,
    /// The same, and all launches. This exposes launches that falsely say that they are short.
    Launches,
}

impl AtOnce {
    /// # Errors
    ///
    /// If the variable has an invalid value.
    pub(crate) fn of_variable() -> Result<Self, BackendError> {
        Ok(match switch::value(VARIABLE)? {
            None => Self::Short,
            Some(false) => Self::Never,
            Some(true) => Self::Launches,
        })
    }

    /// Whether a launch is done at once.
    pub(crate) fn launches(self, short: bool) -> bool {
        self == Self::Launches || (short && self == Self::Short)
    }
}
