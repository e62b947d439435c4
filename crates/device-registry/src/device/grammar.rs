//! The text of a device: a pure function from text to a name and perhaps an index or a selector.
//!
//! ```text
//! device   = name [ ":" index | "@" selector ]
//! name     = [a-z_][a-z0-9_]*      at most 32 bytes
//! index    = "0" | [1-9][0-9]*     0 ..= 65535
//! selector = "uuid=" prefix | "pci=" address | ( "name=" | "vendor=" | "platform=" ) text
//! ```
//!
//! The grammar refuses spaces, signs and leading zeros as PyTorch's does. It differs in two points: it checks
//! the range of an index, where PyTorch wraps `cuda:256` to `cuda:0`, and it accepts digits in a name.

use std::fmt;

use entry_points::message::{did_you_mean, shown};

use crate::backend::BackendDescriptor;
use crate::backend::registration::RESERVED;
use crate::device::selector::Selector;
use crate::device::{list, selector};

/// A device string that is well formed. The backend that it names need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceString<'a> {
    pub(crate) name: &'a str,
    pub(crate) which: Which<'a>,
}

/// Which of a backend's devices the string names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which<'a> {
    Current,
    Index(u16),
    Selected(Selector<'a>),
}

impl<'a> DeviceString<'a> {
    /// Splits a device string without a selector into a name and an index. Checks only the index.
    #[inline]
    pub(crate) fn split(text: &'a str) -> Option<(&'a str, Option<u16>)> {
        Some(match text.as_bytes() {
            // The most frequent form, handled without a search for the colon, takes half the time.
            [.., b':', digit @ b'0'..=b'9'] => (&text[..text.len() - 2], Some((digit - b'0').into())),
            _ => match text.rsplit_once(':') {
                Some((name, index)) => (name, Some(parse_index(index).ok()?)),
                None => (text, None),
            },
        })
    }

    /// The parts of a well-formed device string.
    pub(crate) fn parse(text: &'a str) -> Result<Self, SyntaxError> {
        let fail = |kind| Err(SyntaxError::new(text, kind));
        if text.is_empty() {
            return fail(SyntaxErrorKind::Empty);
        }
        let name_len = text.find([':', '@']).unwrap_or(text.len());
        let (name, rest) = text.split_at(name_len);
        if let Err(kind) = check_name(name) {
            return fail(kind);
        }
        let which = match rest.as_bytes() {
            [] => Ok(Which::Current),
            [b'@', ..] => Selector::parse(&rest[1..]).map(Which::Selected),
            _ => match rest[1..].split_once('@') {
                Some((index, _)) if parse_index(index).is_ok() => Err(SyntaxErrorKind::SelectorAndIndex),
                _ => parse_index(&rest[1..]).map(Which::Index),
            },
        };
        which.map(|which| Self { name, which }).or_else(fail)
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), SyntaxErrorKind> {
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
    // Only digits reach this line, so the only possible error is the range.
    index.parse().map_err(|_| SyntaxErrorKind::IndexTooLarge)
}

/// A device string, or a [list](crate::Selection) of them, is not well formed.
///
/// ```
/// use device_registry::error::SyntaxErrorKind;
/// use device_registry::{Device, DeviceError};
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
    /// Escaped and shortened for the message.
    pub(crate) text: String,
    pub(crate) kind: SyntaxErrorKind,
    pub(crate) place: Option<Place>,
}

/// Where in a list an item is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Escaped and shortened for the message.
    pub(crate) list: String,
    /// The number of the item's first character, from 1.
    pub(crate) at: usize,
}

impl SyntaxError {
    pub(crate) fn new(text: &str, kind: SyntaxErrorKind) -> Self {
        Self { text: shown(text), kind, place: None }
    }

    /// What is wrong with the string.
    #[must_use]
    pub fn kind(&self) -> SyntaxErrorKind {
        self.kind
    }
}

