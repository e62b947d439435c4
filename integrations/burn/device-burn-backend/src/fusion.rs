//! Whether operations wait so that several run together.

use std::env;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::policy::{self, InvalidVariable};

const VARIABLE: &str = "DEVICE_BURN_FUSION";

/// Whether element-wise operations and reductions wait until one of their results is needed, and then run
/// together, as one kernel where the device has it.
///
/// It changes nothing on a device without kernels for expressions, nor on one whose memory is the host's own,
/// such as `cpu`.
///
/// The choice holds for all devices of the process. The variable `DEVICE_BURN_FUSION` sets it: `0` turns
/// fusion off. [`set`](Self::set) in code takes precedence. Operations that wait already run together
/// nonetheless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fusion {
    /// They wait, and run together.
    #[default]
    On = 1,
    /// Each operation runs when it is called.
    Off = 2,
}

/// The choice, or 0 before it is set or read from the variable.
static CHOICE: AtomicU8 = AtomicU8::new(0);

impl Fusion {
    /// Sets the choice for all devices.
    pub fn set(self) {
        CHOICE.store(self as u8, Ordering::Relaxed);
    }

    /// The choice in force.
    ///
    /// # Errors
    ///
    /// If the variable is neither on nor off. Until [`set`](Self::set) is called, every operation that could
    /// wait is then an error.
    pub fn current() -> Result<Self, InvalidVariable> {
        match CHOICE.load(Ordering::Relaxed) {
            1 => Ok(Self::On),
            2 => Ok(Self::Off),
            _ => {
                let choice = Self::from_variable(env::var_os(VARIABLE))?;
                choice.set();
                Ok(choice)
            }
        }
    }

    fn from_variable(value: Option<OsString>) -> Result<Self, InvalidVariable> {
        let is_on = policy::parse_switch(VARIABLE, value)?;
        Ok(if is_on.unwrap_or(true) { Self::On } else { Self::Off })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_the_words_of_the_switches_of_the_registry() {
        let of = |value: Option<&str>| Fusion::from_variable(value.map(OsString::from));
        for (value, expected) in [
            (None, Fusion::On),
            (Some(""), Fusion::On),
            (Some("0"), Fusion::Off),
            (Some(" Off"), Fusion::Off),
            (Some("1"), Fusion::On),
        ] {
            assert_eq!(of(value), Ok(expected), "{value:?}");
        }
        let error = of(Some("never")).unwrap_err().to_string();
        assert!(error.starts_with("DEVICE_BURN_FUSION=\"never\" is invalid: expected 1, true"), "{error}");
    }
}
