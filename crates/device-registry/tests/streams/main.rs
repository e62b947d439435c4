//! Streams, events and what becomes of errors in queued work, on a driver without queues and on one with queues of its
//! own.

mod backends;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use backends::{Control, ObedientStream, both, in_words, plain, queued};
use device_registry::{
    BackendError, BackendErrorKind, Buffer, Device, DeviceError, EventOptions, HostBuffer, Launch, Priority,
    Stream, StreamGuard, StreamOptions,
};

/// Runs on a thread of its own, so that what hangs is a failure and does not take for ever.
fn ends(run: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    let thread = thread::spawn(move || {
        run();
        let _ = ended.send(());
    });
    match end.recv_timeout(Duration::from_secs(60)) {
        Ok(()) => {}
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
    }
}

fn on_both(run: impl Fn(Device, &'static Control) + Send + 'static) {
    ends(move || both().into_iter().for_each(|(device, control)| run(device, control)));
}

fn filled(device: Device, bytes: &[u8]) -> Buffer {
    let buffer = device.allocate(bytes.len()).unwrap();
    buffer.write(0, bytes).unwrap();
    buffer
}

fn content(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes).unwrap();
    bytes
}

fn kind(error: &DeviceError) -> BackendErrorKind {
    error.backend_error().unwrap_or_else(|| panic!("{error}")).kind()
}

fn told<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> String {
    result.unwrap_err().to_string()
}

/// A stream whose first work has failed with `why`, which nobody was told.
fn failed(device: Device, why: &'static str) -> Stream {
    let stream = device.create_stream().unwrap();
    stream.launch(&[], move |_| Err(BackendError::other(why))).unwrap_or_else(|error| {
        // A queue of the driver's refuses a kernel that it cannot submit.
        assert!(error.to_string().contains(why));
    });
    stream
}

#[test]
fn work_is_done_in_order_and_read_back() {
    on_both(|device, _| {
        let stream = device.create_stream().unwrap();
        let (a, b) = (device.allocate(8).unwrap(), device.allocate(8).unwrap());
        stream.write(&a, 0, b"abcdefgh").unwrap();
        stream.fill(&a, 2..4, b"-").unwrap();
        stream.copy(&a, 0..4, &b, 4).unwrap();
        stream.copy(&b, 6..8, &b, 0).unwrap();
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
        thread::sleep(Duration::from_millis(20));
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
        let opener = thread::spawn(|| {
            thread::sleep(Duration::from_millis(20));
            control.open();
        });
        device.synchronize().unwrap();
        assert!(streams.iter().all(|stream| stream.query().unwrap()));
        opener.join().unwrap();
    });
}

#[test]
fn several_who_wait_for_a_stream_are_each_let_go_when_what_was_before_them_is_done() {
    on_both(|device, _| {
        let stream = device.create_stream().unwrap();
        let waiting = [(); 3].map(|()| {
            let ((go, gate), (done, is_done)) = (mpsc::channel(), mpsc::channel());
            stream.call(move || gate.recv().unwrap()).unwrap();
            let waits = stream.clone();
            thread::spawn(move || done.send(waits.synchronize()).unwrap());
            thread::sleep(Duration::from_millis(20));
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
fn after_a_failure_work_is_skipped_until_somebody_was_told() {
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
        stream.call(move || runs.store(true, Ordering::SeqCst)).unwrap();
        control.open();
        for answer in [told(read.wait()), told(event.synchronize()), told(event.query())] {
            assert!(answer.ends_with(": write: on purpose"), "{answer}");
        }
        // Also what is put in when it has happened, as long as nobody was told.
        stream.write(&buffer, 2, b"3").unwrap();
        assert!(told(stream.synchronize()).ends_with(": write: on purpose"));
        stream.synchronize().expect("an error is told once");
        assert!(stream.query().unwrap());
        stream.write(&buffer, 3, b"4").unwrap();
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b"...4");
        assert!(!ran.load(Ordering::SeqCst));
    });
}

#[test]
fn what_was_put_in_before_somebody_was_told_is_skipped_also_afterwards() {
    ends(|| {
        let (device, control) = plain();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b".."));
        // Once the first of these has failed, the second holds the thread in `skip` until the test goes on.
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
        stream.call(move || drop(holds)).unwrap();
        has_failed.recv().unwrap();
        stream.write(&buffer, 0, b"2").unwrap();
        assert!(told(stream.query()).ends_with("on purpose"));
        stream.write(&buffer, 1, b"3").unwrap();
        go.send(()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b".3");
    });
}

#[test]
fn a_query_tells_and_clears_as_well() {
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
            stream.wait(&event).unwrap();
            stream.write(&buffer, 0, b"x").unwrap();
            assert!(told(stream.synchronize()).ends_with("at the source"));
            assert_eq!(content(&buffer), b".");
        }
        let _ = device.synchronize();
    });
}

#[test]
fn the_error_of_a_stream_that_is_gone_is_told_by_the_device() {
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
        device.synchronize().expect("it is told once");
    });
}

#[test]
fn a_read_that_fails_when_its_stream_is_gone_is_told_by_the_device_as_well() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(1).unwrap(), device.create_stream().unwrap());
        control.close();
        let read = stream.read(&buffer, 0..1).unwrap();
        control.fail(BackendError::other("too late"));
        drop(stream);
        control.open();
        assert!(told(read.wait()).ends_with("read: too late"));
        // This looks for streams that are gone and have no more work.
        device.memory_statistics().unwrap();
        assert!(told(device.synchronize()).ends_with("read: too late"));
        device.synchronize().expect("it is told once");
    });
}

