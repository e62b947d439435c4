//! How records reach observers: a collector takes the records of all threads and puts them into each
//! observer's mailbox, which a separate thread empties. So an observer that is slow, blocks or panics harms
//! neither the program's work nor other observers.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use entry_points::isolate;

use crate::runtime::activity::exit;
use crate::runtime::activity::observers::Observer;
use crate::runtime::activity::record::{Batch, Thread};
use crate::runtime::activity::rings::Ring;
use crate::runtime::device_use;
use crate::runtime::fork::PerProcess;
use crate::runtime::isolation::log_isolated;

/// The most records that wait for one observer.
const MOST: usize = 1 << 18;

/// How long the collector sleeps, unless the list of a thread is half full.
const EVERY: Duration = Duration::from_millis(20);

/// How long the end of an observation waits for the observer.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Whether there may be an observer. A child of `fork` finds its parent's value.
static ON: AtomicBool = AtomicBool::new(false);

/// Whether an observer wants device times.
static DEVICE_TIMES: AtomicBool = AtomicBool::new(false);

/// Whether records are to be made: one load, in every call.
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Whether to measure with the device's clock.
#[inline]
pub(crate) fn wants_device_times() -> bool {
    is_on() && DEVICE_TIMES.load(Ordering::Relaxed)
}

// These are not the locks of `crate::sync`, as no model has an observer. No observer's code runs under them.

/// The observers of one process, and the records that are on their way to them.
pub(super) struct Hub {
    /// Whether it has observers.
    is_active: AtomicBool,
    /// How many observations have begun.
    begun: AtomicU64,
    seats: Mutex<Vec<Arc<Seat>>>,
    rings: Mutex<Vec<Arc<Ring>>>,
    /// Held while records go from the rings to the mailboxes, so that a thread's records stay in order.
    collecting: Mutex<()>,
    /// The thread that collects, while there are observers.
    collector: Mutex<Option<thread::Thread>>,
}

pub(super) static HUB: PerProcess<Hub> = PerProcess::new([const { Hub::new() }; 8]);

thread_local! {
    /// Whether this is the thread of an observer, which cannot wait for itself.
    static OBSERVES: Cell<bool> = const { Cell::new(false) };
}

