//! Environment variables that choose one of several words.

use std::ffi::OsString;

use entry_points::message::{self, SWITCH_WORDS};

/// An environment variable has a value that is not one of its words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?} is invalid: expected {expected}")]
pub struct InvalidVariable {
    variable: &'static str,
    value: String,
    expected: String,
}

/// What the word in `value` stands for, in any case. `None` if there is no value, or an empty one.
pub(crate) fn parse<T: Copy>(
    variable: &'static str,
    value: Option<OsString>,
    words: &[(&str, T)],
) -> Result<Option<T>, InvalidVariable> {
    let value = value.unwrap_or_default().to_string_lossy().into_owned();
    let text = value.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let found = words.iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
    found.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| {
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let expected = match &words[..] {
            [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
            words => words.concat(),
        };
        InvalidVariable { variable, value, expected }
    })
}

/// Whether the switch `value` is on. `None` if there is no value, or an empty one.
pub(crate) fn parse_switch(
    variable: &'static str,
    value: Option<OsString>,
) -> Result<Option<bool>, InvalidVariable> {
    let value = value.unwrap_or_default().to_string_lossy().into_owned();
    if value.trim().is_empty() {
        return Ok(None);
    }
    message::parse_switch(&value).map(Some).ok_or_else(|| InvalidVariable {
        variable,
        value,
        expected: SWITCH_WORDS.to_owned(),
    })
}
