//! The door in the process: burn's ndarray backend is a registered device, by a `[patch]` line.

// Where this import is not resolved, the workspace of the program lacks the line
//     [patch.crates-io]
//     burn-ndarray = { git = "…" }
// of the README of device-burn. Without the line, use the feature `loopback` instead of `patch`.
use burn_ndarray::the_patch_line_of_device_burn_is_missing_see_its_readme as patched;
use burn_tensor::Device;

use crate::Error;
use crate::device::usable;

/// burn's own device for a device string, in the process. [`device`](crate::device) is this function, where
/// the feature `patch` is on.
///
/// # Errors
///
/// What [`device`](crate::device) returns.
pub fn device(text: &str) -> Result<Device, Error> {
    patched();
    Ok(Device::new(usable(device_registry::device(text)?)?))
}
