//! The devices of a backend: all of them, those that are there, and those that a check has lost.

use std::collections::BTreeSet;

use device_registry::{Device, Presence, device, device_count};
use parking_lot::{Mutex, MutexGuard};

use crate::failure::Failure;

/// The devices of a device's backend that are there.
pub(crate) fn present_devices(of: Device) -> Result<Vec<Device>, Failure> {
    let mut devices = all_devices(of)?;
    devices.retain(|&device| !is_absent(device));
    Ok(devices)
}

/// Whether the backend says that the device is not there. Checks find every other answer.
pub(crate) fn is_absent(device: Device) -> bool {
    matches!(device.presence(), Ok(Presence::Absent(_)))
}

/// All devices of a device's backend, absent ones too.
pub(crate) fn all_devices(of: Device) -> Result<Vec<Device>, Failure> {
    (0..device_count(of.name())?).map(|ordinal| Ok(device(&format!("{}:{ordinal}", of.name()))?)).collect()
}

/// Whether a check has lost the device and a reset failed. Later checks have no device to test.
pub(crate) fn is_lost_permanently(device: Device) -> bool {
    lost_permanently().contains(&device.resolve())
}

/// The devices that a check has lost and a reset did not bring back.
pub(crate) fn lost_permanently() -> MutexGuard<'static, BTreeSet<Device>> {
    static DEVICES: Mutex<BTreeSet<Device>> = Mutex::new(BTreeSet::new());
    DEVICES.lock()
}
