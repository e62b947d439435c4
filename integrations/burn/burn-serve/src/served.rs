//! The burn backend that computes for the clients, the one place that names it, and its description.

use std::fmt;
use std::io::{Write, stderr};

use device_burn_backend::{RegistryClient, RegistryDevice, TooManyBackends};
use device_registry::Device;

/// The backend.
pub(crate) type Served = device_burn_backend::Registry;

/// Registered devices as devices of the backend.
pub(crate) fn devices(devices: &[Device]) -> Result<Vec<RegistryDevice>, TooManyBackends> {
    devices.iter().copied().map(RegistryDevice::new).collect()
}

/// A line on standard error. Unlike `eprintln!`, it does not panic if that is closed.
pub(crate) fn report(line: fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "{line}");
}

/// What ran where since the server started, a table for each device.
pub(crate) fn counts(devices: &[Device]) -> String {
    let mut text = String::new();
    for (index, device) in devices.iter().enumerate() {
        // A device may be served twice.
        let first = !devices[..index].contains(device);
        if let Some(device) = RegistryDevice::new(*device).ok().filter(|_| first) {
            text += &format!("{}\n", RegistryClient::of(device).counts());
        }
    }
    text
}
