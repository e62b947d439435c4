//! Devices that are lost, reset and closed.

use std::sync::atomic::Ordering;
use std::thread;

use device_registry::backend::{BackendError, BackendErrorKind};
use device_registry::{Device, DeviceError};

use crate::fake::{Moment, plain, queued};
use crate::{begin, content, ends, error_text, failed, filled, kind, on_both, outcome, still_waits};

#[test]
fn every_call_on_a_lost_device_returns_the_loss_and_other_devices_work() {
    on_both(|device, control| {
        let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
        let (other_device, _) = queued();
        let event = stream.record().unwrap();
        stream.synchronize().unwrap();
        control.fail(BackendError::lost("it fell off the bus"));
        buffer.write(0, b"x").unwrap_err();
        let calls: [Result<(), DeviceError>; 14] = [
            buffer.write(0, b"x"),
            buffer.read(0, &mut [0]),
            buffer.slice(..1).unwrap().copy_from(&buffer.slice(1..2).unwrap()),
            buffer.fill(0..4, b"x"),
            device.allocate(1).map(drop),
            device.allocate(0).map(drop),
            device.create_stream().map(drop),
            device.memory_info().map(drop),
            device.synchronize(),
            device.open(),
            stream.write(&buffer, 0, b"x"),
            stream.synchronize(),
            stream.query().map(drop),
            event.query().map(drop),
        ];
        for (at, call) in calls.into_iter().enumerate() {
            let error = call.unwrap_err();
            assert_eq!(kind(&error), BackendErrorKind::Lost, "{at}: {error}");
            assert!(error.to_string().contains("it fell off the bus"), "{error}");
        }
        filled(other_device, b"x");
        filled(Device::cpu(), b"x");
    });
}

#[test]
fn a_read_that_a_lost_device_forgets_is_an_error_and_no_hang() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
        control.holds_reads.store(true, Ordering::SeqCst);
        let read = stream.read(&buffer, 0..4).unwrap();
        assert!(!read.is_ready());
        stream.synchronize().expect("the driver says that all is done");
        let waits = thread::spawn(move || read.wait());
        control.fail(BackendError::lost("gone"));
        buffer.write(0, b"x").unwrap_err();
        assert_eq!(kind(&waits.join().unwrap().unwrap_err()), BackendErrorKind::Lost);
    });
}

#[test]
fn a_loss_that_only_a_queued_read_reports_is_a_loss_of_the_device() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        control.close();
        let read = stream.read(&buffer, 0..1).unwrap();
        control.fail(BackendError::lost("gone"));
        control.open();
        assert_eq!(kind(&read.wait().unwrap_err()), BackendErrorKind::Lost);
        assert_eq!(kind(&device.open().unwrap_err()), BackendErrorKind::Lost);
    });
}

#[test]
fn a_reset_device_opens_again_and_its_old_handles_stay_lost() {
    on_both(|device, control| {
        let (buffer, stream) = (filled(device, b"x"), device.create_stream().unwrap());
        assert_eq!(kind(&device.reset().unwrap_err()), BackendErrorKind::Invalid, "it is not lost");
        control.cannot_reset.store(true, Ordering::SeqCst);
        control.fail(BackendError::lost("gone"));
        buffer.read(0, &mut [0]).unwrap_err();
        assert_eq!(kind(&device.reset().unwrap_err()), BackendErrorKind::Unsupported);
        assert_eq!(kind(&device.open().unwrap_err()), BackendErrorKind::Lost);
        control.cannot_reset.store(false, Ordering::SeqCst);
        device.reset().unwrap();
        control.log();
        let fresh = filled(device, b"y");
        assert!(control.log().contains(&"open"));
        assert_eq!(content(&fresh), b"y");
        for old in [
            buffer.write(0, b"x"),
            stream.synchronize(),
            stream.copy(&fresh, &buffer),
            stream.write(&fresh, 0, b"z"),
            fresh.copy_from(&buffer),
        ] {
            assert_eq!(kind(&old.unwrap_err()), BackendErrorKind::Lost);
        }
        assert_eq!(
            device.memory_statistics().unwrap().live,
            1,
            "allocations of the lost device do not count"
        );
    });
}

#[test]
fn a_closed_device_has_finished_its_work_and_opens_again() {
    on_both(|device, control| {
        device.close().expect("it is not open");
        let (buffer, stream) = (filled(device, b"x"), device.create_stream().unwrap());
        let read = stream.read(&buffer, 0..1).unwrap();
        let event = stream.record().unwrap();
        device.close().unwrap();
        assert!(read.is_ready(), "its work is waited for");
        assert_eq!(*read.wait().unwrap(), *b"x");
        assert_eq!(control.log().last(), Some(&"close"));
        for old in [
            buffer.write(0, b"x"),
            stream.synchronize(),
            stream.write(&buffer, 0, b"x"),
            event.query().map(drop),
            stream.write(&filled(device, b"y"), 0, b"z"),
        ] {
            let error = old.unwrap_err();
            assert!(matches!(error, DeviceError::Closed { .. }), "{error}");
            assert!(error.to_string().contains("the device was closed"), "{error}");
        }
        assert_eq!(control.log()[0], "open");
        drop((buffer, stream, event));
        assert_eq!(control.live(), 0, "memory of a closed device is dropped");
        assert_eq!(control.live_queues.load(Ordering::SeqCst), 0, "and so are its streams");
    });
}