impl Hub {
    const fn new() -> Self {
        Self {
            is_active: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            seats: Mutex::new(Vec::new()),
            rings: Mutex::new(Vec::new()),
            collecting: Mutex::new(()),
            collector: Mutex::new(None),
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// How many observations have begun.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    pub(super) fn has(&self, seat: &Arc<Seat>) -> bool {
        lock(&self.seats).iter().any(|other| Arc::ptr_eq(other, seat))
    }

    pub(super) fn add_ring(&self, ring: &Arc<Ring>) {
        lock(&self.rings).push(Arc::clone(ring));
    }

    /// Begins an observation.
    pub(super) fn begin(&'static self, name: &str, observer: Box<dyn Observer>) -> io::Result<Arc<Seat>> {
        // No thread's name can contain it.
        let name = name.replace('\0', "");
        let wants_device_times = match isolate(|| observer.wants_device_times()) {
            Ok(wants) => wants,
            Err(panic) => {
                drop_observer(&name, observer);
                return Err(io::Error::other(panic));
            }
        };
        let mailbox = Mutex::default();
        let changed = Condvar::new();
        let seat = Arc::new(Seat { name: name.clone(), wants_device_times, mailbox, changed });
        let own = Arc::clone(&seat);
        thread::Builder::new().name(format!("observer {name}")).spawn(move || own.run(self, observer))?;
        lock(&self.seats).push(Arc::clone(&seat));
        if let Err(error) = self.start_collector() {
            self.remove(&seat);
            seat.close();
            return Err(error);
        }
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.switch();
        exit::flush_at_exit();
        Ok(seat)
    }

    fn start_collector(&'static self) -> io::Result<()> {
        let mut collector = lock(&self.collector);
        if collector.is_none() {
            let thread = thread::Builder::new().name("device activity".to_owned());
            *collector = Some(thread.spawn(|| self.collect_while_observed())?.thread().clone());
        }
        Ok(())
    }

    fn collect_while_observed(&self) {
        loop {
            self.collect();
            let mut collector = lock(&self.collector);
            if lock(&self.seats).is_empty() {
                *collector = None;
                return;
            }
            drop(collector);
            thread::park_timeout(EVERY);
        }
    }

    /// Wakes the collector, unless another thread does so.
    pub(super) fn wake_collector(&self) {
        if let Ok(collector) = self.collector.try_lock()
            && let Some(thread) = &*collector
        {
            thread.unpark();
        }
    }

    /// Puts the records of all threads into the mailboxes.
    fn collect(&self) {
        let _turn = lock(&self.collecting);
        let seats = lock(&self.seats).clone();
        let rings = lock(&self.rings).clone();
        for ring in rings {
            // Checked before its records are taken: none come after its end.
            let has_ended = ring.has_ended();
            let batch = ring.take();
            if batch.records.len() as u64 + batch.lost > 0 {
                deliver(&seats, batch);
            }
            if has_ended {
                lock(&self.rings).retain(|other| !Arc::ptr_eq(other, &ring));
            }
        }
    }

    /// Hands over all records, and lets the observers write what they have kept. Returns whether they have
    /// done so within the time.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        if OBSERVES.try_with(Cell::get).unwrap_or(true) {
            return false;
        }
        self.collect();
        let seats = lock(&self.seats).clone();
        // Starts all of them first, so that they write at the same time.
        let flushes: Vec<_> = seats.iter().map(|seat| seat.post_flush()).collect();
        seats.iter().zip(flushes).all(|(seat, flush)| {
            let left = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            seat.wait_until(left, |mailbox| mailbox.has_ended || mailbox.flushed >= flush)
        })
    }

    /// Ends an observation: the observer gets what was recorded before.
    pub(super) fn end(&self, seat: &Arc<Seat>) {
        // A child of `fork` has no observer, and its parent may have held a lock of the mailbox.
        if !self.has(seat) {
            return;
        }
        self.collect();
        self.remove(seat);
        seat.close();
        if !OBSERVES.try_with(Cell::get).unwrap_or(true) {
            seat.wait_until(LAST_WAIT, |mailbox| mailbox.has_ended);
        }
    }

    fn remove(&self, seat: &Arc<Seat>) {
        lock(&self.seats).retain(|other| !Arc::ptr_eq(other, seat));
        self.switch();
        self.wake_collector();
    }

    /// Sets the switches that every call looks at.
    fn switch(&self) {
        let seats = lock(&self.seats);
        self.is_active.store(!seats.is_empty(), Ordering::Relaxed);
        ON.store(!seats.is_empty(), Ordering::Relaxed);
        DEVICE_TIMES.store(seats.iter().any(|seat| seat.wants_device_times), Ordering::Relaxed);
    }
}

/// Puts a batch into all mailboxes.
fn deliver(seats: &[Arc<Seat>], batch: Batch) {
    let Some((last, others)) = seats.split_last() else { return };
    for seat in others {
        let thread = Arc::clone(&batch.thread);
        let records = batch.records.clone();
        seat.post(Batch { thread, records, lost: batch.lost });
    }
    last.post(batch);
}

/// One observer, from the outside.
pub(super) struct Seat {
    pub(super) name: String,
    wants_device_times: bool,
    mailbox: Mutex<Mailbox>,
    /// Notified when there is a message, after each flush, and when the observer's thread ends.
    changed: Condvar,
}

#[derive(Default)]
struct Mailbox {
    messages: VecDeque<Message>,
    /// How many records the messages have.
    records: usize,
    /// How many records found no room, by their thread.
    lost: Vec<(Arc<Thread>, u64)>,
    /// How many flushes were among the messages, and how many of them are done.
    flushes: u64,
    flushed: u64,
    /// Whether no more messages come.
    is_closed: bool,
    /// Whether the observer's thread has ended.
    has_ended: bool,
}

enum Message {
    Batch(Batch),
    Flush,
}

impl Seat {
    fn post(&self, batch: Batch) {
        let mut mailbox = lock(&self.mailbox);
        if mailbox.is_closed || mailbox.has_ended {
            return;
        }
        if mailbox.records + batch.records.len() > MOST {
            let lost = batch.records.len() as u64 + batch.lost;
            match mailbox.lost.iter_mut().find(|(thread, _)| thread.number == batch.thread.number) {
                Some((_, count)) => *count += lost,
                None => mailbox.lost.push((batch.thread, lost)),
            }
        } else {
            mailbox.records += batch.records.len();
            mailbox.messages.push_back(Message::Batch(batch));
        }
        drop(mailbox);
        self.changed.notify_all();
    }

