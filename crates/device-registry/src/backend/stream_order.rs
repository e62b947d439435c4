//! Memory whose uses one queue of a driver orders, so that later work of that queue may have it before it is free.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sync::AtomicU64;

/// How far a driver's queue is known to be. It numbers what its work uses, from 0.
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
}

impl StreamOrder {
    pub(crate) fn new(progress: &Arc<Progress>, earlier: u64) -> Self {
        Self { progress: Arc::clone(progress), earlier, newest: AtomicU64::new(earlier) }
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    pub(crate) fn is_by(&self, progress: &Arc<Progress>) -> bool {
        Arc::ptr_eq(&self.progress, progress)
    }

    /// Notes that work with this number uses the memory.
    pub(crate) fn used_by(&self, number: u64) {
        self.newest.fetch_max(number + 1, Ordering::AcqRel);
    }

    /// The number below which all work has to be done before the memory is free.
    pub(crate) fn free_at(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// The number below which all work has to be done before anything but the queue writes to the memory; `None` if it is.
    ///
    /// Once the queue has used the memory, a program orders its own uses behind that one, and so behind the earlier ones.
    pub(crate) fn waits_for(&self) -> Option<u64> {
        (self.free_at() == self.earlier && !self.progress.is_done(self.earlier)).then_some(self.earlier)
    }
}
