//! Switches and options that apply where no variable is set, each with its origin, such as a line of a file.

use std::sync::Arc;

use crate::error::UnknownOption;
use crate::options::{OptionOrigin, OptionValue};

/// Values of switches and options that apply where no environment variable is set: what a configuration file
/// says about one group.
///
/// Each value has an origin, such as `device.toml:7`. Reports and messages show it as the cause. A field of
/// [`Switches`](crate::Switches) without a value here keeps its own default.
///
/// ```
/// use entry_points::{Defaults, EntryPoint, Group};
///
/// static LEVELS: Group<u8> = Group::new("example.levels");
/// static HIGH: EntryPoint<u8> = EntryPoint::new("high", || Ok(Box::new(9)));
///
/// LEVELS.set_defaults(Defaults::new().disable(["hi*"], "levels.toml:2"))?;
/// LEVELS.register(&HIGH)?;
/// let error = LEVELS.load("high").unwrap_err().to_string();
/// assert!(error.ends_with("is disabled by levels.toml:2 (disable = [\"hi*\"])"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    pub(crate) autoload: Option<DefaultValue<bool>>,
    pub(crate) installed: Option<DefaultValue<bool>>,
    pub(crate) disable: Option<DefaultValue<Vec<String>>>,
    pub(crate) select: Option<DefaultValue<Vec<String>>>,
    /// Each with the name of its entry, which need not exist. If an option has several values, the last
    /// counts.
    pub(crate) options: Vec<(String, OptionValue)>,
}

/// A value and where it was set.
#[derive(Clone, Debug)]
pub(crate) struct DefaultValue<T> {
    pub(crate) value: T,
    pub(crate) origin: Arc<str>,
}

/// What has become of a default, at the time of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It is in force.
    InForce,
    /// Something that takes precedence has set another value: a variable, or the program.
    Replaced {
        /// What has set it, such as `CODEC_DECODER_DISABLE=vorb*`.
        by: String,
    },
    /// The group does not have the name of the entry.
    UnknownName {
        /// The word for an entry of the group, such as `decoder`.
        noun: &'static str,
        /// A similar name.
        nearest: Option<&'static str>,
    },
    /// The entry does not have the option.
    UnknownOption(UnknownOption),
}

impl Defaults {
    /// No values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Switches::autoload`](crate::Switches::autoload).
    #[must_use]
    pub fn autoload(mut self, on: bool, origin: &str) -> Self {
        self.autoload = Some(DefaultValue { value: on, origin: origin.into() });
        self
    }

    /// Sets [`Switches::installed`](crate::Switches::installed).
    #[must_use]
    pub fn installed(mut self, on: bool, origin: &str) -> Self {
        self.installed = Some(DefaultValue { value: on, origin: origin.into() });
        self
    }

    /// Sets [`Switches::disable`](crate::Switches::disable).
    #[must_use]
    pub fn disable<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>, origin: &str) -> Self {
        self.disable = Some(DefaultValue::list(patterns, origin));
        self
    }

    /// Sets [`Switches::select`](crate::Switches::select).
    #[must_use]
    pub fn select<S: Into<String>>(mut self, patterns: impl IntoIterator<Item = S>, origin: &str) -> Self {
        self.select = Some(DefaultValue::list(patterns, origin));
        self
    }

    /// Sets an option of the entry called `name`, in place of an earlier value. The group need not have the
    /// entry: its report then has a note, as for the variable of options.
    #[must_use]
    pub fn option(mut self, name: &str, option: &str, value: impl Into<String>, origin: &str) -> Self {
        let origin = OptionOrigin::Defaults(origin.into());
        let value = OptionValue { name: option.into(), value: value.into().into(), origin };
        self.options.push((name.to_owned(), value));
        self
    }

    /// The origin of one of the values.
    pub(crate) fn any_origin(&self) -> Option<Arc<str>> {
        let flag = |value: &Option<DefaultValue<bool>>| value.as_ref().map(|value| Arc::clone(&value.origin));
        let list =
            |value: &Option<DefaultValue<Vec<String>>>| value.as_ref().map(|value| Arc::clone(&value.origin));
        let option = || match self.options.first()?.1.origin() {
            OptionOrigin::Defaults(origin) => Some(Arc::clone(origin)),
            _ => None,
        };
        let switch = flag(&self.autoload).or_else(|| flag(&self.installed));
        switch.or_else(|| list(&self.disable)).or_else(|| list(&self.select)).or_else(option)
    }
}

impl DefaultValue<Vec<String>> {
    fn list<S: Into<String>>(patterns: impl IntoIterator<Item = S>, origin: &str) -> Self {
        Self { value: patterns.into_iter().map(Into::into).collect(), origin: origin.into() }
    }
}
