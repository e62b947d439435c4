//! Memory whose uses one queue of a driver orders, so that later work of that queue may have it before it is
//! free.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicU64, Mutex, lock};

/// How far a driver's queue is known to have got. The queue numbers its work from 0.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The work of all lower numbers is done.
    done: AtomicU64,
}

impl Progress {
    /// Whether the work of all lower numbers is done.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.done.load(Ordering::Acquire) >= number
    }

    /// Notes that the work of all lower numbers is done.
    pub(crate) fn reach(&self, number: u64) {
        self.done.fetch_max(number, Ordering::AcqRel);
    }
}

/// The work of one queue that uses an allocation.
#[derive(Debug)]
pub(crate) struct StreamOrder {
    progress: Arc<Progress>,
    /// The work below this number used the memory before the allocation had it.
    earlier: u64,
    /// The work that uses the memory is done when all below this number is.
    newest: AtomicU64,
    /// The bytes that the queue has used since: one range, the longest if there are several.
    used: Mutex<Range<usize>>,
}

impl StreamOrder {
    pub(crate) fn new(progress: &Arc<Progress>, earlier: u64) -> Self {
        let newest = AtomicU64::new(earlier);
        Self { progress: Arc::clone(progress), earlier, newest, used: Mutex::default() }
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(crate) fn is_by(&self, progress: &Arc<Progress>) -> bool {
        Arc::ptr_eq(&self.progress, progress)
    }

    /// Notes that work with this number uses the memory, even if the driver has refused it: part of it may
    /// have begun.
    pub(crate) fn used_by(&self, number: u64) {
        self.newest.fetch_max(number + 1, Ordering::AcqRel);
    }

    /// Notes that work which the driver has accepted uses these bytes of the memory.
    pub(crate) fn used(&self, range: &Range<usize>) {
        // Nothing reads it after that.
        if self.progress.is_done(self.earlier) {
            return;
        }
        let mut used = lock(&self.used);
        if used.start <= range.end && range.start <= used.end && !used.is_empty() {
            *used = used.start.min(range.start)..used.end.max(range.end);
        } else if range.len() > used.len() {
            *used = range.clone();
        }
    }

    /// The number below which all work has to be done before the memory is free.
    pub(crate) fn free_at(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// The number below which all work has to be done before anything except the queue writes to these bytes
    /// of the memory; `None` if it is done.
    ///
    /// Once the queue has used the bytes, a program orders its own uses of them behind that use, and so
    /// behind the earlier ones. It need not order uses of other bytes.
    pub(crate) fn waits_for(&self, range: &Range<usize>) -> Option<u64> {
        if self.progress.is_done(self.earlier) {
            return None;
        }
        let used = lock(&self.used);
        let is_ordered = used.start <= range.start && range.end <= used.end;
        (!is_ordered).then_some(self.earlier)
    }
}
