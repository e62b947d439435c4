//! Streams: order, concurrency, kernels, and errors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use device_conformance::process;
use device_conformance::testing::error_kind;
use device_openreg::OpenRegMemory;
use device_registry::backend::{
    BackendError, BackendErrorKind, Fault, Launch, Priority, StreamOptions, open_windows,
};
use device_registry::{Buffer, Device, DeviceError, DeviceGuard, Stream, StreamGuard, device};

use crate::child::CHILD;

mod child;

device_registry::autoload!();

fn openreg(index: u16) -> Device {
    device(&format!("openreg:{index}")).unwrap()
}

fn filled(device: Device, byte: u8) -> Buffer {
    let buffer = device.allocate(64).unwrap();
    buffer.fill(0..64, &[byte]).unwrap();
    buffer
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Holds a stream up until what is returned is dropped.
fn hold(stream: &Stream) -> mpsc::Sender<()> {
    let (held, hold) = mpsc::channel::<()>();
    stream.host_call(move || hold.recv().unwrap_or_default()).unwrap();
    held
}

/// Drops `held` after [`WHILE`] on another thread: the time that a wait has to last. Returns the time of the
/// call.
fn release_later(held: mpsc::Sender<()>) -> Instant {
    thread::spawn(move || {
        thread::sleep(WHILE);
        drop(held);
    });
    Instant::now()
}

const WHILE: Duration = Duration::from_millis(60);

#[test]
fn work_of_a_stream_is_done_in_order() {
    let device = openreg(0);
    let stream = device.create_stream().unwrap();
    assert_eq!(stream.device(), device);
    let (first, second) = (device.allocate(1000).unwrap(), device.allocate(1000).unwrap());
    for round in 0..100_u8 {
        stream.write(&first, 0, vec![round; 1000]).unwrap();
        stream.copy(&first.slice(..500).unwrap(), &second.slice(500..1000).unwrap()).unwrap();
        stream.fill(&second, 0..500, &[round, !round]).unwrap();
    }
    let read = stream.read(&second, 0..1000).unwrap().wait().unwrap();
    assert!(read[500..] == [99; 500] && read[..500].chunks(2).all(|pair| pair == [99, !99]));
}

#[test]
fn tasks_run_and_are_seen_after_synchronizing() {
    let stream = openreg(1).create_stream().unwrap();
    let counter = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let counter = Arc::clone(&counter);
        stream.host_call(move || count(&counter)).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(counter.load(Ordering::Relaxed), 10);
}

#[test]
fn a_stream_is_ready_when_its_last_task_has_ended_and_not_when_it_has_begun() {
    let stream = openreg(0).create_stream().unwrap();
    assert!(stream.query().unwrap(), "nothing was enqueued");
    let (begins, begun) = mpsc::channel();
    let (held, hold) = mpsc::channel::<()>();
    stream
        .host_call(move || {
            begins.send(()).unwrap();
            let _ = hold.recv();
        })
        .unwrap();
    begun.recv().unwrap();
    // The queue is empty, and its last task runs.
    for _ in 0..100 {
        assert!(!stream.query().unwrap());
    }
    drop(held);
    stream.synchronize().unwrap();
    assert!(stream.query().unwrap());
}

#[test]
fn a_stream_of_a_device_that_is_not_current_is_waited_for() {
    let _guard = DeviceGuard::new(openreg(0)).unwrap();
    let stream = openreg(1).create_stream().unwrap();
    let start = release_later(hold(&stream));
    stream.synchronize().unwrap();
    assert!(start.elapsed() >= WHILE);
}

#[test]
fn synchronizing_a_device_waits_for_all_of_its_streams() {
    if !process::is_child() {
        return CHILD.passes("synchronizing_a_device_waits_for_all_of_its_streams", &[]);
    }
    let (first, second) = (openreg(0), openreg(1));
    second.synchronize().unwrap();
    first.open().unwrap();
    first.synchronize().unwrap();
    let counter = Arc::new(AtomicUsize::new(0));
    let streams = [first, first, second].map(|device| device.create_stream().unwrap());
    let held = streams.each_ref().map(hold);
    for stream in &streams {
        let counter = Arc::clone(&counter);
        stream.host_call(move || count(&counter)).unwrap();
    }
    let [a, b, other] = held;
    let start = release_later(a);
    release_later(b);
    first.synchronize().unwrap();
    assert!(start.elapsed() >= WHILE);
    assert_eq!(counter.load(Ordering::Relaxed), 2, "not the other device's");
    drop(other);
    second.synchronize().unwrap();
    assert_eq!(counter.load(Ordering::Relaxed), 3);
}

#[test]
fn streams_run_beside_each_other_and_beside_the_host() {
    let (held_up, other) = (openreg(0).create_stream().unwrap(), openreg(0).create_stream().unwrap());
    let held = hold(&held_up);
    let (slow, quick) = (filled(openreg(0), 1), filled(openreg(0), 2));
    let pending = held_up.read(&slow, 0..64).unwrap();
    assert_eq!(*other.read(&quick, 0..4).unwrap().wait().unwrap(), [2; 4]);
    assert!(!pending.is_ready());
    drop(held);
    assert_eq!(*pending.wait().unwrap(), [1; 64]);
}

#[test]
fn a_stream_has_the_requested_priority() {
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        let options = StreamOptions::new().with_priority(priority);
        let stream = openreg(0).create_stream_with(&options).unwrap();
        assert_eq!(stream.priority(), priority);
        stream.synchronize().unwrap();
    }
}

