#![doc = include_str!("../README.md")]

mod chain;
mod channel;
mod client;
// In burn 0.23, the router does them.
#[cfg(not(feature = "burn-0-23"))]
mod collective;
mod compose;
mod counts;
mod custom;
mod describe;
mod device;
mod direct;
mod dtype;
mod elementwise;
mod engine;
mod failure;
mod fallback;
mod fused;
mod fusion;
mod lease;
mod mapping;
mod on_host;
mod operation;
mod policy;
mod profile;
mod queue;
mod quick;
mod random;
mod slots;
mod step;
mod storage;
mod table;
mod unwritten;

pub use channel::{Registry, RegistryChannel};
pub use client::RegistryClient;
#[cfg(not(feature = "burn-0-23"))]
pub use collective::abandon_collectives;
pub use counts::{Counts, LaunchCount, OperationCount, Transfers};
pub use custom::{RegistryPrimitive, custom_operator};
pub use device::{RegistryDevice, TooManyBackends};
pub use engine::KernelUse;
pub use fallback::Fallback;
pub use fusion::Fusion;
pub use policy::InvalidVariable;
