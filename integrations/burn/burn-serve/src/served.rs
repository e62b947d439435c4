//! The burn backend that computes for the clients: the one place that names it.

use device_burn_backend::{RegistryDevice, TooManyBackends};
use device_registry::Device;

/// The backend.
pub(crate) type Served = device_burn_backend::Registry;

/// Registered devices as devices of the backend.
pub(crate) fn devices(devices: &[Device]) -> Result<Vec<RegistryDevice>, TooManyBackends> {
    devices.iter().copied().map(RegistryDevice::new).collect()
}
