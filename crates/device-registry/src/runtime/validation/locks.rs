//! Finds locks that a driver holds while it calls the program.
//!
//! A read that a driver finishes may wake a task, or a logger, and these may wait for a thread that is in a
//! function of the driver. So the layer calls two functions that any driver allows at any time, on another
//! thread, and waits for them before it passes the result on. If they end only after the driver has its call
//! back, the driver held a lock that they take.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::{BackendError, StreamDriver};
use crate::runtime::validation::Ledger;

/// How long the layer waits in a call from the driver. Its own calls need a few microseconds, or a round
/// trip.
const WITHIN: Duration = Duration::from_secs(2);

/// How long they may take after that. If they take longer, they wait for something else.
const AFTER: Duration = Duration::from_secs(10);

thread_local! {
    /// How many calls by drivers this thread is in.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// How many calls of the core are in drivers, over all devices: a driver may have one lock for all its
/// devices.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// A call of the core, until it is dropped.
pub(super) struct Counted(());

impl Counted {
    pub(super) fn begin() -> Self {
        CALLS.fetch_add(1, Ordering::SeqCst);
        OWN.with(|own| own.set(own.get() + 1));
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
        OWN.with(|own| own.set(own.get() - 1));
    }
}

/// Whether there are calls on other threads, which may hold locks for as long as they like.
fn others_call() -> bool {
    CALLS.load(Ordering::SeqCst) > OWN.with(Cell::get)
}

/// Whether an object may still be called. Its end waits for the layer's calls.
#[derive(Default)]
pub(super) struct Open {
    state: Mutex<(usize, bool)>,
    left: Condvar,
}

impl Open {
    fn enter(&self) -> Option<Entered<'_>> {
        let mut state = lock(&self.state);
        let (count, has_ended) = &mut *state;
        if *has_ended {
            return None;
        }
        *count += 1;
        Some(Entered(self))
    }

    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.1 = true;
        // A call that does not end is the driver's mistake, and this thread would hang with it.
        let waited = self.left.wait_timeout_while(state, AFTER, |(count, _)| *count > 0);
        drop(waited);
    }
}

struct Entered<'a>(&'a Open);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).0 -= 1;
        self.0.left.notify_all();
    }
}

/// A driver's stream, which the layer calls too.
pub(super) struct Shared {
    stream: Arc<Box<dyn StreamDriver>>,
    open: Arc<Open>,
    /// The failure of a flush that the layer made, for the core's next flush.
    failure: Arc<Mutex<Option<BackendError>>>,
}

pub(super) struct SharedWeak {
    stream: Weak<Box<dyn StreamDriver>>,
    open: Arc<Open>,
    failure: Arc<Mutex<Option<BackendError>>>,
}

impl Shared {
    pub(super) fn new(stream: Box<dyn StreamDriver>) -> Self {
        Self { stream: Arc::new(stream), open: Arc::default(), failure: Arc::default() }
    }

    pub(super) fn stream(&self) -> &dyn StreamDriver {
        &**self.stream
    }

    pub(super) fn take_failure(&self) -> Result<(), BackendError> {
        lock(&self.failure).take().map_or(Ok(()), Err)
    }

    pub(super) fn downgrade(&self) -> SharedWeak {
        let open = Arc::clone(&self.open);
        let failure = Arc::clone(&self.failure);
        SharedWeak { stream: Arc::downgrade(&self.stream), open, failure }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.open.end();
    }
}

/// A call from the driver into the program, and the layer's calls meanwhile.
#[derive(Default)]
struct Probe {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    has_ended: bool,
    /// When the driver got its call back, if the layer's calls had not ended before.
    returned: Option<Instant>,
}

/// Whether a thread is making such calls.
static IS_PROBING: AtomicBool = AtomicBool::new(false);

/// Waits until the layer makes no call, whose report would come later. A driver that does not return one is
/// waited for once.
pub(super) fn settle() {
    static IS_STUCK: AtomicBool = AtomicBool::new(false);

    let end = Instant::now() + AFTER;
    while IS_PROBING.load(Ordering::SeqCst) && !IS_STUCK.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(1));
        IS_STUCK.fetch_or(Instant::now() > end, Ordering::Relaxed);
    }
}

/// Runs what a driver calls while it finishes a read, and looks whether it holds a lock meanwhile.
pub(super) fn within_a_call(ledger: &Arc<Ledger>, stream: &SharedWeak, run: impl FnOnce()) {
    let is_possible = !ledger.is_lost() && !others_call();
    if !is_possible || IS_PROBING.swap(true, Ordering::SeqCst) {
        return run();
    }
    let probe = Arc::new(Probe::default());
    let its = Arc::clone(&probe);
    let ledgers = Arc::clone(ledger);
    let open = Arc::clone(&stream.open);
    let (stream, failure) = (Weak::clone(&stream.stream), Arc::clone(&stream.failure));
    let begun = thread::Builder::new().name("validation".to_owned()).spawn(move || {
        if !ledgers.is_lost()
            && let Some(_open) = ledgers.open.enter()
        {
            // Their results do not matter.
            let _ = ledgers.driver.memory_info();
            if !ledgers.is_lost()
                && let Some(_open) = open.enter()
                && let Some(stream) = stream.upgrade()
                && let Err(error) = stream.flush()
            {
                lock(&failure).get_or_insert(error);
            }
        }
        its.end(&ledgers);
        IS_PROBING.store(false, Ordering::SeqCst);
    });
    if begun.is_err() {
        IS_PROBING.store(false, Ordering::SeqCst);
        return run();
    }
    let state = lock(&probe.state);
    let waited = probe.ended.wait_timeout_while(state, WITHIN, |state| !state.has_ended);
    let has_ended = waited.unwrap_or_else(PoisonError::into_inner).0.has_ended;
    let is_suspect = !has_ended && !ledger.is_lost() && !others_call();
    run();
    if is_suspect {
        lock(&probe.state).returned = Some(Instant::now());
    }
}

impl Probe {
    fn end(&self, ledger: &Ledger) {
        let mut state = lock(&self.state);
        state.has_ended = true;
        let is_broken = state.returned.is_some_and(|returned| returned.elapsed() < AFTER);
        drop(state);
        self.ended.notify_all();
        if is_broken {
            let rule =
                "a driver holds no lock that its functions take while it finishes a read, and this one does";
            let _reported = ledger.broken("read", rule);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
