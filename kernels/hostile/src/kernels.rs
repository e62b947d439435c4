//! Kernel sets that are launched with the wrong arrays, and on devices of other backends.

use device_kernels::{Binary, Call, DType, Layout, kernel_sets};
use device_registry::{Buffer, Device, DeviceError};

use crate::{Test, refused, victims};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("a_kernel_gets_no_array_that_is_missing_or_too_short", wrong_arrays),
        ("a_kernel_of_another_backend_does_not_run", other_backends),
    ]
}

const ELEMENTS: usize = 1000;

/// A call of three arrays, two of them transposed.
fn call() -> Call {
    let layout = Layout::contiguous([10, 100]).unwrap();
    let transposed = Layout::contiguous([100, 10]).unwrap().transpose(0, 1).unwrap();
    let inputs = [(DType::F32, layout).into(), (DType::F32, transposed).into()];
    Call::new(Binary::Add, &inputs, &[(DType::F32, transposed).into()]).unwrap()
}

fn launch(device: Device, set: &str, buffers: &[&Buffer]) -> Result<(), DeviceError> {
    let set = kernel_sets().load(set).unwrap();
    let call = call();
    let stream = device.create_stream()?;
    stream.launch(buffers, move |launch| set.launch(&call, launch))?;
    stream.synchronize()
}

/// The devices that have a kernel set.
fn with_kernels() -> impl Iterator<Item = Device> {
    let names: Vec<_> = kernel_sets().names().collect();
    victims().into_iter().filter(move |device| names.contains(&device.name()))
}

fn wrong_arrays() {
    let devices: Vec<_> = with_kernels().collect();
    assert!(devices.len() >= 2, "no kernels for {devices:?} are linked");
    for device in devices {
        let name = device.name();
        let array = || device.allocate(ELEMENTS * 4).unwrap();
        let a = array();
        let b = array();
        let out = array();
        launch(device, name, &[&a, &b, &out]).unwrap();
        let short = device.allocate(ELEMENTS * 4 - 1).unwrap();
        let empty = device.allocate(0).unwrap();
        // One byte of each kind less, nothing, and the arrays of another call.
        let attempts: [&[&Buffer]; 8] = [
            &[],
            &[&a],
            &[&a, &b],
            &[&short, &b, &out],
            &[&a, &short, &out],
            &[&a, &b, &short],
            &[&empty, &b, &out],
            &[&a, &b, &empty],
        ];
        for buffers in attempts {
            refused(launch(device, name, buffers), "launch");
        }
    }
}

fn other_backends() {
    for device in victims() {
        let array = || device.allocate(ELEMENTS * 4).unwrap();
        let a = array();
        let b = array();
        let out = array();
        out.fill(.., &[7]).unwrap();
        for set in kernel_sets().names().filter(|&set| set != device.name()) {
            refused(launch(device, set, &[&a, &b, &out]), "launch");
        }
        let mut bytes = vec![0; ELEMENTS * 4];
        out.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 7), "a kernel of another backend has written on {device}");
    }
}
