//! The part of a device string that chooses a device by its properties: `name@uuid=0d7c8f22`,
//! `name@pci=3b:00.0`, `name@platform=Portable`.

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
    longer: Longer,
    is_valid: fn(&str) -> bool,
    /// Whether only one device can have the value.
    is_whole: fn(&str) -> bool,
    matches: fn(&DeviceProperties, &str) -> bool,
    /// The value of a device, written as in a selector.
    value: fn(&DeviceProperties) -> Option<String>,
}

/// What a longer value achieves where several devices match, or might.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Longer {
    /// Only one device can have a whole value.
    Decides,
    /// It matches fewer devices. Devices of one model and one driver have equal texts.
    Narrows,
    /// A shorter value is malformed.
    Impossible,
}

impl Kind {
    /// A text that contains the value, in upper or lower case.
    const fn of_text(
        key: &'static str,
        example: &'static str,
        matches: fn(&DeviceProperties, &str) -> bool,
        value: fn(&DeviceProperties) -> Option<String>,
    ) -> Self {
        Self {
            key,
            placeholder: "TEXT",
            example,
            form: "expected a part of the text, of the characters A-Z, a-z, 0-9, `.`, `-` and `_`, with spaces \
                   between them",
            longer: Longer::Narrows,
            is_valid: is_text,
            is_whole: |_| false,
            matches,
            value,
        }
    }

    /// Whether a list of candidates shows the value as text for people, and not as a selector.
    fn is_text(&self) -> bool {
        self.longer == Longer::Narrows
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}

/// All kinds of selectors: the parser, the messages and the lists of candidates derive from these rows.
static KINDS: [Kind; 5] = [
    Kind {
        key: "uuid",
        placeholder: "PREFIX",
        example: "0d7c8f22",
        form: "expected the start of a UUID: 32 hexadecimal digits, with no hyphens or all of them, as in \
               `0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10`",
        longer: Longer::Decides,
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
        longer: Longer::Impossible,
        is_valid: |address| address.parse::<PciAddress>().is_ok(),
        is_whole: |_| true,
        matches: |properties, address| properties.pci.is_some() && properties.pci == address.parse().ok(),
        value: |properties| properties.pci.map(|address| address.to_string()),
    },
    Kind::of_text(
        "name",
        "4090",
        |properties, part| contains(&properties.name, part),
        |properties| Some(properties.name.clone()),
    ),
    Kind::of_text(
        "vendor",
        "nvidia",
        |properties, part| properties.vendor.as_deref().is_some_and(|vendor| contains(vendor, part)),
        |properties| properties.vendor.clone(),
    ),
    // A driver begins with the name of its platform: OpenCL's, or the interface below wgpu.
    Kind::of_text(
        "platform",
        "cuda",
        |properties, part| properties.driver.as_deref().is_some_and(|driver| contains(driver, part)),
        |properties| properties.driver.clone(),
    ),
];

/// The part of a device string after the `@`.
#[derive(Clone, Copy)]
pub(crate) struct Selector<'a> {
    kind: &'static Kind,
    value: &'a str,
}

impl<'a> Selector<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, SyntaxErrorKind> {
        let kind = text.split_once('=').and_then(|(key, _)| KINDS.iter().find(|kind| kind.key == key));
        let spaces = kind.is_some_and(Kind::is_text);
        let allowed = |c: char| c.is_ascii_alphanumeric() || "=:.-_".contains(c) || (spaces && c == ' ');
        match text.chars().find(|&c| !allowed(c)) {
            Some('@') => return Err(SyntaxErrorKind::SecondSelector),
            Some(c) => return Err(SyntaxErrorKind::SelectorCharacter(c)),
            None => {}
        }
        let (_, value) = text.split_once('=').ok_or(SyntaxErrorKind::Selector)?;
        let kind = kind.ok_or(SyntaxErrorKind::UnknownSelector)?;
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

    /// Whether only one device can have the value. The start of a UUID, or a part of a text, may also match a
    /// device that does not answer.
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
    write!(f, "the selectors are {}, such as {}", listed(&forms, "and"), listed(&examples, "or"))
}