#[test]
fn every_failure_in_a_queue_of_the_drivers_is_told_once() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(1).unwrap(), device.create_stream().unwrap());
        for why in ["one", "two"] {
            control.close();
            let read = stream.read(&buffer, 0..1).unwrap();
            control.fail(BackendError::other(why));
            control.open();
            assert!(told(read.wait()).ends_with(why));
            assert!(told(stream.synchronize()).ends_with(why));
            stream.synchronize().unwrap();
        }
        // What the queue says when it is waited for.
        control.fail(BackendError::other("three"));
        assert!(told(stream.synchronize()).ends_with("synchronize: three"));
        stream.synchronize().unwrap();
        control.fail(BackendError::other("four"));
        assert!(told(device.synchronize()).ends_with("synchronize: four"));
        device.synchronize().unwrap();
    });
}

#[test]
fn of_two_streams_that_failed_both_errors_are_told() {
    ends(|| {
        let (device, _) = plain();
        let (first, second) = (failed(device, "one"), failed(device, "two"));
        assert!(told(device.synchronize()).ends_with("one"));
        first.synchronize().unwrap();
        assert!(told(device.synchronize()).ends_with("two"));
        second.synchronize().unwrap();
        device.synchronize().unwrap();
    });
}

#[test]
fn work_owns_what_it_touches_and_lets_it_go() {
    on_both(|device, control| {
        let stream = device.create_stream().unwrap();
        control.close();
        let buffer = device.allocate(1000).unwrap();
        stream.write(&buffer, 0, vec![7; 1000]).unwrap();
        let read = stream.read(&buffer, 999..1000).unwrap();
        drop(buffer);
        assert_eq!(control.live.load(Ordering::SeqCst), 1, "work in the queue needs it");
        control.open();
        assert_eq!(*read.wait().unwrap(), [7]);
        stream.synchronize().unwrap();
        drop(device.allocate(1).unwrap());
        let statistics = device.memory_statistics().unwrap();
        assert_eq!((statistics.live, statistics.allocated, statistics.peak), (0, 0, 1000));
        assert_eq!(control.live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn memory_is_kept_until_a_queue_of_the_drivers_is_done_with_it_also_when_its_stream_is_gone() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(1).unwrap(), device.create_stream().unwrap());
        control.close();
        // As hardware does, it holds nothing.
        let native =
            |launch: &Launch<'_>| launch.stream_as::<ObedientStream>().map(ObedientStream::submit_gated);
        stream.launch(&[&buffer], native).unwrap();
        drop((buffer, stream));
        device.memory_statistics().unwrap();
        assert_eq!(control.live.load(Ordering::SeqCst), 1);
        control.open();
        while device.memory_statistics().unwrap().live > 0 {
            thread::yield_now();
        }
        assert_eq!(control.live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn host_memory_that_a_lost_device_may_still_write_to_is_never_freed() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
        stream.write(&buffer, 0, device.allocate_host(4).unwrap()).unwrap();
        stream.record().unwrap().synchronize().unwrap();
        control.fail(BackendError::lost("gone"));
        buffer.write(0, b"x").unwrap_err();
        drop((stream, buffer));
        device.memory_statistics().unwrap();
        assert_eq!(control.live.load(Ordering::SeqCst), 1, "the pinned bytes, and not the buffer");
    });
}

#[test]
fn memory_of_finished_work_is_freed_without_waiting_for_the_stream() {
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        for _ in 0..1000 {
            let buffer = device.allocate(16).unwrap();
            stream.fill(&buffer, 0..16, b"x").unwrap();
            drop(buffer);
            // Without it, the queue could come to nothing while this loop runs.
            thread::yield_now();
        }
        stream.record().unwrap().synchronize().unwrap();
        device.memory_statistics().unwrap();
        let live = control.live.load(Ordering::SeqCst);
        assert!(live < 200, "{live} of 1000 are kept");
    });
}

#[test]
fn allocating_lets_go_of_what_finished_work_has_used_before_it_says_that_there_is_no_memory() {
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        control.at_most.store(1, Ordering::SeqCst);
        let buffer = device.allocate(16).unwrap();
        stream.fill(&buffer, 0..16, b"x").unwrap();
        assert!(matches!(
            kind(&device.allocate(16).unwrap_err()),
            BackendErrorKind::OutOfMemory { asked: 16, free: None }
        ));
        let done = stream.record().unwrap();
        drop((buffer, stream));
        done.synchronize().unwrap();
        device.allocate(16).expect("the stream is gone and its work done");
    });
}

#[test]
fn a_stream_that_is_dropped_does_not_wait_and_its_work_is_done() {
    on_both(|device, control| {
        let buffer = filled(device, b".");
        control.close();
        let stream = device.create_stream().unwrap();
        stream.write(&buffer, 0, b"x").unwrap();
        let event = stream.record().unwrap();
        drop(stream);
        assert!(!event.query().unwrap());
        control.open();
        event.synchronize().unwrap();
        assert_eq!(content(&buffer), b"x");
    });
}

