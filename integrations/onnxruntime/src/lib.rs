//! ONNX Runtime on any registered device: a library that any program can register, and that offers each
//! device of `device-registry` as an execution provider with the device's text as its name.
//!
//! The functions that ONNX Runtime looks up are [`CreateEpFactories`] and [`ReleaseEpFactory`].

device_registry::autoload!();

mod abi;
mod api;
mod choice;
mod context;
mod counts;
mod factory;
mod failure;
mod node;
mod operators;
mod place;
mod provider;
mod registration;
mod transfer;

pub use registration::{CreateEpFactories, ReleaseEpFactory, device_ort_text};
