//! The error of a check that does not pass.

use std::fmt;
use std::panic::Location;

use device_registry::DeviceError;

/// Why a check did not pass, and where in its code. `?` converts a `DeviceError`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) at: &'static Location<'static>,
    /// The device does not offer what the check tests, which is not a defect.
    pub(crate) unsupported: bool,
}

impl Failure {
    #[track_caller]
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), at: Location::caller(), unsupported: false }
    }

    #[track_caller]
    pub(crate) fn unsupported(what: impl fmt::Display) -> Self {
        Self { unsupported: true, ..Self::new(what) }
    }

    /// Prefixes the message with what the check was doing.
    pub(crate) fn during(mut self, what: impl fmt::Display) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl From<DeviceError> for Failure {
    #[track_caller]
    fn from(error: DeviceError) -> Self {
        Self::new(format_args!("{error:?}"))
    }
}

/// Returns a failure with a formatted message unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::failure::Failure::new(format_args!($($message)+)));
        }
    };
}
pub(crate) use ensure;

/// Makes the check unsupported, with a formatted reason, unless a condition holds.
macro_rules! ensure_supported {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err($crate::failure::Failure::unsupported(format_args!($($reason)+)));
        }
    };
}
pub(crate) use ensure_supported;