#[test]
fn a_host_call_runs_in_its_place() {
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        control.close();
        stream.write(&buffer, 0, b"x").unwrap();
        let early = Arc::clone(&log);
        stream.call(move || early.lock().unwrap().push("call")).unwrap();
        stream.write(&buffer, 0, b"y").unwrap();
        let event = stream.record().unwrap();
        thread::sleep(Duration::from_millis(10));
        assert!(log.lock().unwrap().is_empty(), "what comes before it is not done");
        control.open();
        event.synchronize().unwrap();
        assert_eq!(*log.lock().unwrap(), ["call"]);
        assert_eq!(content(&buffer), b"y");
    });
}

#[test]
fn what_comes_behind_a_host_call_waits_for_it() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"."));
        let (go, wait) = mpsc::channel::<()>();
        stream.call(move || wait.recv().unwrap()).unwrap();
        stream.write(&buffer, 0, b"x").unwrap();
        let event = stream.record().unwrap();
        thread::sleep(Duration::from_millis(20));
        assert!(!stream.query().unwrap() && !event.query().unwrap());
        assert_eq!(content(&buffer), b".");
        go.send(()).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b"x");
    });
}

#[test]
fn a_host_call_may_not_use_devices_and_what_it_drops_is_freed_afterwards() {
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let pinned = device.allocate_host(8).unwrap();
        assert!(pinned.is_pinned());
        let (tell, answers) = mpsc::channel();
        let (used, event) = (stream.clone(), stream.record().unwrap());
        stream
            .call(move || {
                let answers = [
                    buffer.write(0, b"x"),
                    device.allocate(1).map(drop),
                    used.synchronize(),
                    used.record().map(drop),
                    event.synchronize(),
                    device.synchronize(),
                    device.count().map(drop),
                ];
                // Allowed, and does not look after the streams.
                device.memory_statistics().unwrap();
                drop((buffer, pinned, event));
                tell.send((answers, control.live.load(Ordering::SeqCst))).unwrap();
            })
            .unwrap();
        let (answers, live) = answers.recv().unwrap();
        for answer in answers {
            assert!(matches!(answer, Err(DeviceError::InHostCall { .. })), "{answer:?}");
        }
        assert_eq!(live, 2, "a driver's free is a call to it as well");
        stream.synchronize().unwrap();
        device.memory_statistics().unwrap();
        assert_eq!(control.live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_panic_in_a_host_call_is_an_error_of_queued_work() {
    on_both(|device, _| {
        let stream = device.create_stream().unwrap();
        stream.call(|| panic!("on purpose")).unwrap();
        assert!(told(stream.synchronize()).ends_with("host call: it panicked: on purpose"));
        stream.call(|| ()).unwrap();
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_kernel_is_given_its_buffers_and_where_there_is_one_the_drivers_stream() {
    ends(|| {
        let (device, _) = plain();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(8).unwrap());
        let empty = device.allocate(0).unwrap();
        let part = buffer.slice(2..6).unwrap();
        stream
            .launch(&[&part, &empty], move |launch| {
                assert_eq!(launch.device(), device);
                assert_eq!(launch.spans()[0].as_ref().unwrap().range(), 2..6);
                assert!(launch.spans()[1].is_none());
                launch.stream_as::<ObedientStream>().map(drop)
            })
            .unwrap();
        assert_eq!(kind(&stream.synchronize().unwrap_err()), BackendErrorKind::Unsupported);

        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        control.close();
        let gone = device.allocate(1).unwrap();
        let (tell, ran) = mpsc::channel();
        stream
            .launch(&[&gone], move |launch| {
                launch.stream_as::<ObedientStream>()?.submit(move || tell.send(()).unwrap());
                Ok(())
            })
            .unwrap();
        ran.recv().unwrap();
        drop(gone);
        let marked = stream.record().unwrap();
        assert_eq!(
            control.live.load(Ordering::SeqCst),
            1,
            "nobody knows when the kernel is done before an event is"
        );
        control.open();
        marked.synchronize().unwrap();
        stream.synchronize().unwrap();
        assert_eq!(control.live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_call_that_a_queue_refuses_is_returned_and_leaves_no_failure() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
        type Put = fn(&Stream, &Buffer) -> Result<(), DeviceError>;
        let refusals: [Put; 5] = [
            |stream, buffer| stream.write(buffer, 0, b"x"),
            |stream, buffer| stream.read(buffer, 0..1).map(drop),
            |stream, buffer| stream.copy(buffer, 0..1, buffer, 1),
            |stream, buffer| stream.fill(buffer, 0..1, b"x"),
            |stream, _| stream.record().map(drop),
        ];
        for refused in refusals {
            control.refuse(BackendError::invalid("not this"));
            assert!(told(refused(&stream, &buffer)).ends_with(": not this"));
            stream.synchronize().unwrap();
            refused(&stream, &buffer).unwrap();
        }
    });
}

#[test]
fn a_device_that_is_lost_says_so_in_every_later_call_and_others_go_on() {
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
            buffer.copy_from(0, &buffer, 1..2),
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
        control.forgets_reads.store(true, Ordering::SeqCst);
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
fn a_reset_lets_the_device_be_opened_afresh_and_what_is_old_stays_lost() {
    on_both(|device, control| {
        let (buffer, stream) = (filled(device, b"x"), device.create_stream().unwrap());
        assert_eq!(kind(&device.reset().unwrap_err()), BackendErrorKind::Invalid, "it is not lost");
        control.fail(BackendError::lost("gone"));
        buffer.read(0, &mut [0]).unwrap_err();
        assert_eq!(kind(&device.reset().unwrap_err()), BackendErrorKind::Unsupported);
        assert_eq!(kind(&device.open().unwrap_err()), BackendErrorKind::Lost);
        control.can_reset.store(true, Ordering::SeqCst);
        device.reset().unwrap();
        control.log();
        let fresh = filled(device, b"y");
        assert!(control.log().contains(&"open".to_owned()));
        assert_eq!(content(&fresh), b"y");
        for old in [
            buffer.write(0, b"x"),
            stream.synchronize(),
            stream.copy(&fresh, 0..1, &buffer, 0),
            stream.write(&fresh, 0, b"z"),
            fresh.copy_from(0, &buffer, 0..1),
        ] {
            assert_eq!(kind(&old.unwrap_err()), BackendErrorKind::Lost);
        }
        assert_eq!(device.memory_statistics().unwrap().live, 1, "the old ones are not the new device's");
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
                second.wait(&event).unwrap();
                second.copy(&source, 0..1, &destination, 0).unwrap();
                thread::sleep(Duration::from_millis(5));
                gate.open();
                assert_eq!(
                    *second.read(&destination, 0..1).unwrap().wait().unwrap(),
                    *b"x",
                    "{from} to {to}"
                );
            }
        }
    });
}

#[test]
fn a_copy_from_elsewhere_goes_by_the_way_that_there_is_and_in_its_place() {
    ends(|| {
        let ((device, control), (peer, _)) = (queued(), queued());
        let (stream, destination) = (device.create_stream().unwrap(), filled(device, b"...."));
        for (source, way) in [
            (filled(peer, b"abcd"), &["queue copy", "queue fill", "queue read", "queue flush"][..]),
            (filled(Device::cpu(), b"abcd"), &["queue flush", "write"]),
        ] {
            control.log();
            stream.copy(&source, 1..3, &destination, 1).unwrap();
            stream.fill(&destination, 0..1, b"x").unwrap();
            assert_eq!(*stream.read(&destination, 0..4).unwrap().wait().unwrap(), *b"xbc.");
            assert_eq!(control.log()[..way.len()], *way);
            stream.fill(&destination, 0..4, b".").unwrap();
        }
    });
}

#[test]
fn elapsed_time_needs_two_timed_events_of_one_device_in_order() {
    on_both(|device, _| {
        let timed = EventOptions::new().timed();
        let stream = device.create_stream().unwrap();
        let start = stream.record_with(&timed).unwrap();
        stream.call(|| thread::sleep(Duration::from_millis(20))).unwrap();
        let end = stream.record_with(&timed).unwrap();
        let elapsed = end.elapsed_since(&start).unwrap();
        assert!(elapsed >= Duration::from_millis(20) && elapsed < Duration::from_secs(20), "{elapsed:?}");
        assert_eq!(start.elapsed_since(&start).unwrap(), Duration::ZERO);

        let untimed = stream.record().unwrap();
        let elsewhere = Device::cpu().create_stream().unwrap().record_with(&timed).unwrap();
        for (first, second, why) in [
            (&end, &start, "after"),
            (&untimed, &end, "the first event has no time"),
            (&start, &untimed, "the second event has no time"),
            (&elsewhere, &end, "two devices, `cpu` and"),
        ] {
            let error = second.elapsed_since(first).unwrap_err();
            assert_eq!(kind(&error), BackendErrorKind::Invalid);
            assert!(error.to_string().contains(why) || error.to_string().contains("later"), "{error}");
        }
    });
}

#[test]
fn a_device_without_timed_events_says_so_when_one_is_recorded() {
    for (device, _) in in_words() {
        let stream = device.create_stream().unwrap();
        let error = stream.record_with(&EventOptions::new().timed()).unwrap_err();
        assert_eq!(kind(&error), BackendErrorKind::Unsupported);
        stream.record().unwrap().synchronize().unwrap();
    }
}

#[test]
fn functions_that_block_come_behind_the_current_stream() {
    on_both(|device, control| {
        let buffer = filled(device, b".");
        let late = |stream: &Stream| {
            control.close();
            stream.write(&buffer, 0, b"x").unwrap();
            let opener = thread::spawn(|| {
                thread::sleep(Duration::from_millis(20));
                control.open();
            });
            let read = content(&buffer);
            opener.join().unwrap();
            read
        };
        assert_eq!(late(&device.default_stream().unwrap()), b"x");
        buffer.write(0, b".").unwrap();
        let stream = device.create_stream().unwrap();
        let guard = StreamGuard::new(&stream);
        assert_eq!(late(&stream), b"x");
        stream.launch(&[], |_| Err(BackendError::other("on purpose"))).unwrap_or_default();
        stream.call(|| panic!("on purpose")).unwrap();
        assert!(told(buffer.read(0, &mut [0])).contains("on purpose"), "its errors are told");
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
fn buffers_and_streams_of_different_devices_do_not_mix() {
    let ((device, _), (other, _)) = (plain(), queued());
    let (stream, buffer, foreign) =
        (device.create_stream().unwrap(), filled(device, b"abcd"), filled(other, b"abcd"));
    for (at, result) in [
        stream.write(&foreign, 0, b"x"),
        stream.read(&foreign, 0..1).map(drop),
        stream.fill(&foreign, 0..1, b"x"),
        stream.copy(&buffer, 0..1, &foreign, 0),
        stream.launch(&[&buffer, &foreign], |_| Ok(())),
    ]
    .into_iter()
    .enumerate()
    {
        let error = result.unwrap_err();
        assert!(matches!(error, DeviceError::OtherDevice { .. }), "{at}: {error}");
        let (foreign, own) = (format!("a buffer on `{other}`"), format!("the stream is of `{device}`"));
        assert!(error.to_string().contains(&foreign) && error.to_string().contains(&own), "{error}");
    }
    stream.copy(&foreign, 1..3, &buffer, 0).unwrap();
    assert_eq!(*stream.read(&buffer, 0..4).unwrap().wait().unwrap(), *b"bccd");
}

#[test]
fn ranges_outside_overlaps_and_bad_patterns_are_refused_before_they_are_queued() {
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(16).unwrap());
        control.log();
        for result in [
            stream.write(&buffer, 15, b"ab"),
            stream.write(&buffer, usize::MAX, b"ab"),
            stream.read(&buffer, 0..17).map(drop),
            stream.read(&buffer, 0..usize::MAX).map(drop),
            stream.read_to(&buffer, 9, HostBuffer::zeroed(8).unwrap()).map(drop),
            stream.copy(&buffer, 8..17, &buffer, 0),
            stream.copy(&buffer, 0..8, &buffer, 9),
            stream.copy(&buffer, 0..8, &buffer, usize::MAX),
            stream.fill(&buffer, 16..17, b"x"),
        ] {
            assert!(matches!(result, Err(DeviceError::OutOfRange { .. })), "{result:?}");
        }
        assert!(matches!(stream.copy(&buffer, 0..8, &buffer, 4), Err(DeviceError::Overlap { .. })));
        for pattern in [&b""[..], b"abc", &[0; 32]] {
            assert!(
                told(stream.fill(&buffer, 0..16, pattern)).starts_with("a pattern to fill with has 1, 2, 4")
            );
        }
        for range in [0..3, 1..3] {
            assert!(told(stream.fill(&buffer, range, b"ab")).contains("begin and end at multiples"));
        }
        assert_eq!(control.log(), [""; 0], "none came to the driver");
        stream.synchronize().unwrap();
    });
}

#[test]
fn fills_with_every_pattern_work_where_the_driver_has_none() {
    on_both(|device, _| {
        let stream = device.create_stream().unwrap();
        for pattern in [&b"x"[..], b"ab", b"abcd", b"abcdefgh", b"abcdefghijklmnop"] {
            for times in [1, 3, 200_000] {
                let len = pattern.len() * times;
                let buffer = device.allocate(len + 32).unwrap();
                buffer.fill(0..len + 32 - (len + 32) % pattern.len(), &[9]).unwrap();
                buffer.fill(16..16 + len, pattern).unwrap();
                let bytes = content(&buffer);
                assert!(
                    bytes[16..16 + len] == pattern.repeat(times) && bytes[15] == 9,
                    "{pattern:?} {times}"
                );
                stream.fill(&buffer, 0..len, pattern).unwrap();
                let read = stream.read(&buffer, 0..len).unwrap().wait().unwrap();
                assert!(read[..] == pattern.repeat(times), "{pattern:?} {times}");
            }
        }
    });
}

#[test]
fn a_part_of_a_buffer_shares_its_memory() {
    on_both(|device, control| {
        let buffer = filled(device, b"0123456789");
        let part = buffer.slice(2..8).unwrap().slice(1..5).unwrap();
        assert_eq!((part.len(), content(&part)), (4, b"3456".to_vec()));
        part.write(1, b"xy").unwrap();
        let stream = device.create_stream().unwrap();
        stream.fill(&part, 3..4, b"z").unwrap();
        stream.copy(&part, 1..3, &buffer, 0).unwrap();
        assert!(matches!(part.copy_from(0, &buffer, 2..6), Err(DeviceError::Overlap { .. })));
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b"xy23xyz789");
        assert!(
            told(part.slice(2..5)).contains("bytes 2..5 are not inside of the original, a buffer of 4 bytes")
        );
        drop(buffer);
        assert_eq!(content(&part), b"3xyz");
        assert!(part.slice(4..4).unwrap().is_empty());
        drop(part);
        assert_eq!(control.live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn what_the_device_declares_of_alignment_is_checked_and_whole_buffers_always_work() {
    for (device, _) in in_words() {
        let stream = device.create_stream().unwrap();
        let (odd, even) = (filled(device, b"abcdefg"), filled(device, b"........"));
        assert_eq!(content(&odd), b"abcdefg");
        let twin = device.allocate(7).unwrap();
        twin.copy_from(0, &odd, 0..7).unwrap();
        twin.copy_from(4, &odd, 4..7).unwrap();
        stream.fill(&twin, 0..7, b"x").unwrap();
        assert_eq!(*stream.read(&twin, 4..7).unwrap().wait().unwrap(), *b"xxx");
        even.copy_from(4, &odd, 0..4).unwrap();
        assert_eq!(content(&even), b"....abcd");
        for result in [
            odd.write(2, b"xx"),
            odd.write(0, b"xx"),
            odd.read(1, &mut [0; 4]),
            even.copy_from(0, &odd, 4..7),
            odd.copy_from(4, &even, 0..3),
            even.fill(0..2, b"xx"),
            even.slice(2..8).unwrap().write(0, b"xxxx"),
            even.slice(0..6).unwrap().write(0, b"xxxxxx"),
            stream.write(&even, 4, b"xx"),
            stream.copy(&odd, 4..7, &even, 0),
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, DeviceError::Misaligned { alignment: 4, .. }), "{error}");
            assert!(error.to_string().contains("begin at multiples of 4 bytes"), "{error}");
        }
        even.slice(2..8).unwrap().write(2, b"xxxx").unwrap();
        // Through the host, each side by its own rule.
        let cpu = filled(Device::cpu(), b"0123456789");
        even.copy_from(0, &cpu, 3..7).unwrap();
        assert_eq!(content(&even), b"3456xxxx");
    }
}

#[test]
fn an_allocation_longer_than_the_device_can_make_is_told_the_limit() {
    let (device, control) = plain();
    device.open().unwrap();
    control.log();
    let error = device.allocate((1 << 40) + 1).unwrap_err();
    assert!(matches!(kind(&error), BackendErrorKind::OutOfMemory { .. }));
    assert!(
        error
            .to_string()
            .ends_with("1099511627777 bytes asked for, and one allocation can have 1099511627776")
    );
    assert_eq!(control.log(), [""; 0]);
}

#[test]
fn a_read_can_be_awaited() {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"rust"));
        control.close();
        let mut read = pin!(stream.read(&buffer, 1..3).unwrap());
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        assert!(read.as_mut().poll(&mut context).is_pending());
        control.open();
        let bytes = loop {
            match read.as_mut().poll(&mut context) {
                Poll::Ready(bytes) => break bytes.unwrap(),
                Poll::Pending => thread::park_timeout(Duration::from_secs(30)),
            }
        };
        assert_eq!(*bytes, *b"us");
        let Poll::Ready(again) = read.as_mut().poll(&mut context) else { panic!("it is ready") };
        assert!(told(again).contains("taken already"));
    });
}

#[test]
fn a_wait_may_have_an_end() {
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"rust"));
        control.close();
        let read = stream.read(&buffer, ..).unwrap();
        let read = read.wait_timeout(Duration::from_millis(20)).expect_err("it stands at the gate");
        control.open();
        assert_eq!(*read.wait_timeout(Duration::from_secs(60)).unwrap().unwrap(), *b"rust");
    });
}

