//! Values that must be dropped later, on a thread that may use devices.
//!
//! Freeing memory calls a driver. A host call may not do so, and on the thread of a stream the `drop` of a plug-in's memory
//! could wait for that same stream. So such values are stored here, and the next call that may use the device drops them.

use std::any::Any;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, Mutex, lock};

/// The values that the next call that may use the device drops.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Whether there are values. It saves the lock in a call that finds none.
    any: AtomicBool,
    values: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Deferred {
    pub(crate) fn push(&self, value: Box<dyn Any + Send>) {
        lock(&self.values).push(value);
        self.any.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Takes all values. The caller drops them without the lock, as their `drop` may push more.
    pub(crate) fn take(&self) -> Vec<Box<dyn Any + Send>> {
        // Before the values: one that is pushed meanwhile is taken here or is due again.
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *lock(&self.values))
    }
}
