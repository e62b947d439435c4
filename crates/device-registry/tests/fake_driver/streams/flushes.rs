//! When a driver's queue is flushed: not for each event and read, but before a thread looks at one.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use device_registry::backend::BackendError;
use device_registry::{Buffer, Device, EventOptions, Stream};

use crate::fake::{Control, Moment, queued};
use crate::{content, ends, error_text, filled};

/// A device that begins no work before a flush.
fn batching() -> (Device, &'static Control) {
    let (device, control) = queued();
    control.batches.store(true, Ordering::SeqCst);
    (device, control)
}

#[test]
fn a_queue_is_flushed_before_the_first_look_at_an_event_or_a_read_and_not_when_they_are_enqueued() {
    ends(|| {
        let (device, control) = batching();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        control.log();
        let event = stream.record().unwrap();
        let read = stream.read(&buffer, 0..1).unwrap();
        let late = stream.record().unwrap();
        assert_eq!(control.log(), ["queue record", "queue read", "queue record"]);
        let _ = event.query().unwrap();
        assert_eq!(control.log(), ["queue flush"]);
        // This one flush was for all of them.
        late.synchronize().unwrap();
        event.synchronize().unwrap();
        read.wait().unwrap();
        assert!(control.log().is_empty());
        let read = stream.read(&buffer, 0..1).unwrap();
        let _ = read.is_ready();
        assert_eq!(control.log(), ["queue read", "queue flush"]);
        read.wait().unwrap();
        assert!(control.log().is_empty());
    });
}

#[test]
fn a_queue_is_flushed_before_each_query_and_wait_of_its_stream_and_before_a_drop() {
    let (device, control) = queued();
    let stream = device.create_stream().unwrap();
    control.log();
    stream.synchronize().unwrap();
    assert_eq!(control.log(), ["queue flush"]);
    stream.query().unwrap();
    assert_eq!(control.log(), ["queue flush"]);
    drop(stream);
    // Perhaps more than once: any thread may look whether it is done.
    assert_eq!(control.log()[0], "queue flush");
}

#[test]
fn a_queue_is_flushed_before_another_one_waits_for_its_event() {
    ends(|| {
        let (device, control) = batching();
        let [early, late] = [(); 2].map(|()| device.create_stream().unwrap());
        let event = early.record().unwrap();
        control.log();
        late.wait_event(&event).unwrap();
        assert_eq!(control.log(), ["queue flush", "queue wait"]);
    });
}

#[test]
fn a_thousand_copies_with_an_event_each_need_few_flushes() {
    ends(|| {
        let (device, control) = batching();
        let (stream, [from, to]) = (device.create_stream().unwrap(), [(); 2].map(|()| filled(device, b"..")));
        control.batches_begun.store(0, Ordering::SeqCst);
        let events: Vec<_> = (0..1000)
            .map(|_| {
                stream.copy(&from, &to).unwrap();
                stream.record().unwrap()
            })
            .collect();
        let reads: Vec<_> = (0..100).map(|_| stream.read(&to, ..).unwrap()).collect();
        events.iter().for_each(|event| event.synchronize().unwrap());
        reads.into_iter().for_each(|read| drop(read.wait().unwrap()));
        let begun = control.batches_begun.load(Ordering::SeqCst);
        // About one in 32 copies, after which the core looks for memory that it can release.
        assert!((2..=50).contains(&begun), "{begun} batches");
    });
}

