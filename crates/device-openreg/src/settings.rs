//! The settings: which devices there are, and which faults they have. Each is an option of the backend and a
//! variable.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use device_registry::backend::{Fault, LoadFailure, OptionSpec, OptionValue, Options};

/// A setting: the option and the variable that set it, and what a valid value is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) option: &'static str,
    pub(crate) variable: &'static str,
    expected: &'static str,
}

impl Setting {
    const fn new(option: &'static str, variable: &'static str, expected: &'static str) -> Self {
        Self { option, variable, expected }
    }

    const fn spec(self) -> OptionSpec {
        OptionSpec::new(self.option, self.expected)
    }
}

pub(crate) const DEVICES: Setting =
    Setting::new("devices", "OPENREG_DEVICES", "a number of devices from 0 to 65536");
pub(crate) const MEMORY: Setting = Setting::new(
    "memory",
    "OPENREG_MEMORY",
    "a size for all devices, or one for each, separated by commas. A size is a number of bytes, or of KiB, MiB, GiB or \
     TiB such as 64MiB, and a multiple of 4KiB above 0",
);
pub(crate) const FAIL_ALLOCATION: Setting = Setting::new(
    "fail_allocation",
    "OPENREG_FAIL_ALLOCATION",
    "the number of the allocation that fails, counted from 1",
);
pub(crate) const FAIL_COPY: Setting = Setting::new(
    "fail_copy",
    "OPENREG_FAIL_COPY",
    "the number of the write, read, copy or fill that fails, counted from 1",
);
pub(crate) const LOSE_DEVICE: Setting = Setting::new(
    "lose_device",
    "OPENREG_LOSE_DEVICE",
    "the number of the operation at which the device is lost, counted from 1",
);
pub(crate) const SLOW: Setting = Setting::new(
    "slow",
    "OPENREG_SLOW",
    "a number of ns, us, ms or s such as 1ms, by which each operation takes longer",
);
pub(crate) const STALL: Setting =
    Setting::new("stall", "OPENREG_STALL", "the number of the operation that stalls, counted from 1");

/// The options of the backend.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    DEVICES.spec(),
    MEMORY.spec(),
    FAIL_ALLOCATION.spec(),
    FAIL_COPY.spec(),
    LOSE_DEVICE.spec(),
    SLOW.spec(),
    STALL.spec(),
];

/// The number of devices that a device index can name.
const MOST_DEVICES: usize = u16::MAX as usize + 1;

/// Memory sizes are multiples of it.
const PAGE: usize = 4096;

/// The values of all settings.
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
    /// Reads each setting from its option, or else from its variable.
    ///
    /// # Errors
    ///
    /// For the first setting with an invalid value: its name, its value, where it was set and what is
    /// expected.
    pub(crate) fn read(
        options: &Options,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, LoadFailure> {
        type OfNumber = fn(u64) -> Fault;
        let read = |setting: &'static Setting| Value::read(setting, options, &variable);
        let mut settings = Self::default();
        if let Some(devices) = read(&DEVICES)? {
            settings.memory = vec![settings.memory[0]; devices.device_count()?];
        }
        if let Some(memory) = read(&MEMORY)? {
            settings.memory = memory.sizes(settings.memory.len())?;
        }
        let faults: [(&Setting, OfNumber); 4] = [
            (&FAIL_ALLOCATION, |nth| Fault::FailAllocation { nth }),
            (&FAIL_COPY, |nth| Fault::FailCopy { nth }),
            (&LOSE_DEVICE, |nth| Fault::LoseDevice { nth }),
            (&STALL, |nth| Fault::Stall { nth }),
        ];
        for (setting, fault) in faults {
            if let Some(value) = read(setting)? {
                settings.faults.push(fault(value.nth()?));
            }
        }
        if let Some(slow) = read(&SLOW)? {
            settings.faults.push(Fault::Slow { by: slow.duration()? });
        }
        Ok(settings)
    }
}

/// The value of a setting that is set.
struct Value<'a> {
    setting: &'static Setting,
    text: Cow<'a, str>,
    /// If the option is set, which takes precedence over the variable.
    option: Option<&'a OptionValue>,
}

impl<'a> Value<'a> {
    fn read(
        setting: &'static Setting,
        options: &'a Options,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, LoadFailure> {
        if let Some(value) = options.value(setting.option) {
            return Ok(Some(Self { setting, text: value.as_str().into(), option: Some(value) }));
        }
        match variable(setting.variable).map(OsString::into_string) {
            // An empty value is how a shell undoes an export.
            None => Ok(None),
            Some(Ok(text)) if text.is_empty() => Ok(None),
            Some(Ok(text)) => Ok(Some(Self { setting, text: text.into(), option: None })),
            Some(Err(text)) => {
                Err(LoadFailure::new(format_args!("{} is not valid UTF-8: {text:?}", setting.variable)))
            }
        }
    }

    fn device_count(&self) -> Result<usize, LoadFailure> {
        let count = number(&self.text).and_then(|number| usize::try_from(number).ok());
        let count = count.filter(|&count| count <= MOST_DEVICES);
        count.ok_or_else(|| self.invalid(self.setting.expected))
    }

