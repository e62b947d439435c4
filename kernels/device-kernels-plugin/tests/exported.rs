//! A kernel set in Rust that a library exports, before and beside its backend.

#![cfg(target_os = "linux")]

use std::fs;

use device_kernels::{Argument, Binary, Call, DType, Layout, Operator, kernel_sets};
use device_plugin::Plugins;
use device_registry::{Device, device};

mod common;

device_registry::autoload!();

#[test]
fn kernels_that_are_loaded_before_their_backend_have_all_of_their_rows() {
    let folder = tempfile::tempdir().expect("there is room").keep();
    let library = folder.join("libopenreg_file.so");
    fs::copy(common::built("openreg_kernels_file"), &library).expect("cargo has built it");
    common::manifest(&folder, "device.kernels", "reg", "openreg", "device-openreg-kernels", &library);
    common::manifest(&folder, "device.backends", "reg", "openreg", "device-openreg", &library);
    Plugins::new().folder(&folder).install().expect("the folder is absolute");

    let set = kernel_sets().load("reg").unwrap_or_else(|error| panic!("{error}"));
    let reg = device("reg:1").expect("it is installed");
    let coverage = set.coverage(reg);
    assert!(Operator::names().all(|name| coverage.iter().any(|one| one.operator() == name)));

    let array = Argument::Array(DType::F32, Layout::contiguous([4]).unwrap());
    let call = Call::new(Binary::Add, &[array, array], &[array]).unwrap();
    assert!(set.supports(reg, &call) && !set.supports(Device::cpu(), &call));
    // A file that is replaced changes no answer.
    fs::rename(&library, folder.join("elsewhere.so")).unwrap();
    assert!(set.supports(reg, &call));
    // A launch on a device of another library does not reach the kernels.
    let buffers = [(); 3].map(|()| Device::cpu().allocate(16).unwrap());
    let stream = Device::cpu().create_stream().unwrap();
    let launched =
        stream.launch(&[&buffers[0], &buffers[1], &buffers[2]], move |launch| set.launch(&call, launch));
    let error = launched.and_then(|()| stream.synchronize()).unwrap_err().to_string();
    assert!(error.contains("whose backend is not of this library"), "{error}");
}
