//! The door in the process without a `[patch]`, from burn 0.23 on: a registered device is a group of one.
//!
//! burn splits tensors over the devices of a group, and a group can be made of any backend's. With one
//! device there is nothing to split: each operation passes burn's interpreter of groups, and reaches the
//! device as it is.

use burn_group::{GroupDevice, GroupError};
use burn_tensor::Device;
use device_burn_backend::{Registry, RegistryDevice};
use parking_lot::Mutex;

use crate::Error;
use crate::device::usable;

/// Why burn makes no group of a device.
#[derive(Debug, thiserror::Error)]
#[error("burn cannot make a group of `{device}`")]
pub struct NoGroup {
    device: device_registry::Device,
    #[source]
    source: GroupError,
}

/// burn's own device for a device string, in the process. [`device`](crate::device) is this function, where
/// the feature `group` is on.
///
/// burn prints it as `Group(GroupDevice { id: 0 })`, with a number for each device in the order of their
/// first use.
///
/// # Errors
///
/// Those of [`device`](crate::device), and [`Error::Group`].
pub fn device(text: &str) -> Result<Device, Error> {
    let device = usable(device_registry::device(text)?)?;
    Ok(Device::new(group_of(device)?))
}

/// The group of a device. burn tells groups apart by number, so there is one for the process.
fn group_of(device: RegistryDevice) -> Result<GroupDevice, NoGroup> {
    static GROUPS: Mutex<Vec<(RegistryDevice, GroupDevice)>> = Mutex::new(Vec::new());
    let mut groups = GROUPS.lock();
    if let Some((_, group)) = groups.iter().find(|(known, _)| *known == device) {
        return Ok(*group);
    }
    let group = GroupDevice::new::<Registry>(&[device])
        .map_err(|source| NoGroup { device: device.device(), source })?;
    groups.push((device, group));
    Ok(group)
}
