//! Which device is taken.

use device_registry::{Device, DeviceError, device, first_available};

/// The device of a device string, or the first that is there of a comma list, with what was passed over for
/// it: nothing falls back in silence, and to nothing that is not in the list. Spaces around a device string
/// are not part of it.
///
/// A device that is there is taken although it may have no kernels, which is an error then.
pub(crate) fn choose(list: &str) -> Result<(Device, Vec<(String, DeviceError)>), DeviceError> {
    let texts: Vec<&str> = list.split(',').map(str::trim).collect();
    if let [text] = texts[..] {
        return Ok((device(text)?.resolve(), Vec::new()));
    }
    let found = first_available(&texts.join(","))?;
    Ok((found.device.resolve(), found.passed_over))
}
