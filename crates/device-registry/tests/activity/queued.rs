//! Work in queues of a driver, whose begin and end the core does not see. Where one test wants device times,
//! all devices with timed events have them, so the others use a device without.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use device_registry::activity::{self, Activity, Batch, Clock, Observer, Outcome, Record};
use device_registry::backend::BackendError;
use device_registry::{Device, Stream};

use crate::LONG;
use crate::fake::{Moment, in_words, queued};

/// Keeps the records of one device, and wants its clock if the test does.
#[derive(Clone)]
struct OfDevice {
    device: Device,
    wants_device_times: bool,
    records: Arc<Mutex<Vec<Record>>>,
}

impl Observer for OfDevice {
    fn observe(&self, batch: &Batch) {
        let own = batch.records.iter().filter(|record| record.device == Some(self.device));
        self.records.lock().unwrap().extend(own);
    }

    fn wants_device_times(&self) -> bool {
        self.wants_device_times
    }
}

/// What became of each piece of work, in the order of enqueuing: the clock and the time of its beginning and
/// of its end.
type Steps = Vec<(Option<(Clock, Instant)>, Option<(Clock, Instant, Outcome)>)>;

/// Runs with an observer of the device. Returns the steps of its work, and all records.
fn observed(device: Device, wants_device_times: bool, run: impl FnOnce(&Stream)) -> (Steps, Vec<Record>) {
    let stream = device.create_stream().unwrap();
    let observer = OfDevice { device, wants_device_times, records: Arc::default() };
    let observation = activity::observe("of a device", observer.clone()).unwrap();
    run(&stream);
    assert!(activity::flush(LONG));
    drop(observation);
    let records = std::mem::take(&mut *observer.records.lock().unwrap());
    let steps = records.iter().filter_map(|record| match record.activity {
        Activity::Enqueued { work, .. } => Some(work),
        _ => None,
    });
    let steps = steps.map(|number| {
        let begun = records.iter().find_map(|record| match record.activity {
            Activity::Begun { work, clock, .. } if work == number => Some((clock, record.time)),
            _ => None,
        });
        let ended = records.iter().find_map(|record| match record.activity {
            Activity::Ended { work, clock, outcome, .. } if work == number => {
                Some((clock, record.time, outcome))
            }
            _ => None,
        });
        (begun, ended)
    });
    (steps.collect(), records)
}

#[test]
fn the_end_of_queued_work_is_when_the_core_notices_it() {
    let [_, (device, control)] = in_words();
    let (steps, _) = observed(device, false, |stream| {
        let buffer = device.allocate(8).unwrap();
        control.close();
        stream.write(&buffer, 0, vec![1; 8]).unwrap();
        stream.fill(&buffer, .., &[1]).unwrap();
        control.open();
        stream.synchronize().unwrap();
    });
    let [
        (None, Some((Clock::Noticed, first, Outcome::Done))),
        (None, Some((Clock::Noticed, second, Outcome::Done))),
    ] = steps[..]
    else {
        panic!("{steps:?}")
    };
    assert!(first <= second);
}

#[test]
fn an_observer_gets_the_times_of_the_device_on_the_clock_of_the_host() {
    let (device, control) = queued();
    let mut between = None;
    let (steps, _) = observed(device, true, |stream| {
        let buffer = device.allocate(8).unwrap();
        // The clocks are compared here.
        stream.fill(&buffer, .., &[1]).unwrap();
        stream.synchronize().unwrap();
        control.close();
        let begin = Instant::now();
        stream.write(&buffer, 0, vec![1; 8]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        control.open();
        stream.synchronize().unwrap();
        between = Some((begin, Instant::now()));
    });
    let [_, (Some((Clock::Device { error, .. }, begun)), Some((Clock::Device { .. }, ended, Outcome::Done)))] =
        steps[..]
    else {
        panic!("{steps:?}")
    };
    let (first, last) = between.unwrap();
    assert!(begun <= ended && begun + error >= first && ended <= last + error, "{steps:?} {between:?}");
    // The write waited at the gate.
    assert!(ended - first + error >= Duration::from_millis(20));
}

#[test]
fn work_lies_between_its_enqueuing_and_its_noticing_though_the_clocks_part() {
    for percent in [50, 200] {
        let (device, control) = queued();
        let mut span = None;
        let (steps, records) = observed(device, true, |stream| {
            let buffer = device.allocate(8).unwrap();
            // The clocks are compared here.
            stream.fill(&buffer, .., &[1]).unwrap();
            stream.synchronize().unwrap();
            control.clock_percent.store(percent, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            let begin = Instant::now();
            for _ in 0..3 {
                stream.write(&buffer, 0, vec![1; 8]).unwrap();
                stream.synchronize().unwrap();
            }
            span = Some((begin, Instant::now()));
        });
        let (first, last) = span.unwrap();
        for (number, (begun, ended)) in steps.iter().enumerate().skip(1) {
            let (Some((Clock::Device { error, .. }, begun)), Some((_, ended, Outcome::Done))) =
                (begun, ended)
            else {
                panic!("{steps:?}")
            };
            assert!(first <= *begun && begun <= ended && *ended <= last, "{percent} {number}: {steps:?}");
            // The later ones too: what one piece of work shows holds for those behind it.
            assert!(*error >= Duration::from_millis(5), "{percent} {number}: {error:?}");
        }
        let enqueued = records.iter().filter(|record| matches!(record.activity, Activity::Enqueued { .. }));
        for ((begun, _), enqueued) in steps.iter().zip(enqueued).skip(1) {
            assert!(begun.unwrap().1 >= enqueued.time, "{percent}: {records:?}");
        }
    }
}

#[test]
fn work_that_is_refused_fails_and_work_behind_a_failure_is_skipped() {
    let [_, (device, control)] = in_words();
    let (steps, _) = observed(device, false, |stream| {
        let buffer = device.allocate(8).unwrap();
        control.fail_at(Moment::Submit, BackendError::other("full"));
        assert!(stream.write(&buffer, 0, vec![1; 8]).is_err());
        stream.host_call(|| panic!("on purpose")).unwrap();
        while stream.record().unwrap().synchronize().is_ok() {}
        stream.fill(&buffer, .., &[1]).unwrap();
        assert!(stream.synchronize().is_err());
    });
    let outcomes: Vec<_> = steps.iter().map(|(_, end)| end.map(|(_, _, outcome)| outcome)).collect();
    assert_eq!(outcomes[..2], [Some(Outcome::Failed), Some(Outcome::Failed)]);
    assert_eq!(outcomes.last(), Some(&Some(Outcome::Skipped)), "{outcomes:?}");
}

#[test]
fn a_loss_is_recorded_once() {
    let [_, (device, control)] = in_words();
    let (steps, records) = observed(device, false, |stream| {
        let buffer = device.allocate(8).unwrap();
        stream.write(&buffer, 0, vec![1; 8]).unwrap();
        stream.record().unwrap().synchronize().unwrap();
        control.fail(BackendError::lost("gone"));
        buffer.write(0, &[1; 8]).unwrap_err();
        assert!(stream.synchronize().is_err());
        assert!(device.allocate(1).is_err());
    });
    let lost = records.iter().filter(|record| matches!(record.activity, Activity::Lost)).count();
    assert_eq!((lost, steps.len()), (1, 2), "{records:?}");
    device.reset().unwrap();
    let (_, records) = observed(device, false, |_| device.close().unwrap());
    let closed = |record: &Record| matches!(record.activity, Activity::Closed);
    assert!(records.iter().any(closed), "{records:?}");
    assert!(activity::flush(LONG));
}
