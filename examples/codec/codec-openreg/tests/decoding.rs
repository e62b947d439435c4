//! Pictures on the devices of `openreg`, and the switches of decoders beside the backends'.

#![allow(missing_docs)]

use std::process::Command;

use codec::{DecodeError, decode};
use device_registry::registry::Switches;
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

/// What [`child`] prints with a variable set, or with none.
fn child_with(variable: Option<(&str, &str)>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "child"]);
    for prefix in ["DEVICE_BACKEND", "CODEC_DEVICE_BACKEND"] {
        for variable in Switches::variables(prefix) {
            command.env_remove(variable);
        }
    }
    let output = command.envs(variable).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    printed
}

#[test]
#[ignore = "the others run it in a process of its own"]
fn child() {
    let device = match device("openreg:1") {
        Ok(device) => device,
        Err(error) => return println!("no device: {error:?}"),
    };
    match decode(SAMPLE, device) {
        Ok(tensor) => println!("decoded on {}", tensor.device()),
        Err(error) => println!("not decoded: {error:?}"),
    }
    // The way out that the error suggests.
    let moved = decode(SAMPLE, Device::cpu()).unwrap().to(device).unwrap();
    println!("moved to {}, {}", moved.device(), moved.to_vec::<u8>().unwrap() == on_cpu());
}

#[test]
fn the_switches_of_decoders_leave_the_backends_alone() {
    assert!(child_with(None).contains("decoded on openreg:1"));
    for (variable, value) in [("AUTOLOAD", "0"), ("DISABLE", "open*"), ("SELECT", "acme")] {
        let variable = format!("CODEC_DEVICE_BACKEND_{variable}");
        let printed = child_with(Some((&variable, value)));
        assert!(printed.contains("not decoded: there is no decoder for `openreg:1`"), "{printed}");
        assert!(printed.contains(&format!("is disabled by {variable}={value}")), "{printed}");
        assert!(printed.contains("moved to openreg:1, true"), "{printed}");
    }
}

#[test]
fn the_switches_of_backends_leave_no_device_to_decode_on() {
    for (variable, value) in [("AUTOLOAD", "0"), ("DISABLE", "openreg"), ("SELECT", "acme")] {
        let variable = format!("DEVICE_BACKEND_{variable}");
        let printed = child_with(Some((&variable, value)));
        assert!(printed.contains("no device: "), "{printed}");
        assert!(printed.contains(&format!("is disabled by {variable}={value}")), "{printed}");
    }
}
