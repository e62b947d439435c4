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
        "rows of different shapes make no tensor: row {:?} has shape {first:?} and row {row:?} has shape {other:?}",
        vec![0; row.len()]
    )]
    #[non_exhaustive]
    Ragged {
        /// The shape of the first row that is nested as deeply.
        first: Vec<usize>,
        /// Which row differs: its index in each dimension around it, outermost first.
        row: Vec<usize>,
        /// The shape of that row.
        other: Vec<usize>,
    },
    /// The shape has more bytes than can be addressed; found out before any memory is asked for.
    #[error("a tensor of shape {shape:?} and dtype {dtype} has more bytes than can be addressed")]
    #[non_exhaustive]
    TooLarge {
        /// The shape asked for.
        shape: Vec<usize>,
        /// The type of the elements.
        dtype: DType,
    },
    /// The host does not have the memory to lay out the elements, or to hold those read back.
    #[error("the host has no memory for the {bytes} bytes of the elements")]
    #[non_exhaustive]
    HostMemory {
        /// How many bytes were asked for.
        bytes: usize,
    },
    /// Not one element, where the only one was asked for.
    #[error(
        "the item of a tensor is its only element, and this one, of shape {shape:?}, has {}",
        shape.iter().product::<usize>()
    )]
    #[non_exhaustive]
    NotOneElement {
        /// The tensor's.
        shape: Vec<usize>,
    },
    /// A buffer does not have the length of the tensor that it was to be.
    #[error("a tensor of shape {shape:?} and dtype {dtype} has {expected} bytes, and the buffer has {found}")]
    #[non_exhaustive]
    WrongLength {
        /// The shape asked for.
        shape: Vec<usize>,
        /// The type of the elements.
        dtype: DType,
        /// The bytes of such a tensor.
        expected: usize,
        /// The length of the buffer in bytes.
        found: usize,
    },
    /// The elements are of another type than was asked for.
    #[error("the tensor holds {held}, and {asked} was asked for")]
    #[non_exhaustive]
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
