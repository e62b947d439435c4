//! A lock on ranges of bytes: any number of readers of a byte, or one writer. The windows of a
//! [`HostMemory`](crate::backend::HostMemory) take it (`host_windows.rs`).
//!
//! Conflicting requests are served in their order of arrival, so that readers do not starve a writer. A
//! thread that already holds ranges does not wait for more, since two such threads could wait for each other.

use std::ops::Range;

use crate::backend::BackendError;
use crate::sync::{Condvar, Mutex, lock, wait};

/// The ranges of one memory that are locked, or that threads wait for.
#[derive(Default)]
pub(super) struct RangeLock {
    state: Mutex<State>,
    unlocked: Condvar,
}

/// In the order in which the ranges were requested.
#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    next: u64,
}

struct Entry {
    number: u64,
    range: Range<usize>,
    writes: bool,
    /// The thread holds the range, and no longer waits for it.
    locked: bool,
}

/// An operation's request for a range of a memory `M`.
pub(super) struct Request<M> {
    pub(super) memory: M,
    pub(super) range: Range<usize>,
    pub(super) writes: bool,
    /// The position among the requests of the operation.
    pub(super) place: usize,
    /// The number to pass to [`RangeLock::unlock`], once the range is locked.
    pub(super) number: u64,
}

impl RangeLock {
    /// Locks all ranges of one operation. Waits for conflicting ranges that were requested before.
    #[inline]
    pub(super) fn lock<M>(&self, requests: &mut [Request<M>]) {
        let mut state = lock(&self.state);
        if state.entries.is_empty() {
            return state.enter(requests, true);
        }
        let first = state.next;
        state.enter(requests, false);
        let conflicts = |state: &State| {
            // Includes ranges that `try_lock` has locked since, ahead of this request.
            let mut before = state.entries.iter().filter(|entry| entry.number < first || entry.locked);
            before.any(|entry| requests.iter().any(|request| entry.conflicts(&request.range, request.writes)))
        };
        // Not `wait_while`: with a poisoned lock it returns at the first wake-up, even if ranges still
        // conflict.
        while conflicts(&state) {
            state = wait(&self.unlocked, state);
        }
        let numbers = first..first + requests.len() as u64;
        let own = state.entries.iter_mut().filter(|entry| numbers.contains(&entry.number));
        own.for_each(|entry| entry.locked = true);
    }

    /// Locks all ranges of one operation, or returns an error if a locked range conflicts. Overtakes threads
    /// that wait.
    pub(super) fn try_lock<M>(&self, requests: &mut [Request<M>]) -> Result<(), BackendError> {
        let mut state = lock(&self.state);
        for request in &*requests {
            let mut locked = state.entries.iter().filter(|entry| entry.locked);
            if let Some(other) = locked.find(|entry| entry.conflicts(&request.range, request.writes)) {
                return Err(BackendError::invalid(format!(
                    "cannot open a window on bytes {:?}: a window on bytes {:?} of the same memory is open, and a thread \
                     that has windows open does not wait, as it could deadlock",
                    request.range, other.range
                )));
            }
        }
        state.enter(requests, true);
        Ok(())
    }

    pub(super) fn unlock(&self, number: u64) {
        let mut state = lock(&self.state);
        state.entries.retain(|entry| entry.number != number);
        let others = !state.entries.is_empty();
        drop(state);
        if others {
            self.unlocked.notify_all();
        }
    }

    /// The number of ranges that are locked or waited for.
    pub(super) fn count(&self) -> usize {
        lock(&self.state).entries.len()
    }
}

impl State {
    fn enter<M>(&mut self, requests: &mut [Request<M>], locked: bool) {
        for request in requests {
            request.number = self.next;
            self.next += 1;
            let (number, range, writes) = (request.number, request.range.clone(), request.writes);
            self.entries.push(Entry { number, range, writes, locked });
        }
    }
}

impl Entry {
    fn conflicts(&self, range: &Range<usize>, writes: bool) -> bool {
        (self.writes || writes) && overlap(&self.range, range)
    }
}

pub(super) fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}
