//! Every backend's kernels have to do the same. The numbers are small integers, so that no device rounds and
//! every result is known to the bit.

#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
use std::sync::Arc;
use std::thread;

#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
use device_registry::{BackendErrorKind, DeviceError};
use device_registry::{Buffer, Device, Stream, device};

use super::{Kernels, Shape, bytes};
use crate::error::Error;
use crate::work::elements;

#[test]
fn cpu() {
    has_good_kernels(device("cpu").unwrap());
}

#[test]
fn openreg() {
    has_good_kernels(device("openreg").unwrap());
}

#[test]
#[cfg(feature = "opencl")]
fn opencl() {
    has_good_native_kernels("opencl");
}

#[test]
#[cfg(feature = "wgpu")]
fn wgpu() {
    // First, as the others end by closing the device.
    if let Some(device) = device_conformance::device_or_skip("wgpu") {
        more_than_a_binding_holds_is_refused(device);
    }
    has_good_native_kernels("wgpu");
}

#[test]
#[cfg(feature = "cuda")]
fn cuda() {
    has_good_native_kernels("cuda");
}

#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
fn has_good_native_kernels(backend: &str) {
    let Some(device) = device_conformance::device_or_skip(backend) else { return };
    has_good_kernels(device);
    operands_between_two_numbers_are_refused(device);
    kept_until_the_device_is_done(device);
    dropped_after_their_device_was_closed(device);
}

fn has_good_kernels(device: Device) {
    let kernels = Kernels::compile(device, None).unwrap();
    a_product_by_hand(&kernels);
    // One, a work-group and its neighbours, and more than one of them.
    for len in [1, 2, 63, 64, 65, 255, 256, 257, 1000] {
        sums_wherever_they_lie(&kernels, len);
    }
    for (rows, inner, columns) in
        [(1, 1, 1), (3, 5, 7), (1, 300, 1), (65, 1, 130), (17, 33, 9), (64, 64, 64), (2, 70000, 3)]
    {
        products_wherever_they_lie(&kernels, Shape::new(rows, inner, columns).unwrap());
    }
    launches_of_several_threads(&kernels);
    outlived_by_their_launches(kernels);
    wrong_lengths_are_refused(device);
}

/// The integers from -8 to 8, in no order that means anything. Sums of products stay far below 2^24.
fn number(seed: u32, index: u32) -> i32 {
    let mixed = (index ^ seed.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0x9e37_79b1);
    (mixed >> 16) as i32 % 17 - 8
}

fn numbers(seed: u32, len: u32) -> Vec<i32> {
    (0..len).map(|index| number(seed, index)).collect()
}

fn to_bytes(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| (number as f32).to_ne_bytes()).collect()
}

fn product(a: &[i32], b: &[i32], shape: Shape) -> Vec<i32> {
    let (inner, columns) = (shape.inner() as usize, shape.columns() as usize);
    let element = |row: usize, column: usize| {
        (0..inner).map(|k| a[row * inner + k] * b[k * columns + column]).sum::<i32>()
    };
    (0..shape.rows() as usize).flat_map(|row| (0..columns).map(move |column| element(row, column))).collect()
}

fn on(device: Device, numbers: &[i32]) -> Buffer {
    let buffer = device.allocate(numbers.len() * 4).unwrap();
    buffer.write(0, &to_bytes(numbers)).unwrap();
    buffer
}

fn read(stream: &Stream, buffer: &Buffer) -> Vec<f32> {
    elements(&stream.read(buffer, ..).unwrap().wait().unwrap()).collect()
}

fn floats(numbers: &[i32]) -> Vec<f32> {
    numbers.iter().map(|&number| number as f32).collect()
}

fn a_product_by_hand(kernels: &Kernels) {
    let device = kernels.device;
    let stream = device.create_stream().unwrap();
    let (a, b) = (on(device, &[1, 2, 3, 4, 5, 6]), on(device, &[7, 8, 9, 10, 11, 12]));
    let product = device.allocate(16).unwrap();
    kernels.matmul(&stream, [&a, &b, &product], Shape::new(2, 3, 2).unwrap()).unwrap();
    assert_eq!(read(&stream, &product), [58.0, 64.0, 139.0, 154.0]);
}

/// Both operands and the result, in one allocation with gaps before, between and behind them that are
/// multiples of no alignment except `f32`'s. Returns the allocation with its bytes, and the three parts.
fn in_one_allocation(device: Device, a: &[i32], b: &[i32], result: usize) -> (Buffer, Vec<u8>, [Buffer; 3]) {
    let gap = &[1000, 2000, 3000][..];
    let content = to_bytes(&[gap, a, gap, b, gap, &vec![4000; result], gap].concat());
    let all = device.allocate(content.len()).unwrap();
    all.write(0, &content).unwrap();
    let mut start = 0;
    let parts = [a.len(), b.len(), result].map(|len| {
        start += 12;
        let part = all.slice(start..start + len * 4).unwrap();
        start += len * 4;
        part
    });
    (all, content, parts)
}