#[test]
fn the_current_stream_is_a_choice_of_a_thread_and_of_a_device() {
    thread::spawn(|| {
        let device = openreg(1);
        let usual = device.current_stream().unwrap();
        assert_eq!(usual, device.default_stream().unwrap());
        let stream = device.create_stream().unwrap();
        assert_ne!(stream, usual);
        {
            let _guard = StreamGuard::new(&stream);
            assert_eq!(device.current_stream().unwrap(), stream);
            assert_ne!(openreg(0).current_stream().unwrap(), stream);
            let others = thread::spawn(move || device.current_stream().unwrap());
            assert_eq!(others.join().unwrap(), usual);
        }
        assert_eq!(device.current_stream().unwrap(), usual);
        assert!(format!("{stream:?}").contains("openreg:1"), "{stream:?}");
    })
    .join()
    .unwrap();
}

#[test]
fn dropping_a_stream_waits_for_nothing_and_its_work_is_still_done() {
    let stream = openreg(0).create_stream().unwrap();
    let held = hold(&stream);
    let buffer = filled(openreg(0), 0);
    stream.fill(&buffer, 0..64, &[5]).unwrap();
    let read = stream.read(&buffer, 0..64).unwrap();
    drop((stream, buffer));
    assert!(!read.is_ready());
    drop(held);
    assert_eq!(*read.wait().unwrap(), [5; 64]);
}

#[test]
fn many_threads_enqueue_work_in_one_stream() {
    let (device, counter) = (openreg(1), Arc::new(AtomicUsize::new(0)));
    let (stream, buffer) = (device.create_stream().unwrap(), filled(device, 0));
    thread::scope(|scope| {
        for number in 0..8_usize {
            let (stream, buffer, counter) = (stream.clone(), buffer.clone(), Arc::clone(&counter));
            scope.spawn(move || {
                for _ in 0..100 {
                    let counter = Arc::clone(&counter);
                    stream.write(&buffer, number * 8, vec![number as u8; 8]).unwrap();
                    stream.host_call(move || count(&counter)).unwrap();
                }
                // While others put more in.
                let event = stream.record().unwrap();
                stream.wait_event(&event).unwrap();
                event.synchronize().unwrap();
            });
        }
    });
    let bytes = stream.read(&buffer, 0..64).unwrap().wait().unwrap();
    assert_eq!(counter.load(Ordering::Relaxed), 800);
    assert!((0..64).all(|place| usize::from(bytes[place]) == place / 8));
}

/// The kernel `left += right`.
fn add(launch: &Launch<'_>) -> Result<(), BackendError> {
    let [Some(left), Some(right)] = launch.spans() else { return Ok(()) };
    let (to, from) = (left.memory_as::<OpenRegMemory>()?, right.memory_as::<OpenRegMemory>()?);
    let reads = [(from.bytes()?, right.range())];
    let ([from], [mut to]) = open_windows(reads, [(to.bytes()?, left.range())])?;
    to.iter_mut().zip(&*from).for_each(|(to, from)| *to += *from);
    Ok(())
}

