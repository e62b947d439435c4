//! The records that a thread has made and that no observer has got yet.
//!
//! Each thread has its own two lists. It adds to one of them, and the collector empties one after the other.
//! So a thread always finds a list that it can lock, and never waits, neither for the collector nor for
//! another thread.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use crate::runtime::activity::record::{Batch, Id, Record, Thread};
use crate::runtime::fork::Process;

/// The most records that one list keeps.
const CAPACITY: usize = 8192;

/// The collector is woken when a list has this many.
const WAKE_AT: usize = CAPACITY / 2;

// These are not the locks of `crate::sync`, as no model has an observer. A panic under one leaves a valid
// list.

/// The two lists of a thread.
pub(super) struct Ring {
    thread: Arc<Thread>,
    process: Process,
    lists: [Mutex<List>; 2],
    /// How many records found both lists locked.
    missed: AtomicU64,
    has_ended: AtomicBool,
}

#[derive(Default)]
struct List {
    records: Vec<Record>,
    /// How many were lost since the list was emptied.
    lost: u64,
}

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    Kept,
    /// It was added, and the collector is to be woken.
    WakesCollector,
    Lost,
}

impl Ring {
    /// The lists of this thread.
    fn of_this_thread() -> Self {
        /// The next free number; a thread's number is not used again.
        static NEXT: AtomicU64 = AtomicU64::new(1);

        let name = thread::current().name().map(Box::from);
        let thread = Thread { number: NEXT.fetch_add(1, Ordering::Relaxed), name };
        Self {
            thread: Arc::new(thread),
            process: Process::current(),
            lists: Default::default(),
            missed: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Adds a record to one of the lists, this one first. The thread that owns the ring calls it.
    fn add(&self, first: &mut usize, record: Record) -> Added {
        // The collector has one of the lists at a time. It may move to the other between two attempts.
        for _ in 0..4 {
            match self.lists[*first].try_lock() {
                Ok(mut list) => return list.add(record),
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner().add(record),
                Err(TryLockError::WouldBlock) => *first = 1 - *first,
            }
        }
        self.missed.fetch_add(1, Ordering::Relaxed);
        Added::Lost
    }

    /// Takes what the thread has added, in its order. One thread at a time may call it.
    ///
    /// The thread changes to the other list only while this one is locked here, and empty. So the second list
    /// that is taken has the newer records.
    pub(super) fn take(&self) -> Batch {
        let lost = self.missed.swap(0, Ordering::Relaxed);
        let mut batch = Batch { thread: Arc::clone(&self.thread), records: Vec::new(), lost };
        for list in &self.lists {
            let mut list = lock(list);
            batch.lost += std::mem::take(&mut list.lost);
            let room = Vec::with_capacity(list.records.len());
            let records = std::mem::replace(&mut list.records, room);
            drop(list);
            if batch.records.is_empty() {
                batch.records = records;
            } else {
                batch.records.extend(records);
            }
        }
        batch
    }

    /// Whether its thread has ended, so that it gets no more records.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}

impl List {
    fn add(&mut self, record: Record) -> Added {
        if self.records.len() == CAPACITY {
            self.lost += 1;
            return Added::Lost;
        }
        self.records.push(record);
        if self.records.len() == WAKE_AT { Added::WakesCollector } else { Added::Kept }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread's own state.
struct Own {
    ring: Arc<Ring>,
    /// The list that it adds to.
    list: usize,
    /// How many numbers it has given out.
    numbers: u64,
    /// The innermost span that it is in.
    span: Option<Id>,
}

impl Drop for Own {
    fn drop(&mut self) {
        self.ring.has_ended.store(true, Ordering::Release);
    }
}

thread_local! {
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// Runs code with this thread's own state; `None` while the thread ends. `register` gets the lists of
/// a thread that makes its first record.
fn with_own<T>(register: impl FnOnce(&Arc<Ring>), run: impl FnOnce(&mut Own) -> T) -> Option<T> {
    let with = |own: &RefCell<Option<Own>>| {
        let mut own = own.try_borrow_mut().ok()?;
        let own = match &mut *own {
            Some(own) if own.ring.process.is_current() => own,
            // Also in a child of `fork`: the collector of its parent does not exist there.
            missing => {
                let ring = Arc::new(Ring::of_this_thread());
                register(&ring);
                missing.insert(Own { ring, list: 0, numbers: 0, span: None })
            }
        };
        Some(run(own))
    };
    OWN.try_with(with).ok().flatten()
}

/// Adds a record of this thread, made by `make` from the innermost span that the thread is in. A thread that
/// is ending loses it.
pub(super) fn add(register: impl FnOnce(&Arc<Ring>), make: impl FnOnce(Option<Id>) -> Record) -> Added {
    let add = |own: &mut Own| {
        let record = make(own.span);
        own.ring.add(&mut own.list, record)
    };
    with_own(register, add).unwrap_or(Added::Lost)
}

/// A number that is unique in the process, made of the thread's number and its own count. A thread that is
/// ending gets none.
pub(super) fn next_id(register: impl FnOnce(&Arc<Ring>)) -> Option<Id> {
    let next = |own: &mut Own| {
        own.numbers += 1;
        Id::new((own.ring.thread.number << 40) | own.numbers)
    };
    with_own(register, next).flatten()
}

/// Makes a span the innermost one of this thread. Returns the one before it.
pub(super) fn enter(register: impl FnOnce(&Arc<Ring>), span: Option<Id>) -> Option<Id> {
    with_own(register, |own| std::mem::replace(&mut own.span, span)).flatten()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::runtime::activity::record::Activity;

    fn record(number: u64) -> Record {
        let activity = Activity::Left { span: Id::new(number).unwrap() };
        Record { time: Instant::now(), device: None, stream: None, span: None, activity }
    }

    fn numbers(batch: &Batch) -> Vec<u64> {
        let number = |record: &Record| match record.activity {
            Activity::Left { span } => span.get(),
            _ => unreachable!("no other is added"),
        };
        batch.records.iter().map(number).collect()
    }

    #[test]
    fn records_stay_in_order_while_another_thread_takes_them() {
        const COUNT: u64 = 200_000;

        let ring = Ring::of_this_thread();
        let taken = thread::scope(|scope| {
            let adding = scope.spawn(|| {
                let mut list = 0;
                (1..=COUNT).filter(|&number| ring.add(&mut list, record(number)) == Added::Lost).count()
            });
            let mut taken = Vec::new();
            let mut lost = 0;
            while !adding.is_finished() {
                let batch = ring.take();
                taken.extend(numbers(&batch));
                lost += batch.lost;
            }
            let batch = ring.take();
            taken.extend(numbers(&batch));
            assert_eq!(lost + batch.lost, adding.join().unwrap() as u64);
            assert_eq!(taken.len() as u64 + lost + batch.lost, COUNT);
            taken
        });
        assert!(taken.is_sorted(), "out of order");
        assert!(!taken.is_empty());
    }

    #[test]
    fn a_thread_that_holds_no_list_adds_to_the_other_one() {
        let ring = Ring::of_this_thread();
        let mut list = 0;
        let held = ring.lists[0].lock().unwrap();
        assert!(ring.add(&mut list, record(1)) == Added::Kept);
        assert_eq!(list, 1);
        drop(held);
        assert_eq!(numbers(&ring.take()), [1]);
    }

    #[test]
    fn records_that_find_no_room_are_counted() {
        let ring = Ring::of_this_thread();
        let mut list = 0;
        let added: Vec<_> =
            (1..=CAPACITY as u64 + 3).map(|number| ring.add(&mut list, record(number))).collect();
        assert_eq!(added.iter().filter(|&&added| added == Added::WakesCollector).count(), 1);
        assert!(added[WAKE_AT - 1] == Added::WakesCollector);
        let batch = ring.take();
        assert_eq!((batch.records.len(), batch.lost), (CAPACITY, 3));
        assert!(ring.add(&mut list, record(1)) == Added::Kept);
        assert_eq!(ring.take().lost, 0);
    }
}