/// The allocation holds what it held, except for the result.
fn only_the_result_changed(stream: &Stream, all: &Buffer, mut content: Vec<u8>, result: &[i32]) {
    let start = content.len() - 12 - result.len() * 4;
    content[start..start + result.len() * 4].copy_from_slice(&to_bytes(result));
    let found: Vec<f32> = read(stream, all);
    assert_eq!(found, elements(&content).collect::<Vec<_>>());
}

fn sums_wherever_they_lie(kernels: &Kernels, len: u32) {
    let stream = kernels.device.create_stream().unwrap();
    let (a, b) = (numbers(1, len), numbers(2, len));
    let (all, content, [a_part, b_part, sum]) = in_one_allocation(kernels.device, &a, &b, len as usize);
    kernels.add(&stream, [&a_part, &b_part, &sum]).unwrap();
    let expected: Vec<i32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    only_the_result_changed(&stream, &all, content, &expected);
}

fn products_wherever_they_lie(kernels: &Kernels, shape: Shape) {
    let stream = kernels.device.create_stream().unwrap();
    let [a_len, b_len, len] = shape.lens();
    let (a, b) = (numbers(3, a_len), numbers(4, b_len));
    let (all, content, [a_part, b_part, result]) = in_one_allocation(kernels.device, &a, &b, len as usize);
    kernels.matmul(&stream, [&a_part, &b_part, &result], shape).unwrap();
    only_the_result_changed(&stream, &all, content, &product(&a, &b, shape));
}

/// The arguments of one launch are not to reach another one.
fn launches_of_several_threads(kernels: &Kernels) {
    let device = kernels.device;
    let work = |seed: u32| {
        let stream = device.create_stream().unwrap();
        let (a, b) = (numbers(seed, 100 + seed), numbers(seed + 10, 100 + seed));
        let expected: Vec<i32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        let (a, b) = (on(device, &a), on(device, &b));
        for _ in 0..50 {
            let sum = device.allocate(bytes(100 + seed)).unwrap();
            kernels.add(&stream, [&a, &b, &sum]).unwrap();
            assert_eq!(read(&stream, &sum), floats(&expected));
        }
    };
    thread::scope(|scope| (0..4).for_each(|seed| drop(scope.spawn(move || work(seed)))));
}

fn outlived_by_their_launches(kernels: Kernels) {
    let device = kernels.device;
    let stream = device.create_stream().unwrap();
    let shape = Shape::new(64, 64, 64).unwrap();
    let (a, b) = (numbers(5, 64 * 64), numbers(6, 64 * 64));
    let result = device.allocate(bytes(64 * 64)).unwrap();
    let buffers = [on(device, &a), on(device, &b)];
    for _ in 0..4 {
        kernels.matmul(&stream, [&buffers[0], &buffers[1], &result], shape).unwrap();
    }
    drop((kernels, buffers));
    assert_eq!(read(&stream, &result), floats(&product(&a, &b, shape)));
}

