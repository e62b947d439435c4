//! The backend as programs use it: by its name, and from many threads.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use device_registry::{BackendErrorKind, Buffer, Device, DeviceError, device};

// Links this package's own library, as it links a program's backends.
device_registry::autoload!();

fn mycpu() -> Device {
    device("mycpu").expect("it is linked")
}

fn filled(bytes: &[u8]) -> Buffer {
    let buffer = mycpu().allocate(bytes.len()).expect("there is memory");
    buffer.write(0, bytes).expect("all of it is inside");
    buffer
}

fn content(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes).expect("all of it is inside");
    bytes
}

/// Runs on a thread of its own, so that copies that wait for each other are a failure and do not take for ever.
fn ends(run: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        run();
        ended.send(())
    });
    assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(()));
}

#[test]
fn what_is_written_is_read_back() {
    for len in [1, 3, 4096, (2 << 20) + 1] {
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        assert!(content(&filled(&bytes)) == bytes, "{len} bytes come back changed");
    }
}

#[test]
fn only_the_range_is_touched() {
    let buffer = filled(b"abcdef");
    buffer.write(2, b"XY").unwrap();
    assert_eq!(content(&buffer), b"abXYef");
    let mut part = [0; 3];
    buffer.read(3, &mut part).unwrap();
    assert_eq!(&part, b"Yef");
    let other = filled(b"......");
    other.copy_from(1, &buffer, 2..4).unwrap();
    assert_eq!(content(&other), b".XY...");
    assert!(matches!(buffer.write(5, b"xx"), Err(DeviceError::OutOfRange { .. })));
}

#[test]
fn too_much_memory_is_an_error_and_the_device_works_on() {
    for len in [1 << 60, isize::MAX as usize] {
        let error = mycpu().allocate(len).unwrap_err();
        let kind = error.backend_error().map(|error| error.kind());
        assert_eq!(kind, Some(BackendErrorKind::OutOfMemory { asked: len as u64, free: None }), "{error}");
    }
    assert_eq!(content(&filled(b"abc")), b"abc");
}

#[test]
fn a_copy_within_one_buffer_ends() {
    ends(|| {
        let buffer = filled(b"abcdef");
        buffer.copy_from(4, &buffer, 0..2).unwrap();
        assert_eq!(content(&buffer), b"abcdab");
        buffer.copy_from(0, &buffer, 3..6).unwrap();
        assert_eq!(content(&buffer), b"dabdab");
    });
}

#[test]
fn copies_in_opposite_directions_do_not_wait_for_each_other() {
    // Long enough for the two to meet almost every time, also where there are hardly two cores.
    const LEN: usize = 1 << 16;
    let (a, b) = (filled(&[1; LEN]), filled(&[1; LEN]));
    ends(move || {
        thread::scope(|scope| {
            for (to, from) in [(&a, &b), (&b, &a)] {
                scope.spawn(move || (0..2_000).for_each(|_| to.copy_from(0, from, 0..LEN).unwrap()));
            }
        });
        assert!(content(&a) == [1; LEN] && content(&b) == [1; LEN]);
    });
}

#[test]
fn it_has_one_device() {
    assert_eq!(mycpu().count().unwrap(), 1);
    assert!(!mycpu().properties().unwrap().name.is_empty());
    mycpu().memory_info().unwrap();
    assert!(matches!(device("mycpu:1").unwrap().allocate(1), Err(DeviceError::NoSuchDevice { .. })));
}