/// The items with commas between them, and a word before the last.
fn listed(items: &[String], word: &str) -> String {
    match items {
        [first @ .., last] if !first.is_empty() => format!("{} {word} {last}", first.join(", ")),
        _ => items.concat(),
    }
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

/// Whether a text can have `part` in it. A character that ends a selector or an item of a list, such as a
/// comma or a parenthesis, cannot be written.
fn is_text(part: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".-_ ".contains(c);
    !part.is_empty() && part.trim() == part && part.chars().all(allowed)
}

fn contains(text: &str, part: &str) -> bool {
    text.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}

fn digits_of(uuid: &str) -> String {
    uuid.replace('-', "").to_ascii_lowercase()
}

/// A selector matches no device of the backend, or several, or which one is unknown.
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
    kind: &'static Kind,
    found: Found,
    candidates: Vec<(Device, Result<DeviceProperties, DeviceError>)>,
}

/// What was found by a selector that chooses no device.
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
        Self { text: shown(text), backend, kind: selector.kind, found, candidates }
    }

    /// Whether several devices match, or one matches and another, which does not answer, might.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.found != Found::None
    }

    /// Whether the candidates have different values. Two cards of one model have the same name, and no part
    /// of it is enough.
    fn values_differ(&self) -> bool {
        let known = self.candidates.iter().filter_map(|(_, properties)| properties.as_ref().ok());
        let mut values = known.map(|properties| (self.kind.value)(properties));
        let first = values.next();
        values.any(|value| Some(value) != first)
    }

    /// The devices that match or might, or all devices of the backend if none matches. Each has its
    /// properties, or the error of reading them.
    pub fn candidates(&self) -> &[(Device, Result<DeviceProperties, DeviceError>)] {
        &self.candidates
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, backend, kind, candidates, .. } = self;
        let backend = backend.name();
        let key = kind.key;
        match (&**candidates, self.found) {
            ([], _) => return write!(f, "`{text}` matches no device: `{backend}` has no devices"),
            ([(first, _), ..], Found::Several) => {
                let more = match kind.longer {
                    Longer::Decides if self.values_differ() => format!("more of the {key}, or "),
                    Longer::Narrows if self.values_differ() => {
                        format!("more of the {key}, another selector, or ")
                    }
                    _ => String::new(),
                };
                let count = candidates.len();
                write!(
                    f,
                    "`{text}` matches {count} devices of `{backend}`; write {more}an index, such as `{first}`:"
                )?;
            }
            (_, Found::Undecided(device)) => {
                let whole = match kind.longer {
                    Longer::Decides => format!("the whole {key}, or "),
                    Longer::Narrows | Longer::Impossible => String::new(),
                };
                write!(
                    f,
                    "`{text}` matches `{device}`, and might match devices that do not answer; write {whole}an index, \
                     such as `{device}`:"
                )?;
            }
            (_, Found::None) => write!(f, "`{text}` matches none of the devices of `{backend}`:")?,
        }
        let names: Vec<_> = candidates.iter().map(|(device, _)| device.to_string()).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        for (name, (_, properties)) in names.iter().zip(candidates) {
            write!(f, "\n  {name:<width$}  ")?;
            match properties {
                Ok(properties) => fmt_candidate(properties, kind, f)?,
                Err(error) => f.write_str(&error.to_string().replace('\n', "\n    "))?,
            }
        }
        Ok(())
    }
}

/// Writes the texts, and the other properties in the form of a selector, so that a user can copy them into a
/// device string. A missing property is written for these texts, and for the kind that was looked for.
fn fmt_candidate(properties: &DeviceProperties, sought: &Kind, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let texts = KINDS.iter().filter(|kind| kind.is_text()).filter_map(|kind| (kind.value)(properties));
    f.write_str(&texts.map(|text| shown(&text)).collect::<Vec<_>>().join(", "))?;
    for kind in &KINDS {
        match (kind.value)(properties) {
            Some(_) if kind.is_text() => {}
            Some(value) => write!(f, "  {}={value}", kind.key)?,
            None if kind.is_text() && kind.key != sought.key => {}
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
