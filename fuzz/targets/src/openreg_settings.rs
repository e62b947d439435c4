//! The variables and the options of device-openreg, as texts.

use std::ffi::OsString;

use device_registry::Fault;
use device_registry::backend::{LoadFailure, Options};

use crate::check_message;

/// The backend's own source file: it is a private module there.
#[path = "../../../crates/device-openreg/src/settings.rs"]
mod settings;

use settings::Settings;

const DEVICES: &str = settings::DEVICES.variable;
const MEMORY: &str = settings::MEMORY.variable;
const FAIL_ALLOCATION: &str = settings::FAIL_ALLOCATION.variable;
const FAIL_COPY: &str = settings::FAIL_COPY.variable;
const LOSE_DEVICE: &str = settings::LOSE_DEVICE.variable;
const SLOW: &str = settings::SLOW.variable;
const STALL: &str = settings::STALL.variable;

const ALL: [&str; 7] = [DEVICES, MEMORY, FAIL_ALLOCATION, FAIL_COPY, LOSE_DEVICE, SLOW, STALL];

fn by_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Settings, LoadFailure> {
    Settings::read(&Options::new(settings::OPTIONS), variable)
}

/// The same values as options, if they are text. An empty variable is not set.
fn by_options(variable: impl Fn(&str) -> Option<OsString>) -> Option<Result<Settings, LoadFailure>> {
    let mut options = Options::new(settings::OPTIONS);
    for name in ALL {
        if let Some(value) = variable(name).filter(|value| !value.is_empty()) {
            let option = name.strip_prefix("OPENREG_")?.to_lowercase();
            options = options.with(&option, value.to_str()?);
        }
    }
    Some(Settings::read(&options, |_| None))
}

/// The input has a variable on each line, `NAME=value`, in which `NAME` goes without `OPENREG_`.
pub fn openreg_settings(input: &[u8]) {
    let set: Vec<(&str, OsString)> = input.split(|byte| *byte == b'\n').filter_map(variable).collect();
    let value = |name: &str| set.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone());
    let is_set = |name: &str| value(name).is_some_and(|value| !value.is_empty());
    let settings = by_variables(value);
    if let Some(options) = by_options(value) {
        assert_eq!(options.as_ref().ok(), settings.as_ref().ok(), "{set:?}");
        options.err().iter().for_each(|failure| check_message(&failure.to_string()));
    }
    match settings {
        Ok(settings) => {
            let devices = value(DEVICES).filter(|_| is_set(DEVICES));
            let count = devices.map_or(Some(2), |count| count.to_str()?.parse().ok());
            assert_eq!(Some(settings.memory.len()), count, "{set:?}");
            let sound =
                |bytes: &usize| *bytes > 0 && bytes.is_multiple_of(4096) && isize::try_from(*bytes).is_ok();
            assert!(settings.memory.iter().all(sound), "{set:?}");
            let faults = ALL[2..].iter().filter(|name| is_set(name)).count();
            assert_eq!(settings.faults.len(), faults, "{set:?}");
            let again = by_variables(|name| plain(&settings, name)).expect("plain numbers are valid");
            assert_eq!(again, settings, "{set:?}");
        }
        Err(failure) => {
            let message = failure.to_string();
            check_message(&message);
            let blamed = ALL.iter().any(|name| is_set(name) && message.starts_with(name));
            assert!(blamed, "{set:?}: {message}");
            assert!(!failure.is_unavailable(), "{set:?}: a mistake is no missing hardware");
        }
    }
}

/// A variable, if the line is one.
fn variable(line: &[u8]) -> Option<(&'static str, OsString)> {
    let equals = line.iter().position(|byte| *byte == b'=')?;
    let name =
        ALL.iter().find(|name| name.strip_prefix("OPENREG_").map(str::as_bytes) == Some(&line[..equals]))?;
    Some((name, os_string(&line[equals + 1..])?))
}

/// Any bytes that can stand in the environment.
pub(crate) fn os_string(bytes: &[u8]) -> Option<OsString> {
    if bytes.contains(&0) {
        return None;
    }
    #[cfg(unix)]
    return Some(std::os::unix::ffi::OsStringExt::from_vec(bytes.to_vec()));
    #[cfg(not(unix))]
    return String::from_utf8(bytes.to_vec()).ok().map(OsString::from);
}

/// The same settings in numbers without units.
fn plain(settings: &Settings, name: &str) -> Option<OsString> {
    let nth = |of: fn(&Fault) -> Option<u64>| settings.faults.iter().find_map(of).map(|nth| nth.to_string());
    let text = match name {
        DEVICES => Some(settings.memory.len().to_string()),
        MEMORY => {
            let sizes: Vec<String> = settings.memory.iter().map(usize::to_string).collect();
            Some(sizes.join(","))
        }
        FAIL_ALLOCATION => {
            nth(|fault| if let Fault::FailAllocation { nth } = fault { Some(*nth) } else { None })
        }
        FAIL_COPY => nth(|fault| if let Fault::FailCopy { nth } = fault { Some(*nth) } else { None }),
        LOSE_DEVICE => nth(|fault| if let Fault::LoseDevice { nth } = fault { Some(*nth) } else { None }),
        STALL => nth(|fault| if let Fault::Stall { nth } = fault { Some(*nth) } else { None }),
        SLOW => settings.faults.iter().find_map(|fault| match fault {
            Fault::Slow { by } => Some(format!("{}ns", by.as_nanos())),
            _ => None,
        }),
        other => panic!("{other} is no variable of openreg"),
    };
    text.map(OsString::from)
}
