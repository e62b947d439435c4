//! Takes the place of burn's ndarray backend: burn's `Device` then holds any registered device.
//!
//! `device_burn` has the documentation.

pub use device_burn_backend::{Registry as NdArray, RegistryDevice as NdArrayDevice};

/// `device_burn` imports it, so that a program without the patch gets a compile error with this name.
#[doc(hidden)]
pub fn the_patch_line_of_device_burn_is_missing_see_its_readme() {}
