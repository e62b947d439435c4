//! What a device gives back when it is closed or reset. The suite has the same for a close, and cannot lose
//! this device.

#![cfg(target_os = "linux")]

mod child;

use std::time::{Duration, Instant};

use device_conformance::process;
use device_registry::{BackendErrorKind, Buffer, Device, Stream};
use device_wgpu::{WgpuDevice, wgpu};

use crate::child::CHILD;

device_registry::autoload!();

/// The device, in its own process; `None` in the one that starts that.
fn alone(test: &str) -> Option<Device> {
    if process::is_child() {
        return Some(device_registry::device("wgpu").unwrap());
    }
    device_conformance::device_or_skip("wgpu")?;
    let output = CHILD.again(test, &[]);
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !printed.contains("panicked"), "{}: {printed}", output.status);
    None
}

fn used(device: Device) -> (Stream, Buffer) {
    let (stream, buffer) = (device.default_stream().unwrap(), device.allocate(1 << 20).unwrap());
    buffer.write(0, &[3; 1 << 20]).unwrap();
    assert_eq!(stream.read(&buffer, ..).unwrap().wait().unwrap()[1000], 3);
    (stream, buffer)
}

/// How many threads there are, once there are no more than `expected`; or after a second.
fn threads(expected: usize) -> usize {
    let end = Instant::now() + Duration::from_secs(1);
    while process::threads().len() > expected && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    process::threads().len()
}

#[test]
fn a_device_that_is_lost_and_reset_leaves_no_thread() {
    let Some(device) = alone("a_device_that_is_lost_and_reset_leaves_no_thread") else { return };
    let mut first = 0;
    for round in 0..20 {
        let (stream, buffer) = used(device);
        let destroy = |driver: &WgpuDevice| {
            driver.device().destroy();
            Ok(())
        };
        device.with_driver(destroy).unwrap();
        let error = buffer.read(0, &mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), Some(BackendErrorKind::Lost), "{error}");
        device.reset().unwrap();
        drop((stream, buffer));
        if round == 2 {
            first = process::threads().len();
        }
    }
    // Fewer if one of the third round was ending when they were counted.
    let last = threads(first);
    assert!(last <= first, "{first} threads after 3 rounds, {last} after 20");
}

#[test]
fn a_device_that_a_program_still_has_a_handle_of_goes_with_the_handle() {
    let test = "a_device_that_a_program_still_has_a_handle_of_goes_with_the_handle";
    let Some(device) = alone(test) else { return };
    // What is made once and kept.
    drop(used(device));
    device.close().unwrap();
    let closed = threads(0);

    let held = used(device);
    let open = process::threads().len();
    assert!(open > closed, "one that finishes reads, at least");
    let native = device.with_driver(|driver: &WgpuDevice| Ok(driver.device().clone())).unwrap();
    device.close().unwrap();
    assert!(threads(closed) > closed, "the program still has the device");
    drop(native);
    drop(held);
    assert_eq!(threads(closed), closed);
}

/// The native handles of the open device.
fn handles(device: Device) -> (wgpu::Device, wgpu::Queue) {
    device.with_driver(|driver: &WgpuDevice| Ok((driver.device().clone(), driver.queue().clone()))).unwrap()
}

fn accepts_work((device, queue): &(wgpu::Device, wgpu::Queue)) -> bool {
    let submission_index = Some(queue.submit([]));
    device.poll(wgpu::PollType::Wait { submission_index, timeout: None }).is_ok()
}

#[test]
fn a_device_that_another_library_computes_on_is_left_to_it() {
    let Some(device) = alone("a_device_that_another_library_computes_on_is_left_to_it") else { return };
    let shared = handles(device);
    let mapped = shared.0.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 1 << 20,
        usage: wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::MAP_WRITE,
        mapped_at_creation: true,
    });
    mapped.get_mapped_range_mut(..).unwrap().slice(..).fill(7);
    let share = |driver: &WgpuDevice| {
        driver.share();
        Ok(())
    };
    device.with_driver(share).unwrap();
    device.close().unwrap();
    assert!(accepts_work(&shared));
    assert!(mapped.get_mapped_range(..).unwrap().iter().all(|byte| *byte == 7));

    // The next open makes another device, which is not shared.
    let next = handles(device);
    assert_ne!(next, shared);
    device.close().unwrap();
    assert!(!accepts_work(&next));
    assert!(accepts_work(&shared));
}

#[test]
fn a_loss_is_noticed_when_another_library_has_taken_the_callback() {
    let Some(device) = alone("a_loss_is_noticed_when_another_library_has_taken_the_callback") else { return };
    let check = || device.with_driver(|driver: &WgpuDevice| Ok(driver.check().map_err(|error| error.kind())));
    for checks in [true, false] {
        let (stream, buffer) = used(device);
        assert_eq!(check().unwrap(), Ok(()));
        let lose = |driver: &WgpuDevice| {
            driver.share();
            driver.device().set_device_lost_callback(|_, _| ());
            driver.device().destroy();
            Ok(())
        };
        device.with_driver(lose).unwrap();
        if checks {
            assert_eq!(check().unwrap(), Err(BackendErrorKind::Lost));
        }
        let error = buffer.read(0, &mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), Some(BackendErrorKind::Lost), "{error}");
        drop((stream, buffer));
        device.reset().unwrap();
        drop(used(device));
    }
}
