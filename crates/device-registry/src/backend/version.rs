//! Versions of what a device offers, and the interface through which its backend uses it.

use std::fmt;
use std::str::FromStr;

/// A version with two numbers, such as `3.0`. Versions compare by number: 8.10 is above 8.9.
///
/// ```
/// use device_registry::Version;
///
/// let version: Version = "8.10".parse()?;
/// assert_eq!((version.major, version.minor), (8, 10));
/// assert!(version > Version::new(8, 9));
/// # Ok::<(), device_registry::backend::VersionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(clippy::exhaustive_structs, reason = "a version has two numbers")]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

impl Version {
    /// The version `major.minor`.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

impl FromStr for Version {
    type Err = VersionError;

    /// Parses two decimal numbers with a dot between them.
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        let parsed = text
            .split_once('.')
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }));
        parsed.ok_or_else(|| VersionError { text: text.to_owned() })
    }
}

/// A text is not a [`Version`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid version {text:?}: expected two numbers, as in `3.0`")]
pub struct VersionError {
    text: String,
}

/// The programming interface through which a backend uses a device, such as `OpenCL 3.0`.
///
/// ```
/// use device_registry::{Api, Version};
///
/// let api = Api::new("Vulkan").with_version(Version::new(1, 3));
/// assert_eq!(api.to_string(), "Vulkan 1.3");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Api {
    /// Its name, as its specification writes it.
    pub name: String,
    /// The newest version that the device supports, if known.
    pub version: Option<Version>,
}

impl Api {
    /// An interface of an unknown version.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), version: None }
    }

    /// Adds the version.
    #[must_use]
    pub fn with_version(self, version: Version) -> Self {
        Self { version: Some(version), ..self }
    }
}

/// Writes the name and the version.
impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => f.pad(&format!("{} {version}", self.name)),
            None => f.pad(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_two_numbers_and_nothing_else() {
        for (text, version) in [("3.0", (3, 0)), ("12.40", (12, 40)), ("0.00", (0, 0))] {
            assert_eq!(text.parse(), Ok(Version::new(version.0, version.1)), "{text}");
        }
        for bad in ["", "3", "3.", ".3", "3.0.1", "+3.0", "-1.0", " 3.0", "3.x", "4294967296.0", "٣.0"] {
            let error = bad.parse::<Version>().unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}: expected two numbers")), "{error}");
        }
    }
}
