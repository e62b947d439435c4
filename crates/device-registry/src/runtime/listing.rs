//! Whether a device is there, its properties, and its memory: from the device if it is open, otherwise from
//! its backend.

use crate::backend::{DeviceProperties, MemoryInfo, Presence};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::probe::{check_exists, into_result, load, query_presence, query_properties};
use crate::runtime::statistics::MemoryStatistics;
use crate::runtime::table;

/// The properties of a device. Loads its backend, and opens nothing.
pub(crate) fn properties(device: Device) -> Result<DeviceProperties, DeviceError> {
    check_exists(device)?;
    properties_of_counted(device)
}

/// The properties of a device that exists, as a count has shown. Loads its backend, and opens nothing.
pub(crate) fn properties_of_counted(device: Device) -> Result<DeviceProperties, DeviceError> {
    let device = device.resolve();
    match table::find(device)? {
        Some(open) => Ok(open.properties().clone()),
        None => query_properties(device, load(device, "properties")?),
    }
}

/// Whether the device is there now. Loads its backend, and opens nothing.
pub(crate) fn presence(device: Device) -> Result<Presence, DeviceError> {
    check_exists(device)?;
    presence_of_counted(device)
}

/// Whether a device that exists, as a count has shown, is there now.
pub(crate) fn presence_of_counted(device: Device) -> Result<Presence, DeviceError> {
    let device = device.resolve();
    match table::find(device)?.and_then(OpenDevice::presence) {
        Some(presence) => Ok(presence),
        None => query_presence(device, load(device, "presence")?),
    }
}

/// The statistics and the memory of a device that is open. Opens nothing.
pub(crate) fn memory_of_open(device: Device) -> Option<(MemoryStatistics, Result<MemoryInfo, DeviceError>)> {
    let open = table::find(device).ok().flatten()?;
    Some((open.memory_statistics(), open.call("memory info", |driver| driver.memory_info())))
}

/// Checks that the device exists and is there now. Opens nothing.
pub(crate) fn check_present(device: Device) -> Result<(), DeviceError> {
    check_exists(device)?;
    check_present_of_counted(device)
}

/// Checks that a device that exists, as a count has shown, is there now.
pub(crate) fn check_present_of_counted(device: Device) -> Result<(), DeviceError> {
    let device = device.resolve();
    into_result(device, presence_of_counted(device)?)
}
