//! Backends that fail, or call the core, at the worst moment.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use device_registry::backend::{BackendError, CompletionWatch, HostBuffer};
use device_registry::{DeviceError, Stream};

use crate::fake::{Moment, plain, queued};
use crate::{content, ends, error_text, filled};

#[test]
fn a_query_reports_a_failure_that_arrives_during_the_query() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"...."));
        control.holds_reads.store(true, Ordering::SeqCst);
        let read = stream.read(&buffer, ..).unwrap();
        control.on(Moment::Query, || {
            let (completion, _) = control.held_read();
            completion.finish(Err(BackendError::other("the read failed")));
        });
        assert!(error_text(stream.query()).ends_with("read: the read failed"));
        assert!(stream.query().unwrap(), "it was reported");
        assert!(error_text(read.wait()).ends_with("the read failed"));
    });
}

#[test]
fn an_event_fails_for_a_read_whose_failure_arrives_while_the_event_is_recorded() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"...."));
        control.holds_reads.store(true, Ordering::SeqCst);
        let read = stream.read(&buffer, ..).unwrap();
        control.on(Moment::Record, || {
            let (completion, _) = control.held_read();
            completion.finish(Err(BackendError::other("the read failed")));
        });
        let event = stream.record().unwrap();
        assert!(error_text(event.synchronize()).ends_with("read: the read failed"));
        assert!(error_text(event.query()).ends_with("read: the read failed"));
        assert!(error_text(stream.synchronize()).ends_with("read: the read failed"));
        stream.synchronize().unwrap();
        stream.record().unwrap().synchronize().unwrap();
        assert!(event.query().is_err() && read.wait().is_err());
    });
}

#[test]
fn a_completion_is_finished_when_its_failure_can_be_reported() {
    ends(|| {
        for fails in [true, false] {
            let (device, control) = queued();
            let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"...."));
            control.holds_reads.store(true, Ordering::SeqCst);
            let mut read = pin!(stream.read(&buffer, ..).unwrap());
            let (completion, bytes) = control.held_read();
            let watch = completion.watch();
            let woken = Arc::new(Woken { watch: watch.clone(), was_finished: AtomicBool::new(false) });
            let waker = Waker::from(Arc::clone(&woken));
            assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(!watch.is_finished());
            completion.finish(if fails { Err(BackendError::other("the read failed")) } else { Ok(bytes) });
            assert!(woken.was_finished.load(Ordering::SeqCst) && watch.is_finished());
            assert_eq!(stream.synchronize().is_err(), fails);
        }
    });
}

/// Notes whether a read counts as finished while its task is woken.
struct Woken {
    watch: CompletionWatch,
    was_finished: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.was_finished.store(self.watch.is_finished(), Ordering::SeqCst);
    }
}

#[test]
fn a_read_that_fails_after_its_stream_counts_as_done_is_reported_by_the_device() {
    ends(|| {
        let (device, control) = queued();
        let buffer = filled(device, b"....");
        let [first, second] = [(); 2].map(|()| device.create_stream().unwrap());
        control.holds_reads.store(true, Ordering::SeqCst);
        drop(first.read(&buffer, ..).unwrap());
        // The device queries both dropped streams before it drops the queues that are done.
        drop(first);
        drop(second);
        // The first query is for the first stream's work in flight. The next two are for the ends of both
        // streams.
        control.on(Moment::Query, || {
            control.on(Moment::Query, || {
                control.on(Moment::Query, || {
                    let (completion, _) = control.held_read();
                    completion.finish(Err(BackendError::other("the read failed")));
                });
            });
        });
        device.memory_statistics().unwrap();
        assert!(error_text(device.synchronize()).ends_with("read: the read failed"));
        device.synchronize().unwrap();
    });
}