fn wrong_lengths_are_refused(device: Device) {
    let kernels = Kernels::compile(device, None).unwrap();
    let stream = device.create_stream().unwrap();
    let [a, b, c, d] = [24, 24, 16, 0].map(|len| device.allocate(len).unwrap());
    let shape = Shape::new(2, 3, 2).unwrap();
    kernels.matmul(&stream, [&a, &b, &c], shape).unwrap();
    for buffers in [[&a, &b, &a], [&c, &b, &c], [&a, &c, &c], [&a, &b, &d]] {
        let refused = kernels.matmul(&stream, buffers, shape);
        assert!(matches!(refused, Err(Error::Lengths { .. })), "{refused:?}");
    }
    for buffers in [[&a, &b, &c], [&a, &c, &a], [&c, &a, &a]] {
        assert!(matches!(kernels.add(&stream, buffers), Err(Error::Lengths { .. })));
    }
    // Bytes that make no whole number.
    let odd = [(); 3].map(|()| device.allocate(7).unwrap());
    assert!(matches!(kernels.add(&stream, odd.each_ref()), Err(Error::Lengths { .. })));
    // No elements are no work.
    kernels.add(&stream, [&d, &d, &d]).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn kernels_of_another_device_are_refused() {
    let kernels = Kernels::compile(device("openreg:0").unwrap(), None).unwrap();
    for other in ["openreg:1", "cpu"] {
        let other = device(other).unwrap();
        let stream = other.create_stream().unwrap();
        let buffer = other.allocate(4).unwrap();
        let refused = kernels.add(&stream, [&buffer, &buffer, &buffer]);
        assert!(matches!(refused, Err(Error::OtherDevice { .. })), "{refused:?}");
    }
}

/// The backend's error of a launch.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
fn kind(error: &Error) -> Option<BackendErrorKind> {
    match error {
        Error::Device(error) => error.kind(),
        _ => None,
    }
}

/// On a device with queues, the kernel still runs when its launch has returned.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
fn kept_until_the_device_is_done(device: Device) {
    let kernels = Kernels::compile(device, None).unwrap();
    let native = Arc::downgrade(&kernels.native);
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(4).unwrap();
    let result = device.allocate(4).unwrap();
    kernels.add(&stream, [&buffer, &buffer, &result]).unwrap();
    drop(kernels);
    assert!(native.upgrade().is_some(), "the kernel still runs");
    stream.synchronize().unwrap();
    assert!(native.upgrade().is_none(), "the kernel is done");
}

/// The last of the tests of a device, which takes it from all others.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
fn dropped_after_their_device_was_closed(device: Device) {
    let kernels = Kernels::compile(device, None).unwrap();
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(4).unwrap();
    device.close().unwrap();
    let refused = kernels.add(&stream, [&buffer, &buffer, &buffer]);
    assert!(matches!(refused, Err(Error::Device(DeviceError::Closed { .. }))), "{refused:?}");
    drop((stream, buffer));
    // The next use has opened it afresh, and kernels of before are refused, unless the two share what they
    // belong to.
    let (a, b, sum) = (on(device, &[2]), on(device, &[3]), device.allocate(4).unwrap());
    let stream = device.create_stream().unwrap();
    match kernels.add(&stream, [&a, &b, &sum]) {
        Ok(()) => assert_eq!(read(&stream, &sum), [5.0]),
        Err(error) => assert_eq!(kind(&error), Some(BackendErrorKind::Invalid), "{error}"),
    }
    drop(kernels);
    // And nothing is left of them that is in the way.
    a_product_by_hand(&Kernels::compile(device, None).unwrap());
}

/// The host reads an `f32` wherever it is, and devices do not.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
fn operands_between_two_numbers_are_refused(device: Device) {
    let kernels = Kernels::compile(device, None).unwrap();
    let stream = device.create_stream().unwrap();
    let (good, all) = (device.allocate(4).unwrap(), device.allocate(8).unwrap());
    let bad = all.slice(2..6).unwrap();
    for buffers in [[&bad, &good, &good], [&good, &bad, &good], [&good, &good, &bad]] {
        let error = kernels.add(&stream, buffers).unwrap_err();
        assert_eq!(kind(&error), Some(BackendErrorKind::Invalid), "{error}");
        // At which byte is up to the device: it may divide its memory among small buffers.
        assert!(error.to_string().contains("a device reads `f32` at multiples of 4"), "{error}");
    }
    stream.synchronize().unwrap();
}

#[cfg(feature = "wgpu")]
fn more_than_a_binding_holds_is_refused(device: Device) {
    use device_wgpu::WgpuDevice;
    let most = |driver: &WgpuDevice| Ok(driver.device().limits().max_storage_buffer_binding_size);
    let most = device.with_driver(most).unwrap();
    let len = usize::try_from(most).unwrap().next_multiple_of(4) + 4;
    let Ok(large) = device.allocate(len) else {
        eprintln!("skipped: {device} allocates no more than it binds, {most} bytes");
        return;
    };
    let kernels = Kernels::compile(device, None).unwrap();
    let stream = device.create_stream().unwrap();
    let error = kernels.add(&stream, [&large; 3]).unwrap_err();
    assert_eq!(kind(&error), Some(BackendErrorKind::Invalid), "{error}");
    let expected = format!("binds at most {most} (max_storage_buffer_binding_size): use a smaller --length");
    assert!(error.to_string().contains(&expected), "{error}");
}

/// A backend without kernels.
mod without_kernels {
    use device_registry::backend::{
        Backend, BackendDescriptor, BackendError, DeviceProperties, LoadFailure, OpenedDevice,
    };
    use device_registry::{backends, device};

    use super::super::{Kernels, kernel_sets};
    use crate::error::Error;

    struct Bare;

    impl Backend for Bare {
        fn device_count(&self) -> Result<usize, BackendError> {
            Ok(1)
        }

        fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
            Ok(DeviceProperties::new("bare"))
        }

        fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
            panic!("a device without kernels must not be opened")
        }
    }

    fn load() -> Result<Box<dyn Backend>, LoadFailure> {
        Ok(Box::new(Bare))
    }

    static BARE: BackendDescriptor = BackendDescriptor::new("bare", load);

    #[test]
    fn a_device_without_kernels_is_an_error_with_the_kernel_sets_there_are() {
        backends().register(&BARE).unwrap();
        let error = Kernels::compile(device("bare").unwrap(), None).err().unwrap();
        let Error::NoKernels { error: cause, .. } = &error else { panic!("{error}") };
        assert_eq!(error.to_string(), "there are no kernels for `bare:0`");
        let cause = cause.to_string();
        assert!(cause.starts_with("no kernel set is called `bare`"), "{cause}");
        for name in kernel_sets().names() {
            assert!(cause.contains(name), "{name}: {cause}");
        }
        assert!(kernel_sets().names().any(|name| name == "openreg"));
    }
}
