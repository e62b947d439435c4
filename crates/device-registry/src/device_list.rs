//! The devices of all backends as a list that prints.

use std::fmt;

use entry_points::Report;

use crate::available::enabled_backends;
use crate::backend::{DeviceProperties, Presence, backends};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::{listing, probe};

/// The report on all backends, and their devices with their properties. Loads each backend that is not
/// disabled, and opens no device. A device that is absent or lost is in the list, with the reason.
///
/// It is for a program's `--list`. Without loading anything, `backends().report()` prints the first part.
///
/// ```
/// let list = device_registry::device_list().to_string();
/// assert!(list.contains("\ncpu:\n  cpu "), "{list}");
/// ```
#[must_use]
pub fn device_list() -> DeviceList {
    let found = enabled_backends().map(|backend| {
        let devices = probe::devices_of(backend);
        (backend.name(), devices.map(|devices| devices.into_iter().map(DeviceLine::of).collect()))
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

#[derive(Clone, Debug)]
struct DeviceLine {
    device: Device,
    presence: Result<Presence, DeviceError>,
    properties: Result<DeviceProperties, DeviceError>,
}

impl DeviceLine {
    fn of(device: Device) -> Self {
        // The presence first: a backend that looks for a device finds out more about it.
        let presence = listing::presence_of_counted(device);
        Self { device, presence, properties: listing::properties_of_counted(device) }
    }
}

impl fmt::Display for DeviceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.presence, &self.properties) {
            (Ok(Presence::Present), Ok(properties)) => properties.fmt(f),
            (Ok(Presence::Present), Err(error)) => error.fmt(f),
            (Ok(other), Ok(properties)) => write!(f, "{properties}, {other}"),
            // The properties of an absent device need not be known.
            (Ok(other), Err(_)) => other.fmt(f),
            (Err(error), _) => error.fmt(f),
        }
    }
}

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
            for line in devices {
                write!(f, "\n  {:<12}  {line}", line.device)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device_of;

    #[test]
    fn the_list_has_absent_and_lost_devices_with_the_reason() {
        device_of("second_is_absent");
        let lost = device_of("is_lost_at_a_read");
        let mut byte = [0];
        lost.allocate(1).unwrap().read(0, &mut byte).unwrap_err();
        let list = device_list().to_string();
        for part in [
            "\nsecond_is_absent:\n  second_is_absent:0  fake 0, ",
            "\n  second_is_absent:1  absent: no server at 127.0.0.1:9",
            "\n  is_lost_at_a_read:0  fake, lost: it fell off the bus",
        ] {
            assert!(list.contains(part), "{part:?} in {list}");
        }
    }
}
