//! Queued reads that end in another way than they should.

use std::time::Duration;

use device_conformance::process;
use device_registry::backend::HostBuffer;
use device_registry::{Device, DeviceError, Pending, Stream, take_validation_reports};

use crate::support::{mistaken, others_work, says, works};

/// A device with a queue, and a read in it.
fn read(mistake: &str) -> (Device, Stream, Result<Pending, DeviceError>) {
    let device = mistaken(mistake);
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    stream.write(&buffer, 0, b"rust").unwrap();
    let pending = stream.read(&buffer, ..);
    (device, stream, pending)
}

/// The result of a read, which is there soon.
#[track_caller]
fn outcome(pending: Pending) -> Result<HostBuffer, DeviceError> {
    assert!(pending.wait_timeout(Duration::from_secs(20)), "the read is not finished");
    pending.wait()
}

/// What the read says, wherever the program learns of it, after `NAME:0 (mistakes 1.0.0): read: `.
#[track_caller]
fn fails(mistake: &str, expected: &str) -> (Device, Stream) {
    let (device, stream, pending) = read(mistake);
    let expected = format!("`{mistake}:0` (mistakes 1.0.0): read: {expected}");
    says(pending.and_then(outcome), &expected);
    others_work();
    (device, stream)
}

#[test]
fn a_dropped_read_is_an_error() {
    fails("queue_dropped", "the backend dropped the work unfinished");
}

#[test]
fn a_read_that_is_dropped_and_refused_has_the_reason_of_the_refusal() {
    fails("queue_dropped_refusal", "the queue is full");
}

#[test]
fn a_read_that_is_refused_and_not_finished_has_the_reason_of_the_refusal() {
    fails("queue_refusal_kept", "the queue is full");
}

#[test]
fn a_read_that_is_never_finished_ends_with_its_device() {
    let (device, stream, pending) = read("queue_never");
    let pending = pending.unwrap();
    assert!(!pending.wait_timeout(Duration::from_millis(50)), "it is finished");
    device.close().unwrap();
    says(
        outcome(pending),
        "`queue_never:0`: read: the device was closed, and its buffers, streams and events ended with it; new ones open the \
         device again",
    );
    drop(stream);
    // Another life of the same device.
    let buffer = device.allocate(4).unwrap();
    device.create_stream().unwrap().write(&buffer, 0, b"rust").unwrap();
    others_work();
}

#[test]
fn a_read_may_return_bytes_of_the_library() {
    let (device, _stream, pending) = read("queue_own_bytes");
    let bytes = outcome(pending.unwrap()).unwrap();
    assert_eq!(*bytes, [7; 4]);
    let before = device.native_handle("test.released").unwrap();
    drop(bytes);
    assert!(device.native_handle("test.released").unwrap() > before);
    others_work();
}

#[test]
fn a_read_of_another_length_is_an_error() {
    let (device, _stream) = fails(
        "queue_wrong_len",
        "the backend returned a buffer of the wrong length: expected 4 bytes, found 5",
    );
    assert!(device.native_handle("test.released").unwrap() > 0);
    fails(
        "queue_wrong_len_given_back",
        "the plugin has finished a read with its destination and a wrong length: expected 4 bytes, found 12",
    );
}

#[test]
fn a_read_without_bytes_is_an_error() {
    fails("queue_no_bytes", "the plugin has finished a read without its bytes");
    fails("queue_null_bytes", "the plugin has returned bytes without an address");
}

#[test]
fn a_read_that_fails_has_a_message() {
    fails("queue_failed", "the link is down");
    fails("queue_failed_silently", "the plugin reported DP_OTHER without a message");
    fails(
        "queue_odd_failure",
        "the report of the plugin has a `struct_size` of 0, which no table can have: expected the size of the struct in \
         bytes, as by `sizeof`",
    );
}

#[test]
fn a_read_that_finds_the_device_lost_loses_it() {
    let (device, _stream) = fails(
        "queue_lost",
        "device lost: the link is down; after `Device::reset`, the next use opens the device again where the driver can",
    );
    assert!(device.is_lost());
}

#[test]
fn the_destination_of_a_failed_read_may_be_released_later() {
    let (device, stream) = fails("queue_released_later", "the link is down");
    // The failure of a read is the stream's too.
    stream.synchronize().unwrap_err();
    // The queue releases the destination when it is destroyed.
    let before = device.native_handle("test.destroyed").unwrap();
    drop(stream);
    device.close().unwrap();
    device.open().unwrap();
    assert!(device.native_handle("test.destroyed").unwrap() > before);
}

#[test]
fn a_second_finish_or_release_has_no_effect() {
    if !process::is_child() {
        // The reports are those of the process.
        process::passes("reads::a_second_finish_or_release_has_no_effect", |child| child);
        return;
    }
    let released = "has released the destination of a read twice, or after it had given it back";
    for (mistake, expected) in [
        ("queue_finished_twice", "has finished a read twice"),
        ("queue_finished_and_released", released),
        ("queue_released_twice", released),
        ("queue_source_released_twice", "has released the source of a write twice"),
    ] {
        let device = mistaken(mistake);
        for _ in 0..3 {
            works(device);
        }
        others_work();
        let expected = format!("a plugin {expected}; the call has no effect");
        let reports = take_validation_reports();
        assert!(reports.contains(&expected), "{mistake}: {reports:?}");
    }
}

#[test]
fn a_read_that_is_finished_with_a_destination_that_was_released_is_an_error() {
    let expected = "the plugin has finished a read with its destination, which it has released";
    fails("queue_released_and_finished", expected);
}

#[test]
fn a_watch_of_a_read_that_was_finished_sees_its_end() {
    let device = mistaken("queue_watched_late");
    works(device);
    assert_eq!(device.native_handle("test.watched_after").unwrap(), 1);
    others_work();
}

#[test]
fn a_watch_sees_the_end_of_a_read_also_after_it() {
    let device = mistaken("queue_watched");
    works(device);
    let count = |kind| device.native_handle(kind).unwrap();
    assert_eq!((count("test.watched_before"), count("test.watched_after")), (0, 1));
    others_work();
}
