#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod data;
mod display;
mod dtype;
mod error;
mod shape;
mod tensor;

pub use ndarray;

pub use crate::data::Data;
pub use crate::dtype::{DType, Element};
pub use crate::error::TensorError;
pub use crate::tensor::Tensor;
