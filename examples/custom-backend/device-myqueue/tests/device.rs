//! Tests of this backend alone: its native handle, and failures of queued work, which the suite cannot inject
//! here.

use device_myqueue::{NativeStream, QueueMemory};
use device_registry::backend::BackendError;
use device_registry::{Device, DeviceError, Stream, device};

device_registry::autoload!();

fn device_and_stream() -> (Device, Stream) {
    let device = device("myqueue").expect("it is linked");
    (device, device.create_stream().expect("a thread starts"))
}

/// Enqueues native work.
fn enqueue(
    stream: &Stream,
    work: impl FnOnce() -> Result<(), BackendError> + Send + 'static,
) -> Result<(), DeviceError> {
    stream.launch(&[], |launch| launch.stream_as::<NativeStream>()?.enqueue(work))
}

fn message<T>(result: Result<T, DeviceError>) -> String {
    result.err().expect("it fails").to_string()
}

#[test]
fn a_kernel_works_on_memory_in_the_order_of_the_stream() {
    let (device, stream) = device_and_stream();
    let buffer = device.allocate(3).unwrap();
    stream.write(&buffer, 0, b"abc").unwrap();
    let launched = stream.launch(&[&buffer], |launch| {
        let Some(span) = &launch.spans()[0] else { return Ok(()) };
        let (bytes, range) = (span.memory_as::<QueueMemory>()?.bytes().clone(), span.range());
        launch.stream_as::<NativeStream>()?.enqueue(move || {
            bytes.write(range)?.make_ascii_uppercase();
            Ok(())
        })
    });
    launched.unwrap();
    assert_eq!(*stream.read(&buffer, 0..3).unwrap().wait().unwrap(), *b"ABC");
}

#[test]
fn an_error_of_queued_work_is_reported_once_and_skips_the_work_behind_it() {
    let (device, stream) = device_and_stream();
    let buffer = device.allocate(1).unwrap();
    stream.write(&buffer, 0, b"a").unwrap();
    let before = stream.record().unwrap();
    // The error waits until all work behind it is submitted.
    let (submitted, wait) = std::sync::mpsc::channel::<()>();
    enqueue(&stream, move || wait.recv().map_err(|_| BackendError::other("out of paper"))).unwrap();
    stream.write(&buffer, 0, b"b").unwrap();
    let (read, behind) = (stream.read(&buffer, 0..1).unwrap(), stream.record().unwrap());
    drop(submitted);
    for error in [message(read.wait()), message(behind.synchronize()), message(stream.synchronize())] {
        assert!(error.contains("out of paper"), "{error}");
    }
    before.synchronize().unwrap();
    stream.synchronize().unwrap();
    assert_eq!(*stream.read(&buffer, 0..1).unwrap().wait().unwrap(), *b"a");
}

#[test]
fn a_stream_that_waits_for_a_failed_event_fails() {
    let ((_, first), (_, second)) = (device_and_stream(), device_and_stream());
    enqueue(&first, || Err(BackendError::other("out of paper"))).unwrap();
    let event = first.record().unwrap();
    second.wait_event(&event).unwrap();
    assert!(message(second.synchronize()).contains("the event failed"));
    second.synchronize().unwrap();
}

#[test]
fn a_panic_in_queued_work_is_an_error_and_the_stream_recovers() {
    let (_, stream) = device_and_stream();
    enqueue(&stream, || std::panic::resume_unwind(Box::new("paper jam"))).unwrap();
    assert!(message(stream.synchronize()).contains("queued work panicked"));
    enqueue(&stream, || Ok(())).unwrap();
    stream.synchronize().unwrap();
}
