//! Panics in every function of a backend in Rust.

use std::time::Duration;

use device_plugin_tests::Manifest;
use device_registry::backend::{EventOptions, Fault};
use device_registry::{Buffer, Device, DeviceError, Stream, device_count};

use crate::support::{others_work, plug_in, says, works};

/// The first device of the backend of `panicky.rs` that panics in a function.
fn panicky(function: &str) -> Device {
    let file = plug_in("panicky_file");
    Manifest { file: &file, entry: function, package: "device-plugin-tests", version: "0.1.0" }
        .install(function)
}

/// What a call says, after `NAME:0 (device-plugin-tests 0.1.0): `.
#[track_caller]
fn panics<T>(function: &str, call: &str, run: impl FnOnce(Device) -> Result<T, DeviceError>) {
    let result = run(panicky(function));
    let expected =
        format!("`{function}:0` (device-plugin-tests 0.1.0): {call}: the backend panicked: in {function}");
    says(result, &expected);
    others_work();
}

/// A call on which a panic has no effect but its log.
#[track_caller]
fn panics_unnoticed(function: &str, run: impl FnOnce(Device)) {
    let device = panicky(function);
    run(device);
    works(device);
    others_work();
}

fn buffer(device: Device) -> Buffer {
    device.allocate(8).unwrap()
}

/// A stream, and a buffer with bytes.
fn stream(device: Device) -> (Stream, Buffer) {
    (device.create_stream().unwrap(), buffer(device))
}

#[test]
fn a_panic_before_a_device_is_open_is_an_error() {
    let file = plug_in("panicky_file");
    let place = format!("device-plugin-tests 0.1.0 in {}", file.display());
    says(
        panicky("load").open(),
        &format!(
            "backend `load` ({place}) failed to load: the backend panicked: in load; DEVICE_BACKEND_DISABLE=load turns it off"
        ),
    );
    panicky("device_count");
    says(
        device_count("device_count"),
        "`device_count` (device-plugin-tests 0.1.0): device count: the backend panicked: in device_count",
    );
    panics("presence", "presence", Device::open);
    panics("properties", "properties", Device::properties);
    panics("open", "open", Device::open);
}

#[test]
fn a_panic_in_a_device_is_an_error_of_the_call() {
    panics("memory_info", "memory info", Device::memory_info);
    panics("allocate", "allocate", |device| device.allocate(8));
    panics("write", "write", |device| buffer(device).write(0, b"x"));
    panics("read", "read", |device| buffer(device).read(0, &mut [0]));
    panics("copy", "copy", |device| buffer(device).copy_from(&buffer(device)));
    panics("fill", "fill", |device| buffer(device).fill(.., b"x"));
    panics("create_stream", "create a stream", Device::create_stream);
    panics("allocate_host", "allocate pinned host memory", |device| device.allocate_host(8));
    panics("close", "close", |device| {
        device.open().unwrap();
        device.close()
    });
    panics("inject", "inject a fault", |device| device.faults().unwrap().inject(Fault::FailCopy { nth: 1 }));
    panics("copy_from_peer", "copy from a peer", |device| {
        let [source, destination] = peers(device);
        destination.copy_from(&source)
    });
    panics("reset", "reset", |device| {
        assert!(device.faults().unwrap().inject(Fault::Unplug).is_err());
        device.reset()
    });
}

/// Buffers on two devices, the second on `device`.
fn peers(device: Device) -> [Buffer; 2] {
    let other = device_registry::device(&format!("{}:1", device.name())).unwrap();
    [buffer(other), buffer(device)]
}

#[test]
fn a_panic_with_a_value_that_panics_in_drop_is_an_error() {
    says(
        buffer(panicky("write_any")).write(0, b"x"),
        "`write_any:0` (device-plugin-tests 0.1.0): write: the backend panicked: a panic without a message",
    );
    others_work();
}

#[test]
fn an_error_whose_text_panics_is_an_error() {
    says(
        buffer(panicky("write_error")).write(0, b"x"),
        "`write_error:0` (device-plugin-tests 0.1.0): write: the backend panicked: in the text of an error",
    );
    others_work();
}