/// What is wrong with a device string or a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyntaxErrorKind {
    /// The string is empty.
    Empty,
    /// It does not start with a name: `:0`, `1`.
    NameMissing,
    /// The name is longer than 32 bytes.
    NameTooLong,
    /// The name contains a character other than `a`–`z`, `0`–`9` and `_`.
    InvalidCharacter(char),
    /// The name is written in upper case.
    UpperCase,
    /// The name is one of the words `auto`, `default`, `all` and `none`.
    Reserved,
    /// The index is empty, or has other characters than digits.
    InvalidIndex,
    /// The index starts with a zero that it does not need.
    LeadingZero,
    /// The index is greater than 65535.
    IndexTooLarge,
    /// What follows the `@` is not `key=value`: `cuda@`, `cuda@0`.
    Selector,
    /// The key of the selector is unknown: `cuda@serial=7`.
    UnknownSelector,
    /// The selector contains an invalid character, such as a space.
    SelectorCharacter(char),
    /// There is a second `@`.
    SecondSelector,
    /// There is a selector and an index: `cuda@pci=3b:00.0:1`, `cuda:1@pci=3b:00.0`.
    SelectorAndIndex,
    /// The value of the selector is empty or malformed. The field is the selector's key, such as `uuid`.
    SelectorValue(&'static str),
    /// The word after the colon in an item of a list is not a kind of device: `opencl:gqu`.
    UnknownKind,
    /// The text in parentheses is not an order, or is not at the end of an item that can have one.
    Order,
    /// The list only excludes devices: `!wgpu`.
    OnlyExclusions,
    /// The list has more than 256 exclusions.
    TooManyExclusions,
    /// The default selection contains `auto`, which stands for the default selection.
    Recursive,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SyntaxErrorKind::*;
        match (&self.place, self.kind) {
            (None, Empty) => f.write_str("the device string is empty")?,
            (None, _) => write!(f, "invalid device string `{}`: ", self.text)?,
            (Some(Place { list, at }), _) => {
                write!(f, "invalid item `{}`, at character {at} of `{list}`: ", self.text)?;
            }
        }
        match self.kind {
            Empty => f.write_str(if self.place.is_some() { "it is empty" } else { "" })?,
            NameMissing => f.write_str("expected the name of a backend at the start")?,
            NameTooLong => write!(f, "a name has at most {} bytes", BackendDescriptor::MAX_NAME)?,
            InvalidCharacter(c) => {
                let c = c.escape_debug();
                write!(f, "invalid character '{c}' in the name: expected only a-z, 0-9 and _")?;
            }
            UpperCase => {
                f.write_str("names are lower case")?;
                let lower_case = self.text.to_ascii_lowercase();
                if DeviceString::parse(&lower_case).is_ok() {
                    return write!(f, "{}", did_you_mean(Some(lower_case)));
                }
            }
            Reserved if self.text.starts_with(list::AUTO) => {
                return f.write_str("`auto` is the default selection, and has no index, kind or order");
            }
            Reserved => {
                return write!(f, "the words {} are reserved and name no device", RESERVED[1..].join(", "));
            }
            InvalidIndex if self.text.find(':') == Some(self.text.len() - 1) => {
                f.write_str("there is no index after the colon")?;
            }
            InvalidIndex => {
                f.write_str("an index consists of digits")?;
                if let Some((_, word)) = self.text.split_once(':').filter(|(_, word)| list::is_kind(word)) {
                    write!(f, ", and `{word}` is a kind of device, which a list has, and not one device")?;
                }
            }
            LeadingZero => f.write_str("an index has no leading zeros")?,
            IndexTooLarge => write!(f, "an index is at most {}", u16::MAX)?,
            Selector if self.text.ends_with('@') => f.write_str("there is no selector after the `@`")?,
            Selector => f.write_str("a selector is a key, `=` and a value")?,
            UnknownSelector => f.write_str("unknown selector")?,
            SelectorCharacter(c) => write!(f, "invalid character '{}' in the selector", c.escape_debug())?,
            SecondSelector => f.write_str("expected at most one selector, found a second `@`")?,
            SelectorAndIndex => f.write_str("expected a selector or an index, found both")?,
            SelectorValue(_) if self.text.find('=') == Some(self.text.len() - 1) => {
                f.write_str("there is no value after the `=`")?;
            }
            SelectorValue(key) => f.write_str(selector::form_of(key))?,
            UnknownKind => return list::fmt_unknown_kind(&self.text, f),
            Order => return f.write_str(list::ORDER_FORM),
            OnlyExclusions => {
                return f.write_str(
                    "it only excludes devices, and names none to choose from, as `*:gpu` and `cpu` do",
                );
            }
            TooManyExclusions => {
                return write!(f, "expected at most {} exclusions", list::MOST_EXCLUSIONS);
            }
            Recursive => return f.write_str("`auto` stands for this list, and cannot be in it"),
        }
        match self.kind {
            Selector | UnknownSelector | SelectorCharacter(_) | SecondSelector | SelectorAndIndex
            | SelectorValue(_) => {
                f.write_str("; ")?;
                selector::fmt_kinds(f)
            }
            _ => f.write_str("; the form is `name` or `name:index`, such as `cpu` or `cuda:1`"),
        }
    }
}

