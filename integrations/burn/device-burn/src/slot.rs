//! The door in the process: burn's ndarray backend is a registered device, by a `[patch]` line.

// Where this import is not resolved, the program's workspace has no line
//     [patch.crates-io]
//     burn-ndarray = { git = "…/device-registry" }
// or use the feature `loopback` instead of `slot`.
use burn_ndarray::the_patch_line_of_device_burn_is_missing_see_its_readme as patched;
use burn_tensor::Device;
use device_burn_backend::RegistryDevice;

pub(crate) fn device(device: RegistryDevice) -> Device {
    patched();
    Device::new(device)
}
