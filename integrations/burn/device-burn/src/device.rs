//! burn's `Device` by a device string, and what was counted for it.

use burn_tensor::Device;
use device_burn_backend::{Counts, Fallback, RegistryClient, RegistryDevice};

use crate::Error;

/// burn's own device for a device string, such as `"openreg:0"`. Opens the device, so that a mistake is an error here.
///
/// ```
/// use burn::tensor::Tensor;
/// # use device_openreg as _;
///
/// let device = device_burn::device("openreg:0")?;
/// let sum = Tensor::<1>::from_floats([1.0, 2.0], &device) + 1.0;
/// assert_eq!(sum.into_data().try_to_vec::<f32>()?, [2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Those of [`device_registry::device`], those of opening the device, and [`Error::Fallback`].
pub fn device(text: &str) -> Result<Device, Error> {
    #[cfg(feature = "slot")]
    return crate::slot::device(text);
    #[cfg(all(feature = "loopback", not(feature = "slot")))]
    return crate::loopback::device(text);
}

#[cfg(not(any(feature = "loopback", feature = "slot")))]
compile_error!("device-burn needs one of its features: `slot`, with a `[patch]` line, or `loopback`");

/// The device for burn's traits, after what can be wrong with it.
pub(crate) fn usable(device: device_registry::Device) -> Result<RegistryDevice, Error> {
    Fallback::current()?;
    let device = RegistryDevice::new(device)?;
    device.device().open()?;
    Ok(device)
}

/// The device strings of all devices that can be used now. Opens none of them.
///
/// Backends that do not load or have no devices are left out: [`device_registry::devices`] has their reasons. burn's own
/// `Device::enumerate` lists `cpu` only, as burn has one constant for the slot.
#[must_use]
pub fn devices() -> Vec<String> {
    device_registry::devices()
        .filter_map(|(_, devices)| devices.ok())
        .flatten()
        .map(|device| device.to_string())
        .collect()
}

/// What happened to the operations of a device in this process: which ran on it, and which fell back to the CPU.
///
/// # Errors
///
/// Those of [`device_registry::device`].
pub fn counts(text: &str) -> Result<Counts, Error> {
    Ok(client(text)?.counts())
}

/// Begins to count from zero.
///
/// # Errors
///
/// Those of [`device_registry::device`].
pub fn reset_counts(text: &str) -> Result<(), Error> {
    client(text)?.reset_counts();
    Ok(())
}

fn client(text: &str) -> Result<RegistryClient, Error> {
    Ok(RegistryClient::of(RegistryDevice::new(device_registry::device(text)?)?))
}
