//! What is refused, what there is no memory for, and a device that is lost.

mod child;

#[cfg(target_os = "linux")]
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use device_conformance::process;
use device_conformance::testing::error_kind;
use device_registry::backend::{BackendErrorKind, Launch};
use device_registry::{Buffer, Device, DeviceError, Stream};
use device_wgpu::{WgpuDevice, WgpuMemory};

use crate::child::CHILD;

device_registry::autoload!();

/// More than any wait here lasts, on a machine that does much else.
const LONG: Duration = Duration::from_secs(30);

fn open() -> Option<Device> {
    device_conformance::device_or_skip("wgpu")
}

#[test]
fn memory_of_another_backend_is_refused() {
    let Some(device) = open() else { return };
    let stream = device.create_stream().unwrap();
    let foreign = Device::cpu().allocate(16).unwrap();
    let launched = stream.launch(&[&foreign], |_| panic!("it is never called"));
    assert!(matches!(launched, Err(DeviceError::OtherDevice { .. })), "{launched:?}");

    let stream = Device::cpu().create_stream().unwrap();
    let look = |launch: &Launch<'_>| {
        let [Some(span)] = launch.spans() else { panic!("it has one buffer") };
        span.memory_as::<WgpuMemory>().map(drop)
    };
    stream.launch(&[&foreign], look).unwrap();
    let error = stream.synchronize().unwrap_err().to_string();
    assert!(error.contains("expected memory of type `device_wgpu::memory::WgpuMemory`"), "{error}");
}

#[test]
fn ranges_outside_and_places_within_a_word_are_refused() {
    let Some(device) = open() else { return };
    let stream = device.create_stream().unwrap();
    let (buffer, other) = (device.allocate(64).unwrap(), device.allocate(64).unwrap());
    assert!(matches!(buffer.write(60, &[0; 8]), Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(stream.read(&buffer, 0..65), Err(DeviceError::OutOfRange { .. })));
    let error = buffer.write(1, &[0; 4]).unwrap_err().to_string();
    assert!(error.contains("4"), "it names the alignment: {error}");
    assert!(stream.copy(&buffer.slice(..3).unwrap(), &other.slice(..3).unwrap()).is_err());
    // A whole memory has any length.
    let odd = device.allocate(3).unwrap();
    odd.write(0, b"abc").unwrap();
    let copy = device.allocate(3).unwrap();
    copy.copy_from(&odd).unwrap();
    let mut bytes = [0; 3];
    copy.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"abc");
}

#[test]
fn an_allocation_above_the_largest_is_refused_with_the_limit() {
    let Some(device) = open() else { return };
    let largest = device.properties().unwrap().largest_allocation.unwrap();
    let error = device.allocate(largest as usize + 1).unwrap_err();
    assert!(error.to_string().contains(&largest.to_string()), "{error}");
    assert!(matches!(error.kind(), Some(BackendErrorKind::OutOfMemory { .. })));
}

/// Within so much address space that other programs keep their memory, as llvmpipe's is the host's.
#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_not_there_is_an_error_and_what_is_there_can_still_be_used() {
    const TEST: &str = "memory_that_is_not_there_is_an_error_and_what_is_there_can_still_be_used";
    const EACH: usize = 256 << 20;
    if !process::is_child() {
        let Some(device) = open() else { return };
        if device.properties().unwrap().kind != device_registry::DeviceKind::Cpu {
            // A card's memory is not limited by the address space.
            return eprintln!("skipped {TEST}: the device has memory of its own");
        }
        let output = process::again(TEST, |child| with_address_space(4 << 20, CHILD.apply(child)));
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && printed.contains("it ended after "),
            "{}: {printed}",
            output.status
        );
        return;
    }
    let device = device_registry::device("wgpu").unwrap();
    let small = device.allocate(1 << 16).unwrap();
    let mut held = Vec::new();
    let error = loop {
        match device.allocate(EACH) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
        assert!(held.len() < 64, "a limit of 4 GiB has no place for it");
    };
    println!("it ended after {}: {error}", held.len());
    assert!(!held.is_empty());
    match error.kind() {
        Some(BackendErrorKind::OutOfMemory { asked, .. }) => assert_eq!(asked, EACH as u64),
        other => panic!("{other:?}"),
    }
    // The device continues, with what it has.
    small.write(0, &[7; 1 << 16]).unwrap();
    let mut bytes = vec![0; 1 << 16];
    small.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
    let before = held.len();
    held.pop();
    held.push(device.allocate(EACH).unwrap());
    assert_eq!(held.len(), before);
}

