//! The settings in the environment: which devices there are, and which faults they have.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use device_registry::backend::{Fault, LoadFailure};

pub(crate) const DEVICES: &str = "OPENREG_DEVICES";
pub(crate) const MEMORY: &str = "OPENREG_MEMORY";
pub(crate) const FAIL_ALLOCATION: &str = "OPENREG_FAIL_ALLOCATION";
pub(crate) const FAIL_COPY: &str = "OPENREG_FAIL_COPY";
pub(crate) const LOSE_DEVICE: &str = "OPENREG_LOSE_DEVICE";
pub(crate) const SLOW: &str = "OPENREG_SLOW";
pub(crate) const STALL: &str = "OPENREG_STALL";

/// As many as a device index can name.
const MOST_DEVICES: usize = u16::MAX as usize + 1;

/// Memory sizes are multiples of it.
const PAGE: usize = 4096;

/// The settings in the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The memory of each device, in bytes.
    pub(crate) memory: Vec<usize>,
    /// The faults of each device.
    pub(crate) faults: Vec<Fault>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { memory: vec![1 << 30; 2], faults: Vec::new() }
    }
}

impl Settings {
    /// # Errors
    ///
    /// For the first variable with an invalid value: its name, its value and what is expected.
    pub(crate) fn from_env() -> Result<Self, LoadFailure> {
        Self::from_variables(|name| env::var_os(name))
    }

    pub(crate) fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, LoadFailure> {
        let read = |name| Setting::read(name, variable(name));
        let mut settings = Self::default();
        if let Some(devices) = read(DEVICES)? {
            settings.memory = vec![settings.memory[0]; devices.device_count()?];
        }
        if let Some(memory) = read(MEMORY)? {
            settings.memory = memory.sizes(settings.memory.len())?;
        }
        let nth = |name| read(name)?.map(|setting| setting.nth()).transpose();
        let faults = &mut settings.faults;
        faults.extend(nth(FAIL_ALLOCATION)?.map(|nth| Fault::FailAllocation { nth }));
        faults.extend(nth(FAIL_COPY)?.map(|nth| Fault::FailCopy { nth }));
        faults.extend(nth(LOSE_DEVICE)?.map(|nth| Fault::LoseDevice { nth }));
        faults.extend(nth(STALL)?.map(|nth| Fault::Stall { nth }));
        if let Some(slow) = read(SLOW)? {
            faults.push(Fault::Slow { by: slow.duration()? });
        }
        Ok(settings)
    }
}

/// A variable that is set.
struct Setting {
    name: &'static str,
    value: String,
}

impl Setting {
    fn read(name: &'static str, value: Option<OsString>) -> Result<Option<Self>, LoadFailure> {
        match value.map(OsString::into_string) {
            // An empty value is how a shell undoes an export.
            None => Ok(None),
            Some(Ok(value)) if value.is_empty() => Ok(None),
            Some(Ok(value)) => Ok(Some(Self { name, value })),
            Some(Err(value)) => Err(LoadFailure::new(format_args!("{name} is not valid UTF-8: {value:?}"))),
        }
    }

    fn device_count(&self) -> Result<usize, LoadFailure> {
        let count = number(&self.value).and_then(|number| usize::try_from(number).ok());
        let count = count.filter(|&count| count <= MOST_DEVICES);
        count.ok_or_else(|| self.invalid("a number of devices from 0 to 65536"))
    }

    /// The memory of each of `count` devices.
    fn sizes(&self, count: usize) -> Result<Vec<usize>, LoadFailure> {
        let sizes: Option<Vec<usize>> = self.value.split(',').map(|text| size(text.trim())).collect();
        match sizes.as_deref() {
            Some(&[size]) => Ok(vec![size; count]),
            Some(sizes) if sizes.len() == count => Ok(sizes.to_vec()),
            Some(sizes) => Err(self.invalid(format_args!(
                "one size, or one for each of the {count} devices ({DEVICES}), found {} sizes",
                sizes.len()
            ))),
            None => Err(self.invalid(
                "a size for all devices, or one for each, separated by commas. A size is a number of bytes, or of KiB, \
                 MiB, GiB or TiB such as 64MiB, and a multiple of 4KiB above 0",
            )),
        }
    }

    fn nth(&self) -> Result<u64, LoadFailure> {
        let nth = number(&self.value).filter(|&nth| nth > 0);
        nth.ok_or_else(|| self.invalid("the number of the operation that has the fault, counted from 1"))
    }

    fn duration(&self) -> Result<Duration, LoadFailure> {
        let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
        let duration = with_unit(&self.value, &units).map(Duration::from_nanos);
        duration.ok_or_else(|| {
            self.invalid("a number of ns, us, ms or s such as 1ms, by which each operation takes longer")
        })
    }

    fn invalid(&self, expected: impl std::fmt::Display) -> LoadFailure {
        LoadFailure::new(format_args!("{}={:?} is invalid: expected {expected}", self.name, self.value))
    }
}

