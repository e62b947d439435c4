//! The order of work: within a stream, between streams, and with blocking calls.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, BackendErrorKind, EventOptions, Priority, StreamOptions};
use device_registry::{Device, Stream, StreamGuard};

use crate::fake::{in_words, plain, queued};
use crate::{SHORT, content, ends, error_text, filled, kind, on_both, open_later};

#[test]
fn work_is_done_in_order_and_read_back() {
    on_both(|device, _| {
        let stream = device.create_stream().unwrap();
        let (a, b) = (device.allocate(8).unwrap(), device.allocate(8).unwrap());
        stream.write(&a, 0, b"abcdefgh").unwrap();
        stream.fill(&a, 2..4, b"-").unwrap();
        stream.copy(&a.slice(..4).unwrap(), &b.slice(4..8).unwrap()).unwrap();
        stream.copy(&b.slice(6..8).unwrap(), &b.slice(..2).unwrap()).unwrap();
        stream.write(&a, 0, vec![0; 8]).unwrap();
        let read = stream.read(&b, 0..8).unwrap().wait().unwrap();
        assert_eq!((&read[..2], &read[4..]), (&b"--"[..], &b"ab--"[..]));
        assert_eq!(*stream.read(&a, 0..8).unwrap().wait().unwrap(), [0; 8]);
    });
}

#[test]
fn a_stream_is_not_done_while_its_last_work_runs() {
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        control.close();
        stream.write(&buffer, 0, b"x").unwrap();
        let event = stream.record().unwrap();
        let read = stream.read(&buffer, 0..1).unwrap();
        assert!(!read.wait_timeout(SHORT), "the gate is closed");
        assert!(!stream.query().unwrap() && !event.query().unwrap() && !read.is_ready());
        control.open();
        stream.synchronize().unwrap();
        assert!(event.query().unwrap() && read.is_ready());
        assert_eq!(*read.wait().unwrap(), *b"x");
        event.synchronize().unwrap();
    });
}

#[test]
fn synchronizing_a_device_waits_for_all_of_its_streams() {
    on_both(|device, control| {
        let buffer = device.allocate(4).unwrap();
        let streams = [(); 3].map(|()| device.create_stream().unwrap());
        control.close();
        for (at, stream) in streams.iter().enumerate() {
            stream.write(&buffer, at, b"x").unwrap();
        }
        open_later(control);
        device.synchronize().unwrap();
        assert!(streams.iter().all(|stream| stream.query().unwrap()));
    });
}

#[test]
fn each_of_several_waiting_threads_continues_when_the_work_before_it_is_done() {
    on_both(|device, _| {
        let stream = device.create_stream().unwrap();
        let waiting = [(); 3].map(|()| {
            let ((go, gate), (done, is_done)) = (mpsc::channel(), mpsc::channel());
            stream.host_call(move || gate.recv().unwrap()).unwrap();
            let waits = stream.clone();
            thread::spawn(move || done.send(waits.synchronize()).unwrap());
            // The thread has to wait before there is more work. No call of the driver shows that it does.
            thread::sleep(SHORT);
            (go, is_done)
        });
        for at in 0..waiting.len() {
            assert!(waiting[at..].iter().all(|(_, is_done)| is_done.try_recv().is_err()));
            waiting[at].0.send(()).unwrap();
            waiting[at].1.recv().unwrap().unwrap();
        }
    });
}

#[test]
fn events_order_streams_of_any_two_devices() {
    ends(|| {
        let places = [plain(), plain(), queued(), queued()];
        for (from, gate) in places {
            for (to, _) in places {
                let (source, destination) = (filled(from, b"."), filled(to, b"."));
                let (first, second) = (from.create_stream().unwrap(), to.create_stream().unwrap());
                gate.close();
                first.write(&source, 0, b"x").unwrap();
                let event = first.record().unwrap();
                second.wait_event(&event).unwrap();
                second.copy(&source, &destination).unwrap();
                let read = second.read(&destination, 0..1).unwrap();
                assert!(!read.wait_timeout(Duration::from_millis(5)), "{from} to {to}");
                gate.open();
                assert_eq!(*read.wait().unwrap(), *b"x", "{from} to {to}");
            }
        }
    });
}

