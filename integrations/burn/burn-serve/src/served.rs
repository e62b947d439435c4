//! The burn backend that computes for the clients, the one place that names it, and what is said of it.

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

/// What ran where, for each device that clients have used.
pub(crate) fn report_counts(devices: &[Device]) {
    for device in devices {
        let Ok(device) = RegistryDevice::new(*device) else { continue };
        let counts = RegistryClient::of(device).counts();
        if !counts.operations.is_empty() {
            report(format_args!("{counts}"));
        }
    }
}