impl std::error::Error for SyntaxError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_indices_are_accepted() {
        for (text, name, which) in [
            ("cpu", "cpu", Which::Current),
            ("cuda:0", "cuda", Which::Index(0)),
            ("cuda:127", "cuda", Which::Index(127)),
            ("cuda:128", "cuda", Which::Index(128)),
            ("cuda:65535", "cuda", Which::Index(65535)),
            ("_x2", "_x2", Which::Current),
            ("a_b:10", "a_b", Which::Index(10)),
            ("a2345678901234567890123456789012", "a2345678901234567890123456789012", Which::Current),
        ] {
            assert_eq!(DeviceString::parse(text), Ok(DeviceString { name, which }), "{text:?}");
        }
    }

    #[test]
    fn a_uuid_or_an_address_may_follow_an_at_sign() {
        for prefix in ["0", "AbCdEf", "0d7c8f22-", "0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10", &"1".repeat(32)] {
            let text = format!("cuda@uuid={prefix}");
            let which = Which::Selected(Selector::parse(&text[5..]).unwrap());
            assert_eq!(DeviceString::parse(&text), Ok(DeviceString { name: "cuda", which }));
        }
        for address in ["3b:00.0", "0000:3b:00.0", "1:3B:0.0"] {
            let text = format!("cuda@pci={address}");
            let which = Which::Selected(Selector::parse(&text[5..]).unwrap());
            assert_eq!(DeviceString::parse(&text), Ok(DeviceString { name: "cuda", which }));
        }
    }

    #[test]
    fn a_part_of_a_text_may_follow_an_at_sign() {
        for selector in ["name=RTX 4090", "vendor=Advanced_Micro", "platform=3.1-x", "name=a  b", "name=7"] {
            let text = format!("cuda@{selector}");
            let which = Which::Selected(Selector::parse(selector).unwrap());
            assert_eq!(DeviceString::parse(&text), Ok(DeviceString { name: "cuda", which }));
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
            ("cuda:x@x", InvalidIndex),
            ("cuda:00", LeadingZero),
            ("cuda:01", LeadingZero),
            ("cuda:007", LeadingZero),
            ("cuda:65536", IndexTooLarge),
            ("cuda:2147483648", IndexTooLarge),
            ("cuda:99999999999999999999999999", IndexTooLarge),
            ("@uuid=0", NameMissing),
            ("Cuda@uuid=0", UpperCase),
            ("cuda@", Selector),
            ("cuda@0", Selector),
            ("cuda@uuid", Selector),
            ("cuda@GPU-6e3b:1", Selector),
            ("cuda@=0", UnknownSelector),
            ("cuda@serial=7", UnknownSelector),
            ("cuda@UUID=0", UnknownSelector),
            ("cuda@ uuid=0", SelectorCharacter(' ')),
            ("cuda@uuid =0", SelectorCharacter(' ')),
            ("cuda@uuid=0 ", SelectorCharacter(' ')),
            ("cuda@uuid=\0", SelectorCharacter('\0')),
            ("cuda@pci=\u{661}b:00.0", SelectorCharacter('\u{661}')),
            ("cuda@uuid=0@pci=3b:00.0", SecondSelector),
            ("cuda@@", SecondSelector),
            ("cuda@uuid=ab:0", SelectorAndIndex),
            ("cuda@pci=3b:00.0:1", SelectorAndIndex),
            ("cuda@pci=0000:3b:00.0:1", SelectorAndIndex),
            ("cuda:1@uuid=ab", SelectorAndIndex),
            ("cuda:0@", SelectorAndIndex),
            ("cuda@uuid=", SelectorValue("uuid")),
            ("cuda@uuid==0", SelectorValue("uuid")),
            ("cuda@uuid=:0", SelectorValue("uuid")),
            ("cuda@uuid=ab:x", SelectorValue("uuid")),
            ("cuda@uuid=GPU-6e3b", SelectorValue("uuid")),
            ("cuda@uuid=0x1", SelectorValue("uuid")),
            ("cuda@uuid=-", SelectorValue("uuid")),
            ("cuda@uuid=0d7c-8f22", SelectorValue("uuid")),
            ("cuda@uuid=0d7c8f22-3d1b4", SelectorValue("uuid")),
            ("cuda@uuid=0d7c8f223d1b4d0a9a550c1f5d7e9b100", SelectorValue("uuid")),
            ("cuda@uuid=0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b100", SelectorValue("uuid")),
            ("cuda@pci=", SelectorValue("pci")),
            ("cuda@pci=3b:00", SelectorValue("pci")),
            ("cuda@pci=0:0:3b:00.0", SelectorValue("pci")),
            ("cuda@pci=3b:20.0", SelectorValue("pci")),
            ("cuda@pci=3b: 00.0", SelectorCharacter(' ')),
            ("cuda@Name=rtx", UnknownSelector),
            ("cuda@na me=rtx", SelectorCharacter(' ')),
            ("cuda@name", Selector),
            ("cuda@name=", SelectorValue("name")),
            ("cuda@name= rtx", SelectorValue("name")),
            ("cuda@name=rtx ", SelectorValue("name")),
            ("cuda@vendor= ", SelectorValue("vendor")),
            ("cuda@name=a=b", SelectorValue("name")),
            ("cuda@name=rtx:1", SelectorAndIndex),
            ("cuda@name=rtx:x", SelectorValue("name")),
            ("cuda:1@name=rtx", SelectorAndIndex),
            ("cuda@platform=Intel(R)", SelectorCharacter('(')),
            ("cuda@name=a,b", SelectorCharacter(',')),
            ("cuda@name=a\tb", SelectorCharacter('\t')),
            ("cuda@name=\u{e9}", SelectorCharacter('\u{e9}')),
            ("cuda@name=a@vendor=b", SecondSelector),
        ] {
            let error = DeviceString::parse(text).expect_err(text);
            assert_eq!(error.kind(), kind, "{text:?}: {error}");
            assert!(!error.to_string().contains(['\n', '\0']), "{error}");
        }
    }

    #[test]
    fn the_error_of_an_upper_case_name_suggests_the_lower_case_one() {
        let error = DeviceString::parse("CUDA:1").unwrap_err();
        assert!(error.to_string().ends_with("names are lower case; did you mean `cuda:1`?"), "{error}");
        let error = DeviceString::parse("CUDA one").unwrap_err();
        assert!(!error.to_string().contains("did you mean"), "it suggests a malformed string: {error}");
    }

    #[test]
    fn a_missing_index_and_an_invalid_one_have_different_messages() {
        let message = |text| DeviceString::parse(text).unwrap_err().to_string();
        assert!(
            message("cuda:").contains("`cuda:`: there is no index after the colon"),
            "{}",
            message("cuda:")
        );
        assert!(message("cuda:0:").contains("an index consists of digits"), "{}", message("cuda:0:"));
    }

    #[test]
    fn the_error_of_an_invalid_selector_lists_the_selectors() {
        let message = |text| DeviceString::parse(text).unwrap_err().to_string();
        assert_eq!(
            message("cuda@serial=7"),
            "invalid device string `cuda@serial=7`: unknown selector; the selectors are `uuid=PREFIX`, \
             `pci=ADDRESS`, `name=TEXT`, `vendor=TEXT` and `platform=TEXT`, such as `cuda@uuid=0d7c8f22`, \
             `cuda@pci=3b:00.0`, `cuda@name=4090`, `cuda@vendor=nvidia` or `cuda@platform=cuda`"
        );
        for (text, part) in [
            ("cuda@", "there is no selector after the `@`"),
            ("cuda@0", "a selector is a key, `=` and a value"),
            ("cuda@uuid=", "there is no value after the `=`"),
            ("cuda@pci=", "there is no value after the `=`"),
            ("cuda@uuid==", "expected the start of a UUID"),
            ("cuda@pci=3b", "as in `0000:3b:00.0` or `3b:00.0`"),
            ("cuda@uuid=a b", "invalid character ' ' in the selector"),
            ("cuda@uuid=a@pci=b", "at most one selector"),
            ("cuda@uuid=ab:0", "a selector or an index, found both"),
            ("cuda@name=rtx ", "expected a part of the text"),
            ("CUDA@uuid=AB", "did you mean `cuda@uuid=ab`?"),
        ] {
            assert!(message(text).contains(part), "{part:?} in {}", message(text));
        }
    }

    #[test]
    fn the_message_shortens_a_long_text() {
        let error = DeviceString::parse(&"é".repeat(100_000)).unwrap_err();
        assert!(error.to_string().len() < 400, "{error}");
    }
}