#[test]
fn elapsed_time_needs_two_timed_events_of_one_device_in_order() {
    on_both(|device, _| {
        let timed = EventOptions::new().timed();
        let stream = device.create_stream().unwrap();
        let start = stream.record_with(&timed).unwrap();
        stream.host_call(|| thread::sleep(SHORT)).unwrap();
        let end = stream.record_with(&timed).unwrap();
        let elapsed = end.elapsed_since(&start).unwrap();
        assert!(elapsed >= SHORT && elapsed < Duration::from_secs(20), "{elapsed:?}");
        assert_eq!(start.elapsed_since(&start).unwrap(), Duration::ZERO);

        let untimed = stream.record().unwrap();
        let elsewhere = Device::cpu().create_stream().unwrap().record_with(&timed).unwrap();
        for (first, second, why) in [
            (&end, &start, "after"),
            (&untimed, &end, "the first event has no timestamp"),
            (&start, &untimed, "the second event has no timestamp"),
            (&elsewhere, &end, "expected events of one device, found events of `cpu` and"),
        ] {
            let error = second.elapsed_since(first).unwrap_err();
            assert_eq!(kind(&error), BackendErrorKind::Invalid);
            assert!(error.to_string().contains(why) || error.to_string().contains("later"), "{error}");
        }
    });
}

#[test]
fn recording_a_timed_event_fails_on_a_device_without_them() {
    for (device, _) in in_words() {
        let stream = device.create_stream().unwrap();
        let error = stream.record_with(&EventOptions::new().timed()).unwrap_err();
        assert_eq!(kind(&error), BackendErrorKind::Unsupported);
        stream.record().unwrap().synchronize().unwrap();
    }
}

#[test]
fn blocking_calls_run_after_the_work_of_the_current_stream() {
    on_both(|device, control| {
        let buffer = filled(device, b".");
        let late = |stream: &Stream| {
            control.close();
            stream.write(&buffer, 0, b"x").unwrap();
            open_later(control);
            content(&buffer)
        };
        assert_eq!(late(&device.default_stream().unwrap()), b"x");
        buffer.write(0, b".").unwrap();
        let stream = device.create_stream().unwrap();
        let guard = StreamGuard::new(&stream);
        assert_eq!(late(&stream), b"x");
        stream.launch(&[], |_| Err(BackendError::other("on purpose"))).unwrap_or_default();
        stream.host_call(|| panic!("on purpose")).unwrap();
        assert!(
            error_text(buffer.read(0, &mut [0])).contains("on purpose"),
            "the call returns the errors of the stream"
        );
        buffer.read(0, &mut [0]).unwrap();
        drop(guard);
        assert_eq!(device.current_stream().unwrap(), device.default_stream().unwrap());
    });
}

#[test]
fn the_current_stream_belongs_to_a_thread_and_a_device_and_guards_nest() {
    let ((device, _), (other, _)) = (plain(), plain());
    let (a, b) = (device.create_stream().unwrap(), device.create_stream().unwrap());
    let current = || device.current_stream().unwrap();
    let outer = StreamGuard::new(&a);
    {
        let _inner = StreamGuard::new(&b);
        assert_eq!(current(), b);
        assert_eq!(other.current_stream().unwrap(), other.default_stream().unwrap());
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(device.current_stream().unwrap(), device.default_stream().unwrap()));
        });
    }
    assert_eq!(current(), a);
    let unwound = std::panic::catch_unwind(|| {
        let _inner = StreamGuard::new(&b);
        panic!("on purpose");
    });
    assert!(unwound.is_err());
    assert_eq!(current(), a);
    drop(outer);
    assert_eq!(current(), device.default_stream().unwrap());
}

#[test]
fn a_stream_keeps_the_priority_that_it_was_made_with() {
    let (device, _) = plain();
    assert_eq!(device.create_stream().unwrap().priority(), Priority::Normal);
    let high = StreamOptions::new().with_priority(Priority::High);
    assert_eq!(device.create_stream_with(&high).unwrap().priority(), Priority::High);
}

#[test]
fn many_threads_enqueue_work_into_one_stream() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(8).unwrap());
        thread::scope(|scope| {
            for at in 0..8 {
                let (stream, buffer) = (&stream, &buffer);
                scope.spawn(move || {
                    for round in 0..200_u8 {
                        stream.write(buffer, at, vec![round]).unwrap();
                        if round % 50 == 0 {
                            stream.host_call(|| ()).unwrap();
                        }
                        let read = stream.read(buffer, at..at + 1).unwrap();
                        assert_eq!(*read.wait().unwrap(), [round]);
                    }
                });
            }
        });
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), [199; 8]);
    });
}