#[test]
fn ranges_may_be_of_any_form() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"0123456789"));
        assert_eq!(content(&buffer.slice(2..=4).unwrap()), b"234");
        assert_eq!(content(&buffer.slice(7..).unwrap()), b"789");
        stream.fill(&buffer, ..2, [b'x'].as_ref()).unwrap();
        assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), *b"xx23456789");
        for outside in [told(buffer.slice(..=usize::MAX)), told(stream.read(&buffer, 11..))] {
            assert!(outside.contains("are not inside of the"), "{outside}");
        }
    });
}

#[test]
fn a_read_goes_into_the_memory_that_it_is_given() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"rust"));
        let pinned = device.allocate_host(2).unwrap();
        let read = stream.read_to(&buffer, 1, pinned).unwrap().wait().unwrap();
        assert!(read.is_pinned() && *read == *b"us");
        stream.write(&buffer, 0, read).unwrap();
        assert_eq!(*stream.read(&buffer, 0..4).unwrap().wait().unwrap(), *b"usst");
    });
}

#[test]
fn zero_lengths_are_fine_and_never_reach_the_driver() {
    on_both(|device, control| {
        let (stream, buffer, empty) =
            (device.create_stream().unwrap(), device.allocate(4).unwrap(), device.allocate(0).unwrap());
        control.log();
        stream.write(&buffer, 4, b"").unwrap();
        stream.write(&empty, 0, b"").unwrap();
        assert!(stream.read(&buffer, 2..2).unwrap().wait().unwrap().is_empty());
        stream.copy(&buffer, 1..1, &buffer, 1).unwrap();
        stream.copy(&empty, 0..0, &buffer, 4).unwrap();
        stream.fill(&buffer, 3..3, b"x").unwrap();
        buffer.fill(0..0, b"x").unwrap();
        assert_eq!(control.log(), [""; 0]);
        assert_eq!(device.allocate_host(0).unwrap().len(), 0);
    });
}

