//! Every backend's kernels do the same: any length, any offset, several threads, and what they refuse.

use std::sync::Arc;
use std::thread;

use device_conformance::device_or_skip;
use device_registry::{BackendErrorKind, Device, DeviceError, HostBuffer, device};

use super::Kernels;
use crate::error::Error;
use crate::place::Place;
use crate::work::{Shape, Work, compare, elements};

#[test]
fn every_backend_has_good_kernels() {
    for backend in ["cpu", "openreg"] {
        has_good_kernels(device(backend).unwrap());
    }
    for backend in [
        #[cfg(feature = "cuda")]
        "cuda",
        #[cfg(feature = "opencl")]
        "opencl",
        #[cfg(feature = "wgpu")]
        "wgpu",
    ] {
        let Some(device) = device_or_skip(backend) else { continue };
        has_good_kernels(device);
        operands_out_of_place_are_refused(device);
        are_kept_until_the_device_is_done(device);
        are_refused_and_dropped_after_their_device_was_closed(device);
    }
}

fn has_good_kernels(device: Device) {
    let kernels = Kernels::compile(device, None).unwrap();
    // One, a work-group and its neighbours, and more than one of them.
    for len in [1, 2, 63, 64, 65, 255, 256, 257, 1000] {
        wherever_they_lie(&kernels, Work::Add { len }).unwrap();
    }
    for shape in ["1", "3x5x7", "1x300x1", "65x1x130", "17x33x9", "64", "2x70000x3"] {
        wherever_they_lie(&kernels, matmul(shape)).unwrap();
    }
    // The arguments of one launch are not to reach another one.
    let launches = |len| (0..50).try_for_each(|_| wherever_they_lie(&kernels, Work::Add { len }));
    thread::scope(|scope| {
        for len in 100..104 {
            scope.spawn(move || launches(len).unwrap());
        }
    });
}

fn matmul(shape: &str) -> Work {
    Work::Matmul(shape.parse().unwrap())
}

/// The result, computed in the plainest way.
fn expected(work: Work, operands: &[HostBuffer; 2]) -> Vec<u8> {
    let [a, b]: [Vec<f32>; 2] = operands.each_ref().map(|operand| elements(operand).collect());
    let result: Vec<f32> = match work {
        Work::Add { .. } => a.iter().zip(&b).map(|(a, b)| a + b).collect(),
        Work::Matmul(Shape { rows, inner, columns }) => {
            let [rows, inner, columns] = [rows, inner, columns].map(|side| side as usize);
            let element =
                |i| (0..inner).map(|k| a[i / columns * inner + k] * b[k * columns + i % columns]).sum();
            (0..rows * columns).map(element).collect()
        }
    };
    result.into_iter().flat_map(f32::to_ne_bytes).collect()
}

/// Both operands and the result are in one allocation, with gaps before, between and behind them that are
/// multiples of no alignment except `f32`'s. Only the result changes.
fn wherever_they_lie(kernels: &Kernels, work: Work) -> Result<(), Error> {
    let operands = work.operands().unwrap();
    let [a, b] = operands.each_ref().map(|operand| &operand[..]);
    let gap = &[1000.0_f32, 2000.0, 3000.0].map(f32::to_ne_bytes).concat()[..];
    let content = |result: &[u8]| [gap, a, gap, b, gap, result, gap].concat();
    let before = content(&vec![0xff; work.sizes()[2]]);
    let all = kernels.device.allocate(before.len()).unwrap();
    all.write(0, &before).unwrap();
    let mut end = 0;
    let parts = work.sizes().map(|size| {
        let start = end + gap.len();
        end = start + size;
        all.slice(start..end).unwrap()
    });
    let stream = kernels.device.create_stream().unwrap();
    kernels.launch(&stream, work, parts.each_ref())?;
    compare(&stream.read(&all, ..).unwrap().wait().unwrap(), &content(&expected(work, &operands)))
}

