#![doc = include_str!("../README.md")]

mod device;
pub mod engines;
mod error;
#[cfg(feature = "group")]
pub mod group;
#[cfg(feature = "loopback")]
pub mod loopback;
#[cfg(feature = "patch")]
pub mod patch;

pub use device_burn_backend::{
    Counts, Fallback, Fusion, InvalidVariable, KernelUse, LaunchCount, OperationCount, RegistryPrimitive,
    Transfers, custom_operator,
};

pub use crate::device::{counts, device, devices, engine_of, reset_counts};
pub use crate::error::Error;
#[cfg(feature = "group")]
pub use crate::group::group;