/// A number of digits only; `parse` would accept a sign.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// A number followed by one of the units, as a multiple of the smallest.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number(digits)?.checked_mul(*factor)
}

fn size(text: &str) -> Option<usize> {
    let bytes =
        with_unit(text, &[("", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)])?;
    let bytes = isize::try_from(bytes).ok()?.unsigned_abs();
    (bytes > 0 && bytes.is_multiple_of(PAGE)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Settings, LoadFailure> {
        Settings::from_variables(|name| {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn with_nothing_set_there_are_two_devices_of_a_gibibyte() {
        let expected = Settings { memory: vec![1 << 30, 1 << 30], faults: vec![] };
        assert_eq!(settings(&[]).unwrap(), expected);
        assert_eq!(settings(&[(DEVICES, ""), (MEMORY, ""), (SLOW, ""), (STALL, "")]).unwrap(), expected);
    }

    #[test]
    fn devices_have_one_size_or_each_its_own() {
        for (devices, memory, expected) in [
            ("3", "64MiB", &[64 << 20, 64 << 20, 64 << 20][..]),
            ("2", "4096,2GiB", &[4096, 2 << 30]),
            ("2", "4KiB, 1TiB", &[4096, 1 << 40]),
            ("1", "", &[1 << 30]),
            ("0", "", &[]),
            ("0", "1GiB", &[]),
            ("", "8KiB,4KiB", &[8192, 4096]),
        ] {
            let found = settings(&[(DEVICES, devices), (MEMORY, memory)]).unwrap().memory;
            assert_eq!(found, expected, "{devices:?} {memory:?}");
        }
        assert_eq!(settings(&[(DEVICES, "65536")]).unwrap().memory.len(), 65536);
    }

    #[test]
    fn every_fault_has_its_variable() {
        for (name, value, fault) in [
            (FAIL_ALLOCATION, "1", Fault::FailAllocation { nth: 1 }),
            (FAIL_COPY, "20", Fault::FailCopy { nth: 20 }),
            (LOSE_DEVICE, "3", Fault::LoseDevice { nth: 3 }),
            (STALL, "4", Fault::Stall { nth: 4 }),
            (SLOW, "1ms", Fault::Slow { by: Duration::from_millis(1) }),
            (SLOW, "20us", Fault::Slow { by: Duration::from_micros(20) }),
            (SLOW, "5ns", Fault::Slow { by: Duration::from_nanos(5) }),
            (SLOW, "0s", Fault::Slow { by: Duration::ZERO }),
        ] {
            assert_eq!(settings(&[(name, value)]).unwrap().faults, [fault], "{name}={value}");
        }
        assert_eq!(settings(&[(STALL, "4"), (SLOW, "2s"), (FAIL_COPY, "1")]).unwrap().faults.len(), 3);
    }

    #[test]
    fn an_invalid_value_is_an_error_with_its_variable_and_what_is_expected() {
        for (name, values, expected) in [
            (
                DEVICES,
                &["two", "-1", "+1", "1.0", "65537", " 2", "99999999999999999999"][..],
                "from 0 to 65536",
            ),
            (
                MEMORY,
                &["64MB", "1", "4097", "0", "0GiB", "-4096", "GiB", "1 GiB", "16777216TiB", ",", "4KiB,"],
                "64MiB",
            ),
            (MEMORY, &["4KiB,4KiB,4KiB"], "one for each of the 2 devices (OPENREG_DEVICES), found 3 sizes"),
            (FAIL_ALLOCATION, &["0", "first", "-1", "1,2"], "counted from 1"),
            (FAIL_COPY, &["0"], "counted from 1"),
            (LOSE_DEVICE, &["0"], "counted from 1"),
            (STALL, &["0"], "counted from 1"),
            (
                SLOW,
                &["1", "ms", "1m", "0.5ms", "1 ms", "99999999999999999999s", "99999999999s"],
                "such as 1ms",
            ),
        ] {
            for value in values {
                let failure = settings(&[(name, value)]).expect_err(value);
                let message = failure.to_string();
                assert!(message.starts_with(&format!("{name}={value:?} is invalid: expected ")), "{message}");
                assert!(message.contains(expected), "{message}");
                assert!(!failure.is_unavailable());
            }
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_value_that_is_not_utf8_is_an_error_that_shows_it() {
        use std::os::unix::ffi::OsStringExt;
        for name in [DEVICES, MEMORY, FAIL_ALLOCATION, FAIL_COPY, LOSE_DEVICE, SLOW, STALL] {
            let value = || OsString::from_vec(b"2\xFF".to_vec());
            let failure = Settings::from_variables(|other| (other == name).then(value)).unwrap_err();
            assert_eq!(failure.to_string(), format!("{name} is not valid UTF-8: \"2\\xFF\""));
        }
    }
}
