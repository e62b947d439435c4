//! The part of a device string that chooses a device by its properties: `name@uuid=0d7c8f22`, `name@pci=3b:00.0`.

use std::fmt;

use entry_points::Entry;
use entry_points::message::shown;

use crate::backend::{Backend, DeviceProperties, DeviceUuid, PciAddress};
use crate::device::Device;
use crate::device::grammar::SyntaxErrorKind;
use crate::error::DeviceError;

/// The part behind the `@`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selector<'a> {
    /// How a UUID begins, with its hyphens or without.
    Uuid(&'a str),
    Pci(PciAddress),
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
        let by_key: fn(&'a str) -> Option<Self> = match key {
            "uuid" => |value| begins_a_uuid(value).then_some(Self::Uuid(value)),
            "pci" => |value| value.parse().ok().map(Self::Pci),
            _ => return Err(SyntaxErrorKind::UnknownSelector),
        };
        by_key(value).ok_or_else(|| match value.rsplit_once(':') {
            Some((value, index)) if is_number(index) && by_key(value).is_some() => {
                SyntaxErrorKind::SelectorAndIndex
            }
            _ if key == "uuid" => SyntaxErrorKind::InvalidUuid,
            _ => SyntaxErrorKind::InvalidPci,
        })
    }

    /// Whether a device of these properties is meant.
    pub(crate) fn fits(self, properties: &DeviceProperties) -> bool {
        match self {
            Self::Uuid(prefix) => properties.uuid.is_some_and(|uuid| begins(uuid, prefix)),
            Self::Pci(address) => properties.pci == Some(address),
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether there can be a UUID that begins so: at least one digit, and hyphens nowhere or where they belong.
fn begins_a_uuid(text: &str) -> bool {
    const FORM: &[u8] = b"00000000-0000-0000-0000-000000000000";
    let is_digit = |byte: u8| byte.is_ascii_hexdigit();
    match text.contains('-') {
        true => {
            let fits = |(byte, form): (u8, &u8)| if *form == b'-' { byte == b'-' } else { is_digit(byte) };
            text.len() <= FORM.len() && text.bytes().zip(FORM).all(fits)
        }
        false => (1..=32).contains(&text.len()) && text.bytes().all(is_digit),
    }
}

/// `prefix` has its hyphens where a UUID has them, if it has any, so that the digits alone tell.
fn begins(uuid: DeviceUuid, prefix: &str) -> bool {
    let digits = |text: &str| text.replace('-', "").to_ascii_lowercase();
    digits(&uuid.to_string()).starts_with(&digits(prefix))
}

/// A selector fits no device of the backend, or several.
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
/// `cpu@uuid=0d7c8f22` fits none of the devices of `cpu`:
///   cpu  host (x86_64)  no uuid  no pci
/// ```
#[derive(Clone, Debug)]
pub struct SelectorError {
    /// Escaped and cut, fit for a message.
    text: String,
    backend: Entry<dyn Backend>,
    by_uuid: bool,
    ambiguous: bool,
    candidates: Vec<(Device, Result<DeviceProperties, DeviceError>)>,
}

impl SelectorError {
    /// `text` is the device string. The candidates are the devices that fit, or all of the backend's if none does.
    pub(crate) fn new(
        text: &str,
        backend: Entry<dyn Backend>,
        selector: Selector<'_>,
        ambiguous: bool,
        candidates: Vec<(Device, Result<DeviceProperties, DeviceError>)>,
    ) -> Self {
        let by_uuid = matches!(selector, Selector::Uuid(_));
        Self { text: shown(text), backend, by_uuid, ambiguous, candidates }
    }

    /// Whether several devices fit.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// The devices that fit, or all of the backend's if none does: what each says of itself, or why it could not be
    /// asked.
    pub fn candidates(&self) -> &[(Device, Result<DeviceProperties, DeviceError>)] {
        &self.candidates
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, backend, candidates, .. } = self;
        let backend = backend.name();
        match &**candidates {
            [] => return write!(f, "`{text}` fits nothing: `{backend}` has no devices"),
            [(first, _), ..] if self.ambiguous => {
                let more = if self.by_uuid { "more of the UUID, or " } else { "" };
                let count = candidates.len();
                write!(
                    f,
                    "`{text}` fits {count} devices of `{backend}`; write {more}an index, such as `{first}`:"
                )?;
            }
            _ => write!(f, "`{text}` fits none of the devices of `{backend}`:")?,
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

/// As they would stand in a selector, so that they can be copied into one.
fn fmt_candidate(properties: &DeviceProperties, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(&shown(&properties.name))?;
    match properties.uuid {
        Some(uuid) => write!(f, "  uuid={uuid}")?,
        None => f.write_str("  no uuid")?,
    }
    match properties.pci {
        Some(pci) => write!(f, "  pci={pci}"),
        None => f.write_str("  no pci"),
    }
}
