//! Events: points in streams that are waited for, and timed.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use device_registry::{BackendErrorKind, Buffer, Device, DeviceError, EventOptions, Stream, device};

device_registry::autoload!();

fn openreg(index: u16) -> Device {
    device(&format!("openreg:{index}")).unwrap()
}

fn stream(index: u16) -> Stream {
    openreg(index).create_stream().unwrap()
}

fn filled(device: Device, byte: u8) -> Buffer {
    let buffer = device.allocate(64).unwrap();
    buffer.fill(0..64, &[byte]).unwrap();
    buffer
}

/// Holds a stream up until what is returned is dropped.
fn hold(stream: &Stream) -> mpsc::Sender<()> {
    let (held, hold) = mpsc::channel::<()>();
    stream.host_call(move || hold.recv().unwrap_or_default()).unwrap();
    held
}

fn timed(stream: &Stream) -> device_registry::Event {
    stream.record_with(&EventOptions::new().timed()).unwrap()
}

const WHILE: Duration = Duration::from_millis(40);

#[test]
fn an_event_is_done_when_the_work_before_it_is() {
    let stream = stream(1);
    let held = hold(&stream);
    let event = stream.record().unwrap();
    assert_eq!(event.device(), openreg(1));
    assert!(!event.query().unwrap());
    let (start, waits) = (Instant::now(), event.clone());
    thread::spawn(move || {
        // The time that the wait has to last.
        thread::sleep(WHILE);
        drop(held);
    });
    waits.synchronize().unwrap();
    assert!(start.elapsed() >= WHILE);
    assert!(event.query().unwrap());
    event.synchronize().unwrap();
}

#[test]
fn an_event_does_not_wait_for_work_behind_it() {
    let stream = stream(0);
    let before = stream.record().unwrap();
    let _held = hold(&stream);
    let behind = stream.record().unwrap();
    before.synchronize().unwrap();
    assert!(!behind.query().unwrap());
}

#[test]
fn each_record_is_an_event_of_its_own_that_the_next_does_not_change() {
    let stream = stream(0);
    let first_held = hold(&stream);
    let first = stream.record().unwrap();
    let second_held = hold(&stream);
    let second = stream.record().unwrap();
    assert_eq!((first.query().unwrap(), second.query().unwrap()), (false, false));
    drop(first_held);
    first.synchronize().unwrap();
    // The earlier record has been reached, and only it is done.
    assert_eq!((first.query().unwrap(), second.query().unwrap()), (true, false));
    drop(second_held);
    second.synchronize().unwrap();
}

#[test]
fn a_stream_waits_for_what_was_recorded_and_not_for_what_is_recorded_later() {
    let (produces, waits) = (stream(0), stream(0));
    let buffer = filled(openreg(0), 1);
    let held = hold(&produces);
    produces.fill(&buffer, 0..64, &[2]).unwrap();
    let filled = produces.record().unwrap();
    let _later_held = hold(&produces);
    let _later = produces.record().unwrap();
    waits.wait_event(&filled).unwrap();
    let read = waits.read(&buffer, 0..64).unwrap();
    assert!(!read.wait_timeout(WHILE));
    drop(held);
    assert_eq!(*read.wait().unwrap(), [2; 64]);
}

#[test]
fn several_streams_wait_for_one_event_of_another_device() {
    let produces = stream(0);
    let source = filled(openreg(0), 0);
    let held = hold(&produces);
    produces.fill(&source, 0..64, &[6]).unwrap();
    let event = produces.record().unwrap();
    let reads: Vec<_> = [0, 1, 1]
        .into_iter()
        .map(|index| {
            let (stream, copy) = (stream(index), filled(openreg(index), 0));
            stream.wait_event(&event).unwrap();
            stream.copy(&source, &copy).unwrap();
            stream.read(&copy, 0..64).unwrap()
        })
        .collect();
    assert!(reads.iter().all(|read| !read.wait_timeout(WHILE)));
    drop((held, source, produces, event));
    reads.into_iter().for_each(|read| assert_eq!(*read.wait().unwrap(), [6; 64]));
}

#[test]
fn two_streams_that_take_turns_see_each_others_work() {
    let (first, second) = (stream(1), stream(1));
    let (a, b) = (filled(openreg(1), 0), filled(openreg(1), 0));
    for round in 1..=100_u8 {
        first.fill(&a, 0..64, &[round]).unwrap();
        second.wait_event(&first.record().unwrap()).unwrap();
        second.copy(&a, &b).unwrap();
        first.wait_event(&second.record().unwrap()).unwrap();
    }
    assert_eq!(*first.read(&b, 0..64).unwrap().wait().unwrap(), [100; 64]);
}

#[test]
fn the_time_between_two_events_is_that_of_the_work_between_them() {
    let stream = stream(0);
    let start = timed(&stream);
    stream.host_call(|| thread::sleep(WHILE)).unwrap();
    let end = timed(&stream);
    // It waits for both.
    let elapsed = end.elapsed_since(&start).unwrap();
    assert!((WHILE..Duration::from_secs(60)).contains(&elapsed), "{elapsed:?}");
    assert_eq!(start.elapsed_since(&start).unwrap(), Duration::ZERO);
    let error = start.elapsed_since(&end).unwrap_err().to_string();
    assert!(error.contains("after the second"), "{error}");
}

#[test]
fn elapsed_time_needs_timed_events_of_one_device() {
    let (here, there) = (stream(0), stream(1));
    let (start, end, untimed, elsewhere) =
        (timed(&here), timed(&here), here.record().unwrap(), timed(&there));
    assert!(start.is_timed() && !untimed.is_timed());
    for (from, to, part) in [
        (&untimed, &end, "the first event has no timestamp"),
        (&start, &untimed, "the second event has no timestamp"),
        (&start, &elsewhere, "found events of `openreg:0` and `openreg:1`"),
    ] {
        let error = to.elapsed_since(from).unwrap_err();
        let DeviceError::Call { error: reported, .. } = &error else { panic!("{error}") };
        assert_eq!(reported.kind(), BackendErrorKind::Invalid);
        assert!(error.to_string().contains(part), "{error}");
    }
    end.elapsed_since(&start).unwrap();
}

#[test]
fn an_event_outlives_its_stream_and_a_wait_outlives_the_event() {
    let (produces, waits) = (stream(0), stream(1));
    let held = hold(&produces);
    let event = produces.record().unwrap();
    drop(produces);
    waits.wait_event(&event).unwrap();
    let after = waits.record().unwrap();
    drop(event);
    assert!(!after.query().unwrap());
    drop(held);
    after.synchronize().unwrap();
}

#[test]
fn a_thread_records_while_another_enqueues_work() {
    let stream = stream(1);
    thread::scope(|scope| {
        scope.spawn(|| (0..500).for_each(|_| stream.host_call(|| ()).unwrap()));
        scope.spawn(|| {
            for _ in 0..100 {
                stream.record().unwrap().synchronize().unwrap();
            }
        });
    });
    stream.synchronize().unwrap();
}