    /// Lets the observer flush behind all messages. Returns the number of the flush, which several calls
    /// share if no message is between them: a blocked observer would keep one for each.
    fn post_flush(&self) -> u64 {
        let mut mailbox = lock(&self.mailbox);
        let is_there = matches!(mailbox.messages.back(), Some(Message::Flush));
        if !is_there && !mailbox.is_closed && !mailbox.has_ended {
            mailbox.flushes += 1;
            mailbox.messages.push_back(Message::Flush);
        }
        let flush = mailbox.flushes;
        drop(mailbox);
        self.changed.notify_all();
        flush
    }

    /// The next message; `None` when there are no more.
    fn next(&self) -> Option<Message> {
        let mut mailbox = lock(&self.mailbox);
        loop {
            // The lost records came after the waiting ones.
            let has_batch = mailbox.records > 0;
            if !has_batch && let Some((thread, lost)) = mailbox.lost.pop() {
                return Some(Message::Batch(Batch { thread, records: Vec::new(), lost }));
            }
            if let Some(message) = mailbox.messages.pop_front() {
                if let Message::Batch(batch) = &message {
                    mailbox.records -= batch.records.len();
                }
                return Some(message);
            }
            if mailbox.is_closed {
                return None;
            }
            mailbox = self.changed.wait(mailbox).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What the observer's thread does.
    fn run(self: Arc<Self>, hub: &Hub, observer: Box<dyn Observer>) {
        OBSERVES.with(|observes| observes.set(true));
        // The observer may not use devices, as its work would be observed.
        let observes = || {
            device_use::forbid(|| {
                while let Some(message) = self.next() {
                    match message {
                        Message::Batch(batch) => observer.observe(&batch),
                        Message::Flush => {
                            observer.flush();
                            lock(&self.mailbox).flushed += 1;
                            self.changed.notify_all();
                        }
                    }
                }
                observer.flush();
            });
        };
        if let Err(panic) = isolate(observes) {
            let name = &self.name;
            let message = panic.message();
            log_isolated(|| {
                log::error!("the observer `{name}` panicked, and gets no more records: {message}")
            });
            hub.remove(&self);
        }
        drop_observer(&self.name, observer);
        let mut mailbox = lock(&self.mailbox);
        mailbox.has_ended = true;
        mailbox.messages.clear();
        drop(mailbox);
        self.changed.notify_all();
    }

    fn close(&self) {
        lock(&self.mailbox).is_closed = true;
        self.changed.notify_all();
    }

    /// Returns whether that happens within the time.
    fn wait_until(&self, timeout: Duration, is_so: impl Fn(&Mailbox) -> bool) -> bool {
        let mailbox = lock(&self.mailbox);
        let waited = self.changed.wait_timeout_while(mailbox, timeout, |mailbox| !is_so(mailbox));
        is_so(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// Not dropped while a panic of the observer unwinds: a second panic in its `drop` would end the process.
fn drop_observer(name: &str, observer: Box<dyn Observer>) {
    if let Err(panic) = isolate(|| device_use::forbid(|| drop(observer))) {
        log_isolated(|| log::error!("the observer `{name}` panicked in its drop: {}", panic.message()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_of_a_blocked_observer_share_a_message() {
        let name = String::new();
        let mailbox = Mutex::default();
        let changed = Condvar::new();
        let seat = Seat { name, wants_device_times: false, mailbox, changed };
        let batch =
            || Batch { thread: Arc::new(Thread { number: 1, name: None }), records: Vec::new(), lost: 1 };
        assert_eq!([(); 1000].map(|()| seat.post_flush()), [1; 1000]);
        seat.post(batch());
        assert_eq!([(); 1000].map(|()| seat.post_flush()), [2; 1000]);
        assert_eq!(lock(&seat.mailbox).messages.len(), 3);
        // A flush that an observer has already begun may miss what was recorded meanwhile.
        while seat.next().is_some_and(|message| matches!(message, Message::Flush)) {}
        seat.next();
        assert_eq!(seat.post_flush(), 3);
        assert!(!seat.wait_until(Duration::ZERO, |mailbox| mailbox.flushed >= 3));
    }
}
