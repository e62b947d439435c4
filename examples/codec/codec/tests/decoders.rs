//! The group of decoders, with decoders that fail in different ways. The tests register them by hand, in a
//! program without `autoload!`, whose dependencies may not be linked.

#![allow(missing_docs)]

use codec::{DecodeError, Decoder, DecoderDescriptor, LoadError, LoadFailure, Picture, decode, decoders};
use device_registry::backend::BackendDescriptor;
use device_registry::registry::State;
use device_registry::{Device, backends, device};
use device_tensor::Tensor;

const SAMPLE: &[u8] = include_bytes!("../../sample.png");

struct DecodeBy(fn(&Picture<'_>, Device) -> Result<Tensor, DecodeError>);

impl Decoder for DecodeBy {
    fn decode(&self, picture: &Picture<'_>, device: Device) -> Result<Tensor, DecodeError> {
        (self.0)(picture, device)
    }
}

/// Registers a backend that never loads.
fn add_backend(name: &'static str) {
    let load = || Err(LoadFailure::unavailable("no driver"));
    backends().register(Box::leak(Box::new(BackendDescriptor::new(name, load)))).unwrap();
}

fn add_decoder(name: &'static str, load: fn() -> Result<Box<dyn Decoder>, LoadFailure>) {
    decoders().register(Box::leak(Box::new(DecoderDescriptor::new(name, load)))).unwrap();
}

fn refused(name: &str) -> DecodeError {
    decode(SAMPLE, device(name).unwrap()).expect_err("no decoder here works")
}

#[test]
fn a_device_without_a_decoder_is_an_error_with_the_decoders_there_are_and_what_to_do() {
    add_backend("lonely");
    let error = refused("lonely:1");
    assert!(matches!(&error, DecodeError::NoDecoder { error: LoadError::Unknown(_), .. }), "{error:?}");
    let expected =
        "there is no decoder for `lonely:1`; decode on `cpu`, and move the tensor with `.to(device)`";
    assert_eq!(error.to_string(), expected);
    for part in ["\n  cpu ", "`device_registry::autoload!();`"] {
        assert!(format!("{error:?}").contains(part), "{error:?}");
    }
}

#[test]
fn a_decoder_that_does_not_load_is_an_error_with_the_cause() {
    add_backend("broken");
    add_decoder("broken", || Err(LoadFailure::unavailable("no codec library").with_source("ENOENT")));
    let message = format!("{:?}", refused("broken"));
    assert!(message.starts_with("there is no decoder for `broken:0`"), "{message}");
    assert!(message.contains("is unavailable: no codec library\ncaused by: ENOENT"), "{message}");
}

#[test]
fn a_decoder_that_fails_is_an_error_with_its_own_message() {
    fn hang(_: &Picture<'_>, device: Device) -> Result<Tensor, DecodeError> {
        Err(DecodeError::Decoder { device, source: "timed out after 10 s".into() })
    }
    add_backend("hanging");
    add_decoder("hanging", || Ok(Box::new(DecodeBy(hang))));
    let message = format!("{:?}", refused("hanging"));
    assert_eq!(message, "the decoder for `hanging:0` failed\ncaused by: timed out after 10 s");
}

#[test]
fn a_decoder_that_panics_is_an_error_and_harms_no_other() {
    add_backend("panicking");
    add_decoder("panicking", || Ok(Box::new(DecodeBy(|_, _| panic!("index out of bounds")))));
    let message = format!("{:?}", refused("panicking"));
    assert_eq!(message, "the decoder for `panicking:0` failed\ncaused by: it panicked: index out of bounds");
    assert!(decode(SAMPLE, Device::cpu()).is_ok());
}

#[test]
fn a_tensor_of_another_type_shape_or_device_is_an_error_that_names_both() {
    fn lie(picture: &Picture<'_>, device: Device) -> Result<Tensor, DecodeError> {
        let pixels = picture.decode_on_host()?;
        Ok(match device.to_string().as_str() {
            "openreg:0" => Tensor::new(pixels.mapv(i16::from), device)?,
            "openreg:1" => Tensor::new(pixels.permuted_axes([1, 2, 0]), device)?,
            _ => Tensor::new(pixels, Device::cpu())?,
        })
    }
    add_backend("lying");
    add_decoder("lying", || Ok(Box::new(DecodeBy(lie))));
    backends().register(&device_openreg::OPENREG).unwrap();
    add_decoder("openreg", || Ok(Box::new(DecodeBy(lie))));
    for (name, found) in [
        ("openreg:0", "[3, 4, 6] of i16 on `openreg:0`"),
        ("openreg:1", "[4, 6, 3] of u8 on `openreg:1`"),
        ("lying:0", "[3, 4, 6] of u8 on `cpu`"),
    ] {
        let expected =
            format!("the decoder for `{name}` is wrong: expected [3, 4, 6] of u8 on `{name}`, found {found}");
        assert_eq!(refused(name).to_string(), expected);
    }
}

#[test]
fn the_decoder_for_the_cpu_is_built_in() {
    let cpu = decoders().get("cpu").unwrap();
    assert_eq!((cpu.package(), decoders().name()), (Some("codec"), "codec.decoders"));
    static OTHER: DecoderDescriptor = DecoderDescriptor::new("cpu", || unreachable!());
    assert!(decoders().register_override(&OTHER).is_err());
    assert!(decode(SAMPLE, Device::cpu()).is_ok());
}

#[test]
fn bytes_that_are_no_picture_load_no_decoder() {
    add_backend("untouched");
    add_decoder("untouched", || unreachable!());
    let error = decode(b"text", device("untouched").unwrap()).unwrap_err();
    assert!(matches!(error, DecodeError::NotPng { .. }), "{error}");
    assert!(matches!(decoders().get("untouched").unwrap().state(), State::Linked));
}