#[test]
fn pinned_memory_of_another_length_than_was_asked_for_is_refused() {
    let (device, control) = plain();
    assert!(
        told(device.allocate_host(13))
            .ends_with("the backend gave 12 bytes of host memory, and 13 were asked for")
    );
    assert_eq!(control.live.load(Ordering::SeqCst), 0);
    assert_eq!(kind(&Device::cpu().allocate_host(1).unwrap_err()), BackendErrorKind::Unsupported);
}

#[test]
fn a_kernel_may_not_use_devices_either() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let (tell, answer) = mpsc::channel();
        let used = buffer.clone();
        stream
            .launch(&[&buffer], move |_| {
                tell.send(used.write(0, b"x")).unwrap();
                Ok(())
            })
            .unwrap();
        assert!(matches!(answer.recv().unwrap(), Err(DeviceError::InHostCall { .. })));
    });
}

#[test]
fn work_behind_a_host_call_that_failed_never_comes_to_the_drivers_queue() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"."));
        let before = stream.record().unwrap();
        stream.call(|| panic!("on purpose")).unwrap();
        let skipped = stream.record().unwrap();
        assert!(told(skipped.synchronize()).ends_with("on purpose"));
        before.synchronize().unwrap();
        control.log();
        // The thread has nothing more to do, so that this would be submitted from here.
        stream.write(&buffer, 0, b"x").unwrap();
        let read = stream.read(&buffer, 0..1).unwrap();
        assert!(told(read.wait()).ends_with("on purpose"));
        assert_eq!(control.log(), [""; 0]);
        assert!(told(stream.synchronize()).ends_with("on purpose"));
        stream.write(&buffer, 0, b"y").unwrap();
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b"y");
    });
}

