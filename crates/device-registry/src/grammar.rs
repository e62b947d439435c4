//! The text of a device: a pure function from text to a name and perhaps an index.
//!
//! ```text
//! device   = name [ ":" index ]
//! name     = [a-z_][a-z0-9_]*      at most 32 bytes
//! index    = "0" | [1-9][0-9]*     0 ..= 65535
//! reserved = name "@" selector
//! ```
//!
//! As strict as PyTorch about spaces, signs and leading zeros, but the index is checked where PyTorch wraps it
//! (there `cuda:256` is `cuda:0`), and digits may stand in a name.

use std::fmt;

use entry_points::message::shown;

use crate::BackendDescriptor;
use crate::backends::RESERVED;

/// A device string that is well formed. Whether there is such a backend is another question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceString<'a> {
    pub(crate) name: &'a str,
    pub(crate) index: Option<u16>,
}

impl<'a> DeviceString<'a> {
    /// The parts of a text that may be a device string; whether the name is well formed remains to be seen.
    #[inline]
    pub(crate) fn split(text: &'a str) -> Option<Self> {
        Some(match text.as_bytes() {
            // The most frequent form takes half the time when it is not searched for its colon.
            [.., b':', digit @ b'0'..=b'9'] => {
                Self { name: &text[..text.len() - 2], index: Some((digit - b'0').into()) }
            }
            _ => match text.rsplit_once(':') {
                Some((name, index)) => Self { name, index: Some(parse_index(index).ok()?) },
                None => Self { name: text, index: None },
            },
        })
    }

    /// The parts of a device string that is well formed.
    pub(crate) fn parse(text: &'a str) -> Result<Self, SyntaxError> {
        let fail = |kind| Err(SyntaxError { text: shown(text), kind });
        if text.is_empty() {
            return fail(SyntaxErrorKind::Empty);
        }
        let name_len = text.find([':', '@']).unwrap_or(text.len());
        let (name, rest) = text.split_at(name_len);
        if let Err(kind) = check_name(name) {
            return fail(kind);
        }
        let index = match rest.strip_prefix(':') {
            Some(index) => match parse_index(index) {
                Ok(index) => Some(index),
                Err(kind) => return fail(kind),
            },
            None if rest.is_empty() => None,
            None => return fail(SyntaxErrorKind::Selector),
        };
        Ok(Self { name, index })
    }
}

fn check_name(name: &str) -> Result<(), SyntaxErrorKind> {
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_');
    match name.chars().find(|&c| !allowed(c)) {
        Some(c) if c.is_ascii_uppercase() => return Err(SyntaxErrorKind::UpperCase),
        Some(c) => return Err(SyntaxErrorKind::InvalidCharacter(c)),
        None => {}
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(SyntaxErrorKind::NameMissing);
    }
    if name.len() > BackendDescriptor::MAX_NAME {
        return Err(SyntaxErrorKind::NameTooLong);
    }
    if RESERVED.contains(&name) {
        return Err(SyntaxErrorKind::Reserved);
    }
    Ok(())
}

fn parse_index(index: &str) -> Result<u16, SyntaxErrorKind> {
    if index.is_empty() || index.bytes().any(|byte| !byte.is_ascii_digit()) {
        return Err(SyntaxErrorKind::InvalidIndex);
    }
    if index.len() > 1 && index.starts_with('0') {
        return Err(SyntaxErrorKind::LeadingZero);
    }
    // Digits alone are left, so that only the range can be wrong.
    index.parse().map_err(|_| SyntaxErrorKind::IndexTooLarge)
}

/// A device string that is not well formed.
///
/// ```
/// use device_registry::{Device, DeviceError, SyntaxErrorKind};
///
/// let Err(DeviceError::Syntax(error)) = Device::parse("cuda:01") else { panic!() };
/// assert_eq!(error.kind(), SyntaxErrorKind::LeadingZero);
/// assert_eq!(
///     error.to_string(),
///     "invalid device string `cuda:01`: an index has no leading zeros; the form is `name` or `name:index`, \
///      such as `cpu` or `cuda:1`",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Escaped and cut, fit for a message.
    text: String,
    kind: SyntaxErrorKind,
}

impl SyntaxError {
    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> SyntaxErrorKind {
        self.kind
    }
}

