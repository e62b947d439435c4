//! A small convolutional network that learns to read handwritten digits, in burn's usual style.
//!
//! No module here names a backend: burn's `Device` is a value, and the network, the batches and the training
//! loop run on the devices that `main.rs` passes in. In reading order:
//!
//! - [`data`]: the 1,797 digits in this repository, and their fixed split into training and held-out digits;
//! - [`batch`]: from digits to tensors on a device;
//! - [`devices`]: from names to burn's devices;
//! - [`model`]: the network and its loss;
//! - [`training`]: burn's `SupervisedTraining`, with checkpoints and [`progress`] on the terminal;
//! - [`evaluation`]: the accuracy, by a plain loop over the held-out digits;
//! - [`curve`]: the loss curve as an SVG picture.

pub mod args;
pub mod batch;
pub mod curve;
pub mod data;
pub mod devices;
pub mod evaluation;
pub mod model;
pub mod progress;
pub mod training;
