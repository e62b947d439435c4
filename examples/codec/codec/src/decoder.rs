//! The group of decoders, and the one for the cpu.

use device_registry::Device;
use device_tensor::Tensor;

use crate::{DecodeError, Picture};

/// Decodes pictures into the memory of one backend's devices.
pub trait Decoder: Send + Sync {
    /// Decodes `picture` into a tensor of `u8` with the picture's shape on `device`, which has its index.
    ///
    /// Several threads may call it at a time. It blocks until the device has the tensor.
    ///
    /// # Errors
    ///
    /// If the picture is damaged or cut off, or the device fails. Other errors of the decoder are
    /// [`DecodeError::Decoder`].
    fn decode(&self, picture: &Picture<'_>, device: Device) -> Result<Tensor, DecodeError>;
}

/// A decoder as constant data: the name of the backend, where it comes from, and how to load it.
pub type DecoderDescriptor = entry_points::EntryPoint<dyn Decoder>;

static BUILT_IN: [DecoderDescriptor; 1] = [DecoderDescriptor::new("cpu", || Ok(Box::new(Cpu)))
    .in_package(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))];

entry_points::group! {
    /// The distributed slice that decoder crates register in; see [`entry_points!`](crate::entry_points).
    pub static DECODERS: [DecoderDescriptor];

    /// The group `codec.decoders`: every decoder of this program, by the name of the backend it decodes for.
    ///
    /// Listing it runs no decoder's code. Variables with the prefix `CODEC_DEVICE_BACKEND` switch decoders on
    /// and off, and leave the device backends alone.
    pub fn decoders() -> Group<dyn Decoder> {
        entry_points::Group::new("codec.decoders")
            .noun("decoder")
            .switches("CODEC_DEVICE_BACKEND")
            .built_in(&BUILT_IN)
            .autoload_line("device_registry::autoload!();")
    }
}

struct Cpu;

impl Decoder for Cpu {
    fn decode(&self, picture: &Picture<'_>, device: Device) -> Result<Tensor, DecodeError> {
        Ok(Tensor::new(picture.decode_on_host()?, device)?)
    }
}
