//! Loom's locks in place of the standard library's. At each of them loom decides which thread runs next.
//!
//! Loom's objects exist only in a model and have no `const` constructors, so each is made at its first use.
//! There is no `fork` in a model.

use std::sync::PoisonError;

use loom::sync::atomic::{AtomicBool, Ordering};

use crate::sync::fork::Orphaned;

pub(crate) use loom::sync::MutexGuard;
pub(crate) use loom::sync::atomic::AtomicUsize;
pub(crate) use loom::thread::ThreadId;

pub(crate) fn this_thread() -> ThreadId {
    loom::thread::current().id()
}

pub(crate) struct Mutex<T> {
    inner: std::sync::OnceLock<loom::sync::Mutex<T>>,
    first: std::sync::Mutex<Option<T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { inner: std::sync::OnceLock::new(), first: std::sync::Mutex::new(Some(value)) }
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>, Orphaned> {
        let inner = self.inner.get_or_init(|| {
            let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
            loom::sync::Mutex::new(first.expect("it is taken once"))
        });
        Ok(inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Loom does not have this type. The flag says whether the value is set, and loom decides when other threads
/// see it.
///
/// The first use makes the flag, and must happen before other threads share the cell. `default` makes it at
/// once.
#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: std::sync::OnceLock<AtomicBool>,
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), is_set: std::sync::OnceLock::new() }
    }

    fn is_set(&self) -> &AtomicBool {
        self.is_set.get_or_init(|| AtomicBool::new(false))
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.is_set().load(Ordering::Acquire).then(|| self.value.get().expect("it is set"))
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set().store(true, Ordering::Release);
        Ok(())
    }

    /// Not modelled, as two threads never race here in any model.
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.value.get_or_init(make);
        self.is_set().store(true, Ordering::Release);
        value
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        let lock = Self::new();
        lock.is_set();
        lock
    }
}
