//! Calls with a time limit: the error says what is pending, the work goes on, and its failure is reported
//! later.

use std::time::Duration;

use device_registry::{Device, DeviceError, StreamGuard};

use crate::backend::{FAILS_READS, FINISHES_READS, QUEUED, plugged};

const SHORT: Duration = Duration::from_millis(20);
/// Long enough for a machine under load. No call here takes it.
const LONG: Duration = Duration::from_secs(60);

#[track_caller]
fn timed_out<T: std::fmt::Debug>(result: Result<T, DeviceError>, call: &str, pending: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, DeviceError::TimedOut { .. }), "{error}");
    let expected = format!(": {call}: not done after 20ms, and the work goes on: {pending}");
    assert!(error.to_string().ends_with(&expected), "{error}");
}

#[test]
fn a_stream_and_an_event_time_out_and_their_work_goes_on() {
    let (device, plug) = plugged(6);
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    stream.synchronize_timeout(Duration::ZERO).unwrap();
    let read = stream.read(&buffer, ..).unwrap();
    stream.write(&buffer, 0, vec![7; 4]).unwrap();
    let event = stream.record().unwrap();
    let behind = "`read` is under way, and 2 pieces of work wait behind it";
    // Until its thread has begun, all three pieces wait.
    while !stream.synchronize_timeout(SHORT).unwrap_err().to_string().ends_with(behind) {}
    timed_out(stream.synchronize_timeout(SHORT), "synchronize", behind);
    timed_out(device.synchronize_timeout(SHORT), "synchronize", behind);
    let waits = "work before the event waits in its stream";
    timed_out(event.synchronize_timeout(SHORT), "synchronize an event", waits);
    plug.release();
    event.synchronize_timeout(LONG).unwrap();
    stream.synchronize_timeout(LONG).unwrap();
    device.synchronize_timeout(Duration::MAX).unwrap();
    read.wait().unwrap();
}

#[test]
fn a_queue_of_the_driver_times_out_and_its_work_goes_on() {
    let (device, plug) = plugged(QUEUED);
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    stream.write(&buffer, 0, vec![7; 4]).unwrap();
    let event = stream.record().unwrap();
    timed_out(stream.synchronize_timeout(SHORT), "synchronize", "work in a queue of the driver");
    timed_out(device.synchronize_timeout(SHORT), "synchronize", "work in a queue of the driver");
    let queued = "work before the event is in a queue of the driver";
    timed_out(event.synchronize_timeout(SHORT), "synchronize an event", queued);
    plug.release();
    for _ in 0..2 {
        event.synchronize_timeout(LONG).unwrap();
        stream.synchronize_timeout(LONG).unwrap();
        device.synchronize_timeout(LONG).unwrap();
    }
}

fn copies_time_out(ordinal: usize, pending: [&str; 2]) {
    let (device, plug) = plugged(ordinal);
    let [a, b] = [(); 2].map(|()| device.allocate(4).unwrap());
    let mut bytes = [9; 4];
    timed_out(a.read_timeout(0, &mut bytes, SHORT), "read", "`read` is under way");
    assert_eq!(bytes, [9; 4], "a read that is late writes nowhere");
    timed_out(a.copy_from_timeout(&b, .., 0, SHORT), "copy", pending[0]);
    timed_out(Device::cpu().allocate(4).unwrap().copy_from_timeout(&b, .., 0, SHORT), "copy", pending[1]);
    plug.release();
    a.read_timeout(0, &mut bytes, LONG).unwrap();
    a.copy_from_timeout(&b, .., 0, LONG).unwrap();
    a.write_timeout(1, &[1, 2], LONG).unwrap();
    device.synchronize_timeout(LONG).unwrap();
}

#[test]
fn blocking_copies_time_out_where_the_driver_blocks() {
    copies_time_out(7, ["`copy` is under way"; 2]);
}

#[test]
fn blocking_copies_time_out_in_a_queue_of_the_driver() {
    copies_time_out(QUEUED + 1, ["work in a queue of the driver", "`copy` is under way"]);
}

#[test]
fn the_current_stream_counts_towards_the_limit() {
    let (device, plug) = plugged(8);
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let read = stream.read(&buffer, ..).unwrap();
    let _guard = StreamGuard::new(&stream);
    while !buffer.write_timeout(0, &[1], SHORT).unwrap_err().to_string().ends_with("`read` is under way") {}
    timed_out(buffer.write_timeout(0, &[1], SHORT), "write", "`read` is under way");
    plug.release();
    buffer.write_timeout(0, &[1], LONG).unwrap();
    read.wait().unwrap();
}

#[test]
fn a_failure_behind_a_time_limit_is_reported_once_by_a_later_call() {
    let device = Device::cpu();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let (release, released) = std::sync::mpsc::channel::<()>();
    stream.host_call(move || released.recv().unwrap_or(())).unwrap();
    stream.launch(&[&buffer], |_| Err(device_registry::backend::BackendError::other("on purpose"))).unwrap();
    assert!(matches!(stream.synchronize_timeout(SHORT), Err(DeviceError::TimedOut { .. })));
    drop(release);
    let error = stream.synchronize_timeout(LONG).unwrap_err();
    assert!(error.to_string().contains("on purpose"), "{error}");
    stream.synchronize_timeout(LONG).unwrap();
}

#[test]
fn a_read_returns_its_error_once_although_its_stream_does_not_end_in_time() {
    let (device, plug) = plugged(FAILS_READS);
    let buffer = device.allocate(4).unwrap();
    let error = buffer.read_timeout(0, &mut [0; 4], Duration::from_secs(5)).unwrap_err();
    assert!(error.to_string().ends_with("read: on purpose"), "{error}");
    plug.release();
    device.synchronize().expect("the read has returned the error");
}

#[test]
fn a_read_whose_bytes_are_there_succeeds_although_its_stream_does_not_end_in_time() {
    let (device, plug) = plugged(FINISHES_READS);
    let buffer = device.allocate(4).unwrap();
    // Under load, the bytes themselves may be late.
    let in_time = |_| buffer.read_timeout(0, &mut [0; 4], Duration::from_millis(200)).is_ok();
    assert!((0..20).any(in_time));
    plug.release();
    device.synchronize().unwrap();
}

#[test]
fn bad_ranges_are_refused_before_anything_waits() {
    let buffer = Device::cpu().allocate(4).unwrap();
    let out = |result: Result<(), DeviceError>| matches!(result, Err(DeviceError::OutOfRange { .. }));
    assert!(out(buffer.write_timeout(3, &[1, 2], LONG)));
    assert!(out(buffer.read_timeout(usize::MAX, &mut [1, 2], LONG)));
    assert!(out(buffer.copy_from_timeout(&buffer, 2..9, 0, LONG)));
    buffer.write_timeout(4, &[], Duration::ZERO).unwrap();
}
