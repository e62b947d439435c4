//! The part of a device string that chooses a device by its properties: `name@uuid=0d7c8f22`,
//! `name@pci=3b:00.0`.

use std::fmt;

use entry_points::Entry;
use entry_points::message::shown;

use crate::backend::{Backend, DeviceProperties, DeviceUuid, PciAddress};
use crate::device::Device;
use crate::device::grammar::SyntaxErrorKind;
use crate::error::DeviceError;

/// A kind of selector. A new kind needs a row of [`KINDS`], a property to read, and a line of the grammar in
/// the documentation of [`Device`].
struct Kind {
    key: &'static str,
    /// The placeholder for the value in a list of the kinds.
    placeholder: &'static str,
    /// A value for the examples in messages.
    example: &'static str,
    /// The form of a value, for the message about an invalid one.
    form: &'static str,
    /// Whether a longer value can single out one of several matching devices.
    is_prefix: bool,
    is_valid: fn(&str) -> bool,
    /// Whether only one device can have the value.
    is_whole: fn(&str) -> bool,
    matches: fn(&DeviceProperties, &str) -> bool,
    /// The value of a device, written as in a selector.
    value: fn(&DeviceProperties) -> Option<String>,
}

/// All kinds of selectors: the parser, the messages and the lists of candidates derive from these rows.
static KINDS: [Kind; 2] = [
    Kind {
        key: "uuid",
        placeholder: "PREFIX",
        example: "0d7c8f22",
        form: "expected the start of a UUID: 32 hexadecimal digits, with no hyphens or all of them, as in \
               `0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10`",
        is_prefix: true,
        is_valid: is_uuid_prefix,
        is_whole: |prefix| digits_of(prefix).len() == 32,
        matches: |properties, prefix| properties.uuid.is_some_and(|uuid| starts_with(uuid, prefix)),
        value: |properties| properties.uuid.map(|uuid| uuid.to_string()),
    },
    Kind {
        key: "pci",
        placeholder: "ADDRESS",
        example: "3b:00.0",
        form: "expected a PCI address, as in `0000:3b:00.0` or `3b:00.0`",
        is_prefix: false,
        is_valid: |address| address.parse::<PciAddress>().is_ok(),
        is_whole: |_| true,
        matches: |properties, address| properties.pci.is_some() && properties.pci == address.parse().ok(),
        value: |properties| properties.pci.map(|address| address.to_string()),
    },
];

/// The part of a device string after the `@`.
#[derive(Clone, Copy)]
pub(crate) struct Selector<'a> {
    kind: &'static Kind,
    value: &'a str,
}

impl<'a> Selector<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, SyntaxErrorKind> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "=:.-_".contains(c);
        match text.chars().find(|&c| !allowed(c)) {
            Some('@') => return Err(SyntaxErrorKind::SecondSelector),
            Some(c) => return Err(SyntaxErrorKind::SelectorCharacter(c)),
            None => {}
        }
        let (key, value) = text.split_once('=').ok_or(SyntaxErrorKind::Selector)?;
        let kind = KINDS.iter().find(|kind| kind.key == key).ok_or(SyntaxErrorKind::UnknownSelector)?;
        if (kind.is_valid)(value) {
            return Ok(Self { kind, value });
        }
        match value.rsplit_once(':') {
            Some((value, index)) if is_number(index) && (kind.is_valid)(value) => {
                Err(SyntaxErrorKind::SelectorAndIndex)
            }
            _ => Err(SyntaxErrorKind::SelectorValue(kind.key)),
        }
    }

    /// Whether the selector matches a device with these properties.
    pub(crate) fn matches(self, properties: &DeviceProperties) -> bool {
        (self.kind.matches)(properties, self.value)
    }

    /// Whether only one device can have the value. The start of a UUID may match a device that does not
    /// answer as well.
    pub(crate) fn is_whole(self) -> bool {
        (self.kind.is_whole)(self.value)
    }
}

impl PartialEq for Selector<'_> {
    fn eq(&self, other: &Self) -> bool {
        (self.kind.key, self.value) == (other.kind.key, other.value)
    }
}

impl Eq for Selector<'_> {}

impl fmt::Debug for Selector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind.key, self.value)
    }
}

/// The form of the values of a kind.
pub(super) fn form_of(key: &str) -> &'static str {
    KINDS.iter().find(|kind| kind.key == key).map_or("", |kind| kind.form)
}

