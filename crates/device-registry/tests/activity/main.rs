//! What observers get, and what becomes of observers that misbehave.
//!
//! All tests of this process share its observers, so each looks at the records of its own threads.

// A driver with queues. Its other users are in `fake_driver`.
#[allow(dead_code, unused_imports)]
#[path = "../fake_driver/fake/mod.rs"]
mod fake;
mod queued;

use std::collections::HashSet;
use std::ops::Deref;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use device_registry::activity::{
    self, Activity, Batch, Clock, Id, Observation, Observer, ObserverDescriptor, Outcome, Record, WaitFor,
    Work,
};
use device_registry::backend::{BackendError, LoadFailure};
use device_registry::{Device, DeviceError, LaunchOptions, device};

/// Long enough for a machine under load. No test takes it.
const LONG: Duration = Duration::from_secs(60);

/// Records by the names of the threads that made them, and how many were lost.
#[derive(Default)]
struct Kept {
    records: Mutex<Vec<(Option<Box<str>>, Record)>>,
    lost: AtomicU64,
}

/// An observer that keeps everything.
#[derive(Clone, Default)]
struct Keeps(Arc<Kept>);

impl Observer for Keeps {
    fn observe(&self, batch: &Batch) {
        self.0.lost.fetch_add(batch.lost, Ordering::SeqCst);
        let records = batch.records.iter().map(|record| (batch.thread.name.clone(), *record));
        self.0.records.lock().unwrap().extend(records);
    }
}

impl Keeps {
    fn begin() -> (Self, Observation) {
        let keeps = Self::default();
        let observation = activity::observe("keeps", keeps.clone()).unwrap();
        (keeps, observation)
    }

    /// The records of a thread so far.
    fn of_thread(&self, name: &str) -> Vec<Record> {
        assert!(activity::flush(LONG));
        let records = self.0.records.lock().unwrap();
        records
            .iter()
            .filter(|(thread, _)| thread.as_deref() == Some(name))
            .map(|(_, record)| *record)
            .collect()
    }
}

/// Runs on a thread with a name, and returns the records of that thread, of an observer that began before.
fn records_of(name: &str, run: impl FnOnce() + Send + 'static) -> Vec<Record> {
    let (keeps, _observation) = Keeps::begin();
    thread::Builder::new().name(name.to_owned()).spawn(run).unwrap().join().unwrap();
    keeps.of_thread(name)
}

/// The work that the records say was called or enqueued.
fn work(records: &[Record]) -> Vec<String> {
    let name = |record: &Record| match record.activity {
        Activity::Called { what, .. } | Activity::Enqueued { what, .. } => Some(what.to_string()),
        _ => None,
    };
    records.iter().filter_map(name).collect()
}

/// The number of the only work for which `is_it` holds.
fn only(records: &[Record], is_it: impl Fn(&Work) -> bool) -> (Id, Record) {
    let of = |record: &Record| match record.activity {
        Activity::Called { call: id, what, .. } | Activity::Enqueued { work: id, what, .. }
            if is_it(&what) =>
        {
            Some((id, *record))
        }
        _ => None,
    };
    let found: Vec<_> = records.iter().filter_map(of).collect();
    assert_eq!(found.len(), 1, "{records:#?}");
    found[0]
}

fn cpu() -> Device {
    Device::cpu()
}

