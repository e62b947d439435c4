//! What a file says and what of it is in force.

use std::fmt;
use std::path::{Path, PathBuf};

use entry_points::message::shown_path;

/// What [`Config::load`](crate::Config::load) has read and set. `Display` prints the file, and each value
/// with its line.
///
/// ```text
/// configuration of /etc/myapp/device.toml
///   line 1: default = "*:gpu,cpu"
///   line 5: device.backends.disable = ["wgpu"]; not in force: DEVICE_BACKEND_DISABLE=cuda
///   line 6: device.backends.options.openreg.devices = "4"
/// ```
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ConfigReport {
    pub(crate) file: Option<PathBuf>,
    pub(crate) searched: Vec<String>,
    pub(crate) values: Vec<ConfigValue>,
    #[cfg(feature = "plugins")]
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) plugins: Option<device_plugin::InstallReport>,
}

/// A value of the file.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ConfigValue {
    /// The line of the value, from 1.
    pub line: usize,
    /// The key with all before it, such as `device.backends.disable`.
    pub key: String,
    /// The value in the form of TOML: a string in quotes, a list in brackets.
    pub value: String,
    /// What has become of it.
    pub effect: Effect,
}

/// What has become of a value of the file, when it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case", tag = "kind"))]
#[non_exhaustive]
pub enum Effect {
    /// It is in force.
    InForce,
    /// A variable takes precedence.
    #[non_exhaustive]
    Replaced {
        /// The variable, such as `DEVICE_BACKEND_DISABLE=cuda`.
        by: String,
    },
    /// It is set, and changes nothing in this program.
    #[non_exhaustive]
    Idle {
        /// Why, such as the name of a backend that the program does not have.
        reason: String,
    },
}

impl ConfigReport {
    /// The file, as an absolute path without links. `None` if there is none.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The values of the file, in its order.
    #[must_use]
    pub fn values(&self) -> &[ConfigValue] {
        &self.values
    }

    /// Where a file was looked for and not found, or why one was not read, a line each.
    #[must_use]
    pub fn searched(&self) -> &[String] {
        &self.searched
    }

    /// What was installed from the folders of the file and of [`Config::plugins`](crate::Config::plugins).
    /// `None` if neither names one.
    #[cfg(feature = "plugins")]
    #[must_use]
    pub fn plugins(&self) -> Option<&device_plugin::InstallReport> {
        self.plugins.as_ref()
    }
}

impl fmt::Display for ConfigReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "configuration of {}", shown_path(file))?,
            None => f.write_str("no configuration file")?,
        }
        self.searched.iter().try_for_each(|place| write!(f, "\n  {place}"))?;
        self.values.iter().try_for_each(|value| write!(f, "\n  {value}"))
    }
}

impl fmt::Display for ConfigValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, key, value, effect } = self;
        write!(f, "line {line}: {key} = {value}")?;
        match effect {
            Effect::InForce => Ok(()),
            Effect::Replaced { by } => write!(f, "; not in force: {by}"),
            Effect::Idle { reason } => write!(f, "; without effect: {reason}"),
        }
    }
}
