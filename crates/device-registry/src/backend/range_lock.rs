//! A lock on ranges of bytes: any number of readers of a byte, or one writer.
//!
//! Requests that conflict are served in the order in which they came, so that readers do not keep a writer out. A thread that
//! holds ranges already does not wait for more, since two such threads could wait for each other.

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
    /// The thread has it, and does not wait any more.
    locked: bool,
}

/// A range that an operation wants, of a memory `M`.
pub(super) struct Request<M> {
    pub(super) memory: M,
    pub(super) range: Range<usize>,
    pub(super) writes: bool,
    /// Its place among the requests of the operation.
    pub(super) place: usize,
    /// What [`RangeLock::unlock`] takes, once it is locked.
    pub(super) number: u64,
}

impl RangeLock {
    /// Locks all ranges of one operation, and waits for those that were requested before and conflict.
    pub(super) fn lock<M>(&self, requests: &mut [Request<M>]) {
        let mut state = lock(&self.state);
        let first = state.next;
        state.enter(requests, false);
        let conflicts = |state: &State| {
            // Also what was locked since, by a thread that did not wait.
            let mut before = state.entries.iter().filter(|entry| entry.number < first || entry.locked);
            before.any(|entry| requests.iter().any(|request| entry.conflicts(&request.range, request.writes)))
        };
        // Not `wait_while`, which returns at the first wake-up, whatever it finds, if the lock is poisoned.
        while conflicts(&state) {
            state = wait(&self.unlocked, state);
        }
        let numbers = first..first + requests.len() as u64;
        let own = state.entries.iter_mut().filter(|entry| numbers.contains(&entry.number));
        own.for_each(|entry| entry.locked = true);
    }

    /// Locks all ranges of one operation if no other thread has one that conflicts. Goes before threads that wait.
    pub(super) fn try_lock<M>(&self, requests: &mut [Request<M>]) -> Result<(), BackendError> {
        let mut state = lock(&self.state);
        for request in &*requests {
            let mut locked = state.entries.iter().filter(|entry| entry.locked);
            if let Some(other) = locked.find(|entry| entry.conflicts(&request.range, request.writes)) {
                return Err(BackendError::invalid(format!(
                    "a window on bytes {:?} is open, and a thread that has windows open does not wait for one on \
                     {:?} of the same memory: two could wait for each other, or it for itself",
                    other.range, request.range
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

    /// How many ranges are locked or waited for.
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
