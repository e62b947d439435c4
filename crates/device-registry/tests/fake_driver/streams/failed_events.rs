//! Streams that wait for events which fail, on a driver whose queue fails with the event and on one whose
//! queue runs the work behind the wait.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use device_registry::backend::BackendError;
use device_registry::{Device, DeviceError, Event};

use crate::fake::{Control, plain, queued};
use crate::{LONG, content, ends, error_text, failed, filled};

/// A device with queues, which fail with the events that they wait for, or do not.
fn on_each(run: impl Fn(Device, &'static Control) + Send + 'static) {
    ends(move || {
        for fails in [false, true] {
            let (device, control) = queued();
            control.waits_fail.store(fails, Ordering::SeqCst);
            run(device, control);
            control.has_kept_the_rules();
        }
    });
}

/// An event that fails when the gate of its device is opened.
fn failing_event(device: Device, control: &'static Control) -> Event {
    control.close();
    control.fail(BackendError::other("at the source"));
    device.create_stream().unwrap().record().unwrap()
}

#[track_caller]
fn is_of_the_event<T: std::fmt::Debug>(result: Result<T, DeviceError>) {
    let error = error_text(result);
    assert!(error.ends_with("at the source"), "{error}");
}

#[test]
fn a_failed_event_is_the_failure_of_the_stream_that_waits_for_it_once() {
    on_each(|device, control| {
        let (there, far) = queued();
        for (device, gate) in [(device, control), (there, far)] {
            let (stream, buffer) = (there.create_stream().unwrap(), filled(there, b".."));
            let event = failing_event(device, gate);
            stream.wait_event(&event).unwrap();
            stream.write(&buffer, 0, b"x").unwrap();
            gate.open();
            is_of_the_event(stream.synchronize());
            for _ in 0..3 {
                stream.synchronize().expect("it was reported");
                assert!(stream.query().unwrap());
                there.synchronize().expect("it was reported");
            }
            stream.write(&buffer, 1, b"y").unwrap();
            stream.record().unwrap().synchronize().expect("it is behind the report");
            assert_eq!(*stream.read(&buffer, 1..).unwrap().wait().unwrap(), *b"y");
            stream.synchronize().unwrap();
        }
        far.has_kept_the_rules();
    });
}

#[test]
fn a_query_and_the_device_report_it_once_as_well() {
    on_each(|device, control| {
        for by_device in [false, true] {
            let (event, stream) = (failing_event(device, control), device.create_stream().unwrap());
            stream.wait_event(&event).unwrap();
            control.open();
            while event.query().is_ok() {}
            if by_device {
                is_of_the_event(device.synchronize());
            } else {
                is_of_the_event(loop {
                    match stream.query() {
                        Ok(false) => {}
                        other => break other,
                    }
                });
            }
            assert!(stream.query().unwrap());
            device.synchronize().expect("it was reported");
        }
    });
}

#[test]
fn reads_and_events_behind_the_wait_fail_with_it_and_those_before_it_do_not() {
    on_each(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"."));
        let before = stream.record().unwrap();
        before.synchronize().unwrap();
        let event = failing_event(device, control);
        stream.wait_event(&event).unwrap();
        let read = stream.read(&buffer, ..).unwrap();
        let behind = stream.record().unwrap();
        control.open();
        is_of_the_event(read.wait());
        for _ in 0..2 {
            is_of_the_event(behind.synchronize());
            is_of_the_event(behind.query());
        }
        before.synchronize().unwrap();
        is_of_the_event(stream.synchronize());
        stream.synchronize().expect("it was reported");
        is_of_the_event(behind.query());
        assert!(before.query().unwrap());
    });
}

#[test]
fn a_failure_passes_through_streams_that_wait_for_each_other() {
    on_each(|device, control| {
        let (there, _) = queued();
        let event = failing_event(device, control);
        let [first, last] = [device, there].map(|device| device.create_stream().unwrap());
        first.wait_event(&event).unwrap();
        last.wait_event(&first.record().unwrap()).unwrap();
        control.open();
        is_of_the_event(last.synchronize());
        is_of_the_event(first.synchronize());
        for stream in [&first, &last] {
            stream.synchronize().expect("it was reported");
        }
    });
}

#[test]
fn a_failure_of_the_stream_itself_covers_the_events_that_it_waits_for() {
    on_each(|device, control| {
        let event = failing_event(device, control);
        let (stream, queue) = control.stream(device);
        stream.wait_event(&event).unwrap();
        control.open();
        while event.query().is_ok() {}
        queue.fail(BackendError::other("its own"));
        assert!(error_text(stream.synchronize()).contains("synchronize: "));
        stream.synchronize().expect("work before the report is skipped or done");
        assert!(stream.query().unwrap());
    });
}

#[test]
fn a_host_call_behind_the_wait_is_skipped() {
    on_each(|device, control| {
        let (event, stream) = (failing_event(device, control), device.create_stream().unwrap());
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        stream.wait_event(&event).unwrap();
        stream.host_call(move || runs.store(true, Ordering::SeqCst)).unwrap();
        control.open();
        is_of_the_event(stream.synchronize());
        stream.synchronize().expect("it was reported");
        assert!(!ran.load(Ordering::SeqCst));
    });
}

