#![doc = include_str!("../README.md")]

mod device;
mod error;
#[cfg(feature = "loopback")]
mod loopback;
#[cfg(feature = "slot")]
mod slot;

pub use device_burn_backend::{Counts, Fallback, InvalidFallback, OperationCount, Transfers, kernels};

pub use crate::device::{counts, device, devices, of_registered, reset_counts};
pub use crate::error::Error;
#[cfg(feature = "loopback")]
pub use crate::loopback::LoopbackError;
