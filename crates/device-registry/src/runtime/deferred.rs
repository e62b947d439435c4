//! Values whose drop calls a driver, kept until that is allowed.
//!
//! A host call may not call a driver, and within a stream's work the `drop` of a driver's memory could wait
//! for that same work. So such values are stored. The next call that may use the device drops them, or the
//! thread of the stream does at the end of its piece of work, whichever comes first.
//!
//! A device that has ended gets no more calls. Its deferred values go into one list for the process, and the
//! next call that may use any device drops them.

use std::any::Any;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::device::Device;
use crate::runtime::fork::{PerProcess, Process};
use crate::runtime::isolation::drop_isolated;

/// The values that the next call drops, with the devices that they belong to.
pub(crate) struct Deferred {
    /// Whether there are values. It saves the lock in a call that finds none.
    any: AtomicBool,
    values: Mutex<Vec<Value>>,
}

struct Value {
    /// A descendant of `fork` may have its ancestor's list, whose drivers are unusable there.
    process: Process,
    device: Device,
    value: Box<dyn Any + Send>,
}

// This is not a lock of `crate::sync`, which a static cannot have in a model. Nothing else runs under it.

static OF_ENDED: PerProcess<Deferred> = PerProcess::new([const { Deferred::new() }; 8]);

/// Whether there may be values in `OF_ENDED`: one load in every call, whatever the process. A child of `fork`
/// may find its parent's value, and looks once.
static ANY_OF_ENDED: AtomicBool = AtomicBool::new(false);

/// Whether devices that have ended defer something.
#[inline]
pub(crate) fn is_due_of_ended() -> bool {
    ANY_OF_ENDED.load(Ordering::Acquire)
}

/// Takes over the deferred values of an ended device of `process`.
pub(crate) fn take_over_of_ended(process: Process, device: &Deferred) {
    OF_ENDED.of(process).take_over(device);
    ANY_OF_ENDED.store(true, Ordering::Release);
}

/// Drops the deferred values of ended devices of `process`. Returns whether there were any.
#[cold]
pub(crate) fn drop_all_of_ended(process: Process) -> bool {
    // Cleared before the values are taken: one that is pushed meanwhile is taken here or is due again. It is
    // not a plain store: the values are looked at after it, and another thread's store must not be
    // overwritten later.
    ANY_OF_ENDED.swap(false, Ordering::AcqRel) && OF_ENDED.of(process).drop_all()
}

impl Deferred {
    pub(crate) const fn new() -> Self {
        Self { any: AtomicBool::new(false), values: Mutex::new(Vec::new()) }
    }

    pub(crate) fn push(&self, device: Device, value: Box<dyn Any + Send>) {
        self.append(vec![Value { process: Process::current(), device, value }]);
    }

    /// Takes all values of another list over.
    pub(crate) fn take_over(&self, other: &Self) {
        let values = other.take();
        if !values.is_empty() {
            self.append(values);
        }
    }

    fn append(&self, mut values: Vec<Value>) {
        lock(&self.values).append(&mut values);
        self.any.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Drops all values, if there are any. Returns whether there were.
    #[inline]
    pub(crate) fn drop_all(&self) -> bool {
        self.is_due() && self.drop_now()
    }

    #[cold]
    fn drop_now(&self) -> bool {
        // Dropped without the lock, as their `drop` may push more.
        let due = self.take();
        let any = !due.is_empty();
        for Value { process, device, value } in due {
            if process.is_current() {
                drop_isolated(device, value);
            } else {
                std::mem::forget(value);
            }
        }
        any
    }

    fn take(&self) -> Vec<Value> {
        // Before the values: one that is pushed meanwhile is taken here or is due again.
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut *lock(&self.values))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn values_of_an_ancestor_are_forgotten_and_not_dropped() {
        let list = Deferred::new();
        let owned = Arc::new(());
        let value = |process| Value { process, device: Device::cpu(), value: Box::new(Arc::clone(&owned)) };
        list.append(vec![value(Process::of_ancestor()), value(Process::current())]);
        assert_eq!(Arc::strong_count(&owned), 3);
        assert!(list.drop_all());
        assert_eq!(Arc::strong_count(&owned), 2);
        assert!(!list.drop_all());
    }
}
