//! A registered device, in the form that burn's traits require.

use std::env;
use std::fmt;

use burn_backend::{DeviceId, DeviceOps, DeviceSettings};
use burn_flex::FlexDevice;
use device_registry::Device;
use parking_lot::Mutex;

/// The variable with the device string that [`RegistryDevice::default`] reads.
const DEFAULT: &str = "DEVICE_BURN_DEVICE";

/// A registered device that burn computes on: [`device_registry::Device`] with its index, under burn's
/// traits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegistryDevice(
    /// The device, and the number of its backend. `None` for `cpu`, which burn wants as a constant.
    Option<(Device, u8)>,
);

impl RegistryDevice {
    /// The registry's `cpu`, spelled as in burn, where it is a variant of an enum.
    #[allow(non_upper_case_globals, reason = "burn's name for it")]
    pub const Cpu: Self = Self(None);

    /// The device for burn. A device without an index means the current device of its backend.
    ///
    /// # Errors
    ///
    /// If the process already uses devices of 256 backends: burn numbers the backends with a byte.
    pub fn new(device: Device) -> Result<Self, TooManyBackends> {
        let device = device.resolve();
        let number = number(device.name())?;
        Ok(if device == Device::cpu() { Self::Cpu } else { Self(Some((device, number))) })
    }

    /// The registered device, with its index.
    #[must_use]
    pub fn device(self) -> Device {
        self.0.map_or_else(Device::cpu, |(device, _)| device)
    }
}

/// The device of `DEVICE_BURN_DEVICE`, or else the registry's default device.
///
/// # Panics
///
/// If the variable has no device string that this program knows, as burn does for a wrong `BURN_DEVICE`.
/// `device_burn::device` returns an error instead.
impl Default for RegistryDevice {
    fn default() -> Self {
        let device = match env::var(DEFAULT) {
            Ok(text) if !text.trim().is_empty() => {
                Device::parse(text.trim()).unwrap_or_else(|error| panic!("{DEFAULT}={text}: {error}"))
            }
            _ => device_registry::default_device(),
        };
        Self::new(device).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl fmt::Debug for RegistryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.device())
    }
}

impl fmt::Display for RegistryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.device())
    }
}

impl burn_backend::Device for RegistryDevice {
    fn from_id(id: DeviceId) -> Self {
        let place = usize::from(id.type_id).checked_sub(1);
        let name = place.and_then(|place| BACKENDS.lock().get(place).copied()).unwrap_or("cpu");
        // The identifier is from `to_id`, so that the name is one of this program.
        Device::parse(&format!("{name}:{}", id.index_id))
            .ok()
            .and_then(|device| Self::new(device).ok())
            .unwrap_or(Self::Cpu)
    }

    /// burn calls it for each operation.
    fn to_id(&self) -> DeviceId {
        let (number, index) = self.0.map_or((CPU, None), |(device, number)| (number, device.index()));
        DeviceId { type_id: number.into(), index_id: index.unwrap_or(0) }
    }
}

impl DeviceOps for RegistryDevice {
    /// The defaults of burn's CPU engine, so that a program computes with the same types on every device.
    fn defaults(&self) -> DeviceSettings {
        FlexDevice.defaults()
    }
}

/// The names of the backends in use, after `cpu`. The place of a name, from 1 on, is its number.
static BACKENDS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The number of the registry's `cpu`.
const CPU: u8 = 0;

fn number(name: &'static str) -> Result<u8, TooManyBackends> {
    if name == "cpu" {
        return Ok(CPU);
    }
    let mut backends = BACKENDS.lock();
    let place = backends.iter().position(|&known| known == name).unwrap_or_else(|| {
        backends.push(name);
        backends.len() - 1
    });
    u8::try_from(place + 1).map_err(|_| TooManyBackends)
}

/// The process uses devices of 256 backends already: burn numbers the backends with a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("burn can use devices of 256 backends in a process, and this one is of another: use fewer backends")]
pub struct TooManyBackends;

#[cfg(test)]
mod tests {
    use burn_backend::Device as _;

    use super::*;

    #[test]
    fn a_device_survives_its_identifier() {
        let device = RegistryDevice::new(Device::cpu()).unwrap();
        assert_eq!(RegistryDevice::from_id(device.to_id()), device);
        assert_eq!(format!("{device:?}"), "cpu");
        assert_eq!(device, RegistryDevice::Cpu);
    }

    #[test]
    fn an_index_that_does_not_exist_stays_an_error() {
        let device = RegistryDevice::new(Device::parse("cpu:1").unwrap()).unwrap();
        assert_eq!(device.to_string(), "cpu:1");
        assert!(device.device().open().is_err());
    }
}
