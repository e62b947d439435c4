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

#[derive(Default)]
struct State {
    /// A separate range, since most memories have one window at a time and then need no list.
    first: Option<Entry>,
    others: Vec<Entry>,
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
    /// The number to pass to [`RangeLock::unlock`], once the range is locked.
    pub(super) number: u64,
}

impl<M> Request<M> {
    pub(super) fn new(memory: M, range: Range<usize>, writes: bool) -> Self {
        Self { memory, range, writes, number: 0 }
    }
}

impl RangeLock {
    /// Locks all ranges of one operation. Waits for conflicting ranges that were requested before.
    #[inline]
    pub(super) fn lock<'a, M: 'a>(&self, requests: impl Iterator<Item = &'a mut Request<M>>) {
        let mut state = lock(&self.state);
        let is_free = state.is_empty();
        let own = state.enter(requests, is_free);
        if is_free {
            return;
        }
        // Not `wait_while`: with a poisoned lock it returns at the first wake-up, even if ranges still
        // conflict.
        while state.conflict(&own, |other| other.locked || other.number < own.start).is_some() {
            state = wait(&self.unlocked, state);
        }
        state.entries_mut().filter(|entry| own.contains(&entry.number)).for_each(|entry| entry.locked = true);
    }

    /// Locks all ranges of one operation, or returns an error if a locked range conflicts. Overtakes threads
    /// that wait.
    pub(super) fn try_lock<'a, M: 'a>(
        &self,
        requests: impl Iterator<Item = &'a mut Request<M>>,
    ) -> Result<(), BackendError> {
        let mut state = lock(&self.state);
        let own = state.enter(requests, true);
        let Some((wanted, open)) = state.conflict(&own, |other| other.locked) else { return Ok(()) };
        let error = BackendError::invalid(format!(
            "cannot open a window on bytes {wanted:?}: a window on bytes {open:?} of the same memory is open, and a \
             thread that has windows open does not wait, as it could deadlock"
        ));
        own.for_each(|number| state.leave(number));
        Err(error)
    }

    pub(super) fn unlock(&self, number: u64) {
        let mut state = lock(&self.state);
        state.leave(number);
        // Waking costs a system call even if no thread waits.
        let is_awaited = state.entries().any(|entry| !entry.locked);
        drop(state);
        if is_awaited {
            self.unlocked.notify_all();
        }
    }

    /// The number of ranges that are locked or waited for.
    pub(super) fn count(&self) -> usize {
        lock(&self.state).entries().count()
    }
}

impl State {
    fn entries(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.first.iter().chain(&self.others)
    }

    fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.first.iter_mut().chain(&mut self.others)
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    /// Returns the numbers of the requests.
    fn enter<'a, M: 'a>(
        &mut self,
        requests: impl Iterator<Item = &'a mut Request<M>>,
        locked: bool,
    ) -> Range<u64> {
        let first = self.next;
        for request in requests {
            request.number = self.next;
            self.next += 1;
            let number = request.number;
            let range = request.range.clone();
            let writes = request.writes;
            let entry = Entry { number, range, writes, locked };
            if self.first.is_none() {
                self.first = Some(entry);
            } else {
                self.others.push(entry);
            }
        }
        first..self.next
    }

    fn leave(&mut self, number: u64) {
        if self.first.as_ref().is_some_and(|entry| entry.number == number) {
            self.first = None;
        } else {
            self.others.retain(|entry| entry.number != number);
        }
    }

    /// A range of the operation whose requests have these numbers, and a conflicting one of another that
    /// counts.
    fn conflict(
        &self,
        own: &Range<u64>,
        counts: impl Fn(&Entry) -> bool,
    ) -> Option<(Range<usize>, Range<usize>)> {
        let is_own = |entry: &&Entry| own.contains(&entry.number);
        self.entries().filter(is_own).find_map(|wanted| {
            let mut others = self.entries().filter(|other| !is_own(other) && counts(other));
            let other = others.find(|other| other.conflicts(wanted))?;
            Some((wanted.range.clone(), other.range.clone()))
        })
    }
}

impl Entry {
    fn conflicts(&self, other: &Self) -> bool {
        (self.writes || other.writes) && overlap(&self.range, &other.range)
    }
}

pub(super) fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}
