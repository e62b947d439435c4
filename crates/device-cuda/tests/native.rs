//! Kernels of a program's own through the native handles, on the GPU of this machine: the simulated driver
//! runs none.

use std::sync::mpsc;

use device_conformance::device_or_skip;
use device_cuda::CudaDevice;
use device_registry::{Device, HostBuffer};

mod kernel;

device_registry::autoload!();

const COUNT: usize = 100_000;

fn numbers(of: impl Fn(usize) -> f32) -> Vec<u8> {
    (0..COUNT).flat_map(|i| of(i).to_ne_bytes()).collect()
}

/// Calls something with the driver of a device.
fn with_driver<T: Send + 'static>(device: Device, call: impl FnOnce(&CudaDevice) -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    let launched = device.create_stream().unwrap().launch(&[], move |launch| {
        tell.send(call(launch.driver_as()?)).unwrap();
        Ok(())
    });
    launched.unwrap();
    told.recv().unwrap()
}

#[test]
fn a_kernel_works_in_the_order_of_a_stream_on_parts_of_buffers() {
    let Some(device) = device_or_skip("cuda") else { return };
    let stream = device.create_stream().unwrap();
    let [a, b, c] = [0; 3].map(|_| device.allocate(COUNT * 4 + 16).unwrap());
    let part = 16..COUNT * 4 + 16;
    stream.write(&a, 16, HostBuffer::from(numbers(|i| i as f32))).unwrap();
    stream.write(&b, 16, HostBuffer::from(numbers(|i| 2.0 * i as f32))).unwrap();
    let parts = [&a, &b, &c].map(|buffer| buffer.slice(part.clone()).unwrap());
    let kernel = |launch: &device_registry::backend::Launch<'_>| {
        kernel::launch(launch, kernel::ADD, "add", COUNT as u32)
    };
    stream.launch(&[&parts[0], &parts[1], &parts[2]], kernel).unwrap();
    let sum = stream.read(&c, part).unwrap().wait().unwrap();
    assert!(*sum == numbers(|i| 3.0 * i as f32)[..], "the sums differ");
    // What lies before the part is what was there.
    assert_eq!(*stream.read(&c, 0..16).unwrap().wait().unwrap(), [0; 16]);
    stream.synchronize().unwrap();
}

#[test]
fn a_malformed_kernel_is_an_error_with_the_compilers_log() {
    let Some(device) = device_or_skip("cuda") else { return };
    for (from, to, word) in
        [(".version 6.0", ".version 99.0", "99.0"), ("mad.lo.u32", "frobnicate", "frobnicate")]
    {
        let text = kernel::ADD.replace(from, to);
        let error = with_driver(device, move |driver| kernel::Module::load(driver, &text).err()).unwrap();
        let message = error.to_string();
        assert!(message.starts_with("the kernel does not compile: ") && message.contains(word), "{message}");
    }
    // It is the program's mistake, and the device continues.
    device.allocate(16).unwrap();
}

#[test]
fn a_function_that_is_not_in_the_module_is_an_error() {
    let Some(device) = device_or_skip("cuda") else { return };
    let error = with_driver(device, |driver| {
        kernel::Module::load(driver, kernel::ADD).unwrap().function("subtract").err()
    });
    assert!(error.unwrap().to_string().contains("cuModuleGetFunction"));
}

#[test]
fn the_handles_are_those_of_the_driver() {
    let Some(device) = device_or_skip("cuda") else { return };
    let (ordinal, is_there) = with_driver(device, |driver| (driver.ordinal(), !driver.context().is_null()));
    assert!(is_there);
    assert_eq!(Some(ordinal), device.index().map(usize::from));
}