#[test]
fn a_result_of_another_length_is_an_error_of_the_read() {
    ends(|| {
        for len in [0, 3, 5] {
            let (device, control) = queued();
            let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"rust"));
            control.holds_reads.store(true, Ordering::SeqCst);
            let read = stream.read(&buffer, ..).unwrap();
            control.held_read().0.finish(HostBuffer::zeroed(len));
            let expected = format!("a buffer of the wrong length: expected 4 bytes, found {len}");
            assert!(error_text(read.wait()).ends_with(&expected));
            assert!(error_text(stream.synchronize()).ends_with(&expected), "it is an error of queued work");
        }
    });
}

#[test]
fn work_behind_a_host_call_begins_even_if_its_stream_is_dropped_first() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"...."));
        let (go, wait) = std::sync::mpsc::channel::<()>();
        stream.host_call(move || wait.recv().unwrap()).unwrap();
        stream.write(&buffer, 0, b"late").unwrap();
        control.log();
        drop(stream);
        go.send(()).unwrap();
        control.await_call("queue write");
        control.await_call("queue flush");
        device.synchronize().unwrap();
        assert_eq!(content(&buffer), b"late");
    });
}

#[test]
fn memory_may_enqueue_work_or_close_its_device_when_it_is_dropped() {
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        let [dropped, other] = [(); 2].map(|()| filled(device, b"...."));
        let (reenters, target) = (stream.clone(), other.clone());
        control.on(Moment::Free, move || reenters.write(&target, 0, b"drop").unwrap());
        // Within a kernel memory is not freed; it is due at the next call.
        stream
            .launch(&[], move |_| {
                drop(dropped);
                Ok(())
            })
            .unwrap();
        stream.write(&other, 0, b"x").unwrap();
        stream.synchronize().unwrap();
        assert_eq!(
            content(&other),
            b"xrop",
            "the work of the memory's drop runs first, then the work of the call"
        );

        let dropped = filled(device, b"....");
        let (closed, closes) = std::sync::mpsc::channel();
        control.on(Moment::Free, move || closed.send(device.close()).unwrap());
        stream
            .launch(&[], move |_| {
                drop(dropped);
                Ok(())
            })
            .unwrap();
        assert!(error_text(stream.record()).contains("closed"));
        closes.recv().unwrap().unwrap();
    });
}

#[test]
fn a_value_that_a_stream_thread_drops_gets_errors_instead_of_a_deadlock() {
    struct Synchronizes(Stream);
    impl Drop for Synchronizes {
        fn drop(&mut self) {
            assert!(matches!(self.0.synchronize(), Err(DeviceError::InHostCall { .. })));
        }
    }
    ends(|| {
        let (device, control) = plain();
        let stream = device.create_stream().unwrap();
        let kept = Synchronizes(stream.clone());
        stream
            .launch(&[], move |launch| {
                launch.keep(kept);
                Ok(())
            })
            .unwrap();
        stream.synchronize().unwrap();

        let buffer = device.allocate(4).unwrap();
        let (outcome, outcomes) = std::sync::mpsc::channel();
        control.on(Moment::Free, move || outcome.send(device.synchronize()).unwrap());
        stream.host_call(move || drop(buffer)).unwrap();
        stream.synchronize().unwrap();
        let _ = device.memory_statistics();
        outcomes.recv().unwrap().unwrap_err();
    });
}

#[test]
fn reading_statistics_while_the_device_closes_causes_no_failure() {
    ends(|| {
        let (device, _) = queued();
        for _ in 0..200 {
            // Opens the device again in each round.
            let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
            stream.write(&buffer, 0, b"rust").unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| drop(device.memory_statistics()));
                device.close().unwrap();
            });
        }
    });
}

#[test]
fn work_of_a_stream_that_is_dropped_within_a_host_call_begins() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"...."));
        stream.write(&buffer, 0, b"late").unwrap();
        control.log();
        device.create_stream().unwrap().host_call(move || drop(stream)).unwrap();
        control.await_call("queue flush");
    });
}