#[test]
fn a_blocking_call_says_what_it_copies_and_where() {
    let records = records_of("blocking", || {
        let (a, b) = (cpu().allocate(64).unwrap(), cpu().allocate(100).unwrap());
        a.write(16, &[1; 32]).unwrap();
        b.slice(4..14).unwrap().copy_from(&a.slice(..10).unwrap()).unwrap();
        b.read(0, &mut [0; 3]).unwrap();
        b.fill(2..6, &[0]).unwrap();
        assert!(b.write(99, &[0; 2]).is_err());
    });
    assert_eq!(work(&records), ["write", "copy", "read", "fill"]);
    let allocated: Vec<_> = records
        .iter()
        .filter_map(|record| match record.activity {
            Activity::Allocated { allocation, bytes, .. } => Some((allocation, bytes)),
            _ => None,
        })
        .collect();
    let [(a, 64), (b, 100)] = allocated[..] else { panic!("{allocated:?}") };
    let (copy, called) = only(&records, |work| matches!(work, Work::Copy { .. }));
    let Activity::Called { what: Work::Copy { bytes, from, to, .. }, .. } = called.activity else { panic!() };
    assert_eq!((bytes, from.allocation, from.offset, to.allocation, to.offset), (10, Some(a), 0, Some(b), 4));
    assert_eq!((from.device, called.device), (cpu(), Some(cpu())));
    let returned = records.iter().find_map(|record| match record.activity {
        Activity::Returned { call, failed, .. } if call == copy => Some((failed, record.time)),
        _ => None,
    });
    let (failed, time) = returned.unwrap();
    assert!(!failed && time >= called.time);
    let freed = |id| {
        records
            .iter()
            .any(|record| matches!(record.activity, Activity::Freed { allocation, .. } if allocation == id))
    };
    assert!(freed(a) && freed(b));
}

#[test]
fn queued_work_is_enqueued_begun_and_ended_with_one_number() {
    let (keeps, _observation) = Keeps::begin();
    let records = thread::Builder::new().name("queued".to_owned());
    let enqueues = || {
        let (stream, buffer) = (cpu().create_stream().unwrap(), cpu().allocate(8 << 20).unwrap());
        stream.set_label("uploads");
        let _span = activity::span("epoch 3");
        stream.write(&buffer, 0, vec![1; 8 << 20]).unwrap();
        stream.launch_with(&LaunchOptions::new().named("twice"), &[&buffer], |_| Ok(())).unwrap();
        stream.launch(&[], |_| Err(BackendError::other("on purpose"))).unwrap();
        stream.host_call(|| ()).unwrap();
        assert!(stream.synchronize().is_err());
    };
    records.spawn(enqueues).unwrap().join().unwrap();
    let enqueuing = keeps.of_thread("queued");
    let of_stream = keeps.of_thread("cpu stream");
    assert_eq!(work(&enqueuing), ["write", "twice", "launch", "host call", "synchronize a stream"]);
    let stream = only(&enqueuing, |work| matches!(work, Work::HostCall)).1.stream.unwrap();
    assert!(enqueuing.iter().any(|record| {
        record.stream == Some(stream)
            && matches!(&record.activity, Activity::StreamLabeled { label, .. } if &**label == "uploads")
    }));
    let span = enqueuing.iter().find_map(|record| match &record.activity {
        Activity::Entered { span, name, .. } if &**name == "epoch 3" => Some(*span),
        _ => None,
    });
    let mut outcomes = Vec::new();
    for record in &enqueuing {
        let Activity::Enqueued { work, .. } = record.activity else { continue };
        assert_eq!((record.stream, record.span), (Some(stream), span));
        let mut begun = None;
        for later in of_stream.iter().filter(|later| later.stream == Some(stream)) {
            match later.activity {
                Activity::Begun { work: of, clock, .. } if of == work => {
                    assert!(clock == Clock::Host && later.time >= record.time);
                    begun = Some(later.time);
                }
                Activity::Ended { work: of, outcome, .. } if of == work => {
                    assert!(begun.is_none_or(|begun| later.time >= begun));
                    outcomes.push((outcome, begun.is_some()));
                }
                _ => {}
            }
        }
    }
    let (done, failed) = ((Outcome::Done, true), (Outcome::Failed, true));
    assert_eq!(outcomes, [done, done, failed, (Outcome::Skipped, false)]);
}

