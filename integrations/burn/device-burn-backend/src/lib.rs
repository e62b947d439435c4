#![doc = include_str!("../README.md")]

mod channel;
mod client;
mod compose;
mod counts;
mod custom;
mod describe;
mod device;
mod direct;
mod engine;
mod failure;
mod fallback;
mod lease;
mod on_host;
mod operation;
mod policy;
mod profile;
mod queue;
mod random;
mod storage;
mod table;
mod unwritten;

pub use channel::RegistryChannel;
pub use client::RegistryClient;
pub use counts::{Counts, OperationCount, Transfers};
pub use custom::{RegistryPrimitive, custom_operator};
pub use device::{RegistryDevice, TooManyBackends};
pub use engine::KernelUse;
pub use fallback::Fallback;
pub use policy::InvalidVariable;

/// burn's backend: every operation on any registered device.
pub type Registry = burn_router::BackendRouter<RegistryChannel>;
