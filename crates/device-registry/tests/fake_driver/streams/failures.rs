//! Errors in queued work are reported once, and never lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use device_registry::DeviceError;
use device_registry::backend::BackendError;

use crate::fake::{both, plain, queued};
use crate::{content, ends, error_text, failed, filled, on_both};

#[test]
fn a_stream_skips_work_after_a_failure_until_it_is_reported() {
    ends(|| {
        let (device, control) = plain();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"...."));
        control.close();
        stream.write(&buffer, 0, b"1").unwrap();
        control.fail(BackendError::other("on purpose"));
        let read = stream.read(&buffer, 0..1).unwrap();
        let event = stream.record().unwrap();
        stream.write(&buffer, 1, b"2").unwrap();
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        stream.host_call(move || runs.store(true, Ordering::SeqCst)).unwrap();
        control.open();
        for error in [error_text(read.wait()), error_text(event.synchronize()), error_text(event.query())] {
            assert!(error.ends_with(": write: on purpose"), "{error}");
        }
        // Work that is enqueued after the failure is skipped too, until the failure is reported.
        stream.write(&buffer, 2, b"3").unwrap();
        assert!(error_text(stream.synchronize()).ends_with(": write: on purpose"));
        stream.synchronize().expect("the error was reported");
        assert!(stream.query().unwrap());
        stream.write(&buffer, 3, b"4").unwrap();
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b"...4");
        assert!(!ran.load(Ordering::SeqCst));
    });
}

#[test]
fn work_enqueued_before_the_report_is_skipped_after_it_too() {
    ends(|| {
        let (device, control) = plain();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b".."));
        // After the first of these has failed, the second blocks the thread in `skip` until the test
        // continues.
        let (go, wait) = mpsc::channel::<()>();
        let (failed, has_failed) = mpsc::channel();
        struct Holds(mpsc::Sender<()>, mpsc::Receiver<()>);
        impl Drop for Holds {
            fn drop(&mut self) {
                self.0.send(()).unwrap();
                let _ = self.1.recv();
            }
        }
        let holds = Holds(failed, wait);
        control.fail(BackendError::other("on purpose"));
        stream.write(&buffer, 0, b"1").unwrap();
        stream.host_call(move || drop(holds)).unwrap();
        has_failed.recv().unwrap();
        stream.write(&buffer, 0, b"2").unwrap();
        assert!(error_text(stream.query()).ends_with("on purpose"));
        stream.write(&buffer, 1, b"3").unwrap();
        go.send(()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b".3");
    });
}

#[test]
fn a_query_reports_and_clears_a_failure() {
    ends(|| {
        let (device, _) = plain();
        let stream = failed(device, "on purpose");
        let error = loop {
            match stream.query() {
                Ok(_) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().ends_with("launch: on purpose"));
        assert!(stream.query().unwrap());
    });
}

#[test]
fn a_stream_that_waits_for_an_event_with_an_error_fails_with_it() {
    ends(|| {
        let (device, _) = plain();
        for (other, _) in both() {
            let event = failed(device, "at the source").record().unwrap();
            let (stream, buffer) = (other.create_stream().unwrap(), filled(other, b"."));
            stream.wait_event(&event).unwrap();
            stream.write(&buffer, 0, b"x").unwrap();
            assert!(error_text(stream.synchronize()).ends_with("at the source"));
            assert_eq!(content(&buffer), b".");
        }
        let _ = device.synchronize();
    });
}

#[test]
fn the_device_reports_the_error_of_a_dropped_stream() {
    ends(|| {
        let (device, control) = plain();
        control.close();
        let buffer = device.allocate(1).unwrap();
        let stream = device.create_stream().unwrap();
        stream.write(&buffer, 0, b"x").unwrap();
        control.fail(BackendError::other("too late"));
        drop(stream);
        control.open();
        let error = loop {
            match device.synchronize() {
                Ok(()) => thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().ends_with("write: too late"), "{error}");
        device.synchronize().expect("it was reported");
    });
}

#[test]
fn the_device_reports_a_read_that_fails_after_its_stream_was_dropped() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(1).unwrap(), device.create_stream().unwrap());
        control.close();
        let read = stream.read(&buffer, 0..1).unwrap();
        control.fail(BackendError::other("too late"));
        drop(stream);
        control.open();
        assert!(error_text(read.wait()).ends_with("read: too late"));
        // This collects dropped streams whose work is done.
        device.memory_statistics().unwrap();
        assert!(error_text(device.synchronize()).ends_with("read: too late"));
        device.synchronize().expect("it was reported");
    });
}

#[test]
fn every_failure_in_a_driver_queue_is_reported_once() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(1).unwrap(), device.create_stream().unwrap());
        for why in ["one", "two"] {
            control.close();
            let read = stream.read(&buffer, 0..1).unwrap();
            control.fail(BackendError::other(why));
            control.open();
            assert!(error_text(read.wait()).ends_with(why));
            assert!(error_text(stream.synchronize()).ends_with(why));
            stream.synchronize().unwrap();
        }
        // What the queue says when it is waited for.
        control.fail(BackendError::other("three"));
        assert!(error_text(stream.synchronize()).ends_with("synchronize: three"));
        stream.synchronize().unwrap();
        control.fail(BackendError::other("four"));
        assert!(error_text(device.synchronize()).ends_with("synchronize: four"));
        device.synchronize().unwrap();
    });
}