#[test]
fn a_read_that_a_driver_gives_up_is_an_error() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        control.gives_up_reads.store(true, Ordering::SeqCst);
        control.close();
        let read = stream.read(&buffer, 0..1).unwrap();
        control.open();
        assert!(told(read.wait()).ends_with("read: the backend dropped the work unfinished"));
    });
}

#[test]
fn a_loss_that_only_a_queued_read_sees_is_one_of_the_device() {
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
fn one_thread_at_a_time_submits_to_a_queue_and_no_work_comes_between_the_parts_of_another() {
    const LEN: usize = 4 << 20;
    ends(|| {
        let (device, control) = queued();
        control.has_no_fill.store(true, Ordering::SeqCst);
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(LEN).unwrap());
        for _ in 0..10 {
            thread::scope(|scope| {
                scope.spawn(|| stream.fill(&buffer, 0..LEN, b"x").unwrap());
                scope.spawn(|| (0..8).for_each(|_| stream.write(&buffer, 0, b"y").unwrap()));
                scope.spawn(|| (0..8).for_each(|_| drop(stream.record().unwrap())));
            });
            let bytes = stream.read(&buffer, 0..LEN).unwrap().wait().unwrap();
            assert!(!bytes[1..].contains(&b'y'), "the first byte was copied on after it was written to");
        }
        assert_eq!(control.most_submitting.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn what_a_kernel_has_begun_is_kept_although_it_is_refused_in_the_end() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let scratch = device.allocate_host(8).unwrap();
        control.close();
        let refused = stream.launch(&[&buffer], |launch| {
            launch.stream_as::<ObedientStream>()?.submit_gated();
            launch.keep(scratch);
            Err(BackendError::other("the second half"))
        });
        assert!(told(refused).ends_with("the second half"));
        drop(buffer);
        assert_eq!(control.live.load(Ordering::SeqCst), 2, "the buffer and the scratch memory");
        control.open();
        stream.synchronize().unwrap();
        assert_eq!(control.live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_question_that_fails_frees_nothing() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(1).unwrap(), device.create_stream().unwrap());
        control.close();
        let native =
            |launch: &Launch<'_>| launch.stream_as::<ObedientStream>().map(ObedientStream::submit_gated);
        stream.launch(&[&buffer], native).unwrap();
        drop((buffer, stream));
        control.fail_query(BackendError::other("an earlier kernel failed"));
        device.memory_statistics().unwrap();
        assert_eq!(control.live.load(Ordering::SeqCst), 1);
        control.open();
        assert!(told(device.synchronize()).ends_with("an earlier kernel failed"));
        device.synchronize().unwrap();
        assert_eq!(control.live.load(Ordering::SeqCst), 0);

        // The same for waiting: what is in flight stays, and nothing is kept for ever.
        let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
        stream.write(&buffer, 0, device.allocate_host(4).unwrap()).unwrap();
        stream.record().unwrap().synchronize().unwrap();
        control.fail(BackendError::other("for now"));
        assert!(told(stream.synchronize()).ends_with("for now"));
        drop(buffer);
        assert_eq!(control.live.load(Ordering::SeqCst), 2);
        stream.synchronize().unwrap();
        assert_eq!(control.live.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn a_read_is_answered_when_its_stream_is_gone_and_its_device_lost_or_closed() {
    for close in [false, true] {
        ends(move || {
            let (device, control) = queued();
            let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
            control.forgets_reads.store(true, Ordering::SeqCst);
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
fn memory_and_events_of_a_device_that_is_closed_never_reach_the_one_that_is_opened_anew() {
    on_both(|device, _| {
        let (old, event) = (filled(device, b"old."), device.create_stream().unwrap().record().unwrap());
        device.close().unwrap();
        let (new, stream) = (filled(device, b"new."), device.create_stream().unwrap());
        for result in [
            new.copy_from(0, &old, 0..4),
            stream.copy(&old, 0..4, &new, 0).and_then(|()| stream.synchronize()),
            stream.wait(&event).and_then(|()| stream.synchronize()),
        ] {
            assert!(matches!(result, Err(DeviceError::Closed { .. })), "{result:?}");
        }
        assert_eq!(content(&new), b"new.");
    });
}

#[test]
fn a_device_is_closed_when_no_call_is_in_it() {
    ends(|| {
        let (device, control) = plain();
        let buffer = device.allocate(4).unwrap();
        control.close();
        let writes = thread::spawn(move || buffer.write(0, b"x"));
        while !control.log().contains(&"write".to_owned()) {
            thread::yield_now();
        }
        let closes = thread::spawn(move || device.close());
        thread::sleep(Duration::from_millis(20));
        assert_eq!(control.log(), [""; 0], "the write is still in the driver");
        control.open();
        closes.join().unwrap().unwrap();
        writes.join().unwrap().unwrap();
        assert_eq!(control.log(), ["close"]);
    });
}

#[test]
fn what_a_user_drops_may_panic_or_use_devices_and_the_stream_goes_on() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(thread::panicking(), "on purpose");
        }
    }
    struct Waits(Stream);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(matches!(self.0.synchronize(), Err(DeviceError::InHostCall { .. })));
        }
    }
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
        stream.call(|| panic!("on purpose")).unwrap();
        let (panics, waits) = (Panics, Waits(stream.clone()));
        // Skipped.
        stream.call(move || drop(panics)).unwrap();
        stream.call(move || drop(waits)).unwrap();
        assert!(told(stream.synchronize()).ends_with("on purpose"));
        let _ = stream.synchronize();
        // Refused by the device, which is lost meanwhile.
        let ((go, gate), (begin, begun)) = (mpsc::channel::<()>(), mpsc::channel());
        stream
            .call(move || {
                begin.send(()).unwrap();
                gate.recv().unwrap();
            })
            .unwrap();
        begun.recv().unwrap();
        let panics = Panics;
        stream.call(move || drop(panics)).unwrap();
        control.fail(BackendError::lost("gone"));
        buffer.write(0, b"x").unwrap_err();
        let waiting = stream.record();
        go.send(()).unwrap();
        assert_eq!(kind(&waiting.unwrap_err()), BackendErrorKind::Lost);
        assert_eq!(kind(&stream.synchronize().unwrap_err()), BackendErrorKind::Lost);
    });
}

#[test]
fn a_host_call_behind_a_read_that_failed_is_skipped_and_the_first_error_told() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
        control.close();
        control.fail(BackendError::other("first"));
        let read = stream.read(&buffer, 0..4).unwrap();
        stream.call(|| panic!("second")).unwrap();
        control.open();
        assert!(told(read.wait()).ends_with("first"));
        assert!(told(stream.synchronize()).ends_with("first"));
        stream.synchronize().unwrap();
    });
}

