//! The decoder for `openreg`: a line in Cargo.toml, and `codec::decode(bytes, device("openreg")?)` decodes
//! there.
//!
//! It has the shape of a vendor's decoder: the compressed bytes go to the device, an engine there reads them
//! from the device's memory and leaves the tensor in it. **The engine is simulated, as the device is**: it is
//! code on the host, which reads the bytes back and decodes them as the cpu does. A decoder for hardware
//! starts the hardware in its place, and finds the hardware's own memory behind a buffer by
//! [`Buffer::span`](device_registry::Buffer::span).

#![forbid(unsafe_code)]

use codec::{DECODERS, DecodeError, Decoder, DecoderDescriptor, LoadFailure, Picture};
use device_registry::{Buffer, Device};
use device_tensor::Tensor;

codec::entry_points! {
    /// The decoder for `openreg`, for programs that register it by hand.
    #[distributed_slice(DECODERS)]
    pub static OPENREG: DecoderDescriptor = DecoderDescriptor::new("openreg", load);
}

fn load() -> Result<Box<dyn Decoder>, LoadFailure> {
    // A decoder for hardware looks for its library here, and returns `LoadFailure::unavailable` if it is
    // missing.
    Ok(Box::new(OpenReg))
}

struct OpenReg;

impl Decoder for OpenReg {
    fn decode(&self, picture: &Picture<'_>, device: Device) -> Result<Tensor, DecodeError> {
        let compressed = device.allocate(picture.bytes().len())?;
        compressed.write(0, picture.bytes())?;
        engine(&compressed)
    }
}

/// The simulated hardware: from bytes in a device's memory to a tensor in the same memory.
fn engine(compressed: &Buffer) -> Result<Tensor, DecodeError> {
    let mut bytes = vec![0; compressed.len()];
    compressed.read(0, &mut bytes)?;
    let pixels = Picture::new(&bytes)?.decode_on_host()?;
    Ok(Tensor::new(pixels, compressed.device())?)
}