#[test]
fn work_that_is_done_at_once_has_the_same_records() {
    let records = records_of("at once", || {
        let (stream, buffer) = (cpu().create_stream().unwrap(), cpu().allocate(8).unwrap());
        stream.fill(&buffer, .., &[1]).unwrap();
        let named = LaunchOptions::new().short().named("short");
        stream.launch_with(&named, &[&buffer], |_| Ok(())).unwrap();
    });
    assert_eq!(work(&records), ["fill", "short"]);
    let (short, _) = only(&records, |work| matches!(work, Work::Launch { .. }));
    let steps: Vec<_> = records
        .iter()
        .filter_map(|record| match record.activity {
            Activity::Enqueued { work, .. } if work == short => Some("enqueued"),
            Activity::Begun { work, .. } if work == short => Some("begun"),
            Activity::Ended { work, outcome: Outcome::Done, .. } if work == short => Some("ended"),
            _ => None,
        })
        .collect();
    assert_eq!(steps, ["enqueued", "begun", "ended"]);
}

#[test]
fn waits_of_the_host_say_what_for_and_how_long() {
    let records = records_of("waits", || {
        let (stream, buffer) = (cpu().create_stream().unwrap(), cpu().allocate(4).unwrap());
        stream.host_call(|| thread::sleep(Duration::from_millis(30))).unwrap();
        let event = stream.record().unwrap();
        let read = stream.read(&buffer, ..).unwrap();
        event.synchronize().unwrap();
        read.wait().unwrap();
        cpu().synchronize().unwrap();
    });
    let waits = ["synchronize an event", "wait for a read", "synchronize a device"];
    assert_eq!(work(&records)[3..], waits);
    let (event, _) = only(&records, |work| matches!(work, Work::Record));
    let (call, _) = only(&records, |work| *work == Work::Wait(WaitFor::Event(Some(event))));
    let time = |is_it: &dyn Fn(&Activity) -> bool| {
        records.iter().find(|record| is_it(&record.activity)).unwrap().time
    };
    let begin = time(&|activity| matches!(activity, Activity::Called { call: of, .. } if *of == call));
    let end = time(&|activity| matches!(activity, Activity::Returned { call: of, .. } if *of == call));
    assert!(end - begin > Duration::from_millis(5), "{:?}", end - begin);
}

#[test]
fn spans_nest_and_end_on_unwinding() {
    let records = records_of("spans", || {
        let _outer = activity::span("outer");
        let inner = std::panic::catch_unwind(|| {
            let _inner = activity::span(&"inner".repeat(30));
            let _ = cpu().allocate(1).unwrap();
            panic!("on purpose");
        });
        assert!(inner.is_err());
        let _ = cpu().allocate(2).unwrap();
    });
    let entered: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.activity {
            Activity::Entered { span, name, .. } => Some((*span, name.deref().to_owned(), record.span)),
            _ => None,
        })
        .collect();
    let [(outer, outer_name, None), (inner, inner_name, Some(around))] = &entered[..] else {
        panic!("{entered:?}")
    };
    assert!(outer_name == "outer" && inner_name.starts_with("innerinner") && inner_name.ends_with('…'));
    assert_eq!(outer, around);
    let span_of = |len| {
        let is_it =
            |record: &&Record| matches!(record.activity, Activity::Allocated { bytes, .. } if bytes == len);
        records.iter().find(is_it).unwrap().span
    };
    assert_eq!((span_of(1), span_of(2)), (Some(*inner), Some(*outer)));
    let left: Vec<_> = records
        .iter()
        .filter_map(|record| match record.activity {
            Activity::Left { span, .. } => Some(span),
            _ => None,
        })
        .collect();
    assert_eq!(left, [*inner, *outer]);
}

