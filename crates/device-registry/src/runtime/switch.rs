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
    parse(variable, std::env::var_os(variable).as_deref(), default)
}

fn parse(variable: &str, value: Option<&OsStr>, default: bool) -> Result<bool, BackendError> {
    let value = value.map(OsStr::to_string_lossy).unwrap_or_default();
    if value.trim().is_empty() {
        return Ok(default);
    }
    parse_switch(&value).ok_or_else(|| {
        BackendError::invalid(format_args!("invalid {variable}: expected {SWITCH_WORDS}, found {value:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_the_words_of_other_switches() {
        for default in [true, false] {
            for (value, is_on) in [
                (None, default),
                (Some(""), default),
                (Some("1"), true),
                (Some("0"), false),
                (Some(" Off"), false),
            ] {
                assert_eq!(parse("X", value.map(OsStr::new), default).unwrap(), is_on, "{value:?}");
            }
        }
        let error = parse("DEVICE_VALIDATE", Some(OsStr::new("never")), false).unwrap_err();
        assert!(error.message().starts_with("invalid DEVICE_VALIDATE: expected 1, true"), "{error}");
        assert!(error.message().ends_with("found \"never\""), "{error}");
    }
}
