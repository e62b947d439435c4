//! Which device is taken.

use device_registry::{Device, DeviceError, device, first_available};

/// The device of a device string, or the first that is there of a list such as `opencl:gpu,cpu`, with what
/// was passed over for it: nothing falls back silently, nor to anything that is not in the list. Spaces
/// around a device string are not part of it.
///
/// A device that is there is taken although it may have no kernels, which is an error then.
pub(crate) fn choose(list: &str) -> Result<(Device, Vec<(String, DeviceError)>), DeviceError> {
    let list = list.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    match device(&list) {
        Err(DeviceError::Syntax(_)) => {
            let chosen = first_available(&list)?;
            Ok((chosen.device.resolve(), chosen.passed_over))
        }
        device => Ok((device?.resolve(), Vec::new())),
    }
}
