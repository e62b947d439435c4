//! All doors, by one call: a device string gives burn's own device.
//!
//! `cargo test -p device-burn` tests the patch; with `--no-default-features --features loopback` the same
//! tests go through the server, and in the workspace for burn 0.23 through a group.

use burn::tensor::{Device, Tensor};
use device_registry::DeviceError;

device_registry::autoload!();

fn device(text: &str) -> Device {
    device_burn::device(text).unwrap()
}

#[test]
fn a_device_string_gives_a_device_that_computes() {
    for text in ["cpu", "openreg:0", "openreg:1", "mycpu:0"] {
        let device = device(text);
        let x = Tensor::<2>::from_data([[1.0, 2.0], [3.0, 4.0]], &device);
        let product = (x.clone().matmul(x) + 1.0).into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(product, [8.0, 11.0, 16.0, 23.0], "{text}");
        // Through any door, the registered device counts its operations.
        let counts = device_burn::counts(text).unwrap();
        let product =
            |operation: &device_burn::OperationCount| operation.operation.to_lowercase().contains("matmul");
        assert!(counts.operations.iter().any(product), "{text}: {counts}");
    }
}

#[test]
fn a_device_string_gives_the_same_device_each_time() {
    assert_eq!(device("openreg"), device("openreg:0"));
    assert_ne!(device("openreg:0"), device("openreg:1"));
}

#[test]
fn tensors_move_between_devices() {
    let (first, second) = (device("openreg:0"), device("mycpu:0"));
    let x = Tensor::<1>::from_floats([1.0, 2.0], &first).to_device(&second);
    assert_eq!(x.device(), second);
    let x = (x * 3.0).to_device(&first);
    assert_eq!(x.into_data().try_to_vec::<f32>().unwrap(), [3.0, 6.0]);
}

#[test]
fn gradients_are_computed() {
    let device = device("openreg:1").autodiff();
    let x = Tensor::<1>::from_floats([1.0, 2.0, 3.0], &device).require_grad();
    let gradients = x.clone().square().sum().backward();
    let gradient = x.grad(&gradients).unwrap().into_data().try_to_vec::<f32>().unwrap();
    assert_eq!(gradient, [2.0, 4.0, 6.0]);
}

#[test]
fn a_mistake_in_the_string_is_the_registrys_error() {
    for text in ["openreg:200", "nowhere:0", "openreg:x", ""] {
        let error = device_burn::device(text).unwrap_err();
        assert!(matches!(error, device_burn::Error::Device(_)), "{text}: {error}");
    }
    let error = device_burn::device("openreg:200").unwrap_err();
    assert!(matches!(error, device_burn::Error::Device(DeviceError::NoSuchDevice { .. })), "{error}");
}

/// The features choose the door, and burn's name of the device says which one it is.
#[test]
fn the_device_is_behind_the_door_of_the_feature() {
    let name = format!("{:?}", device("openreg:1"));
    let door = match () {
        () if cfg!(feature = "group") => "Group(",
        () if cfg!(feature = "patch") => "NdArray(openreg:1)",
        () => "Remote",
    };
    assert!(name.contains(door), "{name}");
}
