//! Values whose drop has to wait for a thread that may use devices.
//!
//! Freeing memory calls a driver. Within a host call that is forbidden, and on the thread of a stream the `drop` of a plug-in's
//! memory could wait for that very stream. So such values wait here, and the next call that may use the device drops them.

use std::any::Any;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, Mutex, lock};

/// What the next call that may use the device drops.
#[derive(Default)]
pub(crate) struct Deferred {
    /// So that a call takes no lock where there is nothing.
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

    /// Takes out all values. They are dropped without the lock, as their `drop` may push more.
    pub(crate) fn take(&self) -> Vec<Box<dyn Any + Send>> {
        // Before the values: one that is pushed meanwhile is taken here or is due again.
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *lock(&self.values))
    }
}