#[test]
fn closing_reports_unreported_failures_and_errors_of_the_driver() {
    ends(|| {
        let (device, control) = plain();
        let _stream = failed(device, "on purpose");
        assert!(error_text(device.close()).ends_with("launch: on purpose"));
        device.open().unwrap();
        control.fail(BackendError::other("the door is stuck"));
        assert!(error_text(device.close()).ends_with("close: the door is stuck"));
        device.allocate(1).expect("it was closed all the same");
    });
}

#[test]
fn a_close_after_failures_releases_what_the_work_has_used() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
        let mut pinned = device.allocate_host(4).unwrap();
        pinned.copy_from_slice(b"rust");
        stream.write(&buffer, 0, pinned).unwrap();
        while content(&buffer) != b"rust" {
            thread::yield_now();
        }
        // For the wait before the device is closed, and the one after it.
        control.fail_at(Moment::Flush, BackendError::other("the submission failed"));
        control.fail(BackendError::other("on purpose"));
        assert!(error_text(device.close()).ends_with("the submission failed"));
        drop((buffer, stream));
        assert_eq!(control.live(), 0, "memory is leaked");
    });
}

#[test]
fn the_queues_of_dropped_streams_are_dropped_before_the_driver_is_closed() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
        control.close();
        stream.write(&buffer, 0, b"rust").unwrap();
        drop(stream);
        // Else the wait before the close drops the queue.
        control.fail_at(Moment::Flush, BackendError::other("the submission failed"));
        control.open();
        assert!(error_text(device.close()).ends_with("the submission failed"));
        assert_eq!(control.queues_at_close.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_loss_that_a_kernel_returns_wakes_the_threads_that_wait() {
    ends(|| {
        let (device, control) = plain();
        let buffer = device.allocate(4).unwrap();
        let [stuck, stream] = [(); 2].map(|()| device.create_stream().unwrap());
        control.close();
        let read = stuck.read(&buffer, ..).unwrap();
        control.await_call("read");
        stream.launch(&[], |_| Err(BackendError::lost("gone"))).unwrap();
        assert_eq!(kind(&read.wait().unwrap_err()), BackendErrorKind::Lost);
        control.open();
    });
}

#[test]
fn a_read_of_a_dropped_stream_ends_when_its_device_is_lost_or_closed() {
    for close in [false, true] {
        ends(move || {
            let (device, control) = queued();
            let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
            control.holds_reads.store(true, Ordering::SeqCst);
            let read = stream.read(&buffer, 0..4).unwrap();
            drop(stream);
            device.memory_statistics().unwrap();
            if close {
                device.close().unwrap();
                assert!(matches!(read.wait(), Err(DeviceError::Closed { .. })));
            } else {
                control.fail(BackendError::lost("gone"));
                buffer.write(0, b"x").unwrap_err();
                assert_eq!(kind(&read.wait().unwrap_err()), BackendErrorKind::Lost);
            }
        });
    }
}

#[test]
fn memory_and_events_of_a_closed_device_never_reach_the_reopened_one() {
    on_both(|device, _| {
        let (old, event) = (filled(device, b"old."), device.create_stream().unwrap().record().unwrap());
        device.close().unwrap();
        let (new, stream) = (filled(device, b"new."), device.create_stream().unwrap());
        for result in [
            new.copy_from(&old),
            stream.copy(&old, &new).and_then(|()| stream.synchronize()),
            stream.wait_event(&event).and_then(|()| stream.synchronize()),
        ] {
            assert!(matches!(result, Err(DeviceError::Closed { .. })), "{result:?}");
        }
        assert_eq!(content(&new), b"new.");
    });
}

#[test]
fn a_close_waits_for_calls_in_the_driver() {
    ends(|| {
        let (device, control) = plain();
        let buffer = device.allocate(4).unwrap();
        control.close();
        let writes = thread::spawn(move || buffer.write(0, b"x"));
        control.await_call("write");
        let closes = begin(move || device.close());
        still_waits(&closes);
        assert_eq!(control.log(), [""; 0], "the write is still in the driver");
        control.open();
        outcome(closes).unwrap();
        writes.join().unwrap().unwrap();
        assert_eq!(control.log(), ["close"]);
    });
}
