//! Options by name: a plugin declares them, and its `load` function gets their values.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::failure::LoadFailure;
use crate::message::shown;
use crate::name::is_name;

/// An option that a plugin declares, as constant data: its name, and what its value is.
///
/// [`EntryPoint::with_options`](crate::EntryPoint::with_options) has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    name: &'static str,
    description: &'static str,
}

impl OptionSpec {
    /// An option called `name`. `description` says what its value is:
    /// `addresses of the servers, separated by commas`. Errors list it, and print it after *expected* if a
    /// value is invalid.
    ///
    /// # Panics
    ///
    /// Panics if `name` does not follow the rules for names of entry points: see
    /// [`EntryPoint::new`](crate::EntryPoint::new). In a `static` or `const`, this is a compile error.
    ///
    /// ```compile_fail
    /// # use entry_points::OptionSpec;
    /// const BAD: OptionSpec = OptionSpec::new("fail-copy", "the number of a copy");
    /// ```
    #[must_use]
    pub const fn new(name: &'static str, description: &'static str) -> Self {
        assert!(
            is_name(name.as_bytes()),
            "invalid name of an option: expected 1 to 32 bytes of a-z, 0-9 and _, without a digit at the start"
        );
        Self { name, description }
    }

    /// The name by which users set it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What its value is.
    #[must_use]
    pub const fn description(&self) -> &'static str {
        self.description
    }
}

/// The options of a plugin at one run of its `load` function.
///
/// It contains the values that the program or the environment has set for options that the plugin declares.
/// See [`Group::set_option`](crate::Group::set_option) for how they are set.
#[derive(Clone, Debug)]
pub struct Options {
    specs: &'static [OptionSpec],
    /// In the order of `specs`.
    values: Vec<OptionValue>,
}

impl Options {
    /// Options without values, for tests of a `load` function.
    ///
    /// ```
    /// use entry_points::{OptionSpec, Options};
    ///
    /// const OPTIONS: &[OptionSpec] = &[OptionSpec::new("level", "a number from 0 to 9")];
    ///
    /// let options = Options::new(OPTIONS).with("level", "7");
    /// assert_eq!(options.get("level"), Some("7"));
    /// ```
    #[must_use]
    pub fn new(specs: &'static [OptionSpec]) -> Self {
        Self { specs, values: Vec::new() }
    }

    /// Sets an option, as a program does.
    ///
    /// # Panics
    ///
    /// Panics if the option is not declared.
    #[must_use]
    pub fn with(self, name: &str, value: &str) -> Self {
        self.spec(name);
        let origin = OptionOrigin::Program;
        let mut values = self.values;
        set(&mut values, OptionValue { name: name.into(), value: value.into(), origin });
        Self::declared(self.specs, &values)
    }

    /// The value of an option, if it is set.
    ///
    /// # Panics
    ///
    /// Panics if the plugin does not declare the option: a misspelt name would never be set. In a `load`
    /// function, the panic becomes the error of that plugin.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.value(name).map(OptionValue::as_str)
    }

    /// The value of an option as a `T`, if it is set.
    ///
    /// # Errors
    ///
    /// If the value does not parse: the message has the option, its value, where it was set and its
    /// description, and the source is the error of `T`.
    ///
    /// ```
    /// # use entry_points::{OptionSpec, Options};
    /// const OPTIONS: &[OptionSpec] = &[OptionSpec::new("level", "a number from 0 to 255")];
    ///
    /// let options = Options::new(OPTIONS).with("level", "high");
    /// let failure = options.parse::<u8>("level").unwrap_err();
    /// assert_eq!(
    ///     failure.to_string(),
    ///     "option level=\"high\", set by the program, is invalid: expected a number from 0 to 255"
    /// );
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the plugin does not declare the option.
    pub fn parse<T>(&self, name: &str) -> Result<Option<T>, LoadFailure>
    where
        T: FromStr,
        T::Err: Error + Send + Sync + 'static,
    {
        let Some(value) = self.value(name) else { return Ok(None) };
        let invalid = |error| value.invalid(self.spec(name).description).with_source(error);
        value.as_str().parse().map(Some).map_err(|error: T::Err| invalid(Box::new(error)))
    }

    /// The value of an option and where it was set, if it is set: for values that are not one `T`.
    /// [`OptionValue::invalid`] makes their errors.
    ///
    /// # Panics
    ///
    /// Panics if the plugin does not declare the option.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&OptionValue> {
        self.spec(name);
        self.values.iter().find(|value| value.name() == name)
    }

    /// The `values` that `specs` declares, in the order of `specs`.
    pub(crate) fn declared(specs: &'static [OptionSpec], values: &[OptionValue]) -> Self {
        let set = |spec: &OptionSpec| values.iter().find(|value| value.name() == spec.name).cloned();
        Self { specs, values: specs.iter().filter_map(set).collect() }
    }

    pub(crate) fn into_values(self) -> Vec<OptionValue> {
        self.values
    }

    fn spec(&self, name: &str) -> &'static OptionSpec {
        match self.specs.iter().find(|spec| spec.name == name) {
            Some(spec) => spec,
            None => {
                let declared: Vec<_> = self.specs.iter().map(OptionSpec::name).collect();
                panic!("the plugin does not declare the option `{name}`; it declares {declared:?}")
            }
        }
    }
}

