//! A decoder in place of the one for `openreg`, which returns wrong tensors.

#![allow(missing_docs)]

use codec::{DecodeError, Decoder, DecoderDescriptor, Picture, decode, decoders};
use device_registry::{Device, device};
use device_tensor::Tensor;

device_registry::autoload!();

struct Wrong;

impl Decoder for Wrong {
    fn decode(&self, picture: &Picture<'_>, device: Device) -> Result<Tensor, DecodeError> {
        let pixels = picture.decode_on_host()?;
        Ok(match device.index() {
            Some(0) => Tensor::new(pixels.mapv(i16::from), device)?,
            _ => Tensor::new(pixels.permuted_axes([1, 2, 0]), device)?,
        })
    }
}

#[test]
fn a_tensor_of_another_type_or_shape_is_an_error_that_names_both() {
    static WRONG: DecoderDescriptor = DecoderDescriptor::new("openreg", || Ok(Box::new(Wrong)));
    decoders().register_override(&WRONG).unwrap();
    for (name, returned) in [("openreg:0", "[3, 4, 6] of i16"), ("openreg:1", "[4, 6, 3] of u8")] {
        let error = decode(include_bytes!("../../sample.png"), device(name).unwrap()).unwrap_err();
        let expected = format!(
            "the decoder for `{name}` is wrong: expected [3, 4, 6] of u8 on `{name}`, found {returned} on `{name}`"
        );
        assert_eq!(error.to_string(), expected);
    }
}