/// What is wrong with a device string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyntaxErrorKind {
    /// There is no text.
    Empty,
    /// It does not start with a name: `:0`, `1`.
    NameMissing,
    /// The name is longer than 32 bytes.
    NameTooLong,
    /// The name holds something other than `a`–`z`, `0`–`9` and `_`.
    InvalidCharacter(char),
    /// The name is written in upper case.
    UpperCase,
    /// The name is one of the words `auto`, `default`, `all` and `none`.
    Reserved,
    /// The index is empty, or is not made of digits alone.
    InvalidIndex,
    /// The index starts with a zero that it does not need.
    LeadingZero,
    /// The index is greater than 65535.
    IndexTooLarge,
    /// `name@selector`, a form that is kept for selecting a device by its UUID or address.
    Selector,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SyntaxErrorKind::*;
        match self.kind {
            Empty => f.write_str("the device string is empty")?,
            _ => write!(f, "invalid device string `{}`: ", self.text)?,
        }
        match self.kind {
            Empty => {}
            NameMissing => f.write_str("it does not start with the name of a backend")?,
            NameTooLong => write!(f, "a name has at most {} bytes", BackendDescriptor::MAX_NAME)?,
            InvalidCharacter(c) => {
                write!(f, "a name holds a-z, 0-9 and _ only, and not '{}'", c.escape_debug())?;
            }
            UpperCase => {
                f.write_str("names are lower case")?;
                let meant = self.text.to_ascii_lowercase();
                if DeviceString::parse(&meant).is_ok() {
                    return write!(f, "; is `{meant}` meant?");
                }
            }
            Reserved => {
                return write!(f, "the words {} are reserved and name no device", RESERVED.join(", "));
            }
            InvalidIndex if self.text.find(':') == Some(self.text.len() - 1) => {
                f.write_str("there is no index after the colon")?;
            }
            InvalidIndex => f.write_str("an index is made of digits")?,
            LeadingZero => f.write_str("an index has no leading zeros")?,
            IndexTooLarge => write!(f, "an index is at most {}", u16::MAX)?,
            Selector => {
                return f.write_str(
                    "the form `name@selector` is reserved for choosing a device by its UUID or address, which is \
                     not supported yet; use an index, such as `cuda:1`",
                );
            }
        }
        f.write_str("; the form is `name` or `name:index`, such as `cpu` or `cuda:1`")
    }
}

impl std::error::Error for SyntaxError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_indices_are_accepted() {
        for (text, name, index) in [
            ("cpu", "cpu", None),
            ("cuda:0", "cuda", Some(0)),
            ("cuda:127", "cuda", Some(127)),
            ("cuda:128", "cuda", Some(128)),
            ("cuda:65535", "cuda", Some(65535)),
            ("_x2", "_x2", None),
            ("a_b:10", "a_b", Some(10)),
            ("a2345678901234567890123456789012", "a2345678901234567890123456789012", None),
        ] {
            assert_eq!(DeviceString::parse(text), Ok(DeviceString { name, index }), "{text:?}");
        }
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        use SyntaxErrorKind::*;
        for (text, kind) in [
            ("", Empty),
            (":", NameMissing),
            (":0", NameMissing),
            ("0", NameMissing),
            ("1x", NameMissing),
            ("-1", InvalidCharacter('-')),
            ("cuda-0", InvalidCharacter('-')),
            ("cuda ", InvalidCharacter(' ')),
            ("\tcuda", InvalidCharacter('\t')),
            ("cuda\0", InvalidCharacter('\0')),
            ("é", InvalidCharacter('é')),
            ("a23456789012345678901234567890123", NameTooLong),
            ("CUDA", UpperCase),
            ("Cpu:0", UpperCase),
            ("auto", Reserved),
            ("default:1", Reserved),
            ("all", Reserved),
            ("none", Reserved),
            ("cuda:", InvalidIndex),
            ("cuda::0", InvalidIndex),
            ("cuda:0:", InvalidIndex),
            ("cuda:-1", InvalidIndex),
            ("cuda:-0", InvalidIndex),
            ("cuda:+1", InvalidIndex),
            ("cuda: 1", InvalidIndex),
            ("cuda:1 ", InvalidIndex),
            ("cuda:0x1", InvalidIndex),
            ("cuda:1.0", InvalidIndex),
            ("cuda:1e1", InvalidIndex),
            ("cuda:a", InvalidIndex),
            ("cuda:\u{661}", InvalidIndex),
            ("cuda:1@x", InvalidIndex),
            ("cuda:00", LeadingZero),
            ("cuda:01", LeadingZero),
            ("cuda:007", LeadingZero),
            ("cuda:65536", IndexTooLarge),
            ("cuda:2147483648", IndexTooLarge),
            ("cuda:99999999999999999999999999", IndexTooLarge),
            ("cuda@GPU-6e3b:1", Selector),
            ("cuda@", Selector),
        ] {
            let error = DeviceString::parse(text).expect_err(text);
            assert_eq!(error.kind(), kind, "{text:?}: {error}");
            assert!(!error.to_string().contains(['\n', '\0']), "{error}");
        }
    }

    #[test]
    fn upper_case_gets_the_right_spelling_as_a_hint() {
        let error = DeviceString::parse("CUDA:1").unwrap_err();
        assert!(error.to_string().ends_with("names are lower case; is `cuda:1` meant?"), "{error}");
        let error = DeviceString::parse("CUDA one").unwrap_err();
        assert!(!error.to_string().contains("meant"), "what is suggested has to be well formed: {error}");
    }

    #[test]
    fn an_index_that_is_missing_is_told_from_one_that_is_wrong() {
        let message = |text| DeviceString::parse(text).unwrap_err().to_string();
        assert!(
            message("cuda:").contains("`cuda:`: there is no index after the colon"),
            "{}",
            message("cuda:")
        );
        assert!(message("cuda:0:").contains("an index is made of digits"), "{}", message("cuda:0:"));
    }

    #[test]
    fn a_long_text_is_cut_in_the_message() {
        let error = DeviceString::parse(&"é".repeat(100_000)).unwrap_err();
        assert!(error.to_string().len() < 400, "{error}");
    }
}
