#![doc = include_str!("../README.md")]
// Where docs.rs builds the docs, they show which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod data;
mod display;
// DLPack exchanges pointers.
#[cfg(feature = "dlpack")]
#[allow(unsafe_code)]
mod dlpack;
mod dtype;
mod error;
mod shape;
mod tensor;

// Part of what users write: theirs have to be of the same version.
#[cfg(feature = "dlpack")]
pub use dlpark;
pub use half::{bf16, f16};
pub use ndarray;

pub use crate::data::Data;
pub use crate::dtype::{DType, Element};
pub use crate::error::TensorError;
pub use crate::tensor::Tensor;
