//! Takes the place of burn's ndarray backend: burn's `Device` then holds any registered device.
//!
//! `device_burn` has the documentation.

pub use device_burn_backend::{Registry as NdArray, RegistryDevice as NdArrayDevice};

/// What `device_burn` looks for, so that a program without the patch is told so by its compiler.
#[doc(hidden)]
pub fn the_patch_line_of_device_burn_is_missing_see_its_readme() {}
