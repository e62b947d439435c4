#![doc = include_str!("../README.md")]

mod channel;
mod client;
mod counts;
mod describe;
mod device;
mod failure;
mod fallback;
mod lease;
mod operation;
mod queue;
mod random;
mod storage;
mod table;
mod unwritten;

pub use channel::RegistryChannel;
pub use client::RegistryClient;
pub use counts::{Counts, OperationCount, Transfers};
pub use device::{RegistryDevice, TooManyBackends};
pub use fallback::{Fallback, InvalidFallback};

/// burn's backend: every operation on any registered device.
pub type Registry = burn_router::BackendRouter<RegistryChannel>;
