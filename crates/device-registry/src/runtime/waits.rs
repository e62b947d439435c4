//! The events that a driver's queue waits for, and whether one of them has failed.
//!
//! A driver may run the work behind a wait whose event fails, although that work may use data that was never
//! written. So when a driver says that such work is done, the core asks the events for their outcome: rule
//! D14. It does so for the queue, which fails, and for each read and event of the queue behind the wait.
//!
//! A queue keeps its events in the order of the waits, and releases those that are done. A read or an event
//! keeps only how many waits are before it, so no chain of events grows where streams wait for each other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::DeviceError;
use crate::runtime::device_use;
use crate::sync::{AtomicBool, Mutex, lock};

/// How the core asks an event for its outcome.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    Query,
    Wait,
}

/// An event, as a queue sees it that waits for it.
pub(crate) trait Awaitable: Send + Sync {
    /// The waits before it in its own queue.
    fn waits_before(&self) -> Option<Before>;

    /// Whether it is done.
    fn ask(self: Arc<Self>, ask: Ask) -> Result<bool, DeviceError>;
}

/// The waits of a driver's queue.
#[derive(Default)]
pub(crate) struct Waits {
    /// Whether there are any. Without a wait, nothing takes the lock.
    any: AtomicBool,
    /// Oldest first.
    epochs: Mutex<Vec<Arc<Epoch>>>,
}

/// The waits that the queue accepted after it had failed this many times. A failure of the queue covers all
/// of them, as its work is skipped until the report.
struct Epoch {
    failures: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The events that are not known to be done, oldest first.
    open: VecDeque<Arc<dyn Awaitable>>,
    /// The number of the oldest of them, which is the count of the waits before it.
    first: u64,
    /// The first failure, and the number of its wait. No event is open then.
    failed: Option<(u64, DeviceError)>,
}

/// The waits before a piece of work.
#[derive(Clone)]
pub(crate) struct Before {
    epoch: Arc<Epoch>,
    /// How many there are in this epoch.
    number: u64,
}

impl Waits {
    /// Adds a wait, which the queue accepts after so many failures. The caller holds `submitting`.
    pub(crate) fn add(&self, event: Arc<dyn Awaitable>, failures: u64) {
        let mut epochs = lock(&self.epochs);
        // The queue has failed since, so that the failure of a wait before that was reported.
        epochs.retain(|epoch| epoch.failures == failures || epoch.is_open());
        if epochs.last().is_none_or(|epoch| epoch.failures != failures) {
            epochs.push(Arc::new(Epoch { failures, state: Mutex::default() }));
        }
        self.any.store(true, Ordering::Release);
        let mut state = lock(&epochs[epochs.len() - 1].state);
        if state.failed.is_none() {
            state.open.push_back(event);
        }
    }

    /// The waits before work that the queue accepts now, after so many failures. The caller holds
    /// `submitting`.
    #[inline]
    pub(crate) fn before(&self, failures: u64) -> Option<Before> {
        if self.any.load(Ordering::Acquire) { self.find_before(failures) } else { None }
    }

    #[cold]
    fn find_before(&self, failures: u64) -> Option<Before> {
        let epochs = lock(&self.epochs);
        let epoch = epochs.last().filter(|epoch| epoch.failures == failures)?;
        Some(Before { epoch: Arc::clone(epoch), number: epoch.reached() })
    }

    /// Asks the events, and releases those that are done. Returns the first failure since the queue has
    /// failed so many times, and `None` if the outcome of an event is not known. The caller holds no lock.
    #[inline]
    pub(crate) fn ask(&self, ask: Ask) -> Option<Result<(), (u64, DeviceError)>> {
        if self.any.load(Ordering::Acquire) { self.ask_each(ask) } else { Some(Ok(())) }
    }

    #[cold]
    fn ask_each(&self, ask: Ask) -> Option<Result<(), (u64, DeviceError)>> {
        let epochs = lock(&self.epochs).clone();
        let mut outcome = Some(Ok(()));
        for epoch in epochs {
            let failures = epoch.failures;
            let number = epoch.reached();
            // The failure of an older epoch was reported: the queue has failed since.
            outcome = Before { epoch, number }.ask(ask).map(|asked| asked.map_err(|error| (failures, error)));
        }
        let mut epochs = lock(&self.epochs);
        epochs.retain(|epoch| epoch.is_open() || epoch.has_failed());
        self.any.store(!epochs.is_empty(), Ordering::Release);
        outcome
    }

    /// Releases the events, whose outcome no longer matters: the queue has ended.
    pub(crate) fn clear(&self) {
        let epochs = std::mem::take(&mut *lock(&self.epochs));
        for epoch in epochs {
            // They may keep the epoch alive. Dropped without a lock: that may be the driver's code.
            let open = std::mem::take(&mut lock(&epoch.state).open);
            drop(open);
        }
    }
}

impl Epoch {
    /// The number of the next wait.
    fn reached(&self) -> u64 {
        let state = lock(&self.state);
        state.first + state.open.len() as u64
    }

    fn is_open(&self) -> bool {
        !lock(&self.state).open.is_empty()
    }

    fn has_failed(&self) -> bool {
        lock(&self.state).failed.is_some()
    }

    /// The oldest wait below a number whose event is not known to be done.
    fn oldest_open(&self, number: u64) -> Option<(u64, Arc<dyn Awaitable>)> {
        let state = lock(&self.state);
        let event = state.open.front().filter(|_| state.first < number)?;
        Some((state.first, Arc::clone(event)))
    }

    /// Notes the outcome of the event of a wait, unless another thread has done so.
    fn end(&self, number: u64, outcome: Result<(), DeviceError>) {
        let mut state = lock(&self.state);
        if state.first != number || state.open.is_empty() {
            return;
        }
        let count = if outcome.is_ok() { 1 } else { state.open.len() };
        // Dropped without the lock, as it may be the last handle of an event: that is the driver's code.
        let released: Vec<_> = state.open.drain(..count).collect();
        state.first += count as u64;
        state.failed = outcome.err().map(|error| (number, error));
        drop(state);
        drop(released);
    }
}

impl Before {
    /// The outcome, if it is known without a call of a driver.
    pub(crate) fn known(&self) -> Option<Result<(), DeviceError>> {
        let state = lock(&self.epoch.state);
        match &state.failed {
            Some((number, error)) if *number < self.number => Some(Err(error.clone())),
            Some(_) => Some(Ok(())),
            None => (state.first >= self.number || state.open.is_empty()).then_some(Ok(())),
        }
    }

    /// The outcome: the first failure. `None` if an event is not done, or this thread may not call drivers.
    /// The caller holds no lock.
    pub(crate) fn ask(&self, ask: Ask) -> Option<Result<(), DeviceError>> {
        let mut unknown = vec![self.clone()];
        // The waits before an event come first. A call that calls itself could overflow the stack where many
        // streams wait for each other in a chain.
        while let Some(top) = unknown.last() {
            let Some((number, event)) = top.epoch.oldest_open(top.number) else {
                unknown.pop();
                continue;
            };
            if device_use::is_forbidden() {
                return None;
            }
            if let Some(before) = event.waits_before().filter(|before| before.known().is_none()) {
                unknown.push(before);
                continue;
            }
            let outcome = event.ask(ask);
            if let Ok(false) = outcome {
                return None;
            }
            top.epoch.end(number, outcome.map(drop));
        }
        self.known()
    }
}
