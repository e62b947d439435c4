//! ONNX Runtime on any registered device: a library that any program can register, and that offers each
//! device of `device-registry` as an execution provider with the device's text as its name.
//!
//! The functions that ONNX Runtime looks up are [`CreateEpFactories`] and [`ReleaseEpFactory`]. A program in
//! Rust that uses the crate `ort` needs no library: with the feature `ort`, `register` offers the backends
//! that are linked into the program itself.

device_registry::autoload!();

mod abi;
mod api;
mod choice;
mod context;
mod control;
mod counts;
#[cfg(feature = "ort")]
mod environment;
mod factory;
mod failure;
mod node;
mod operators;
mod place;
mod profiler;
mod provider;
mod registration;
mod stream;
#[cfg(feature = "ort")]
mod stub;
mod transfer;

pub use counts::counts;
#[cfg(feature = "ort")]
pub use environment::{device, register, register_backend};
pub use registration::{CreateEpFactories, ReleaseEpFactory, device_ort_text};
