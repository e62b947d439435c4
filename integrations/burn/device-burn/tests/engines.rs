//! burn's own engines on devices of the registry, by engines that stand for burn's: they compute on another
//! device.

use std::env;

use burn::tensor::{Device, Tensor};
use device_burn::Error;
use device_burn::engines::{ENGINES, Engine, EngineDescriptor, engines};
use device_conformance::process;
use device_registry::DeviceError;
use device_registry::backend::{BackendError, LoadFailure};

device_registry::autoload!();

device_burn::engines::entry_points! {
    #[distributed_slice(ENGINES)]
    static MYCPU: EngineDescriptor =
        EngineDescriptor::new("mycpu", || Err(LoadFailure::unavailable("its library is missing")));

    #[distributed_slice(ENGINES)]
    static OPENREG: EngineDescriptor = EngineDescriptor::new("openreg", || Ok(Box::new(OnCpu)));
}

/// Computes on `cpu`, and only in place of the first device.
struct OnCpu;

impl Engine for OnCpu {
    fn name(&self) -> &str {
        "a stand-in"
    }

    fn device(&self, device: device_registry::Device) -> Result<Device, BackendError> {
        match device.index() {
            Some(0) => Ok(device_burn::device("cpu").unwrap()),
            _ => Err(BackendError::unsupported("it is too new")),
        }
    }
}

fn sum(device: &Device) -> f32 {
    (Tensor::<1>::from_floats([1.0, 2.0, 4.0], device) + 1.0).sum().into_scalar()
}

fn printed(error: &Error) -> String {
    device_registry::ErrorChain::new(error).to_string()
}

#[test]
fn a_linked_engine_computes() {
    let device = device_burn::device("openreg").unwrap();
    assert_eq!(device, device_burn::device("cpu").unwrap());
    assert_eq!(device, device_burn::device("openreg:0").unwrap());
    assert_eq!(sum(&device), 10.0);

    let engine = device_burn::engine_of("openreg").unwrap().unwrap().to_string();
    assert_eq!(engine, format!("a stand-in (device-burn {})", env!("CARGO_PKG_VERSION")));
    let counts = device_burn::counts("openreg:0").unwrap();
    assert!(counts.operations.is_empty());
    assert_eq!(counts.to_string(), format!("operations on openreg:0 are not counted: {engine} computes"));
    assert_eq!(counts.engine, Some(engine));
}

#[test]
fn a_backend_without_an_engine_is_the_registrys() {
    assert!(device_burn::engine_of("cpu").unwrap().is_none());
    let device = device_burn::device("cpu").unwrap();
    assert_eq!(sum(&device), 10.0);
    let counts = device_burn::counts("cpu").unwrap();
    assert_eq!(counts.engine, None);
    assert!(!counts.operations.is_empty());
}

#[test]
fn an_engine_that_does_not_load_is_an_error() {
    for error in [device_burn::device("mycpu:0").unwrap_err(), device_burn::counts("mycpu").unwrap_err()] {
        assert!(matches!(error, Error::Engines(_)), "{error}");
        let printed = printed(&error);
        assert!(printed.contains("its library is missing"), "{printed}");
        assert!(printed.contains("DEVICE_BURN_ENGINES_DISABLE=mycpu"), "{printed}");
    }
}

#[test]
fn an_engine_that_cannot_use_the_device_is_an_error() {
    let error = device_burn::device("openreg:1").unwrap_err();
    assert!(matches!(error, Error::Engine { .. }), "{error}");
    let printed = printed(&error);
    assert!(printed.starts_with("a stand-in (device-burn "), "{printed}");
    assert!(printed.contains("cannot compute on `openreg:1`"), "{printed}");
    assert!(printed.contains("it is too new"), "{printed}");
    assert!(printed.contains("DEVICE_BURN_ENGINES_DISABLE=openreg"), "{printed}");
}

#[cfg(feature = "patch")]
#[test]
fn a_program_can_go_past_an_engine() {
    assert_eq!(sum(&device_burn::patch::device("openreg:1").unwrap()), 10.0);
    let counts = device_burn::counts("openreg:1").unwrap();
    assert!(!counts.operations.is_empty());
    let printed = counts.to_string();
    assert!(printed.contains(") computes on openreg:1, and these operations went past it\n"), "{printed}");
}

/// The registry opens the device before the engine gets it.
#[test]
fn a_device_that_does_not_exist_is_the_registrys_error() {
    let error = device_burn::device("openreg:200").unwrap_err();
    assert!(matches!(error, Error::Device(DeviceError::NoSuchDevice { .. })), "{error}");
}

#[test]
fn an_invalid_fallback_is_an_error_for_an_engine_too() {
    if !process::is_child() {
        let test = "an_invalid_fallback_is_an_error_for_an_engine_too";
        return process::passes(test, |child| child.env("DEVICE_BURN_FALLBACK", "sometimes"));
    }
    let error = device_burn::device("openreg:0").unwrap_err();
    assert!(matches!(error, Error::Variable(_)), "{error}");
}

#[test]
fn a_disabled_engine_leaves_the_device_to_the_registry() {
    if !process::is_child() {
        let test = "a_disabled_engine_leaves_the_device_to_the_registry";
        return process::passes(test, |child| child.env("DEVICE_BURN_ENGINES_DISABLE", "mycpu,openreg"));
    }
    assert_eq!(engines().len(), 2);
    for text in ["mycpu:0", "openreg:0", "openreg:1"] {
        assert!(device_burn::engine_of(text).unwrap().is_none());
        let device = device_burn::device(text).unwrap();
        assert_ne!(device, device_burn::device("cpu").unwrap());
        assert_eq!(sum(&device), 10.0);
        assert!(!device_burn::counts(text).unwrap().operations.is_empty());
    }
}
