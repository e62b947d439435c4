//! From bytes to a tensor.

use device_registry::registry::isolate;
use device_registry::{Device, default_device};
use device_tensor::{DType, Tensor};

use crate::{DecodeError, Picture, decoders};

/// Decodes a PNG into a tensor of `u8` with the shape `[channels, height, width]`, in the memory of `device`.
///
/// `None` is this thread's [`default_device`]: the cpu, until the program sets another one. A device without
/// an index is the current one of its backend. The decoder is found by the backend's name and loaded at its
/// first use. The call blocks until the tensor is there.
///
/// 8 and 16 bits a sample (of 16, the upper 8 are kept) and fewer, interlaced or not. The channels are the
/// file's: 1 for grey, 3 for colour, and one more for transparency. A palette becomes colour. For an
/// animation it is the picture that other programs show. Colour profiles and gamma are not applied.
///
/// # Errors
///
/// If the bytes are no PNG, or one that is damaged, cut off or too large; if there is no decoder for the
/// device; or if the device cannot be used. A decoder that panics is an error too, [`DecodeError::Decoder`].
pub fn decode(bytes: &[u8], device: impl Into<Option<Device>>) -> Result<Tensor, DecodeError> {
    // First, so that other bytes load no decoder.
    let picture = Picture::new(bytes)?;
    let device = device.into().unwrap_or_else(default_device).resolve();
    let decoder = decoders().load(device.name()).map_err(|error| DecodeError::NoDecoder { device, error })?;
    // A decoder is foreign code: it may panic, or return a wrong tensor.
    let tensor = isolate(|| decoder.decode(&picture, device))
        .unwrap_or_else(|panicked| Err(DecodeError::Decoder { device, source: panicked.into() }))?;
    if tensor.device() == device && tensor.dtype() == DType::U8 && tensor.shape() == picture.shape() {
        Ok(tensor)
    } else {
        Err(DecodeError::WrongTensor { device, expected: picture.shape(), tensor })
    }
}
