//! The errors of decoding.

use std::error::Error;
use std::fmt;

use device_registry::{Device, DeviceError, ErrorChain};
use device_tensor::{Tensor, TensorError};

use crate::LoadError;

/// Why a picture could not be decoded. `Debug` is the message with its causes.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are not a PNG picture.
    #[error("expected a PNG picture, which begins with `\\x89PNG\\r\\n\\x1a\\n`; found {found}")]
    NotPng {
        /// What the bytes seem to be.
        found: String,
    },
    /// The bytes begin as a PNG, but are damaged or cut off.
    #[error("the PNG picture is damaged or cut off")]
    Damaged(#[source] Box<dyn Error + Send + Sync>),
    /// The header claims more pixels than are decoded.
    #[error("the PNG claims to be {width} x {height} pixels, and at most {max} pixels are decoded")]
    TooLarge {
        /// The width that it claims.
        width: u32,
        /// The height that it claims.
        height: u32,
        /// The largest number of pixels.
        max: u64,
    },
    /// There is no decoder for the device: none is linked, or it is disabled, or it did not load.
    #[error("there is no decoder for `{device}`; decode on `cpu`, and move the tensor with `.to(device)`")]
    NoDecoder {
        /// The requested device.
        device: Device,
        /// Why the decoder is missing.
        #[source]
        error: LoadError,
    },
    /// The decoder failed.
    #[error("the decoder for `{device}` failed")]
    Decoder {
        /// The requested device.
        device: Device,
        /// The error of the decoder.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The decoder returned a tensor of another shape, dtype or device than it has to.
    #[error(
        "the decoder for `{device}` is wrong: expected {expected:?} of u8 on `{device}`, found {:?} of {} on `{}`",
        tensor.shape(), tensor.dtype(), tensor.device()
    )]
    WrongTensor {
        /// The requested device.
        device: Device,
        /// The shape of the picture.
        expected: [usize; 3],
        /// The tensor that the decoder returned.
        tensor: Tensor,
    },
    /// The tensor could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The device could not be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl fmt::Debug for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ErrorChain::new(self), f)
    }
}