#[test]
fn memory_in_use_is_that_of_the_statistics() {
    // No other test allocates so much: what is in use is this test's, give or take.
    const LARGE: u64 = 1 << 30;

    let records = records_of("memory", || {
        let buffer = cpu().allocate(LARGE as usize).unwrap();
        let before = cpu().memory_statistics().unwrap();
        assert!(before.allocated >= LARGE);
        drop(buffer);
    });
    let of = |record: &Record| match record.activity {
        Activity::Allocated { memory, .. } => Some(memory.allocated),
        Activity::Freed { memory, .. } => Some(memory.allocated),
        _ => None,
    };
    let in_use: Vec<_> = records.iter().filter_map(of).collect();
    let [allocated, freed] = in_use[..] else { panic!("{in_use:?}") };
    assert!(allocated >= LARGE && freed < LARGE, "{allocated} {freed}");
    assert!(cpu().memory_statistics().unwrap().peak >= allocated);
}

#[test]
fn an_allocation_that_fails_has_a_record() {
    let records = records_of("full", || {
        // More than any machine has.
        assert!(cpu().allocate(1 << 60).is_err());
    });
    let failed = |record: &Record| matches!(record.activity, Activity::AllocationFailed { bytes, .. } if bytes == 1 << 60);
    assert!(records.iter().any(failed), "{records:?}");
}

#[test]
fn sixty_four_threads_lose_nothing_and_stay_in_order() {
    const THREADS: usize = 64;
    const CALLS: usize = 500;

    let (keeps, observation) = Keeps::begin();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let builder = thread::Builder::new().name(format!("one of many {number}"));
            let allocates = || {
                (1..=CALLS).for_each(|len| drop(cpu().allocate(len).unwrap()));
            };
            builder.spawn_scoped(scope, allocates).unwrap();
        }
    });
    assert!(activity::flush(LONG));
    drop(observation);
    assert_eq!(keeps.0.lost.load(Ordering::SeqCst), 0);
    let records = keeps.0.records.lock().unwrap();
    let mut ids = HashSet::new();
    for number in 0..THREADS {
        let name = format!("one of many {number}");
        let own = records.iter().filter(|(thread, _)| thread.as_deref() == Some(&name));
        let lens = own.filter_map(|(_, record)| match record.activity {
            Activity::Allocated { allocation, bytes, .. } => {
                assert!(ids.insert(allocation), "{allocation} twice");
                Some(bytes)
            }
            _ => None,
        });
        assert!(lens.eq(1..=CALLS), "{name}");
    }
}

#[test]
fn an_observer_that_panics_ends_and_harms_no_other() {
    struct Panics;

    impl Observer for Panics {
        fn observe(&self, _batch: &Batch) {
            panic!("on purpose");
        }
    }

    let panics = activity::observe("panics", Panics).unwrap();
    let (keeps, _observation) = Keeps::begin();
    assert!(panics.is_active());
    let named = |name: &str| {
        let allocates = || drop(cpu().allocate(1).unwrap());
        thread::Builder::new().name(name.to_owned()).spawn(allocates).unwrap().join().unwrap();
        keeps.of_thread(name).len()
    };
    assert!(named("before the panic") >= 2);
    let begin = Instant::now();
    while panics.is_active() {
        assert!(begin.elapsed() < LONG, "it has panicked, and is still there");
        thread::yield_now();
    }
    assert!(named("after the panic") >= 2);
}

/// Runs this test in its own process, which a panic during another one would end.
#[test]
fn an_observer_that_panics_again_in_its_drop_does_not_end_the_process() {
    const VARIABLE: &str = "HAS_AN_OBSERVER_THAT_PANICS_TWICE";

    struct Panics {
        in_times: bool,
    }

    impl Observer for Panics {
        fn observe(&self, _batch: &Batch) {
            panic!("once");
        }

        fn wants_device_times(&self) -> bool {
            assert!(!self.in_times, "on purpose");
            false
        }
    }

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("twice");
        }
    }

    if std::env::var_os(VARIABLE).is_some() {
        let observation = activity::observe("panics", Panics { in_times: false }).unwrap();
        drop(cpu().allocate(1).unwrap());
        assert!(activity::flush(LONG), "an observer that has ended is not waited for");
        drop(observation);
        let error = activity::observe("panics", Panics { in_times: true }).unwrap_err();
        assert_eq!(error.to_string(), "it panicked: on purpose");
        return;
    }
    let test = "an_observer_that_panics_again_in_its_drop_does_not_end_the_process";
    let mut process = Command::new(std::env::current_exe().unwrap());
    let output = process.args(["--exact", test]).env(VARIABLE, "1").output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

