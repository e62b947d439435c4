//! The group of decoders, with backends and with decoders that fail in different ways.

#![allow(missing_docs)]

use codec::{
    DECODERS, DecodeError, Decoder, DecoderDescriptor, LoadError, LoadFailure, Picture, decode, decoders,
};
use device_registry::backend::{BACKENDS, Backend, BackendDescriptor};
use device_registry::registry::State;
use device_registry::{Device, device};
use device_tensor::Tensor;

device_registry::autoload!();

device_registry::backend::entry_points! {
    #[distributed_slice(BACKENDS)]
    static LONELY: BackendDescriptor = BackendDescriptor::new("lonely", no_driver);
    #[distributed_slice(BACKENDS)]
    static BROKEN: BackendDescriptor = BackendDescriptor::new("broken", no_driver);
    #[distributed_slice(BACKENDS)]
    static LYING: BackendDescriptor = BackendDescriptor::new("lying", no_driver);
    #[distributed_slice(BACKENDS)]
    static HANGING: BackendDescriptor = BackendDescriptor::new("hanging", no_driver);
    #[distributed_slice(BACKENDS)]
    static PANICKING: BackendDescriptor = BackendDescriptor::new("panicking", no_driver);
    #[distributed_slice(BACKENDS)]
    static UNTOUCHED: BackendDescriptor = BackendDescriptor::new("untouched", no_driver);

    #[distributed_slice(DECODERS)]
    static BROKEN_DECODER: DecoderDescriptor = DecoderDescriptor::new("broken", || {
        Err(LoadFailure::unavailable("no codec library").with_source(std::io::Error::other("ENOENT")))
    });
    #[distributed_slice(DECODERS)]
    static LYING_DECODER: DecoderDescriptor = DecoderDescriptor::new("lying", || Ok(Box::new(Lying)));
    #[distributed_slice(DECODERS)]
    static HANGING_DECODER: DecoderDescriptor = DecoderDescriptor::new("hanging", || Ok(Box::new(Hanging)));
    #[distributed_slice(DECODERS)]
    static PANICKING_DECODER: DecoderDescriptor = DecoderDescriptor::new("panicking", || Ok(Box::new(Panicking)));
    #[distributed_slice(DECODERS)]
    static UNTOUCHED_DECODER: DecoderDescriptor = DecoderDescriptor::new("untouched", || Ok(Box::new(Hanging)));
}

fn no_driver() -> Result<Box<dyn Backend>, LoadFailure> {
    Err(LoadFailure::unavailable("no driver"))
}

/// Decodes to the cpu, whatever the requested device.
struct Lying;

impl Decoder for Lying {
    fn decode(&self, picture: &Picture<'_>, _: Device) -> Result<Tensor, DecodeError> {
        Ok(Tensor::new(picture.decode_on_host()?, Device::cpu())?)
    }
}

/// Its hardware times out.
struct Hanging;

impl Decoder for Hanging {
    fn decode(&self, _: &Picture<'_>, device: Device) -> Result<Tensor, DecodeError> {
        Err(DecodeError::Decoder { device, source: "timed out after 10 s".into() })
    }
}

/// It has a defect.
struct Panicking;

impl Decoder for Panicking {
    fn decode(&self, _: &Picture<'_>, _: Device) -> Result<Tensor, DecodeError> {
        panic!("index out of bounds");
    }
}

fn picture() -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoder = png::Encoder::new(&mut bytes, 1, 1);
    encoder.write_header().unwrap().write_image_data(&[7]).unwrap();
    bytes
}

fn refused(name: &str) -> DecodeError {
    decode(&picture(), device(name).unwrap()).expect_err("no decoder here works")
}

#[test]
fn a_device_without_a_decoder_is_an_error_with_the_decoders_there_are_and_what_to_do() {
    let error = refused("lonely:1");
    assert!(matches!(&error, DecodeError::NoDecoder { error: LoadError::Unknown(_), .. }), "{error:?}");
    let message = format!("{error:?}");
    for part in
        ["there is no decoder for `lonely:1`", "decode on `cpu`, and move the tensor with `.to(device)`"]
    {
        assert!(error.to_string().contains(part), "{error}");
    }
    for name in ["cpu", "broken", "lying", "hanging"] {
        assert!(message.contains(&format!("\n  {name} ")), "{message}");
    }
}

#[test]
fn a_decoder_that_does_not_load_is_an_error_with_the_cause() {
    let message = format!("{:?}", refused("broken"));
    assert!(message.starts_with("there is no decoder for `broken:0`"), "{message}");
    assert!(message.contains("is unavailable: no codec library\ncaused by: ENOENT"), "{message}");
}

#[test]
fn a_decoder_that_fails_is_an_error_with_its_own_message() {
    let message = format!("{:?}", refused("hanging"));
    assert_eq!(message, "the decoder for `hanging:0` failed\ncaused by: timed out after 10 s");
}

#[test]
fn a_decoder_that_panics_is_an_error_and_harms_no_other() {
    let message = format!("{:?}", refused("panicking"));
    assert_eq!(message, "the decoder for `panicking:0` failed\ncaused by: it panicked: index out of bounds");
    assert!(decode(&picture(), Device::cpu()).is_ok());
}

#[test]
fn a_tensor_on_another_device_than_requested_is_an_error() {
    let expected = "the decoder for `lying:0` is wrong: expected [1, 1, 1] of u8 on `lying:0`, found [1, 1, 1] of u8 on `cpu`";
    assert_eq!(refused("lying").to_string(), expected);
}

#[test]
fn the_decoder_for_the_cpu_is_built_in() {
    let cpu = decoders().get("cpu").unwrap();
    assert_eq!((cpu.package(), decoders().name()), (Some("codec"), "codec.decoders"));
    static OTHER: DecoderDescriptor = DecoderDescriptor::new("cpu", || Ok(Box::new(Hanging)));
    assert!(decoders().register_override(&OTHER).is_err());
    assert_eq!(decode(&picture(), Device::cpu()).unwrap().to_vec::<u8>().unwrap(), [7]);
}

#[test]
fn bytes_that_are_no_picture_load_no_decoder() {
    let error = decode(b"text", device("untouched").unwrap()).unwrap_err();
    assert!(matches!(error, DecodeError::NotPng { .. }), "{error}");
    assert!(matches!(decoders().get("untouched").unwrap().state(), State::Linked));
}
