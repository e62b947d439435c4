//! Work owns what it touches, and lets it go when it is done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use device_registry::backend::{BackendError, BackendErrorKind, Launch};
use device_registry::{Device, Stream};

use crate::backends::{ObedientStream, plain, queued};
use crate::{content, ends, filled, kind, on_both, told};

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
fn what_a_kernel_keeps_may_use_the_stream_when_it_is_dropped() {
    struct Records(Stream);
    impl Drop for Records {
        fn drop(&mut self) {
            self.0.record().unwrap();
        }
    }
    ends(|| {
        let (device, _) = queued();
        let stream = device.create_stream().unwrap();
        // Some are let go while more is put in, and the others by waiting.
        for _ in 0..1000 {
            let value = Records(stream.clone());
            stream
                .launch(&[], move |launch| {
                    launch.keep(value);
                    Ok(())
                })
                .unwrap();
        }
        stream.synchronize().unwrap();
    });
}

#[test]
fn what_is_behind_a_failure_is_let_go_without_a_wait() {
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        let kept = Arc::new(());
        // The first event that is reached has failed. There is one now and then, to know what is done.
        control.fail(BackendError::other("a kernel failed"));
        for _ in 0..300 {
            let value = Arc::clone(&kept);
            let kernel = |launch: &Launch<'_>| {
                launch.keep(value);
                Ok(())
            };
            stream.launch(&[], kernel).unwrap();
        }
        while Arc::strong_count(&kept) > 100 {
            device.memory_statistics().unwrap();
            thread::yield_now();
        }
    });
}

/// Waits until all work of a stream is done, by nothing but queries.
fn poll(stream: &Stream) {
    while !stream.query().unwrap() {
        thread::yield_now();
    }
}

#[test]
fn a_query_that_finds_all_work_done_releases_its_memory() {
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        for round in 0..10 {
            let buffer = device.allocate(100).unwrap();
            stream.write(&buffer, 0, vec![0; 100]).unwrap();
            drop(buffer);
            poll(&stream);
            assert_eq!(control.live.load(Ordering::SeqCst), 0, "round {round}");
        }
    });
}

#[test]
fn events_that_a_program_records_show_what_is_done() {
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        // A query of the queue never says that all is done, as there is always more.
        let endless = || control.on_query(|| control.fail_query(BackendError::unsupported("not now")));
        for round in 0..10 {
            let buffer = device.allocate(100).unwrap();
            stream.write(&buffer, 0, vec![0; 100]).unwrap();
            drop(buffer);
            stream.record().unwrap().synchronize().unwrap();
            endless();
            assert_eq!(device.memory_statistics().unwrap().live, 0, "round {round}");
        }
    });
}

#[test]
fn a_program_that_allocates_and_never_asks_keeps_a_bounded_amount() {
    const LEN: usize = 16 << 20;
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        for _ in 0..40 {
            let buffer = device.allocate(LEN).unwrap();
            stream.fill(&buffer, .., b"x").unwrap();
            drop(buffer);
            let event = stream.record().unwrap();
            while !event.query().unwrap() {
                thread::yield_now();
            }
            assert!(control.live.load(Ordering::SeqCst) <= 5, "80 MiB at most of 640");
        }
    });
}

#[test]
fn host_memory_of_finished_writes_is_bounded_by_its_bytes() {
    const LEN: usize = 16 << 20;
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(LEN).unwrap());
        for _ in 0..20 {
            stream.write(&buffer, 0, device.allocate_host(LEN).unwrap()).unwrap();
            // The queue comes to its end, of which the core is not asked.
            let (done, is_done) = std::sync::mpsc::channel();
            let signal = move |launch: &Launch<'_>| {
                launch.stream_as::<ObedientStream>()?.submit(move || done.send(()).unwrap());
                Ok(())
            };
            stream.launch(&[], signal).unwrap();
            is_done.recv().unwrap();
            assert!(control.live.load(Ordering::SeqCst) <= 5, "the buffer, and a few of 20 sources");
        }
    });
}