#[test]
fn an_observer_that_uses_a_device_gets_an_error() {
    struct Uses(mpsc::Sender<Result<(), DeviceError>>);

    impl Observer for Uses {
        fn observe(&self, _batch: &Batch) {
            let _ = self.0.send(cpu().allocate(1).map(drop));
        }
    }

    let (result, used) = mpsc::channel();
    let _observation = activity::observe("uses", Uses(result)).unwrap();
    drop(cpu().allocate(1).unwrap());
    let error = used.recv_timeout(LONG).unwrap().unwrap_err();
    assert!(matches!(error, DeviceError::InHostCall { .. }), "{error}");
}

#[test]
fn an_observer_that_flushes_does_not_wait_for_itself() {
    struct Flushes(mpsc::Sender<bool>);

    impl Observer for Flushes {
        fn observe(&self, _batch: &Batch) {
            let _ = self.0.send(activity::flush(LONG));
        }
    }

    let (result, flushed) = mpsc::channel();
    let _observation = activity::observe("flushes", Flushes(result)).unwrap();
    drop(cpu().allocate(1).unwrap());
    assert!(!flushed.recv_timeout(LONG / 2).unwrap());
}

#[test]
fn the_end_of_an_observation_hands_over_what_was_recorded_before_and_nothing_after() {
    struct Counts(Arc<AtomicU64>, Arc<AtomicBool>);

    impl Observer for Counts {
        fn observe(&self, batch: &Batch) {
            let own = batch.thread.name.as_deref() == Some("counted");
            self.0.fetch_add(if own { batch.records.len() as u64 } else { 0 }, Ordering::SeqCst);
        }

        fn flush(&self) {
            self.1.store(true, Ordering::SeqCst);
        }
    }

    let (count, flushed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let observes = Counts(count.clone(), flushed.clone());
    let run = move || {
        let observation = activity::observe("counts", observes).unwrap();
        drop(cpu().allocate(1).unwrap());
        drop(observation);
        drop(cpu().allocate(1).unwrap());
    };
    thread::Builder::new().name("counted".to_owned()).spawn(run).unwrap().join().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2);
    assert!(flushed.load(Ordering::SeqCst));
}

/// Runs this test in its own process, which exits with an observation under way.
#[test]
fn the_end_of_the_process_hands_over_the_last_records() {
    const VARIABLE: &str = "ENDS_WITH_AN_OBSERVATION";

    struct Prints;

    impl Observer for Prints {
        fn observe(&self, batch: &Batch) {
            for record in &batch.records {
                if let Activity::Entered { name, .. } = &record.activity {
                    println!("seen: {name}");
                }
            }
        }

        fn flush(&self) {
            println!("flushed");
        }
    }

    if std::env::var_os(VARIABLE).is_some() {
        std::mem::forget(activity::observe("prints", Prints).unwrap());
        let _span = activity::span("the last one");
        std::process::exit(0);
    }
    let test = "the_end_of_the_process_hands_over_the_last_records";
    let mut process = Command::new(std::env::current_exe().unwrap());
    let output = process.args(["--exact", test, "--nocapture"]).env(VARIABLE, "1").output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.ends_with("seen: the last one\nflushed\n"), "{printed}");
}

// The observers of this program itself. They begin at its first use of a device.

