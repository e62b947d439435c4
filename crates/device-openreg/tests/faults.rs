//! Fault injection: by environment variables, for programs that stay as they are, and by calls.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use device_conformance::process;
use device_conformance::testing::error_kind;
use device_openreg::{OpenRegMemory, locate};
use device_registry::{BackendErrorKind, Buffer, CallWatch, Device, DeviceError, Fault, device};

use crate::child::CHILD;

mod child;

device_registry::autoload!();

fn devices() -> [Device; 2] {
    ["openreg:0", "openreg:1"].map(|name| device(name).unwrap())
}

fn filled(device: Device) -> Buffer {
    let buffer = device.allocate(4).unwrap();
    buffer.write(0, b"abcd").unwrap();
    buffer
}

#[test]
fn the_nth_allocation_of_each_device_fails_and_the_next_works() {
    if !process::is_child() {
        let variables = [("OPENREG_FAIL_ALLOCATION", "2")];
        return CHILD.passes("the_nth_allocation_of_each_device_fails_and_the_next_works", &variables);
    }
    for device in devices() {
        let free = device.memory_info().unwrap().free;
        let kinds = [(); 3].map(|()| error_kind(device.allocate(10)));
        assert_eq!(kinds, [None, Some(BackendErrorKind::OutOfMemory { asked: 10, free: None }), None]);
        assert_eq!(device.memory_info().unwrap().free, free, "a failed allocation takes no memory");
    }
}

#[test]
fn the_nth_copy_fails_of_whatever_kind_and_changes_nothing() {
    type Copies = fn(&Buffer) -> Result<(), DeviceError>;
    const COPIES: [(&str, Copies); 3] = [
        ("write", |buffer| buffer.write(0, b"WXYZ")),
        ("read", |buffer| buffer.read(0, &mut [0; 4])),
        ("copy", |buffer| buffer.slice(..2)?.copy_from(&buffer.slice(2..)?)),
    ];
    if !process::is_child() {
        for (name, _) in COPIES {
            let variables = [("OPENREG_FAIL_COPY", "2"), ("OPENREG_TEST_COPY", name)];
            CHILD.passes("the_nth_copy_fails_of_whatever_kind_and_changes_nothing", &variables);
        }
        return;
    }
    let name = std::env::var("OPENREG_TEST_COPY").unwrap();
    let (_, copy) = COPIES.into_iter().find(|(other, _)| *other == name).unwrap();
    for device in devices() {
        let buffer = filled(device);
        let error = copy(&buffer).unwrap_err().to_string();
        assert!(error.ends_with(&format!("{name}: an injected fault fails this {name}")), "{error}");
        let mut bytes = [0; 4];
        buffer.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcd");
        copy(&buffer).unwrap();
    }
}

#[test]
fn a_lost_device_leaves_the_other_working() {
    if !process::is_child() {
        return CHILD.passes("a_lost_device_leaves_the_other_working", &[("OPENREG_LOSE_DEVICE", "4")]);
    }
    let [first, second] = devices();
    let (lost, other) = (filled(first), filled(second));
    // These are the third and the fourth operation of the first device.
    lost.write(0, b"efgh").unwrap();
    assert_eq!(error_kind(lost.write(0, b"ijkl")), Some(BackendErrorKind::Lost));
    for kind in [
        error_kind(lost.write(0, b"a")),
        error_kind(lost.read(0, &mut [0])),
        error_kind(lost.slice(..1).unwrap().copy_from(&lost.slice(1..2).unwrap())),
        error_kind(first.allocate(1)),
        error_kind(first.memory_info()),
    ] {
        assert_eq!(kind, Some(BackendErrorKind::Lost));
    }
    let span = lost.span().unwrap();
    let memory: &OpenRegMemory = span.memory_as().unwrap();
    assert_eq!(memory.bytes().unwrap_err().kind(), BackendErrorKind::Lost, "kernels fail too");
    // This is the third operation of the second device, which is not lost with the source.
    let error = other.copy_from(&lost).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("`openreg:0`") && message.contains(": copy: device lost: "), "{message}");
    assert!(second.memory_info().is_ok());
}

#[test]
fn each_operation_of_a_slow_device_takes_longer() {
    const BY: Duration = Duration::from_millis(20);
    if !process::is_child() {
        return CHILD.passes("each_operation_of_a_slow_device_takes_longer", &[("OPENREG_SLOW", "20ms")]);
    }
    for device in devices() {
        let start = Instant::now();
        let buffer = filled(device);
        buffer.read(0, &mut [0]).unwrap();
        buffer.slice(..2).unwrap().copy_from(&buffer.slice(2..).unwrap()).unwrap();
        assert!(start.elapsed() >= 4 * BY);
    }
}

