//! What can go wrong between bytes and a tensor.

use std::error::Error;
use std::fmt;

use device_registry::{Device, DeviceError, ErrorChain};
use device_tensor::{Tensor, TensorError};

use crate::LoadError;

/// Why a picture could not be decoded. `Debug` is the message with its causes.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are something else.
    #[error("expected a PNG picture, which begins with `\\x89PNG\\r\\n\\x1a\\n`; found {found}")]
    NotPng {
        /// What the bytes are, as far as that can be said.
        found: String,
    },
    /// It begins as a PNG and does not go on as one.
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
    /// Nothing decodes on the device: no decoder for it is linked, or it is disabled, or did not load.
    #[error("nothing decodes on `{device}`; decode on `cpu`, and move the tensor with `.to(device)`")]
    NoDecoder {
        /// The device that was asked for.
        device: Device,
        /// Why there is none.
        #[source]
        error: LoadError,
    },
    /// The decoder itself did not work.
    #[error("the decoder for `{device}` did not work")]
    Decoder {
        /// The device.
        device: Device,
        /// What the decoder reports.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The decoder returned another tensor than it should have.
    #[error(
        "the decoder for `{device}` is wrong: it returned {:?} of {} on `{}` in place of {expected:?} of u8",
        tensor.shape(), tensor.dtype(), tensor.device()
    )]
    WrongTensor {
        /// The device that was asked for.
        device: Device,
        /// The shape of the picture.
        expected: [usize; 3],
        /// What the decoder returned.
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
