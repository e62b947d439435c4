//! The door in the process without a `[patch]`, from burn 0.23 on: a registered device is a group of one, and
//! several are one group.
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

/// Why burn makes no group of devices.
#[derive(Debug, thiserror::Error)]
#[error("burn cannot make a group of the devices [{devices}]")]
pub struct NoGroup {
    devices: String,
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
/// What [`device`](crate::device) returns, and [`Error::Group`].
pub fn device(text: &str) -> Result<Device, Error> {
    group(&[text])
}

/// Several devices as one of burn's, which splits tensors over them: tensor parallelism. They may be of
/// several backends. The same devices in the same order give the same group each time.
///
/// A tensor is whole on each device until the program splits it. Of a product with a split matrix, each
/// device computes its part; burn joins or adds up the parts where an operation needs the whole.
///
/// ```
/// use burn::tensor::{Distribution, Sharding, Tensor};
/// # use device_openreg as _;
///
/// let both = device_burn::group(&["openreg:0", "openreg:1"])?;
/// let x = Tensor::<2>::random([8, 64], Distribution::Default, &both);
/// // Each device has half of the columns, and computes half of the product.
/// let weights = Tensor::<2>::random([64, 32], Distribution::Default, &both);
/// let product = x.matmul(weights.with_sharding(Sharding::Split { dim: 1 }));
/// assert_eq!(product.sharding(), Some(Sharding::Split { dim: 1 }));
/// # Ok::<(), device_burn::Error>(())
/// ```
///
/// # Errors
///
/// What [`device`](crate::device) returns for each device. [`Error::Group`] if there are none.
pub fn group(texts: &[&str]) -> Result<Device, Error> {
    let device = |text: &&str| usable(device_registry::device(text)?);
    let devices = texts.iter().map(device).collect::<Result<Vec<_>, Error>>()?;
    Ok(Device::new(group_of(devices)?))
}

/// The group of these devices. burn tells groups apart by number, so there is one for the process.
fn group_of(devices: Vec<RegistryDevice>) -> Result<GroupDevice, NoGroup> {
    static GROUPS: Mutex<Vec<(Vec<RegistryDevice>, GroupDevice)>> = Mutex::new(Vec::new());
    let mut groups = GROUPS.lock();
    if let Some((_, group)) = groups.iter().find(|(known, _)| *known == devices) {
        return Ok(*group);
    }
    let group = GroupDevice::new::<Registry>(&devices).map_err(|source| {
        let devices = devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        NoGroup { devices, source }
    })?;
    groups.push((devices, group));
    Ok(group)
}
