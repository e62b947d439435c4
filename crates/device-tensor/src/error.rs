//! What can go wrong with a tensor.

use std::fmt;

use device_registry::DeviceError;

use crate::DType;

/// Why a tensor could not be made, moved or read.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The device could not do it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The rows of nested data have different shapes.
    #[error(
        "rows of different shapes make no tensor: row 0 has shape {first:?} and row {row} has shape {other:?}"
    )]
    Ragged {
        /// The shape of the first row.
        first: Vec<usize>,
        /// Which row differs.
        row: usize,
        /// The shape of that row.
        other: Vec<usize>,
    },
    /// The elements are of another type than was asked for.
    #[error("the tensor holds {held}, and {asked} was asked for")]
    WrongDType {
        /// The tensor's.
        held: DType,
        /// What was asked for.
        asked: DType,
    },
}

impl fmt::Debug for TensorError {
    /// What `Display` tells and the causes, for those whose `main` or test returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(f, "{error:?}"),
            other => write!(f, "{other}"),
        }
    }
}
