//! An observer that blocks, and more records than it can keep. A test binary of its own: other observers of
//! the process would lose records too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use device_registry::Device;
use device_registry::activity::{self, Batch, Observer};

/// Long enough for a machine under load. No test takes it.
const LONG: Duration = Duration::from_secs(60);

/// How many records an observer got, and how many it knows to be lost.
#[derive(Clone, Default)]
struct Counts(Arc<(AtomicU64, AtomicU64)>);

impl Counts {
    fn add(&self, batch: &Batch) {
        self.0.0.fetch_add(batch.records.len() as u64, Ordering::SeqCst);
        self.0.1.fetch_add(batch.lost, Ordering::SeqCst);
    }

    fn seen(&self) -> u64 {
        self.0.0.load(Ordering::SeqCst)
    }

    fn lost(&self) -> u64 {
        self.0.1.load(Ordering::SeqCst)
    }
}

impl Observer for Counts {
    fn observe(&self, batch: &Batch) {
        self.add(batch);
    }
}

/// An observer that waits at its first batch until it is released.
struct Blocks {
    gate: Arc<(Mutex<bool>, Condvar)>,
    blocked: mpsc::SyncSender<()>,
    counts: Counts,
}

impl Observer for Blocks {
    fn observe(&self, batch: &Batch) {
        let _ = self.blocked.try_send(());
        let (open, changed) = &*self.gate;
        drop(changed.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        self.counts.add(batch);
    }
}

#[test]
fn an_observer_that_blocks_delays_neither_work_nor_others_and_learns_what_it_lost() {
    /// Each is two records. An observer keeps 262,144.
    const ALLOCATIONS: u64 = 300_000;

    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let (blocked, is_blocked) = mpsc::sync_channel(1);
    let (slow, quick) = (Counts::default(), Counts::default());
    let blocks = Blocks { gate: gate.clone(), blocked, counts: slow.clone() };
    let observation = activity::observe("blocks", blocks).unwrap();
    let other = activity::observe("counts", quick.clone()).unwrap();
    drop(Device::cpu().allocate(1).unwrap());
    is_blocked.recv_timeout(LONG).unwrap();
    (0..ALLOCATIONS).for_each(|_| drop(Device::cpu().allocate(1).unwrap()));
    assert!(!activity::flush(Duration::from_millis(20)), "it blocks");
    let begin = Instant::now();
    while quick.seen() + quick.lost() < 2 * ALLOCATIONS {
        assert!(begin.elapsed() < LONG, "the other knows of {} and {}", quick.seen(), quick.lost());
        std::thread::yield_now();
    }
    drop(other);
    assert_eq!(slow.seen(), 0);
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    assert!(activity::flush(LONG));
    drop(observation);
    let (seen, lost) = (slow.seen(), slow.lost());
    assert!(lost > 0 && lost + seen >= 2 * ALLOCATIONS, "{lost} lost, {seen} seen");
}