#[test]
fn kernels_work_in_order_on_the_bytes_of_their_buffers() {
    let (device, stream) = (openreg(1), openreg(1).create_stream().unwrap());
    let (left, right) = (filled(device, 0), filled(device, 1));
    for _ in 0..100 {
        stream.launch(&[&left, &right], add).unwrap();
    }
    stream.fill(&right, 0..64, &[100]).unwrap();
    stream.launch(&[&left.slice(32..64).unwrap(), &right.slice(0..32).unwrap()], add).unwrap();
    // The kernels have what they work on.
    let read = stream.read(&left, 0..64).unwrap();
    drop((left, right));
    let bytes = read.wait().unwrap();
    assert!(bytes[..32] == [100; 32] && bytes[32..] == [200; 32], "{bytes:?}");
}

#[test]
fn the_error_of_a_kernel_is_that_of_the_stream() {
    let (device, stream) = (openreg(0), openreg(0).create_stream().unwrap());
    let buffer = filled(device, 3);
    // Two windows in one range, one of which writes.
    stream.launch(&[&buffer, &buffer], add).unwrap();
    let read = stream.read(&buffer, 0..64).unwrap();
    let error = stream.synchronize().unwrap_err().to_string();
    assert!(error.contains("overlap, and one of the windows writes"), "{error}");
    assert!(read.wait().is_err(), "what came behind it was skipped");
    assert_eq!(*stream.read(&buffer, 0..1).unwrap().wait().unwrap(), [3]);
}

#[test]
fn ranges_outside_and_buffers_of_another_device_are_refused_at_once() {
    let stream = openreg(0).create_stream().unwrap();
    let (here, there) = (filled(openreg(0), 0), filled(openreg(1), 0));
    assert!(matches!(stream.write(&here, 60, b"12345"), Err(DeviceError::OutOfRange { .. })));
    assert!(matches!(stream.read(&here, 0..65), Err(DeviceError::OutOfRange { .. })));
    let (four, shifted) = (here.slice(..4).unwrap(), here.slice(2..6).unwrap());
    assert!(matches!(stream.copy(&there, &four), Err(DeviceError::LengthMismatch { .. })));
    assert!(matches!(stream.copy(&four, &shifted), Err(DeviceError::Overlap { .. })));
    assert!(matches!(stream.fill(&here, 0..64, &[1, 2, 3]), Err(DeviceError::Pattern { .. })));
    assert!(matches!(stream.write(&there, 0, b"1"), Err(DeviceError::OtherDevice { .. })));
    assert!(matches!(stream.launch(&[&here, &there], add), Err(DeviceError::OtherDevice { .. })));
    stream.copy(&there, &here).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn an_asynchronous_failure_is_reported_once_and_later_work_is_skipped() {
    if !process::is_child() {
        return CHILD.passes("an_asynchronous_failure_is_reported_once_and_later_work_is_skipped", &[]);
    }
    let (device, stream) = (openreg(0), openreg(0).create_stream().unwrap());
    let buffer = filled(device, 1);
    let held = hold(&stream);
    device.faults().and_then(|faults| faults.inject(Fault::FailCopy { nth: 2 })).unwrap();
    stream.write(&buffer, 0, b"first").unwrap();
    stream.write(&buffer, 0, b"FAILS").unwrap();
    stream.write(&buffer, 0, b"after").unwrap();
    let (read, event) = (stream.read(&buffer, 0..5).unwrap(), stream.record().unwrap());
    drop(held);
    let error = stream.synchronize().unwrap_err().to_string();
    assert!(error.ends_with("an injected fault fails this write"), "{error}");
    for error in [read.wait().unwrap_err().to_string(), event.synchronize().unwrap_err().to_string()] {
        assert!(error.ends_with("an injected fault fails this write"), "{error}");
    }
    stream.synchronize().unwrap();
    assert_eq!(*stream.read(&buffer, 0..5).unwrap().wait().unwrap(), *b"first");
}

#[test]
fn the_device_reports_the_error_of_a_dropped_stream() {
    if !process::is_child() {
        return CHILD.passes("the_device_reports_the_error_of_a_dropped_stream", &[]);
    }
    let device = openreg(1);
    let buffer = filled(device, 1);
    // Many rounds, as the stream ends while the device synchronizes.
    for round in 0..200 {
        let stream = device.create_stream().unwrap();
        device.faults().and_then(|faults| faults.inject(Fault::FailCopy { nth: 1 })).unwrap();
        stream.fill(&buffer, 0..64, &[1]).unwrap();
        drop(stream);
        assert_eq!(error_kind(device.synchronize()), Some(BackendErrorKind::Other), "{round}");
        device.synchronize().unwrap();
    }
}

#[test]
fn a_device_that_is_lost_in_the_middle_ends_all_of_its_streams_and_no_others() {
    if !process::is_child() {
        return CHILD
            .passes("a_device_that_is_lost_in_the_middle_ends_all_of_its_streams_and_no_others", &[]);
    }
    let (device, other) = (openreg(0), openreg(1));
    let streams = [(); 3].map(|()| device.create_stream().unwrap());
    let (buffer, kept) = (filled(device, 1), filled(other, 2));
    device.faults().and_then(|faults| faults.inject(Fault::LoseDevice { nth: 20 })).unwrap();
    let mut reads = Vec::new();
    for stream in streams.iter().cycle().take(60) {
        // From the moment of the loss on the work is refused.
        if stream.fill(&buffer, 0..64, &[1]).is_ok() {
            reads.extend(stream.read(&buffer, 0..64));
        }
    }
    let lost = reads.into_iter().map(|read| error_kind(read.wait())).filter(Option::is_some).count();
    assert!(lost > 0);
    for stream in &streams {
        assert_eq!(error_kind(stream.synchronize()), Some(BackendErrorKind::Lost));
        assert_eq!(error_kind(stream.record()), Some(BackendErrorKind::Lost));
    }
    assert_eq!(error_kind(device.synchronize()), Some(BackendErrorKind::Lost));
    let stream = other.create_stream().unwrap();
    assert_eq!(*stream.read(&kept, 0..4).unwrap().wait().unwrap(), [2; 4]);

    device.reset().unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), filled(device, 7));
    assert_eq!(*stream.read(&buffer, 0..4).unwrap().wait().unwrap(), [7; 4]);
    assert_eq!(error_kind(streams[0].synchronize()), Some(BackendErrorKind::Lost));
}

