//! From a device string to a device.

use std::str::FromStr;

use crate::backend::backends;
use crate::device::Device;
use crate::device::grammar::{DeviceString, Which};
use crate::device::list::AUTO;
use crate::error::DeviceError;
use crate::select;
use crate::selection;

/// The device that a string names: a short form of [`Device::parse`], for use as `device("cpu")?`.
///
/// # Errors
///
/// Returns the errors of [`Device::parse`].
#[inline]
pub fn device(text: &str) -> Result<Device, DeviceError> {
    Device::parse(text)
}

impl Device {
    /// The device that a string names. Runs no backend code, unless the string has a selector or is `auto`. A
    /// device without one need not exist.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Syntax`] if the string is not well formed, [`DeviceError::UnknownBackend`] if no
    /// backend of the name is linked, [`DeviceError::Backend`] if it is disabled or offered by two packages.
    ///
    /// With a selector, [`DeviceError::Selector`] if it matches no device or several, or the error of the
    /// backend if it does not load or cannot count its devices.
    ///
    /// For `auto`, [`DeviceError::NoDefaultSelection`] if nothing says what it stands for, or the errors of
    /// the [default selection](crate::default_selection).
    #[inline]
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        match Self::find(text) {
            Some(device) => Ok(device),
            None => Self::parse_strictly(text),
        }
    }

    /// The fast path of `parse`: the device of a valid string without a selector. `None` if the slow path
    /// must decide.
    fn find(text: &str) -> Option<Self> {
        // The name of a registered backend is well formed, so this path skips the check of each character.
        let (name, index) = DeviceString::split(text)?;
        let backend = backends().get(name).filter(|backend| backend.is_usable())?;
        Some(Self::of_backend(backend, index))
    }

    #[cold]
    fn parse_strictly(text: &str) -> Result<Self, DeviceError> {
        if text == AUTO {
            return selection::auto_device();
        }
        let DeviceString { name, which } = DeviceString::parse(text)?;
        let backend = backends().usable(name)?;
        match which {
            Which::Current => Ok(Self::of_backend(backend, None)),
            Which::Index(index) => Ok(Self::of_backend(backend, Some(index))),
            Which::Selected(selector) => select::select(selector, backend, text),
        }
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        Self::parse(text)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Device {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Device {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "serde")]
    use std::fmt;

    use super::*;
    use crate::testing::fake;

    #[test]
    fn display_and_parse_are_inverse() {
        for text in ["cpu", "cpu:1", "fake", "fake:0", "fake:65535"] {
            let _ = fake(None);
            let device = device(text).unwrap();
            assert_eq!(device.to_string(), text);
            assert_eq!(Device::parse(&device.to_string()).unwrap(), device);
        }
    }

    #[test]
    fn the_fast_path_of_parse_agrees_with_the_slow_path() {
        let _ = fake(None);
        let names =
            ["cpu", "fake", "", "auto", "none", "Fake", "fak", "fakee", "é", "fake@x", "fake:0", "cpu:"];
        let indices =
            ["", ":", ":0", ":7", ":9", ":00", ":01", ":10", ":65535", ":65536", ":-1", ":+1", ": 1", ":é"];
        for text in names.iter().flat_map(|name| indices.map(|index| format!("{name}{index}"))) {
            assert_eq!(Device::find(&text), Device::parse_strictly(&text).ok(), "{text:?}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_writes_and_reads_the_string() {
        use serde::Deserialize;
        use serde::de::IntoDeserializer;
        use serde::de::value::{Error, StrDeserializer};

        struct Shown(Device);
        impl fmt::Display for Shown {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // A formatter is a serializer of strings.
                serde::Serialize::serialize(&self.0, f)
            }
        }
        assert_eq!(Shown(fake(Some(1))).to_string(), "fake:1");
        let read = |text: &'static str| -> Result<Device, Error> {
            let deserializer: StrDeserializer<'_, Error> = text.into_deserializer();
            Device::deserialize(deserializer)
        };
        assert_eq!(read("fake:1"), Ok(fake(Some(1))));
        assert!(read("fake:01").unwrap_err().to_string().contains("leading zeros"));
    }
}
