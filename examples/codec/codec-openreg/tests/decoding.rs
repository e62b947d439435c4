//! Pictures on the devices of `openreg`.

#![allow(missing_docs)]

use codec::{DecodeError, decode};
use device_registry::{Device, DeviceError, DeviceGuard, device};

// Links the decoder, and the backend from the dev-dependencies.
device_registry::autoload!();

const SAMPLE: &[u8] = include_bytes!("../../sample.png");

fn on_cpu() -> Vec<u8> {
    decode(SAMPLE, Device::cpu()).unwrap().to_vec().unwrap()
}

#[test]
fn the_tensor_is_on_the_device_and_equals_that_of_the_cpu() {
    for name in ["openreg:0", "openreg:1"] {
        let tensor = decode(SAMPLE, device(name).unwrap()).unwrap();
        assert_eq!((tensor.device().to_string().as_str(), tensor.shape()), (name, &[3, 4, 6][..]));
        assert_eq!(tensor.to_vec::<u8>().unwrap(), on_cpu(), "{name}");
    }
}

#[test]
fn without_an_index_it_is_the_current_device() {
    let place = || decode(SAMPLE, device("openreg").unwrap()).unwrap().device().to_string();
    assert_eq!(place(), "openreg:0");
    let _guard = DeviceGuard::new(device("openreg:1").unwrap()).unwrap();
    assert_eq!(place(), "openreg:1");
}

#[test]
fn a_picture_that_is_cut_off_is_the_same_error_as_on_the_cpu() {
    let message = |device: Device| format!("{:?}", decode(&SAMPLE[..SAMPLE.len() - 1], device).unwrap_err());
    assert_eq!(message(device("openreg").unwrap()), message(Device::cpu()));
}

#[test]
fn the_bytes_go_to_the_device_before_anything_looks_into_them() {
    // A decoder that decoded first would report the missing end.
    let error = decode(&SAMPLE[..SAMPLE.len() - 1], device("openreg:2").unwrap()).unwrap_err();
    assert!(matches!(error, DecodeError::Device(DeviceError::NoSuchDevice { count: 2, .. })), "{error:?}");
}

#[test]
fn a_tensor_that_the_cpu_decoded_can_be_moved_instead() {
    let moved = decode(SAMPLE, Device::cpu()).unwrap().to(device("openreg:1").unwrap()).unwrap();
    assert_eq!((moved.device().to_string(), moved.to_vec().unwrap()), ("openreg:1".to_owned(), on_cpu()));
}