#[test]
fn a_device_that_a_kernel_finds_lost_is_reset_and_its_memory_stays_lost() {
    if !process::is_child() {
        return CHILD.passes("a_device_that_a_kernel_finds_lost_is_reset_and_its_memory_stays_lost", &[]);
    }
    let (device, stream) = (openreg(0), openreg(0).create_stream().unwrap());
    let buffer = filled(device, 1);
    stream.launch(&[&buffer], |_| Err(BackendError::lost("it caught fire"))).unwrap();
    assert_eq!(error_kind(stream.synchronize()), Some(BackendErrorKind::Lost));
    assert_eq!(error_kind(device.allocate(1)), Some(BackendErrorKind::Lost));
    device.reset().unwrap();
    device.allocate(1).unwrap();
    let span = buffer.span().unwrap();
    let error = span.memory_as::<OpenRegMemory>().unwrap().bytes().unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Lost, "kernels of another device cannot use it either");
}

#[test]
fn a_stream_that_stalls_goes_on_when_the_faults_are_cleared() {
    if !process::is_child() {
        return CHILD.passes("a_stream_that_stalls_goes_on_when_the_faults_are_cleared", &[]);
    }
    let (device, stream) = (openreg(0), openreg(0).create_stream().unwrap());
    let buffer = filled(device, 1);
    device.faults().and_then(|faults| faults.inject(Fault::Stall { nth: 1 })).unwrap();
    stream.fill(&buffer, 0..64, &[9]).unwrap();
    let read = stream.read(&buffer, 0..64).unwrap();
    assert!(!read.wait_timeout(WHILE) && !stream.query().unwrap());
    // Nothing of the stream's work holds the bytes meanwhile, nor another stream.
    let other = device.create_stream().unwrap();
    assert_eq!(*other.read(&buffer, 0..1).unwrap().wait().unwrap(), [1]);
    device.faults().and_then(|faults| faults.clear()).unwrap();
    assert_eq!(*read.wait().unwrap(), [9; 64]);
}
