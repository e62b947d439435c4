//! Device strings, against the grammar in the documentation of `Device`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::sync::Once;

use device_registry::registry::Switches;
use device_registry::{Device, DeviceError, DeviceUuid, PciAddress, backends, device_count, is_available};

use crate::check_message;

const RESERVED: [&str; 4] = ["auto", "default", "all", "none"];

/// The input is a device string.
pub fn device_string(input: &[u8]) {
    use_all_backends();
    let text = String::from_utf8_lossy(input);
    check_device(&text);
    check_identity::<DeviceUuid>(&text);
    check_identity::<PciAddress>(&text);
}

/// Uses what is linked, whatever the environment says.
pub(crate) fn use_all_backends() {
    static BACKENDS: Once = Once::new();
    BACKENDS.call_once(|| {
        backends().configure(Switches::default()).expect("nothing has used the backends yet");
        for name in ["cpu", "openreg"] {
            assert!(backends().get(name).is_some(), "{name} is linked");
        }
    });
}

fn check_device(text: &str) {
    let parsed = Device::parse(text);
    assert_eq!(is_available(text), parsed.as_ref().is_ok_and(|device| exists(*device)), "{text:?}");
    let device = match parsed {
        Ok(device) => device,
        Err(error) => return check_error(text, &error),
    };
    let form = Form::of(text).unwrap_or_else(|| panic!("{text:?} is not in the grammar and gives {device}"));
    assert_eq!(device.name(), form.name, "{text:?}");
    match form.rest {
        Rest::Index(index) => {
            assert_eq!(device.index(), index.filter(|index| *index > 0 || !device.is_cpu()), "{text:?}");
        }
        Rest::Selector => {
            assert!(exists(device) && (device.is_cpu() || device.index().is_some()), "{text:?}");
        }
    }
    let printed = device.to_string();
    let again = Device::parse(&printed).unwrap_or_else(|error| panic!("{printed:?}: {error}"));
    assert!(again == device && hash(again) == hash(device), "{text:?} is {device}, and that is {again}");
    assert_eq!(Device::from_str(text).ok(), Some(device), "{text:?}");
    let resolved = device.resolve();
    assert!(resolved.is_cpu() || resolved.index().is_some(), "{text:?}");
    assert_eq!(resolved.resolve(), resolved, "{text:?}");
}

/// The error is of the kind that the grammar and what is linked call for.
fn check_error(text: &str, error: &DeviceError) {
    let message = error.to_string();
    check_message(&message);
    check_message(&format!("{error:?}"));
    let form = Form::of(text);
    let linked = form.as_ref().is_some_and(|form| backends().get(form.name).is_some());
    match error {
        DeviceError::Syntax(_) => {
            assert!(form.is_none(), "{text:?} is in the grammar: {message}");
            assert!(!message.contains('\n') && message.chars().count() < 1500, "{message}");
        }
        DeviceError::NoDefaultSelection => assert_eq!(text, "auto"),
        DeviceError::UnknownBackend(_) => assert!(form.is_some() && !linked, "{text:?}: {message}"),
        DeviceError::Selector(_) => {
            let selects = form.is_some_and(|form| matches!(form.rest, Rest::Selector));
            assert!(selects && linked, "{text:?}: {message}");
        }
        _ => panic!("{text:?} is not to give this error: {message}"),
    }
}

/// Printing and parsing again returns an equal value.
fn check_identity<T: FromStr<Err: std::fmt::Display> + ToString + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(value) => {
            let printed = value.to_string();
            assert!(
                printed.parse().is_ok_and(|again: T| again == value),
                "{text:?} is printed as {printed:?}"
            );
        }
        Err(error) => assert!(!error.to_string().is_empty(), "{text:?}"),
    }
}

fn exists(device: Device) -> bool {
    let ordinal = usize::from(device.resolve().index().unwrap_or_default());
    device_count(device.name()).is_ok_and(|count| ordinal < count)
}

fn hash(device: Device) -> u64 {
    let mut hasher = DefaultHasher::new();
    device.hash(&mut hasher);
    hasher.finish()
}

/// A device string that is in the grammar, read in another way than the crate does.
pub(crate) struct Form<'a> {
    pub(crate) name: &'a str,
    rest: Rest,
}

enum Rest {
    Index(Option<u16>),
    Selector,
}

impl<'a> Form<'a> {
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let name = text.split([':', '@']).next()?;
        let starts = name.starts_with(|c: char| c == '_' || c.is_ascii_lowercase());
        let continues = name.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit());
        if !starts || !continues || name.len() > 32 || RESERVED.contains(&name) {
            return None;
        }
        let rest = &text[name.len()..];
        let rest = if rest.is_empty() {
            Rest::Index(None)
        } else if let Some(index) = rest.strip_prefix(':') {
            // In the form that a number is printed in, and in no other.
            Rest::Index(Some(index.parse().ok().filter(|number: &u16| number.to_string() == index)?))
        } else if let Some(prefix) = rest.strip_prefix("@uuid=") {
            begins_a_uuid(prefix).then_some(Rest::Selector)?
        } else if let Some(part) =
            ["@name=", "@vendor=", "@platform="].iter().find_map(|key| rest.strip_prefix(key))
        {
            is_a_part(part).then_some(Rest::Selector)?
        } else {
            rest.strip_prefix("@pci=")?.parse::<PciAddress>().ok().map(|_| Rest::Selector)?
        };
        Some(Self { name, rest })
    }
}

/// Whether the text has words of the allowed characters, with spaces between them only.
fn is_a_part(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let ends = [text.chars().next(), text.chars().next_back()];
    ends.iter().all(|c| c.is_some_and(is_word)) && text.chars().all(|c| c == ' ' || is_word(c))
}

/// Whether a UUID results when the prefix is completed with digits and hyphens.
fn begins_a_uuid(prefix: &str) -> bool {
    const DIGITS: &str = "00000000000000000000000000000000";
    const GROUPS: &str = "00000000-0000-0000-0000-000000000000";
    let completed = |form: &str| form.get(prefix.len()..).map(|rest| format!("{prefix}{rest}"));
    let grouped = completed(GROUPS).is_some_and(|text| text.parse::<DeviceUuid>().is_ok());
    let digits = completed(DIGITS).is_some_and(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    !prefix.is_empty() && (grouped || digits)
}