#[test]
fn fills_by_copies_are_aligned_to_their_last_bytes() {
    for (device, control) in in_words() {
        control.has_no_fill.store(true, Ordering::SeqCst);
        let len = (1 << 20) + 3;
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(len).unwrap());
        buffer.fill(0..len, b"x").unwrap();
        assert!(content(&buffer).iter().all(|&byte| byte == b'x'));
        stream.fill(&buffer, 0..len, b"y").unwrap();
        assert!(stream.read(&buffer, 0..len).unwrap().wait().unwrap().iter().all(|&byte| byte == b'y'));
    }
}

#[test]
fn a_queue_of_the_drivers_is_told_to_begin_behind_events_and_reads_and_before_it_is_left_or_waited_for() {
    let (device, control) = queued();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
    control.log();
    stream.record().unwrap();
    assert_eq!(control.log(), ["queue record", "queue flush"]);
    drop(stream.read(&buffer, 0..1).unwrap());
    assert_eq!(control.log(), ["queue read", "queue flush"]);
    stream.synchronize().unwrap();
    assert_eq!(control.log(), ["queue flush"]);
    stream.query().unwrap();
    assert_eq!(control.log(), ["queue flush"]);
    drop(stream);
    // Perhaps more than once: any thread may look whether it is done.
    assert_eq!(control.log()[0], "queue flush");
}