/// Limits the address space of a child to this many KiB.
#[cfg(target_os = "linux")]
fn with_address_space(kib: u64, child: &mut Command) -> &mut Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\"")]).arg(child.get_program());
    for (name, value) in child.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    *child = limited;
    child
}

/// Destroys it by its native handle.
fn destroy(stream: &Stream) {
    let destroy = |launch: &Launch<'_>| {
        launch.driver_as::<WgpuDevice>()?.device().destroy();
        Ok(())
    };
    stream.launch(&[], destroy).unwrap();
}

/// Runs it on its own thread, and fails if it does not end.
fn ends<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(run()));
    receiver.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what} does not end"))
}

/// One test, as it is one device that is lost.
#[test]
fn a_device_that_is_destroyed_is_lost_to_all_and_a_reset_brings_it_back() {
    const TEST: &str = "a_device_that_is_destroyed_is_lost_to_all_and_a_reset_brings_it_back";
    if !process::is_child() {
        if open().is_none() {
            return;
        }
        // The other tests use the device.
        let output = CHILD.again(TEST, &[]);
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {printed}", output.status);
        assert!(!printed.contains("panicked"), "{printed}");
        return;
    }
    let device = device_registry::device("wgpu").unwrap();
    for waits in [Waits::NoMore, Waits::InARead, Waits::InAnEvent, Waits::InTheStream, Waits::InACopy] {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(32 << 20).unwrap());
        lose(&stream, &buffer, waits);
        // No thread finds anything else any more, whatever was under way.
        // No freed memory has this length: the core would reuse it without a call into the driver.
        assert_eq!(error_kind(device.allocate(48)), Some(BackendErrorKind::Lost), "{waits:?}");
        assert_eq!(error_kind(buffer.write(0, &[1; 4])), Some(BackendErrorKind::Lost));
        assert_eq!(error_kind(buffer.read(0, &mut [1; 4])), Some(BackendErrorKind::Lost));
        assert_eq!(error_kind(stream.synchronize()), Some(BackendErrorKind::Lost));
        assert_eq!(error_kind(stream.fill(&buffer, .., &[1])), Some(BackendErrorKind::Lost));
        assert_eq!(error_kind(stream.record()), Some(BackendErrorKind::Lost));
        assert_eq!(error_kind(device.create_stream()), Some(BackendErrorKind::Lost));
        drop((stream, buffer));

        device.reset().unwrap();
        let buffer = device.allocate(16).unwrap();
        buffer.write(0, &[9; 16]).unwrap();
        let stream = device.create_stream().unwrap();
        assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), [9; 16]);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Waits {
    NoMore,
    InARead,
    InAnEvent,
    InTheStream,
    InACopy,
}

/// Has work under way and a thread that waits for it, and destroys the device. The thread ends.
fn lose(stream: &Stream, buffer: &Buffer, waits: Waits) {
    if waits == Waits::NoMore {
        return destroy(stream);
    }
    let other = buffer.device().allocate(buffer.len()).unwrap();
    stream.fill(buffer, .., &[5]).unwrap();
    for _ in 0..10 {
        stream.copy(buffer, &other).unwrap();
    }
    let event = stream.record().unwrap();
    // The last that is submitted: to destroy a device while a thread copies what was read is forbidden.
    let read = (waits != Waits::InACopy).then(|| stream.read(buffer, ..).unwrap());
    let (waits_for, from) = (stream.clone(), buffer.clone());
    let (begun, begins) = mpsc::channel();
    let waiter = thread::spawn(move || {
        begun.send(()).unwrap();
        let waited = match waits {
            Waits::InAnEvent => event.synchronize(),
            Waits::InTheStream => waits_for.synchronize(),
            _ => Ok(()),
        };
        match read {
            Some(read) => waited.and(read.wait().map(|bytes| assert!(bytes.iter().all(|byte| *byte == 5)))),
            None => from.read(0, &mut [0; 4]),
        }
    });
    begins.recv().unwrap();
    thread::sleep(Duration::from_millis(2));
    destroy(stream);
    // It may have been done just before.
    if let Err(error) = ends("the thread that waits", move || waiter.join().unwrap()) {
        assert_eq!(error.kind(), Some(BackendErrorKind::Lost));
    }
}

#[test]
fn an_ordinal_beyond_the_count_is_an_error_of_the_backend() {
    let Some(device) = open() else { return };
    let backend = device.backend().load().unwrap();
    let count = backend.device_count().unwrap();
    for ordinal in [count, usize::MAX] {
        let expected = format!("no device has the ordinal {ordinal}: there are {count} devices");
        assert_eq!(backend.open(ordinal).unwrap_err().message(), expected);
        assert_eq!(backend.properties(ordinal).unwrap_err().message(), expected);
    }
}
