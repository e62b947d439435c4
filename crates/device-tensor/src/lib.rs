#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod data;
mod display;
mod dtype;
mod error;
mod shape;
mod tensor;

// Part of what users write: theirs have to be of the same version.
pub use half::{bf16, f16};
pub use ndarray;

pub use crate::data::Data;
pub use crate::dtype::{DType, Element};
pub use crate::error::TensorError;
pub use crate::tensor::Tensor;
