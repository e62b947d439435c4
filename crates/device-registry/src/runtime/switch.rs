//! Environment variables that are on or off.

use std::ffi::OsStr;

use entry_points::message::{SWITCH_WORDS, parse_switch};

use crate::backend::BackendError;

/// Whether a variable is on; `default` if it is not set, or empty.
///
/// # Errors
///
/// If its value is no word for on or off.
pub(crate) fn is_on(variable: &str, default: bool) -> Result<bool, BackendError> {
    Ok(value(variable)?.unwrap_or(default))
}

/// Whether a variable is on; `None` if it is not set, or empty.
///
/// # Errors
///
/// If its value is no word for on or off.
pub(crate) fn value(variable: &str) -> Result<Option<bool>, BackendError> {
    parse(variable, std::env::var_os(variable).as_deref())
}

fn parse(variable: &str, value: Option<&OsStr>) -> Result<Option<bool>, BackendError> {
    let value = value.map(OsStr::to_string_lossy).unwrap_or_default();
    if value.trim().is_empty() {
        return Ok(None);
    }
    match parse_switch(&value) {
        Some(is_on) => Ok(Some(is_on)),
        None => Err(BackendError::invalid(format_args!(
            "invalid {variable}: expected {SWITCH_WORDS}, found {value:?}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_the_words_of_other_switches() {
        for (value, is_on) in [
            (None, None),
            (Some(""), None),
            (Some("1"), Some(true)),
            (Some("0"), Some(false)),
            (Some(" Off"), Some(false)),
        ] {
            assert_eq!(parse("X", value.map(OsStr::new)).unwrap(), is_on, "{value:?}");
        }
        let error = parse("DEVICE_VALIDATE", Some(OsStr::new("never"))).unwrap_err();
        assert!(error.message().starts_with("invalid DEVICE_VALIDATE: expected 1, true"), "{error}");
        assert!(error.message().ends_with("found \"never\""), "{error}");
    }
}