/// Sets an option in a list of values, in place of an earlier value.
pub(crate) fn set(values: &mut Vec<OptionValue>, value: OptionValue) {
    values.retain(|other| other.name != value.name);
    values.push(value);
}

/// The value of an option, and where it was set. `Display` prints `devices=4 (DEVICE_BACKEND_OPTIONS)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionValue {
    pub(crate) name: Arc<str>,
    pub(crate) value: Arc<str>,
    pub(crate) origin: OptionOrigin,
}

impl OptionValue {
    /// The name of the option.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value, without surrounding space if it comes from a variable.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.value
    }

    /// Where it was set.
    #[must_use]
    pub fn origin(&self) -> &OptionOrigin {
        &self.origin
    }

    /// The failure of a `load` function that cannot use the value. `expected` says what would be valid.
    ///
    /// ```
    /// # use entry_points::{OptionSpec, Options};
    /// # const OPTIONS: &[OptionSpec] = &[OptionSpec::new("order", "`little` or `big`")];
    /// # let options = Options::new(OPTIONS).with("order", "middle");
    /// let order = options.value("order").expect("it is set");
    /// assert_eq!(
    ///     order.invalid("`little` or `big`").to_string(),
    ///     "option order=\"middle\", set by the program, is invalid: expected `little` or `big`"
    /// );
    /// ```
    #[must_use]
    pub fn invalid(&self, expected: impl fmt::Display) -> LoadFailure {
        let Self { name, value, origin } = self;
        let value = shown(value);
        LoadFailure::new(format_args!(
            "option {name}=\"{value}\", set by {origin}, is invalid: expected {expected}"
        ))
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={} ({})", shown(&self.name), shown(&self.value), self.origin)
    }
}

/// Where an option was set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptionOrigin {
    /// The program called [`Group::set_option`](crate::Group::set_option).
    Program,
    /// The environment has this variable, such as `CODEC_DECODER_OPTIONS`.
    Variable(Arc<str>),
    /// The program called [`Group::set_defaults`](crate::Group::set_defaults) with this origin, such as
    /// `device.toml:7`.
    Defaults(Arc<str>),
}

impl fmt::Display for OptionOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => f.write_str("the program"),
            Self::Variable(name) => f.write_str(name),
            Self::Defaults(origin) => f.write_str(origin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[OptionSpec] =
        &[OptionSpec::new("devices", "a number of devices"), OptionSpec::new("order", "`little` or `big`")];

    #[test]
    fn an_option_that_is_not_set_is_none_and_one_that_is_set_has_its_value() {
        let options = Options::new(OPTIONS);
        assert_eq!((options.get("devices"), options.value("order")), (None, None));
        assert_eq!(options.parse::<u8>("devices").unwrap(), None);
        let options = options.with("order", "big").with("devices", "3").with("devices", "4");
        assert_eq!((options.get("devices"), options.get("order")), (Some("4"), Some("big")));
        assert_eq!(options.parse("devices").unwrap(), Some(4_usize));
        let names: Vec<_> = options.values.iter().map(OptionValue::name).collect();
        assert_eq!(names, ["devices", "order"], "in the order of the declaration");
    }

    #[test]
    fn a_value_that_does_not_parse_is_a_failure_with_its_origin_and_its_cause() {
        let origin = OptionOrigin::Variable("X_OPTIONS".into());
        let value = OptionValue { name: "devices".into(), value: "ma\"ny".into(), origin };
        let options = Options::declared(OPTIONS, &[value]);
        let failure = options.parse::<u8>("devices").unwrap_err();
        let expected =
            "option devices=\"ma\\\"ny\", set by X_OPTIONS, is invalid: expected a number of devices";
        assert_eq!(failure.messages(), [expected, "invalid digit found in string"]);
        assert!(!failure.is_unavailable());
    }

    #[test]
    fn reading_an_option_that_is_not_declared_panics() {
        let reads: [fn(&Options); 4] = [
            |options| assert!(options.get("device").is_none()),
            |options| assert!(options.parse::<u8>("device").is_ok()),
            |options| assert!(options.value("device").is_none()),
            |options| drop(options.clone().with("device", "1")),
        ];
        for read in reads {
            let panic = std::panic::catch_unwind(|| read(&Options::new(OPTIONS))).unwrap_err();
            let message = crate::message::panic_message(panic);
            assert!(
                message.contains("does not declare the option `device`; it declares [\"devices\""),
                "{message}"
            );
        }
    }
}