device_registry::backend::entry_points! {
    #[distributed_slice(activity::OBSERVERS)]
    static LINKED: ObserverDescriptor = ObserverDescriptor::new("linked", load_linked);

    #[distributed_slice(activity::OBSERVERS)]
    static OFF: ObserverDescriptor = ObserverDescriptor::new("off", load_off);
}

fn load_off() -> Result<Box<dyn Observer>, LoadFailure> {
    Err(LoadFailure::unavailable("SOME_VARIABLE is not set"))
}

static SEEN_BY_LINKED: AtomicU64 = AtomicU64::new(0);

/// With this variable the linked observer takes its time to load: as many milliseconds, or until it is
/// released.
const SLOW: &str = "HAS_A_SLOW_OBSERVER";

static IS_LOADING: AtomicBool = AtomicBool::new(false);
static IS_RELEASED: AtomicBool = AtomicBool::new(false);

fn load_slowly(milliseconds: &str) {
    IS_LOADING.store(true, Ordering::SeqCst);
    match milliseconds.parse() {
        Ok(milliseconds) => thread::sleep(Duration::from_millis(milliseconds)),
        Err(_) => wait_for(&IS_RELEASED),
    }
}

fn wait_for(what: &AtomicBool) {
    while !what.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn load_linked() -> Result<Box<dyn Observer>, LoadFailure> {
    struct Linked;

    impl Observer for Linked {
        fn observe(&self, batch: &Batch) {
            SEEN_BY_LINKED.fetch_add(batch.records.len() as u64, Ordering::SeqCst);
        }
    }

    if let Ok(milliseconds) = std::env::var(SLOW) {
        load_slowly(&milliseconds);
    }
    // A backend that is loading could wait for itself.
    let refused = device("cpu").and_then(|cpu| cpu.allocate(1));
    assert!(matches!(refused, Err(DeviceError::InHostCall { .. })), "{refused:?}");
    Ok(Box::new(Linked))
}

/// Runs the test of this name in a process with a slow observer. Returns `false` in that process.
fn with_a_slow_observer(test: &str, milliseconds: &str) -> bool {
    if std::env::var_os(SLOW).is_some() {
        return false;
    }
    let mut process = Command::new(std::env::current_exe().unwrap());
    let output = process.args(["--exact", test, "--nocapture"]).env(SLOW, milliseconds).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// The first uses of devices on other threads.
#[test]
fn nothing_is_lost_while_a_linked_observer_begins() {
    const COUNT: u64 = 100;

    if with_a_slow_observer("nothing_is_lost_while_a_linked_observer_begins", "200") {
        return;
    }
    let first = thread::spawn(|| drop(cpu().allocate(1).unwrap()));
    wait_for(&IS_LOADING);
    (0..COUNT).for_each(|_| drop(cpu().allocate(1).unwrap()));
    first.join().unwrap();
    assert!(activity::flush(LONG));
    let seen = SEEN_BY_LINKED.load(Ordering::SeqCst);
    assert!(seen > 2 * COUNT, "{seen} records of {COUNT} allocations");
}

#[test]
fn a_linked_observer_that_waits_for_another_thread_delays_it_only() {
    if with_a_slow_observer("a_linked_observer_that_waits_for_another_thread_delays_it_only", "forever") {
        return;
    }
    let first = thread::spawn(|| drop(cpu().allocate(1).unwrap()));
    wait_for(&IS_LOADING);
    drop(cpu().allocate(1).unwrap());
    IS_RELEASED.store(true, Ordering::SeqCst);
    first.join().unwrap();
}

#[test]
fn an_observer_that_is_linked_begins_by_itself() {
    drop(cpu().allocate(1).unwrap());
    assert!(activity::flush(LONG));
    assert!(SEEN_BY_LINKED.load(Ordering::SeqCst) >= 2);
    let report = activity::observers().report().to_string();
    assert!(report.contains("SOME_VARIABLE is not set"), "{report}");
}