#[test]
fn the_errors_of_two_failed_streams_are_both_reported() {
    ends(|| {
        let (device, _) = plain();
        let (first, second) = (failed(device, "one"), failed(device, "two"));
        assert!(error_text(device.synchronize()).ends_with("one"));
        first.synchronize().unwrap();
        assert!(error_text(device.synchronize()).ends_with("two"));
        second.synchronize().unwrap();
        device.synchronize().unwrap();
    });
}

#[test]
fn work_behind_a_failed_host_call_never_reaches_the_driver_queue() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"."));
        let before = stream.record().unwrap();
        stream.host_call(|| panic!("on purpose")).unwrap();
        let skipped = stream.record().unwrap();
        assert!(error_text(skipped.synchronize()).ends_with("on purpose"));
        before.synchronize().unwrap();
        control.log();
        // The thread has nothing more to do, so that this would be submitted from here.
        stream.write(&buffer, 0, b"x").unwrap();
        let read = stream.read(&buffer, 0..1).unwrap();
        assert!(error_text(read.wait()).ends_with("on purpose"));
        assert_eq!(control.log(), [""; 0]);
        assert!(error_text(stream.synchronize()).ends_with("on purpose"));
        stream.write(&buffer, 0, b"y").unwrap();
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b"y");
    });
}

#[test]
fn a_host_call_behind_a_failed_read_is_skipped_and_the_first_error_reported() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
        control.close();
        control.fail(BackendError::other("first"));
        let read = stream.read(&buffer, 0..4).unwrap();
        stream.host_call(|| panic!("second")).unwrap();
        control.open();
        assert!(error_text(read.wait()).ends_with("first"));
        assert!(error_text(stream.synchronize()).ends_with("first"));
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_read_that_fails_before_its_submission_returns_is_a_failure_of_the_stream_and_no_refusal() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"."));
        control.waits_for_reads.store(true, Ordering::SeqCst);
        control.fail(BackendError::other("on purpose"));
        let read = stream.read(&buffer, ..).unwrap();
        stream.write(&buffer, 0, b"x").unwrap();
        assert!(error_text(read.wait()).ends_with("on purpose"));
        assert!(error_text(stream.synchronize()).ends_with("on purpose"));
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b".");
    });
}

#[test]
fn a_read_that_a_driver_gives_up_is_an_error() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        control.holds_reads.store(true, Ordering::SeqCst);
        let read = stream.read(&buffer, 0..1).unwrap();
        drop(control.held_read());
        assert!(error_text(read.wait()).ends_with("read: the backend dropped the work unfinished"));
    });
}

#[test]
fn the_device_returns_the_failures_of_dropped_streams_one_by_one() {
    ends(|| {
        let (device, _) = plain();
        let whys = ["first", "second", "third"];
        for why in whys {
            drop(failed(device, why));
        }
        let mut reported: Vec<_> = Vec::new();
        while reported.len() < whys.len() {
            match device.synchronize() {
                Ok(()) => thread::yield_now(),
                Err(error) => reported.push(error.to_string()),
            }
        }
        for why in whys {
            assert_eq!(reported.iter().filter(|error| error.ends_with(why)).count(), 1, "{reported:?}");
        }
        device.synchronize().unwrap();
    });
}

#[test]
fn a_read_that_fails_at_its_time_limit_is_reported_exactly_once() {
    on_both(|device, control| {
        let buffer = filled(device, b"....");
        // From no time to more than the work takes.
        for limit in (0..400).step_by(2).map(Duration::from_micros) {
            control.fail(BackendError::other("on purpose"));
            let read = buffer.read_timeout(0, &mut [0; 4], limit);
            match read.unwrap_err() {
                DeviceError::TimedOut { .. } => loop {
                    match device.synchronize() {
                        Ok(()) => thread::yield_now(),
                        Err(error) => break assert!(error.to_string().ends_with("on purpose"), "{error}"),
                    }
                },
                error => assert!(error.to_string().ends_with("read: on purpose"), "{error}"),
            }
            for _ in 0..3 {
                device.synchronize().expect("it was reported");
            }
        }
    });
}

#[test]
fn a_write_with_a_time_limit_returns_its_own_failure_whatever_waits_for_the_device() {
    ends(|| {
        let (device, control) = plain();
        let buffer = filled(device, b"....");
        for _ in 0..200 {
            control.close();
            control.log();
            control.fail(BackendError::other("on purpose"));
            let buffer = buffer.clone();
            let writes = thread::spawn(move || buffer.write_timeout(0, b"x", Duration::from_secs(60)));
            control.await_call("write");
            let waits = thread::spawn(move || device.synchronize());
            control.open();
            assert!(error_text(writes.join().unwrap()).ends_with("write: on purpose"));
            waits.join().unwrap().expect("the failure is the write's");
        }
    });
}