#[test]
fn faults_that_are_injected_happen_to_one_device_until_they_are_cleared() {
    if !process::is_child() {
        return CHILD.passes("faults_that_are_injected_happen_to_one_device_until_they_are_cleared", &[]);
    }
    let [first, second] = devices();
    let buffers = [first, second].map(filled);
    first.faults().and_then(|faults| faults.inject(Fault::FailAllocation { nth: 1 })).unwrap();
    first.faults().and_then(|faults| faults.inject(Fault::FailCopy { nth: 1 })).unwrap();
    assert_eq!(error_kind(second.allocate(1)), None);
    assert!(matches!(error_kind(first.allocate(1)), Some(BackendErrorKind::OutOfMemory { asked: 1, .. })));
    assert_eq!(error_kind(buffers[1].read(0, &mut [0])), None);
    assert_eq!(error_kind(buffers[0].fill(0..4, &[1, 2])), Some(BackendErrorKind::Other));
    assert_eq!(error_kind(first.allocate(1)), None, "once");
    first.faults().and_then(|faults| faults.inject(Fault::FailCopy { nth: 1 })).unwrap();
    first.faults().and_then(|faults| faults.clear()).unwrap();
    assert_eq!(error_kind(buffers[0].fill(0..4, &[1, 2])), None);
    let error =
        first.faults().and_then(|faults| faults.inject(Fault::Stall { nth: 0 })).unwrap_err().to_string();
    assert!(error.ends_with("Stall { nth: 0 } never happens: the next operation is number 1"), "{error}");
}

#[test]
fn a_stalled_operation_continues_when_the_faults_are_cleared() {
    for variables in [&[("OPENREG_STALL", "1")][..], &[]] {
        if !process::is_child() {
            CHILD.passes("a_stalled_operation_continues_when_the_faults_are_cleared", variables);
            continue;
        }
        let device = device("openreg").unwrap();
        if std::env::var_os("OPENREG_STALL").is_none() {
            device.faults().and_then(|faults| faults.inject(Fault::Stall { nth: 1 })).unwrap();
        }
        let (sender, allocated) = mpsc::channel();
        const PAUSE: Duration = Duration::from_millis(100);
        let watch = CallWatch::start();
        thread::spawn(move || sender.send(error_kind(device.allocate(1))));
        // Not before the thread is in its call: this one would be the first.
        let stalls =
            || watch.calls().iter().any(|call| call.call == "allocate" && call.since.elapsed() > PAUSE);
        while !stalls() {
            assert!(allocated.recv_timeout(Duration::from_millis(10)).is_err(), "it stalls");
        }
        assert_eq!(error_kind(device.allocate(1)), None, "others do not");
        device.faults().and_then(|faults| faults.clear()).unwrap();
        assert_eq!(allocated.recv_timeout(Duration::from_secs(60)), Ok(None));
        return;
    }
}

#[test]
fn a_reset_opens_a_lost_device_again() {
    if !process::is_child() {
        return CHILD.passes("a_reset_opens_a_lost_device_again", &[("OPENREG_LOSE_DEVICE", "3")]);
    }
    let device = device("openreg:1").unwrap();
    let buffer = filled(device);
    assert_eq!(error_kind(buffer.read(0, &mut [0])), Some(BackendErrorKind::Lost));
    assert_eq!(error_kind(device.allocate(1)), Some(BackendErrorKind::Lost));
    let old = {
        let span = buffer.span().unwrap();
        let memory: &OpenRegMemory = span.memory_as().unwrap();
        memory.address()
    };
    device.faults().and_then(|faults| faults.clear()).unwrap();
    assert_eq!(
        error_kind(device.allocate(1)),
        Some(BackendErrorKind::Lost),
        "clearing the faults does not recover a lost device"
    );

    device.reset().unwrap();
    let memory = device.memory_info().unwrap();
    assert_eq!(memory.free, memory.total, "a lost buffer takes no memory of the new device");
    let fresh = filled(device);
    let mut bytes = [0; 4];
    fresh.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"abcd");
    // The old buffer is lost permanently. Its memory stays until it is dropped.
    assert_eq!(error_kind(buffer.read(0, &mut [0])), Some(BackendErrorKind::Lost));
    assert_eq!(error_kind(fresh.copy_from(&buffer)), Some(BackendErrorKind::Lost));
    assert_eq!(locate(old).map(|found| (found.ordinal, found.len)), Some((1, 4)));
    drop(buffer);
    assert_eq!(locate(old), None);
    assert_eq!(error_kind(fresh.read(0, &mut bytes)), None);
}