/// Writes the list of selectors, with examples.
pub(super) fn fmt_kinds(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let forms: Vec<_> = KINDS.iter().map(|kind| format!("`{}={}`", kind.key, kind.placeholder)).collect();
    let examples: Vec<_> = KINDS.iter().map(|kind| format!("`cuda@{}={}`", kind.key, kind.example)).collect();
    write!(f, "the selectors are {}, such as {}", forms.join(" and "), examples.join(" or "))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a UUID can start with `text`: it has at least one digit, and its hyphens, if any, are in the right
/// places.
fn is_uuid_prefix(text: &str) -> bool {
    const FORM: &[u8] = b"00000000-0000-0000-0000-000000000000";
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    if text.contains('-') {
        let fits = |(byte, form): (u8, &u8)| if *form == b'-' { byte == b'-' } else { is_digit(byte) };
        text.len() <= FORM.len() && text.bytes().zip(FORM).all(fits)
    } else {
        (1..=32).contains(&text.len()) && text.bytes().all(is_digit)
    }
}

/// Whether the UUID starts with `prefix`. The parser has checked the hyphens, so comparing the digits is
/// enough.
fn starts_with(uuid: DeviceUuid, prefix: &str) -> bool {
    digits_of(&uuid.to_string()).starts_with(&digits_of(prefix))
}

fn digits_of(uuid: &str) -> String {
    uuid.replace('-', "").to_ascii_lowercase()
}

/// A selector matches no device of the backend, or several, or it cannot be known which.
///
/// ```
/// use device_registry::{Device, DeviceError};
///
/// let Err(DeviceError::Selector(error)) = Device::parse("cpu@uuid=0d7c8f22") else { panic!() };
/// assert!(!error.is_ambiguous());
/// assert_eq!(error.candidates().len(), 1);
/// println!("{error}");
/// ```
///
/// prints
///
/// ```text
/// `cpu@uuid=0d7c8f22` matches none of the devices of `cpu`:
///   cpu  host (x86_64)  no uuid  no pci
/// ```
#[derive(Clone, Debug)]
pub struct SelectorError {
    /// Escaped and shortened for the message.
    text: String,
    backend: Entry<dyn Backend>,
    /// The key, if a longer value can single out one of several devices.
    prefix_of: Option<&'static str>,
    found: Found,
    candidates: Vec<(Device, Result<DeviceProperties, DeviceError>)>,
}

/// What a selector that chooses no device has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No device matches.
    None,
    /// Several devices match.
    Several,
    /// This device matches, and others that do not answer might.
    Undecided(Device),
}

impl SelectorError {
    /// `text` is the device string. The candidates are the devices that match or might, or all of the
    /// backend's if none matches.
    pub(crate) fn new(
        text: &str,
        backend: Entry<dyn Backend>,
        selector: Selector<'_>,
        found: Found,
        candidates: Vec<(Device, Result<DeviceProperties, DeviceError>)>,
    ) -> Self {
        let prefix_of = Some(selector.kind.key).filter(|_| selector.kind.is_prefix);
        Self { text: shown(text), backend, prefix_of, found, candidates }
    }

    /// Whether several devices match, or one does and another one, which does not answer, might.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.found != Found::None
    }

    /// The devices that match or might, or all devices of the backend if none matches. Each has its
    /// properties, or the error of reading them.
    pub fn candidates(&self) -> &[(Device, Result<DeviceProperties, DeviceError>)] {
        &self.candidates
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, backend, candidates, .. } = self;
        let backend = backend.name();
        match (&**candidates, self.found) {
            ([], _) => return write!(f, "`{text}` matches no device: `{backend}` has no devices"),
            ([(first, _), ..], Found::Several) => {
                let more = self.prefix_of.map_or(String::new(), |key| format!("more of the {key}, or "));
                let count = candidates.len();
                write!(
                    f,
                    "`{text}` matches {count} devices of `{backend}`; write {more}an index, such as `{first}`:"
                )?;
            }
            (_, Found::Undecided(device)) => {
                let key = self.prefix_of.unwrap_or("value");
                write!(
                    f,
                    "`{text}` matches `{device}`, and might match devices that do not answer; write the whole {key}, or \
                     an index, such as `{device}`:"
                )?;
            }
            (_, Found::None) => write!(f, "`{text}` matches none of the devices of `{backend}`:")?,
        }
        let names: Vec<_> = candidates.iter().map(|(device, _)| device.to_string()).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        for (name, (_, properties)) in names.iter().zip(candidates) {
            write!(f, "\n  {name:<width$}  ")?;
            match properties {
                Ok(properties) => fmt_candidate(properties, f)?,
                Err(error) => f.write_str(&error.to_string().replace('\n', "\n    "))?,
            }
        }
        Ok(())
    }
}

/// Writes each property in the form of a selector, so that a user can copy it into a device string.
fn fmt_candidate(properties: &DeviceProperties, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&shown(&properties.name))?;
    for kind in &KINDS {
        match (kind.value)(properties) {
            Some(value) => write!(f, "  {}={value}", kind.key)?,
            None => write!(f, "  no {}", kind.key)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_grammar_lists_every_kind() {
        let documented = include_str!("mod.rs");
        for Kind { key, example, is_valid, .. } in &KINDS {
            assert!(is_valid(example), "{key}");
            assert!(documented.contains(&format!("\"{key}=\" ")), "{key} in the grammar");
            assert!(
                documented.contains(&format!("`cuda@{key}={example}`")),
                "{key} in the table of examples"
            );
        }
    }
}
