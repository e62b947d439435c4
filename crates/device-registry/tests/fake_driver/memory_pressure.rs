//! Allocations that find a device full while its queues still use memory of dropped buffers.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use device_registry::backend::{BackendError, HostMemory, Launch, MemoryReuse};
use device_registry::{BackendErrorKind, Buffer, Device, Stream};

use crate::fake::{Control, Moment, Queue, create, plain, properties};
use crate::{LONG, begin, outcome, statistics, still_waits};

const KIB: usize = 1 << 10;

/// How much memory a device has: less than the block that its length is rounded up to.
const CAPACITY: usize = (4 << 20) - 512;

/// The length of most buffers, five of which fit, and of an allocation for which the device then has no room.
const PIECE: usize = 768 * KIB;
const LARGE: usize = 2 << 20;

/// Runs a test on a device without a cache, and on one with a cache.
fn on_both(test: impl Fn(Device, &'static Control)) {
    on_devices(u64::MAX, test);
}

fn on_devices(largest_allocation: u64, test: impl Fn(Device, &'static Control)) {
    let properties = properties().with_largest_allocation(largest_allocation);
    for reuse in [MemoryReuse::Never, MemoryReuse::Rounded] {
        let (device, control) = create(true, properties.clone().with_memory_reuse(reuse));
        control.capacity.store(CAPACITY, Ordering::SeqCst);
        test(device, control);
        control.has_kept_the_rules();
    }
}

/// A stream with its queue, whose gate is closed.
fn gated(device: Device, control: &'static Control) -> (Stream, Arc<Queue>) {
    let (stream, gate) = control.stream(device);
    gate.close();
    (stream, gate)
}

fn pieces(device: Device) -> [Buffer; 5] {
    [(); 5].map(|()| device.allocate(PIECE).unwrap())
}

fn write(stream: &Stream, buffer: &Buffer) {
    stream.write(buffer, 0, vec![1; 16]).unwrap();
}

#[track_caller]
fn is_full_at_once(device: Device) {
    let error = outcome(begin(move || device.allocate(LARGE))).unwrap_err();
    assert!(matches!(error.kind(), Some(BackendErrorKind::OutOfMemory { .. })), "{error}");
}

/// The number of retries that a device with a cache counts.
#[track_caller]
fn has_retried(device: Device, retries: u64) {
    let expected = if device.properties().unwrap().memory_reuse != MemoryReuse::Never { retries } else { 0 };
    assert_eq!(statistics(device).retries, expected);
}

#[test]
fn memory_behind_work_that_lasts_is_waited_for() {
    on_both(|device, control| {
        let (stream, gate) = gated(device, control);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let large = begin(move || device.allocate(LARGE));
        gate.await_waits(1);
        still_waits(&large);
        has_retried(device, 0);
        gate.open();
        let large = outcome(large).unwrap();
        assert_eq!((large.len(), gate.waits()), (LARGE, 1));
        has_retried(device, 1);
        assert_eq!(control.in_use(), LARGE);
    });
}

#[test]
fn an_allocation_that_is_tried_three_times_counts_one_retry() {
    on_both(|device, control| {
        let (stream, gate) = gated(device, control);
        let [free, used @ ..] = pieces(device);
        drop(free);
        used.iter().for_each(|piece| write(&stream, piece));
        drop(used);
        let large = begin(move || device.allocate(LARGE));
        gate.await_waits(1);
        // What was free was not enough.
        has_retried(device, 1);
        gate.open();
        outcome(large).unwrap();
        has_retried(device, 1);
    });
}

#[test]
fn memory_that_another_thread_has_freed_meanwhile_is_used() {
    on_both(|device, control| {
        // Without a cache, such memory is the driver's before the core knows of it.
        if device.properties().unwrap().memory_reuse == MemoryReuse::Never {
            return;
        }
        let [free, used @ ..] = pieces(device);
        drop(free);
        // The second time that the driver finds itself full.
        control.on(Moment::Full, || ());
        control.on(Moment::Full, move || drop(used));
        device.allocate(LARGE).unwrap();
        has_retried(device, 1);
    });
}

#[test]
fn memory_without_a_block_is_waited_for_as_well() {
    // The second cannot allocate a block as long as its memory.
    for largest in [u64::MAX, CAPACITY as u64] {
        on_devices(largest, |device, control| {
            let (stream, gate) = gated(device, control);
            let [free, used @ ..] = pieces(device);
            drop(free);
            used.iter().for_each(|piece| write(&stream, piece));
            drop(used);
            let all = begin(move || device.allocate(CAPACITY));
            gate.await_waits(1);
            gate.open();
            assert_eq!(outcome(all).unwrap().len(), CAPACITY);
            assert_eq!(gate.waits(), 1);
            has_retried(device, 1);
        });
    }
}

#[test]
fn memory_with_a_handle_is_not_waited_for() {
    on_both(|device, control| {
        let (stream, gate) = gated(device, control);
        let pieces = pieces(device);
        for piece in &pieces {
            // Two of its three users are in flight.
            stream.copy(&piece.slice(..16).unwrap(), &piece.slice(16..32).unwrap()).unwrap();
        }
        is_full_at_once(device);
        let slices = pieces.map(|piece| piece.slice(..8).unwrap());
        is_full_at_once(device);
        assert_eq!(gate.waits(), 0);
        has_retried(device, 0);
        drop(slices);
        let large = begin(move || device.allocate(LARGE));
        gate.await_waits(1);
        gate.open();
        outcome(large).unwrap();
    });
}

#[test]
fn memory_that_two_streams_use_is_waited_for_in_both_and_in_no_other() {
    on_both(|device, control| {
        let [(one, first), (two, second), (three, third)] = [(); 3].map(|()| gated(device, control));
        let [kept, shared @ ..] = pieces(device);
        for piece in &shared {
            write(&one, piece);
            write(&two, piece);
        }
        write(&three, &kept);
        drop(shared);
        let large = begin(move || device.allocate(LARGE));
        first.await_waits(1);
        first.open();
        second.await_waits(1);
        still_waits(&large);
        second.open();
        outcome(large).unwrap();
        assert_eq!([&first, &second, &third].map(|gate| gate.waits()), [1, 1, 0]);
    });
}

#[test]
fn work_of_a_dropped_stream_is_waited_for() {
    on_both(|device, control| {
        let (stream, gate) = gated(device, control);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        drop(stream);
        let large = begin(move || device.allocate(LARGE));
        gate.await_waits(1);
        gate.open();
        outcome(large).unwrap();
    });
}

#[test]
fn a_failure_of_the_work_is_the_streams_and_the_allocation_succeeds() {
    on_both(|device, control| {
        let (stream, gate) = gated(device, control);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let large = begin(move || device.allocate(LARGE));
        gate.await_waits(1);
        gate.fail(BackendError::other("a bit flipped"));
        outcome(large).unwrap();
        let error = stream.synchronize().unwrap_err();
        assert!(error.to_string().ends_with("a bit flipped"), "{error}");
        stream.synchronize().unwrap();
        device.synchronize().unwrap();
    });
}

#[test]
fn a_loss_that_the_queue_returns_ends_the_wait() {
    on_both(|device, control| {
        let [(one, first), (two, second)] = [(); 2].map(|()| gated(device, control));
        for piece in pieces(device) {
            write(&one, &piece);
            write(&two, &piece);
        }
        let large = begin(move || device.allocate(LARGE));
        first.await_waits(1);
        first.fail(BackendError::lost("unplugged"));
        assert_eq!(outcome(large).unwrap_err().kind(), Some(BackendErrorKind::Lost));
        assert_eq!(second.waits(), 0, "a lost device was waited for");
    });
}

#[test]
fn a_loss_that_is_reported_meanwhile_is_the_error_of_the_allocation() {
    on_both(|device, control| {
        let (stream, gate) = gated(device, control);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let large = begin(move || device.allocate(LARGE));
        gate.await_waits(1);
        control.report(BackendError::lost("unplugged"));
        gate.open();
        assert_eq!(outcome(large).unwrap_err().kind(), Some(BackendErrorKind::Lost));
    });
}

#[test]
fn a_host_call_that_waits_for_the_allocating_thread_is_not_waited_for() {
    on_both(|device, control| {
        let (stream, gate) = gated(device, control);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let (release, released) = mpsc::channel::<()>();
        stream.host_call(move || released.recv().unwrap_or(())).unwrap();
        // The stream's thread waits for the work before its host call.
        gate.await_waits(1);
        let large = begin(move || device.allocate(LARGE));
        gate.await_waits(2);
        gate.open();
        let large = outcome(large).unwrap();
        drop(release);
        stream.synchronize().unwrap();
        drop(large);
    });
}

#[test]
fn memory_behind_a_host_call_is_not_waited_for() {
    on_both(|device, control| {
        let [(one, first), (two, second)] = [(); 2].map(|()| gated(device, control));
        let pieces = pieces(device);
        let (begin, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        two.host_call(move || {
            begin.send(()).unwrap();
            released.recv().unwrap_or(());
        })
        .unwrap();
        begun.recv_timeout(LONG).unwrap();
        for piece in &pieces {
            write(&one, piece);
            write(&two, piece);
        }
        drop(pieces);
        // A wait for the first queue would release nothing.
        is_full_at_once(device);
        assert_eq!(first.waits(), 0);
        [first, second].iter().for_each(|gate| gate.open());
        drop(release);
        two.synchronize().unwrap();
        device.allocate(LARGE).unwrap();
    });
}

#[test]
fn each_device_waits_for_its_own_queues_and_memory() {
    on_both(|device, control| {
        let (peer, peers) = create(true, device.properties().unwrap().clone());
        peers.capacity.store(CAPACITY, Ordering::SeqCst);
        let (stream, gate) = gated(device, control);
        let own = pieces(device);
        for piece in pieces(peer) {
            stream.copy(&piece, &own[0]).unwrap();
        }
        is_full_at_once(device);
        is_full_at_once(peer);
        assert_eq!(gate.waits(), 0);
        gate.open();
        stream.synchronize().unwrap();
        peer.allocate(LARGE).unwrap();
    });
}

#[test]
fn the_thread_of_a_stream_does_not_wait() {
    let (above, above_control) = plain();
    let (outer, target) = (above.create_stream().unwrap(), above.allocate(16).unwrap());
    on_both(|device, control| {
        let (stream, gate) = gated(device, control);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        // A driver whose writes allocate on another device.
        let (sender, allocated) = mpsc::channel();
        above_control.on(Moment::Work, move || sender.send(device.allocate(LARGE)).unwrap());
        write(&outer, &target);
        outer.synchronize_timeout(LONG).unwrap();
        let kind = outcome(allocated).unwrap_err().kind();
        assert!(matches!(kind, Some(BackendErrorKind::OutOfMemory { .. })), "{kind:?}");
        assert_eq!(gate.waits(), 0);
        gate.open();
    });
}

/// Runs a test on a device whose streams have threads, without a cache and with one.
fn on_threads(test: impl Fn(Device, &'static Control)) {
    for reuse in [MemoryReuse::Never, MemoryReuse::Rounded] {
        let (device, control) = create(false, properties().with_memory_reuse(reuse));
        control.capacity.store(CAPACITY, Ordering::SeqCst);
        test(device, control);
    }
}

/// A stream whose first kernel lasts until the sender is dropped.
fn lasting(device: Device) -> (Stream, mpsc::Sender<()>) {
    let stream = device.create_stream().unwrap();
    let (end, ended) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    let kernel = move |_: &Launch<'_>| {
        begin.send(()).unwrap();
        ended.recv().unwrap_or(());
        Ok(())
    };
    stream.launch(&[], kernel).unwrap();
    begun.recv_timeout(LONG).unwrap();
    (stream, end)
}

#[test]
fn memory_of_queued_work_of_a_thread_is_waited_for() {
    on_threads(|device, control| {
        let (stream, end) = lasting(device);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let large = begin(move || device.allocate(LARGE));
        still_waits(&large);
        drop(end);
        let large = outcome(large).unwrap();
        assert_eq!((large.len(), control.in_use()), (LARGE, LARGE));
        stream.synchronize().unwrap();
    });
}

#[test]
fn memory_of_the_work_that_a_thread_does_now_is_waited_for() {
    on_threads(|device, _| {
        let (stream, pieces) = (device.create_stream().unwrap(), pieces(device));
        let (end, ended) = mpsc::channel::<()>();
        let kernel = move |_: &Launch<'_>| {
            ended.recv().unwrap_or(());
            Ok(())
        };
        stream.launch(&pieces.each_ref(), kernel).unwrap();
        drop(pieces);
        let large = begin(move || device.allocate(LARGE));
        still_waits(&large);
        drop(end);
        outcome(large).unwrap();
    });
}

#[test]
fn work_of_a_thread_behind_a_host_call_or_a_wait_for_an_event_is_not_waited_for() {
    on_threads(|device, _| {
        let [one, two] = [(); 2].map(|()| device.create_stream().unwrap());
        let (release, released) = mpsc::channel::<()>();
        let pieces = pieces(device);
        write(&one, &pieces[0]);
        // It waits for the thread that allocates.
        one.host_call(move || released.recv().unwrap_or(())).unwrap();
        two.wait_event(&one.record().unwrap()).unwrap();
        for piece in &pieces {
            write(&one, piece);
            write(&two, piece);
        }
        drop(pieces);
        is_full_at_once(device);
        drop(release);
        [one, two].iter().for_each(|stream| stream.synchronize().unwrap());
        device.allocate(LARGE).unwrap();
    });
}

#[test]
fn work_of_a_thread_before_a_host_call_is_waited_for() {
    on_threads(|device, _| {
        let (stream, end) = lasting(device);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let (release, released) = mpsc::channel::<()>();
        stream.host_call(move || released.recv().unwrap_or(())).unwrap();
        let large = begin(move || device.allocate(LARGE));
        still_waits(&large);
        drop(end);
        let _large = outcome(large).unwrap();
        drop(release);
        stream.synchronize().unwrap();
    });
}

#[test]
fn work_of_a_thread_that_uses_memory_with_a_handle_is_not_waited_for() {
    on_threads(|device, _| {
        let (stream, end) = lasting(device);
        let pieces = pieces(device);
        pieces.iter().for_each(|piece| write(&stream, piece));
        // Only the piece that is under way is waited for, as its memory is not known.
        let full = begin(move || device.allocate(LARGE).map(drop));
        still_waits(&full);
        let (last, ended) = mpsc::channel::<()>();
        stream.host_call(move || ended.recv().unwrap_or(())).unwrap();
        drop(end);
        outcome(full).unwrap_err();
        drop((last, pieces));
        stream.synchronize().unwrap();
    });
}

#[test]
fn what_is_behind_the_work_that_a_thread_does_now_is_not_waited_for() {
    on_threads(|device, control| {
        let (stream, end) = lasting(device);
        let _pieces = pieces(device);
        let (last, ended) = mpsc::channel::<()>();
        let lasts_too = move |_: &Launch<'_>| {
            ended.recv().unwrap_or(());
            Ok(())
        };
        stream.launch(&[], lasts_too).unwrap();
        let (at_full, is_full) = mpsc::channel();
        control.on(Moment::Full, move || at_full.send(()).unwrap());
        let full = begin(move || device.allocate(LARGE).map(drop));
        // Otherwise it could begin to wait when the second kernel is the one under way.
        is_full.recv_timeout(LONG).unwrap();
        still_waits(&full);
        drop(end);
        outcome(full).unwrap_err();
        drop(last);
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_failure_or_a_loss_ends_the_wait_for_a_thread() {
    on_threads(|device, control| {
        let (stream, end) = lasting(device);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let large = begin(move || device.allocate(LARGE));
        still_waits(&large);
        control.fail(BackendError::other("a bit flipped"));
        drop(end);
        drop(outcome(large).unwrap());
        assert!(stream.synchronize().unwrap_err().to_string().ends_with("a bit flipped"));

        let (stream, _end) = lasting(device);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let large = begin(move || device.allocate(LARGE));
        still_waits(&large);
        control.report(BackendError::lost("unplugged"));
        assert_eq!(outcome(large).unwrap_err().kind(), Some(BackendErrorKind::Lost));
    });
}

#[test]
fn a_thread_whose_window_a_kernel_may_need_does_not_wait() {
    on_threads(|device, _| {
        let (stream, end) = lasting(device);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let full = begin(move || {
            let memory = HostMemory::zeroed(8).unwrap();
            let _window = memory.read(0..8).unwrap();
            device.allocate(LARGE).map(drop)
        });
        outcome(full).unwrap_err();
        drop(end);
        stream.synchronize().unwrap();
    });
}

#[test]
fn code_of_a_backend_does_not_wait_for_the_thread_of_a_stream() {
    let (above, above_control) = plain();
    let target = above.allocate(16).unwrap();
    on_threads(|device, _| {
        let (stream, end) = lasting(device);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        // A driver whose writes allocate on another device, and may hold a lock that the kernel needs.
        let (sender, allocated) = mpsc::channel();
        above_control.on(Moment::Work, move || sender.send(device.allocate(LARGE)).unwrap());
        let target = target.clone();
        let written = begin(move || target.write(0, &[1; 16]));
        outcome(allocated).unwrap_err();
        outcome(written).unwrap();
        drop(end);
        stream.synchronize().unwrap();
    });
}

#[test]
fn an_error_that_may_be_an_injected_fault_is_not_waited_for() {
    on_threads(|device, control| {
        let (stream, end) = lasting(device);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        control.fail_at(Moment::Full, BackendError::out_of_memory(LARGE as u64, None));
        is_full_at_once(device);
        drop(end);
        stream.synchronize().unwrap();
    });
}
