//! Which device is taken.

use device_registry::{Device, DeviceError, device, first_available};

/// A device, and what was passed over for it.
pub(crate) struct Choice<'a> {
    pub(crate) device: Device,
    /// In the order of the list, each with the reason.
    pub(crate) passed_over: Vec<(&'a str, DeviceError)>,
}

impl<'a> Choice<'a> {
    /// The device of a device string, or the first that is there of a comma list: nothing falls back in silence, and to
    /// nothing that is not in the list. Spaces around a device string are not part of it.
    ///
    /// A device that is there is taken although it may have no kernels, which is an error then.
    pub(crate) fn of(list: &'a str) -> Result<Self, DeviceError> {
        let texts: Vec<&str> = list.split(',').map(str::trim).collect();
        if let [text] = texts[..] {
            return Ok(Self { device: device(text)?.resolve(), passed_over: Vec::new() });
        }
        let chosen = first_available(&texts.join(","))?;
        let mut passed_over = Vec::new();
        for text in texts {
            // It asks the same three questions again: is it linked, does it load, has it the device. The reason why a
            // backend did not load is remembered.
            match device(text).and_then(Device::properties) {
                Ok(_) => break,
                Err(reason) => passed_over.push((text, reason)),
            }
        }
        Ok(Self { device: chosen.resolve(), passed_over })
    }
}