#[test]
fn a_panic_where_there_is_no_error_counts_as_nothing() {
    panics_unnoticed("native_handle", |device| assert!(device.native_handle("x").is_err()));
    panics_unnoticed("memory_native_handle", |device| {
        assert!(buffer(device).span().unwrap().native_handle("x").is_err());
    });
    panics_unnoticed("stream_native_handle", |device| {
        let (stream, buffer) = stream(device);
        stream.launch(&[&buffer], |launch| launch.native_stream("x").map(|_| ())).unwrap_err();
    });
    panics_unnoticed("stream_launched", |device| {
        let (stream, buffer) = stream(device);
        stream.launch(&[&buffer], |launch| launch.native_stream("x").map(|_| ())).unwrap();
    });
    panics_unnoticed("faults", |device| assert!(device.faults().is_err()));
    panics_unnoticed("clear", |device| device.faults().unwrap().clear().unwrap());
    panics_unnoticed("thread", |device| buffer(device).write(0, b"x").unwrap());
}

#[test]
fn a_panic_in_a_drop_harms_nothing() {
    panics_unnoticed("memory_drop", |device| drop(buffer(device)));
    panics_unnoticed("host_drop", |device| drop(device.allocate_host(8).unwrap()));
    panics_unnoticed("stream_drop", |device| {
        let (stream, buffer) = stream(device);
        stream.write(&buffer, 0, b"x").unwrap();
        stream.synchronize().unwrap();
        drop(stream);
        device.close().unwrap();
    });
    panics_unnoticed("event_drop", |device| {
        let (stream, _buffer) = stream(device);
        drop(stream.record().unwrap());
    });
}

#[test]
fn a_panic_in_a_queue_is_an_error_of_the_call() {
    panics("stream_write", "write", |device| {
        let (stream, buffer) = stream(device);
        stream.write(&buffer, 0, b"x")
    });
    panics("stream_read", "read", |device| {
        let (stream, buffer) = stream(device);
        stream.read(&buffer, ..)
    });
    panics("stream_copy", "copy", |device| {
        let (stream, destination) = stream(device);
        stream.copy(&buffer(device), &destination)
    });
    panics("stream_fill", "fill", |device| {
        let (stream, buffer) = stream(device);
        stream.fill(&buffer, .., b"x")
    });
    panics("stream_copy_from_peer", "copy from a peer", |device| {
        let [source, destination] = peers(device);
        device.create_stream()?.copy(&source, &destination)
    });
    panics("stream_record", "record", |device| device.create_stream()?.record());
    panics("stream_wait", "wait for an event", |device| {
        let event = device.create_stream()?.record()?;
        device.create_stream()?.wait_event(&event)
    });
    panics("stream_flush", "flush", |device| device.create_stream()?.record()?.query());
    panics("stream_query", "query", |device| {
        let (stream, buffer) = stream(device);
        stream.write(&buffer, 0, b"x").unwrap();
        stream.query()
    });
    panics("stream_synchronize", "synchronize", |device| {
        let (stream, buffer) = stream(device);
        stream.write(&buffer, 0, b"x").unwrap();
        stream.synchronize()
    });
}

#[test]
fn a_panic_in_an_event_is_an_error_of_the_call() {
    panics("event_query", "query an event", |device| device.create_stream()?.record()?.query());
    panics("event_synchronize", "synchronize an event", |device| {
        device.create_stream()?.record()?.synchronize()
    });
    panics("event_elapsed_since", "elapsed time", |device| {
        let stream = device.create_stream()?;
        let timed = EventOptions::new().timed();
        let [start, end] = [stream.record_with(&timed)?, stream.record_with(&timed)?];
        end.synchronize()?;
        end.elapsed_since(&start)
    });
}

#[test]
fn memory_is_freed_although_an_event_panics() {
    panics_unnoticed("event_is_over", |device| {
        let (stream, buffer) = stream(device);
        stream.write(&buffer, 0, b"x").unwrap();
        drop(buffer);
        stream.synchronize_timeout(Duration::from_secs(20)).unwrap();
    });
}