#[test]
fn other_lengths_and_another_device_are_refused() {
    let device = device("openreg:0").unwrap();
    let kernels = Kernels::compile(device, None).unwrap();
    let stream = device.create_stream().unwrap();
    let [a, b, c, none, odd] = [24, 24, 16, 0, 7].map(|len| device.allocate(len).unwrap());
    let product = matmul("2x3x2");
    let sum = Work::Add { len: 6 };
    for (work, buffers) in [
        (product, [&c, &b, &c]),
        (product, [&a, &c, &c]),
        (product, [&a, &b, &none]),
        (sum, [&a, &b, &c]),
        (Work::Add { len: 1 }, [&odd; 3]),
    ] {
        let refused = kernels.launch(&stream, work, buffers);
        assert!(matches!(refused, Err(Error::Lengths { .. })), "{refused:?}");
    }
    // No elements are no work.
    kernels.launch(&stream, Work::Add { len: 0 }, [&none; 3]).unwrap();
    for other in ["openreg:1", "cpu"] {
        let stream = Device::parse(other).unwrap().create_stream().unwrap();
        let refused = kernels.launch(&stream, product, [&a, &b, &c]);
        assert!(matches!(refused, Err(Error::OtherDevice { .. })), "{refused:?}");
    }
}

/// When a launch has returned, the kernel still runs.
fn are_kept_until_the_device_is_done(device: Device) {
    let work = matmul("64");
    let operands = work.operands().unwrap();
    let kernels = Kernels::compile(device, None).unwrap();
    let place = Place::new(&kernels, work).unwrap();
    place.write(&operands).unwrap();
    (0..4).for_each(|_| place.launch().unwrap());
    let Place { stream, buffers: [a, b, result], .. } = place;
    let native = Arc::downgrade(&kernels.native);
    drop((kernels, a, b));
    assert!(native.upgrade().is_some(), "the kernel still runs");
    let found = stream.read(&result, ..).unwrap().wait().unwrap();
    compare(&found, &expected(work, &operands)).unwrap();
    stream.synchronize().unwrap();
    assert!(native.upgrade().is_none(), "the kernel is done");
}

/// Asserts that a device finds fault with the operands or the kernels.
#[track_caller]
fn is_invalid(error: &Error, message: &str) {
    let Error::Device(device) = error else { panic!("{error}") };
    assert_eq!(device.kind(), Some(BackendErrorKind::Invalid), "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

fn operands_out_of_place_are_refused(device: Device) {
    let kernels = Kernels::compile(device, None).unwrap();
    let stream = device.create_stream().unwrap();
    let good = device.allocate(4).unwrap();
    let bad = device.allocate(8).unwrap().slice(2..6).unwrap();
    for buffers in [[&bad, &good, &good], [&good, &bad, &good], [&good, &good, &bad]] {
        let error = kernels.launch(&stream, Work::Add { len: 1 }, buffers).unwrap_err();
        // At which byte is up to the device: it may divide its memory among small buffers.
        is_invalid(&error, "a device reads `f32` at multiples of 4");
    }
    // Devices of wgpu have this limit.
    let attributes = device.properties().unwrap().attributes;
    let Some(most) = attributes.get("max_storage_binding_bytes") else { return };
    let len = most.to_string().parse::<u32>().unwrap() / 4 + 1;
    match device.allocate(len as usize * 4) {
        Ok(large) => is_invalid(
            &kernels.launch(&stream, Work::Add { len }, [&large; 3]).unwrap_err(),
            &format!("exceeds `max_*_buffer_binding_size` limit {most}"),
        ),
        Err(_) => eprintln!("skipped: {device} allocates no more than it binds, {most} bytes"),
    }
}

/// The last of the tests of a device, which takes it from all others.
fn are_refused_and_dropped_after_their_device_was_closed(device: Device) {
    let work = Work::Add { len: 1 };
    let kernels = Kernels::compile(device, None).unwrap();
    let place = Place::new(&kernels, work).unwrap();
    device.close().unwrap();
    let refused = place.launch();
    assert!(matches!(refused, Err(Error::Device(DeviceError::Closed { .. }))), "{refused:?}");
    drop(place);
    // The next use opens it afresh, and kernels of before are refused, unless the two share what they belong
    // to.
    if let Err(error) = wherever_they_lie(&kernels, work) {
        is_invalid(&error, "");
    }
    drop(kernels);
    // And nothing is left of them that is in the way.
    wherever_they_lie(&Kernels::compile(device, None).unwrap(), work).unwrap();
}
