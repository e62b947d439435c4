//! Queued work owns its buffers, and releases them when it is done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use device_registry::backend::{BackendError, BackendErrorKind, Launch};
use device_registry::{Device, Stream};

use crate::fake::{Moment, Queue, plain, queued};
use crate::{content, ends, error_text, filled, kind, on_both};

#[test]
fn queued_work_owns_its_buffers_and_releases_them() {
    on_both(|device, control| {
        let stream = device.create_stream().unwrap();
        control.close();
        let buffer = device.allocate(1000).unwrap();
        stream.write(&buffer, 0, vec![7; 1000]).unwrap();
        let read = stream.read(&buffer, 999..1000).unwrap();
        drop(buffer);
        assert_eq!(control.live(), 1, "work in the queue needs it");
        control.open();
        assert_eq!(*read.wait().unwrap(), [7]);
        stream.synchronize().unwrap();
        drop(device.allocate(1).unwrap());
        let statistics = device.memory_statistics().unwrap();
        assert_eq!((statistics.live, statistics.allocated, statistics.peak), (0, 0, 1000));
        assert_eq!(control.live(), 0);
    });
}

#[test]
fn memory_is_kept_until_a_driver_queue_is_done_even_if_the_stream_is_dropped() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(1).unwrap(), device.create_stream().unwrap());
        control.close();
        // Like hardware, it owns no handle of the memory.
        let native = |launch: &Launch<'_>| launch.stream_as::<Queue>().map(Queue::submit_gated);
        stream.launch(&[&buffer], native).unwrap();
        drop((buffer, stream));
        device.memory_statistics().unwrap();
        assert_eq!(control.live(), 1);
        control.open();
        while device.memory_statistics().unwrap().live > 0 {
            thread::yield_now();
        }
        assert_eq!(control.live(), 0);
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
        assert_eq!(control.live(), 1, "the pinned bytes, and not the buffer");
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
            // Without it, the queue's thread might not run during this loop.
            thread::yield_now();
        }
        stream.record().unwrap().synchronize().unwrap();
        device.memory_statistics().unwrap();
        let live = control.live();
        assert!(live < 200, "{live} of 1000 are kept");
    });
}

#[test]
fn an_allocation_releases_memory_of_finished_work_before_it_fails() {
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        control.capacity.store(16, Ordering::SeqCst);
        let buffer = device.allocate(16).unwrap();
        stream.fill(&buffer, 0..16, b"x").unwrap();
        assert!(matches!(
            kind(&device.allocate(16).unwrap_err()),
            BackendErrorKind::OutOfMemory { asked: 16, free: Some(0) }
        ));
        let done = stream.record().unwrap();
        drop((buffer, stream));
        done.synchronize().unwrap();
        device.allocate(16).expect("the stream is dropped and its work done");
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
fn memory_of_a_refused_kernel_is_kept_while_its_work_runs() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(1).unwrap());
        let scratch = device.allocate_host(8).unwrap();
        control.close();
        let refused = stream.launch(&[&buffer], |launch| {
            launch.stream_as::<Queue>()?.submit_gated();
            launch.keep(scratch);
            Err(BackendError::other("the second half"))
        });
        assert!(error_text(refused).ends_with("the second half"));
        drop(buffer);
        assert_eq!(control.live(), 2, "the buffer and the scratch memory");
        control.open();
        stream.synchronize().unwrap();
        assert_eq!(control.live(), 0);
    });
}

#[test]
fn a_query_that_fails_frees_nothing() {
    ends(|| {
        let (device, control) = queued();
        let (buffer, stream) = (device.allocate(1).unwrap(), device.create_stream().unwrap());
        control.close();
        let native = |launch: &Launch<'_>| launch.stream_as::<Queue>().map(Queue::submit_gated);
        stream.launch(&[&buffer], native).unwrap();
        drop((buffer, stream));
        control.fail_at(Moment::Query, BackendError::other("an earlier kernel failed"));
        device.memory_statistics().unwrap();
        assert_eq!(control.live(), 1);
        control.open();
        assert!(error_text(device.synchronize()).ends_with("an earlier kernel failed"));
        device.synchronize().unwrap();
        assert_eq!(control.live(), 0);

        // A wait that fails keeps the memory in flight, and a later wait releases it.
        let (buffer, stream) = (device.allocate(4).unwrap(), device.create_stream().unwrap());
        stream.write(&buffer, 0, device.allocate_host(4).unwrap()).unwrap();
        stream.record().unwrap().synchronize().unwrap();
        control.fail(BackendError::other("for now"));
        assert!(error_text(stream.synchronize()).ends_with("for now"));
        drop(buffer);
        assert_eq!(control.live(), 2);
        stream.synchronize().unwrap();
        assert_eq!(control.live(), 0);
    });
}

#[test]
fn pinned_memory_of_the_wrong_length_is_refused() {
    let (device, control) = plain();
    assert!(
        error_text(device.allocate_host(13))
            .ends_with("the backend returned 12 bytes of host memory: expected 13")
    );
    assert_eq!(control.live(), 0);
    assert_eq!(kind(&Device::cpu().allocate_host(1).unwrap_err()), BackendErrorKind::Unsupported);
}

#[test]
#[cfg(target_pointer_width = "64")]
fn the_error_of_an_allocation_that_is_too_large_names_the_limit() {
    let (device, control) = plain();
    device.open().unwrap();
    control.log();
    let error = device.allocate((1 << 40) + 1).unwrap_err();
    assert!(matches!(kind(&error), BackendErrorKind::OutOfMemory { .. }));
    assert!(
        error
            .to_string()
            .ends_with("1099511627777 bytes asked for, and one allocation can have 1099511627776 bytes")
    );
    assert_eq!(control.log(), [""; 0]);
}

#[test]
fn a_value_that_a_kernel_keeps_may_use_the_stream_in_its_drop() {
    struct Records(Stream);
    impl Drop for Records {
        fn drop(&mut self) {
            self.0.record().unwrap();
        }
    }
    ends(|| {
        let (device, _) = queued();
        let stream = device.create_stream().unwrap();
        // The core drops some values while it enqueues more work, and the others in the wait.
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
fn memory_behind_a_failure_is_released_without_a_wait() {
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        let kept = Arc::new(());
        // The first event fails. The core records one from time to time, to know which work is done.
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

/// Waits until all work of a stream is done, only by queries.
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
            assert_eq!(control.live(), 0, "round {round}");
        }
    });
}

#[test]
fn events_of_a_program_show_which_work_is_done() {
    ends(|| {
        let (device, control) = queued();
        let stream = device.create_stream().unwrap();
        // A query of the queue never says that all is done, as there is always more.
        let endless = || control.fail_at(Moment::Query, BackendError::unsupported("not now"));
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
fn a_program_that_allocates_and_never_queries_keeps_a_bounded_amount() {
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
            assert!(control.live() <= 5, "80 MiB at most of 640");
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
            // The queue finishes its work, and the program does not query it.
            let (done, is_done) = std::sync::mpsc::channel();
            let signal = move |launch: &Launch<'_>| {
                launch.stream_as::<Queue>()?.submit(move || done.send(()).unwrap());
                Ok(())
            };
            stream.launch(&[], signal).unwrap();
            is_done.recv().unwrap();
            assert!(control.live() <= 5, "the buffer, and a few of 20 sources");
        }
    });
}