#[test]
fn no_wait_hangs_in_a_driver_that_begins_nothing_before_a_flush() {
    type Look = fn(&Stream, &Buffer);
    const LIMIT: Duration = Duration::from_secs(50);
    let looks: [(&str, Look); 13] = [
        ("event query", |stream, _| {
            let event = stream.record().unwrap();
            while !event.query().unwrap() {}
        }),
        ("event wait", |stream, _| stream.record().unwrap().synchronize().unwrap()),
        ("event wait with a limit", |stream, _| {
            stream.record().unwrap().synchronize_timeout(LIMIT).unwrap();
        }),
        ("time between events", |stream, _| {
            let [start, end] = [(); 2].map(|()| stream.record_with(&EventOptions::new().timed()).unwrap());
            end.elapsed_since(&start).unwrap();
        }),
        ("read poll", |stream, buffer| {
            let read = stream.read(buffer, ..).unwrap();
            while !read.is_ready() {}
        }),
        ("read wait", |stream, buffer| drop(stream.read(buffer, ..).unwrap().wait().unwrap())),
        ("read wait with a limit", |stream, buffer| {
            let read = stream.read(buffer, ..).unwrap();
            assert!(read.wait_timeout(LIMIT));
            drop(read.wait().unwrap());
        }),
        ("read await", |stream, buffer| {
            let mut read = pin!(stream.read(buffer, ..).unwrap());
            while read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        }),
        ("read await in a host call", |stream, buffer| {
            let mut read = Box::pin(stream.read(buffer, ..).unwrap());
            let other = stream.device().create_stream().unwrap();
            other
                .host_call(
                    move || {
                        while read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
                    },
                )
                .unwrap();
            other.synchronize().unwrap();
        }),
        ("read behind a host call", |stream, buffer| {
            let (go, wait) = mpsc::channel::<()>();
            stream.host_call(move || wait.recv().unwrap_or(())).unwrap();
            let mut read = pin!(stream.read(buffer, ..).unwrap());
            assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(go);
            while read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
        }),
        ("wait in another queue", |stream, _| {
            let other = stream.device().create_stream().unwrap();
            other.wait_event(&stream.record().unwrap()).unwrap();
            other.synchronize().unwrap();
        }),
        ("wait in a stream of the core", |stream, _| {
            let other = device_registry::device("cpu").unwrap().create_stream().unwrap();
            other.wait_event(&stream.record().unwrap()).unwrap();
            other.synchronize().unwrap();
        }),
        ("stream query", |stream, _| while !stream.query().unwrap() {}),
    ];
    for (name, look) in looks {
        let looked = thread::Builder::new().name(name.into()).spawn(move || {
            ends(move || {
                let (device, _) = batching();
                let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"...."));
                stream.write(&buffer, 0, b"rust").unwrap();
                look(&stream, &buffer);
                drop(stream);
                device.synchronize().unwrap();
                assert_eq!(content(&buffer), b"rust");
            });
        });
        assert!(looked.unwrap().join().is_ok(), "{name}");
    }
}

#[test]
fn a_flush_that_fails_is_the_failure_of_the_event_the_read_and_the_stream() {
    ends(|| {
        let (device, control) = batching();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let event = stream.record().unwrap();
        control.fail_at(Moment::Flush, BackendError::other("the submission failed"));
        for _ in 0..2 {
            assert!(error_text(event.query()).ends_with("flush: the submission failed"));
        }
        assert!(error_text(event.synchronize()).ends_with("flush: the submission failed"));
        assert!(error_text(stream.synchronize()).ends_with("flush: the submission failed"));
        stream.synchronize().unwrap();

        let read = stream.read(&buffer, ..).unwrap();
        control.fail_at(Moment::Flush, BackendError::other("the submission failed"));
        assert!(error_text(read.wait()).ends_with("flush: the submission failed"));
        assert!(error_text(stream.synchronize()).ends_with("flush: the submission failed"));
        stream.synchronize().unwrap();
    });
}

#[test]
fn the_work_of_another_stream_is_not_skipped_for_a_flush_that_fails() {
    ends(|| {
        let (device, control) = batching();
        let [early, late] = [(); 2].map(|()| device.create_stream().unwrap());
        let event = early.record().unwrap();
        control.fail_at(Moment::Flush, BackendError::other("the submission failed"));
        // The wait fails in its stream, as for an event behind failed work.
        late.wait_event(&event).unwrap();
        assert!(error_text(late.synchronize()).ends_with("the submission failed"));
        assert!(error_text(early.synchronize()).ends_with("the submission failed"));
        late.synchronize().unwrap();
    });
}

#[test]
fn an_await_of_a_finished_read_costs_no_flush() {
    let (device, control) = queued();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
    control.holds_reads.store(true, Ordering::SeqCst);
    let mut read = pin!(stream.read(&buffer, ..).unwrap());
    let (completion, bytes) = control.held_read();
    completion.finish(Ok(bytes));
    control.log();
    assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert!(control.log().is_empty());
}

#[test]
fn a_wait_for_a_read_flushes_again_after_a_flush_for_a_task_has_failed() {
    ends(|| {
        let (device, control) = batching();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let mut read = Box::pin(stream.read(&buffer, ..).unwrap());
        control.log();
        // The stream's thread flushes twice: for a wait, and because of the task.
        (0..2).for_each(|_| control.fail_at(Moment::Flush, BackendError::other("the submission failed")));
        let other = device_registry::device("cpu").unwrap().create_stream().unwrap();
        let (sender, receiver) = mpsc::channel();
        // A task may be polled where no driver may be called.
        other
            .host_call(move || {
                assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                sender.send(read).unwrap();
            })
            .unwrap();
        let mut read = receiver.recv().unwrap();
        (0..2).for_each(|_| control.await_call("queue flush"));
        while read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
    });
}