    /// The memory of each of `count` devices.
    fn sizes(&self, count: usize) -> Result<Vec<usize>, LoadFailure> {
        let sizes: Option<Vec<usize>> = self.text.split(',').map(|text| size(text.trim())).collect();
        match sizes.as_deref() {
            Some(&[size]) => Ok(vec![size; count]),
            Some(sizes) if sizes.len() == count => Ok(sizes.to_vec()),
            Some(sizes) => Err(self.invalid(format_args!(
                "one size, or one for each of the {count} devices (option `devices` or {}), found {} sizes",
                DEVICES.variable,
                sizes.len()
            ))),
            None => Err(self.invalid(self.setting.expected)),
        }
    }

    fn nth(&self) -> Result<u64, LoadFailure> {
        let nth = number(&self.text).filter(|&nth| nth > 0);
        nth.ok_or_else(|| self.invalid(self.setting.expected))
    }

    fn duration(&self) -> Result<Duration, LoadFailure> {
        let units = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
        let duration = with_unit(&self.text, &units).map(Duration::from_nanos);
        duration.ok_or_else(|| self.invalid(self.setting.expected))
    }

    fn invalid(&self, expected: impl fmt::Display) -> LoadFailure {
        match self.option {
            Some(value) => value.invalid(expected),
            None => LoadFailure::new(format_args!(
                "{}={:?} is invalid: expected {expected}",
                self.setting.variable, self.text
            )),
        }
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

    type Values<'a> = &'a [(Setting, &'a str)];

    fn read(options: Values<'_>, variables: Values<'_>) -> Result<Settings, LoadFailure> {
        let none = Options::new(OPTIONS);
        let set = |options: Options, (setting, value): &(Setting, &str)| options.with(setting.option, value);
        Settings::read(&options.iter().fold(none, set), |name| {
            variables.iter().find(|(setting, _)| setting.variable == name).map(|(_, value)| value.into())
        })
    }

    /// By variables. Options with the same values give the same settings.
    fn settings(values: Values<'_>) -> Result<Settings, LoadFailure> {
        let by_variables = read(&[], values);
        let set: Vec<_> = values.iter().copied().filter(|(_, value)| !value.is_empty()).collect();
        assert_eq!(read(&set, &[]).ok(), by_variables.as_ref().ok().cloned());
        by_variables
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
            ("2", "4096,1GiB", &[4096, 1 << 30]),
            #[cfg(target_pointer_width = "64")]
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
    fn every_fault_has_its_option_and_its_variable() {
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
            assert_eq!(settings(&[(name, value)]).unwrap().faults, [fault], "{name:?}={value}");
        }
        assert_eq!(settings(&[(STALL, "4"), (SLOW, "2s"), (FAIL_COPY, "1")]).unwrap().faults.len(), 3);
    }

    #[test]
    fn an_invalid_value_is_an_error_that_says_where_it_was_set_and_what_is_expected() {
        for (setting, values, expected) in [
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
            (
                MEMORY,
                &["4KiB,4KiB,4KiB"],
                "one for each of the 2 devices (option `devices` or OPENREG_DEVICES), found 3 sizes",
            ),
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
                let Setting { option, variable, .. } = setting;
                for (failure, beginning) in [
                    (settings(&[(setting, value)]), format!("{variable}={value:?} is invalid: expected ")),
                    (
                        read(&[(setting, value)], &[]),
                        format!("option {option}={value:?}, set by the program, is invalid: expected "),
                    ),
                ] {
                    let failure = failure.expect_err(value);
                    let message = failure.to_string();
                    assert!(message.starts_with(&beginning) && message.contains(expected), "{message}");
                    assert!(!failure.is_unavailable());
                }
            }
        }
    }

    #[test]
    fn an_option_takes_precedence_over_its_variable_only() {
        let found = read(&[(DEVICES, "1")], &[(DEVICES, "3"), (MEMORY, "4KiB"), (STALL, "4")]).unwrap();
        assert_eq!(found, Settings { memory: vec![4096], faults: vec![Fault::Stall { nth: 4 }] });
        // The value of the variable is not looked at.
        assert_eq!(read(&[(DEVICES, "1")], &[(DEVICES, "many")]).unwrap().memory.len(), 1);
    }

    #[test]
    fn an_empty_variable_is_not_set_and_an_empty_option_is_invalid() {
        for setting in [DEVICES, MEMORY, FAIL_ALLOCATION, FAIL_COPY, LOSE_DEVICE, SLOW, STALL] {
            assert_eq!(settings(&[(setting, "")]).unwrap(), Settings::default());
            let failure = read(&[(setting, "")], &[]).unwrap_err().to_string();
            assert!(failure.contains(&format!("option {}=\"\", set by", setting.option)), "{failure}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_value_that_is_not_utf8_is_an_error_that_shows_it() {
        use std::os::unix::ffi::OsStringExt;
        for Setting { variable: name, .. } in
            [DEVICES, MEMORY, FAIL_ALLOCATION, FAIL_COPY, LOSE_DEVICE, SLOW, STALL]
        {
            let value = || OsString::from_vec(b"2\xFF".to_vec());
            let variable = |other: &str| (other == name).then(value);
            let failure = Settings::read(&Options::new(OPTIONS), variable).unwrap_err();
            assert_eq!(failure.to_string(), format!("{name} is not valid UTF-8: \"2\\xFF\""));
        }
    }
}
