//! The devices of all backends as a list that prints.

use std::fmt;

use entry_points::Report;

use crate::available::devices;
use crate::backend::{DeviceProperties, backends};
use crate::device::Device;
use crate::error::DeviceError;

/// The report on all backends, and their devices with their properties. Loads each backend that is not disabled, and
/// opens no device.
///
/// It is for a program's `--list`. Without loading anything, `backends().report()` prints the first part.
///
/// ```
/// let list = device_registry::device_list().to_string();
/// assert!(list.contains("\ncpu:\n  cpu "), "{list}");
/// ```
#[must_use]
pub fn device_list() -> DeviceList {
    let found = devices().map(|(backend, devices)| {
        let with_properties = |device: Device| (device, device.properties());
        (backend.name(), devices.map(|devices| devices.into_iter().map(with_properties).collect()))
    });
    let devices = found.collect();
    // Afterwards, so that it shows the state of each backend after it was loaded.
    DeviceList { report: backends().report(), devices }
}

/// The result of [`device_list`]. `Display` prints it on several lines.
#[derive(Clone, Debug)]
pub struct DeviceList {
    report: Report,
    devices: Vec<(&'static str, Result<Vec<DeviceLine>, DeviceError>)>,
}

type DeviceLine = (Device, Result<DeviceProperties, DeviceError>);

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        for (backend, devices) in &self.devices {
            let devices = match devices {
                Ok(devices) => devices,
                Err(error) => {
                    write!(f, "\n\n{backend}: {error}")?;
                    continue;
                }
            };
            let none = if devices.is_empty() { " no devices" } else { "" };
            write!(f, "\n\n{backend}:{none}")?;
            for (device, properties) in devices {
                match properties {
                    Ok(properties) => write!(f, "\n  {device:<12}  {properties}")?,
                    Err(error) => write!(f, "\n  {device:<12}  {error}")?,
                }
            }
        }
        Ok(())
    }
}