#[test]
fn a_stream_keeps_the_priority_that_it_was_made_with() {
    let (device, _) = plain();
    assert_eq!(device.create_stream().unwrap().priority(), Priority::Normal);
    let high = StreamOptions::new().with_priority(Priority::High);
    assert_eq!(device.create_stream_with(&high).unwrap().priority(), Priority::High);
}

#[test]
fn many_threads_put_work_into_one_stream() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(8).unwrap());
        thread::scope(|scope| {
            for at in 0..8 {
                let (stream, buffer) = (&stream, &buffer);
                scope.spawn(move || {
                    for round in 0..200_u8 {
                        stream.write(buffer, at, vec![round]).unwrap();
                        if round % 50 == 0 {
                            stream.call(|| ()).unwrap();
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

#[test]
fn a_device_that_is_closed_is_done_with_its_work_and_opens_afresh() {
    on_both(|device, control| {
        device.close().expect("it is not open");
        let (buffer, stream) = (filled(device, b"x"), device.create_stream().unwrap());
        let read = stream.read(&buffer, 0..1).unwrap();
        let event = stream.record().unwrap();
        device.close().unwrap();
        assert!(read.is_ready(), "its work is waited for");
        assert_eq!(*read.wait().unwrap(), *b"x");
        assert_eq!(control.log().last().unwrap(), "close");
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
        assert_eq!(control.live.load(Ordering::SeqCst), 0, "memory of a closed device is dropped");
    });
}

#[test]
fn closing_tells_what_nobody_was_told_and_what_the_driver_says() {
    ends(|| {
        let (device, control) = plain();
        let _stream = failed(device, "on purpose");
        assert!(told(device.close()).ends_with("launch: on purpose"));
        device.open().unwrap();
        control.fail(BackendError::other("the door is stuck"));
        assert!(told(device.close()).ends_with("close: the door is stuck"));
        device.allocate(1).expect("it was closed all the same");
    });
}