#[test]
fn a_dropped_stream_leaves_it_to_its_device() {
    on_each(|device, control| {
        let (event, stream) = (failing_event(device, control), device.create_stream().unwrap());
        stream.wait_event(&event).unwrap();
        drop(stream);
        control.open();
        while event.query().is_ok() {}
        let reported = loop {
            // This collects dropped streams whose work is done.
            device.memory_statistics().unwrap();
            match device.synchronize() {
                Ok(()) => thread::yield_now(),
                Err(error) => break Err::<(), _>(error),
            }
        };
        is_of_the_event(reported);
        device.synchronize().expect("it was reported");
    });
}

#[test]
fn a_task_that_may_not_call_drivers_gets_the_failure_of_its_read_later() {
    struct Send(mpsc::Sender<()>);
    impl Wake for Send {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"."));
        let event = failing_event(device, control);
        stream.wait_event(&event).unwrap();
        let read = stream.read(&buffer, ..).unwrap();
        control.open();
        assert!(read.wait_timeout(LONG));
        let (host, (wakes, woken)) = (plain().0.create_stream().unwrap(), mpsc::channel());
        let (polled, polls) = mpsc::channel();
        host.host_call(move || {
            let mut read = Box::pin(read);
            let waker = Waker::from(Arc::new(Send(wakes)));
            let is_pending = read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
            polled.send((read, is_pending)).unwrap();
        })
        .unwrap();
        let (mut read, is_pending) = polls.recv_timeout(LONG).unwrap();
        assert!(is_pending, "the driver has done the read, and the event was not asked");
        woken.recv_timeout(LONG).expect("the task is not woken");
        let Poll::Ready(read) = pin!(&mut read).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the task was woken")
        };
        is_of_the_event(read);
        is_of_the_event(stream.synchronize());
    });
}

#[test]
fn events_that_a_stream_has_waited_for_are_released_without_a_wait_of_the_program() {
    ends(|| {
        let (device, control) = queued();
        let (awaited, queue) = control.stream(device);
        let waiting = device.create_stream().unwrap();
        let turn = || {
            waiting.wait_event(&awaited.record().unwrap()).unwrap();
            // The streams wait for each other, so that a chain of events could grow.
            awaited.wait_event(&waiting.record().unwrap()).unwrap();
        };
        (0..2000).for_each(|_| turn());
        let mut least = usize::MAX;
        for _ in 0..2000 {
            turn();
            least = least.min(Arc::strong_count(&queue));
            thread::yield_now();
        }
        assert!(least < 1000, "at least {least} of 4000 events are kept");
        waiting.synchronize().unwrap();
        awaited.synchronize().unwrap();
        let kept = Arc::strong_count(&queue);
        assert!(kept < 100, "{kept} events are kept behind a wait for all work");
    });
}

#[test]
fn a_long_chain_of_events_does_not_overflow_the_stack() {
    ends(|| {
        let (device, control) = queued();
        control.close();
        let streams = [device, device].map(|device| device.create_stream().unwrap());
        control.fail(BackendError::other("at the source"));
        let mut event = streams[0].record().unwrap();
        for turn in 1..10_000 {
            streams[turn % 2].wait_event(&event).unwrap();
            event = streams[turn % 2].record().unwrap();
        }
        control.open();
        is_of_the_event(event.synchronize());
        let reported: Vec<_> = streams.iter().map(|stream| stream.synchronize()).collect();
        reported.into_iter().for_each(is_of_the_event);
        streams.iter().for_each(|stream| stream.synchronize().expect("it was reported"));
    });
}

#[test]
fn the_failure_of_a_host_stream_is_that_of_a_queue_that_waits_for_it() {
    on_each(|device, _| {
        let event = failed(plain().0, "at the source").record().unwrap();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"."));
        stream.wait_event(&event).unwrap();
        stream.write(&buffer, 0, b"x").unwrap();
        is_of_the_event(stream.synchronize());
        stream.synchronize().expect("it was reported");
        assert_eq!(content(&buffer), b".");
    });
}

#[test]
fn a_failure_that_the_core_finds_before_the_driver_reports_it_is_reported_once() {
    on_each(|device, control| {
        let (event, stream) = (failing_event(device, control), device.create_stream().unwrap());
        stream.wait_event(&event).unwrap();
        let behind = stream.record().unwrap();
        control.open();
        while behind.query().is_ok() {}
        // This looks for events that are over, and releases what is before them.
        drop(device.create_stream().unwrap());
        is_of_the_event(stream.query());
        for _ in 0..3 {
            assert!(stream.query().expect("it was reported"));
        }
    });
}

#[test]
fn an_event_that_is_awaited_after_a_report_fails_its_stream_whatever_was_awaited_before() {
    on_each(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"."));
        let ((slow, gate), (there, far)) = (queued(), queued());
        control.holds_reads.store(true, Ordering::SeqCst);
        let read = stream.read(&buffer, ..).unwrap();
        gate.close();
        stream.wait_event(&slow.create_stream().unwrap().record().unwrap()).unwrap();
        control.held_read().0.finish(Err(BackendError::other("its own")));
        for error in [error_text(read.wait()), error_text(stream.query())] {
            assert!(error.ends_with("its own"), "{error}");
        }
        let event = failing_event(there, far);
        stream.wait_event(&event).unwrap();
        far.open();
        gate.open();
        is_of_the_event(stream.synchronize());
        stream.synchronize().expect("it was reported");
    });
}
