//! Calls with a time limit: the error says what is pending, the work continues, and its failure is reported
//! later.

use std::sync::atomic::Ordering;
use std::time::Duration;

use device_registry::backend::BackendError;
use device_registry::{Buffer, Device, DeviceError, StreamGuard};

use crate::fake::{Control, Moment, plain, queued};
use crate::{LONG, SHORT};

#[track_caller]
fn timed_out<T: std::fmt::Debug>(result: Result<T, DeviceError>, call: &str, pending: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, DeviceError::TimedOut { .. }), "{error}");
    let expected = format!(": {call}: not done after 20ms, and the work goes on: {pending}");
    assert!(error.to_string().ends_with(&expected), "{error}");
}

#[test]
fn a_stream_and_an_event_time_out_and_their_work_goes_on() {
    let (device, control) = plain();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    stream.synchronize_timeout(Duration::ZERO).unwrap();
    control.close();
    let read = stream.read(&buffer, ..).unwrap();
    stream.write(&buffer, 0, vec![7; 4]).unwrap();
    let event = stream.record().unwrap();
    let behind = "`read` is under way, and 2 pieces of work wait behind it";
    // Until its thread has begun, all three pieces wait.
    control.await_call("read");
    timed_out(stream.synchronize_timeout(SHORT), "synchronize", behind);
    timed_out(device.synchronize_timeout(SHORT), "synchronize", behind);
    let waits = "work before the event waits in its stream";
    timed_out(event.synchronize_timeout(SHORT), "synchronize an event", waits);
    control.open();
    event.synchronize_timeout(LONG).unwrap();
    stream.synchronize_timeout(LONG).unwrap();
    device.synchronize_timeout(Duration::MAX).unwrap();
    read.wait().unwrap();
}

#[test]
fn a_queue_of_the_driver_times_out_and_its_work_goes_on() {
    let (device, control) = queued();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    control.close();
    stream.write(&buffer, 0, vec![7; 4]).unwrap();
    let event = stream.record().unwrap();
    timed_out(stream.synchronize_timeout(SHORT), "synchronize", "work in a queue of the driver");
    timed_out(device.synchronize_timeout(SHORT), "synchronize", "work in a queue of the driver");
    let queued = "work before the event is in a queue of the driver";
    timed_out(event.synchronize_timeout(SHORT), "synchronize an event", queued);
    control.open();
    for _ in 0..2 {
        event.synchronize_timeout(LONG).unwrap();
        stream.synchronize_timeout(LONG).unwrap();
        device.synchronize_timeout(LONG).unwrap();
    }
}

fn copies_time_out((device, control): (Device, &Control), pending: [&str; 2]) {
    let [a, b] = [(); 2].map(|()| device.allocate(4).unwrap());
    control.close();
    let mut bytes = [9; 4];
    timed_out(a.read_timeout(0, &mut bytes, SHORT), "read", "`read` is under way");
    assert_eq!(bytes, [9; 4], "a read that is late writes nowhere");
    timed_out(a.copy_from_timeout(&b, SHORT), "copy", pending[0]);
    timed_out(Device::cpu().allocate(4).unwrap().copy_from_timeout(&b, SHORT), "copy", pending[1]);
    control.open();
    a.read_timeout(0, &mut bytes, LONG).unwrap();
    a.copy_from_timeout(&b, LONG).unwrap();
    a.write_timeout(1, &[1, 2], LONG).unwrap();
    device.synchronize_timeout(LONG).unwrap();
}

#[test]
fn blocking_copies_time_out_where_the_driver_blocks() {
    copies_time_out(plain(), ["`copy` is under way"; 2]);
}

#[test]
fn blocking_copies_time_out_in_a_queue_of_the_driver() {
    copies_time_out(queued(), ["work in a queue of the driver", "`copy` is under way"]);
}

#[test]
fn the_current_stream_counts_towards_the_limit() {
    let (device, control) = plain();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    control.close();
    let read = stream.read(&buffer, ..).unwrap();
    let _guard = StreamGuard::new(&stream);
    control.await_call("read");
    timed_out(buffer.write_timeout(0, &[1], SHORT), "write", "`read` is under way");
    control.open();
    buffer.write_timeout(0, &[1], LONG).unwrap();
    read.wait().unwrap();
}

#[test]
fn a_failure_behind_a_time_limit_is_reported_once_by_a_later_call() {
    let device = Device::cpu();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let (release, released) = std::sync::mpsc::channel::<()>();
    stream.host_call(move || released.recv().unwrap_or(())).unwrap();
    stream.launch(&[&buffer], |_| Err(BackendError::other("on purpose"))).unwrap();
    assert!(matches!(stream.synchronize_timeout(SHORT), Err(DeviceError::TimedOut { .. })));
    drop(release);
    let error = stream.synchronize_timeout(LONG).unwrap_err();
    assert!(error.to_string().contains("on purpose"), "{error}");
    stream.synchronize_timeout(LONG).unwrap();
}

/// A buffer whose next read is done when the core first looks at it, although work before it is not.
fn stuck_but_for_a_read(error: Option<BackendError>) -> (Buffer, &'static Control) {
    let (device, control) = queued();
    let buffer = device.allocate(4).unwrap();
    control.close();
    control.on(Moment::Submit, || control.queue().unwrap().submit_gated());
    control.holds_reads.store(true, Ordering::SeqCst);
    control.on(Moment::Flush, move || {
        let (completion, bytes) = control.held_read();
        completion.finish(error.map_or(Ok(bytes), Err));
    });
    (buffer, control)
}

#[test]
fn a_read_returns_its_error_once_although_its_stream_does_not_end_in_time() {
    let (buffer, control) = stuck_but_for_a_read(Some(BackendError::other("on purpose")));
    let error = buffer.read_timeout(0, &mut [0; 4], SHORT).unwrap_err();
    assert!(error.to_string().ends_with("read: on purpose"), "{error}");
    control.open();
    buffer.device().synchronize().expect("the read has returned the error");
}

#[test]
fn a_read_whose_bytes_are_there_succeeds_although_its_stream_does_not_end_in_time() {
    let (buffer, control) = stuck_but_for_a_read(None);
    buffer.read_timeout(0, &mut [0; 4], SHORT).unwrap();
    control.open();
    buffer.device().synchronize().unwrap();
}

#[test]
fn bad_ranges_are_refused_before_anything_waits() {
    let buffer = Device::cpu().allocate(4).unwrap();
    let out = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::OutOfRange { .. }));
    assert!(out(buffer.write_timeout(3, &[1, 2], LONG)));
    assert!(out(buffer.read_timeout(usize::MAX, &mut [1, 2], LONG)));
    let short = buffer.slice(1..).unwrap();
    assert!(matches!(buffer.copy_from_timeout(&short, LONG), Err(DeviceError::LengthMismatch { .. })));
    buffer.write_timeout(4, &[], Duration::ZERO).unwrap();
}
