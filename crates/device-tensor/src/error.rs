//! The errors of a tensor.

use std::fmt;

use device_registry::DeviceError;

use crate::DType;

/// Why a tensor could not be made, moved or read.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// An error of the device.
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
    /// The shape has more bytes than can be addressed. This is checked before any allocation.
    #[error("a tensor of shape {shape:?} and dtype {dtype} has more bytes than can be addressed")]
    #[non_exhaustive]
    TooLarge {
        /// The requested shape.
        shape: Vec<usize>,
        /// The type of the elements.
        dtype: DType,
    },
    /// The host does not have the memory to lay out the elements, or to hold them when they are read back.
    #[error("the host does not have the memory for the {bytes} bytes of the elements")]
    #[non_exhaustive]
    HostMemory {
        /// How many bytes were requested.
        bytes: usize,
    },
    /// [`item`](crate::Tensor::item) was called on a tensor that does not have exactly one element.
    #[error("expected a tensor of one element, found {} in shape {shape:?}", shape.iter().product::<usize>())]
    #[non_exhaustive]
    NotOneElement {
        /// The shape of the tensor.
        shape: Vec<usize>,
    },
    /// A buffer has another length than the requested tensor.
    #[error("a tensor of shape {shape:?} and dtype {dtype} has {expected} bytes, and the buffer has {found}")]
    #[non_exhaustive]
    WrongLength {
        /// The requested shape.
        shape: Vec<usize>,
        /// The type of the elements.
        dtype: DType,
        /// The length of such a tensor in bytes.
        expected: usize,
        /// The length of the buffer in bytes.
        found: usize,
    },
    /// The elements were read as another type than they have.
    #[error("expected a tensor of dtype {expected}, found dtype {found}")]
    #[non_exhaustive]
    WrongDType {
        /// The dtype that the caller requested.
        expected: DType,
        /// The dtype of the tensor.
        found: DType,
    },
    /// A DLPack tensor cannot become a tensor here, or a tensor cannot become one of DLPack.
    #[cfg(feature = "dlpack")]
    #[error("DLPack: {reason}")]
    #[non_exhaustive]
    Dlpack {
        /// What was expected, and what was found.
        reason: String,
    },
}

impl fmt::Debug for TensorError {
    /// The text of `Display` and the causes, for a `main` or a test that returns the error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(f, "{error:?}"),
            other => write!(f, "{other}"),
        }
    }
}
