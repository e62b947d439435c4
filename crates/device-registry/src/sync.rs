//! The locks, atomics and threads of asynchronous work, in one place. In the models of `model.rs`, which
//! explore how threads interleave, they are [shuttle]'s; everywhere else they are std's.
//!
//! Poison is ignored. Foreign code runs only under a lock that guards no value, so a panic leaves no value
//! half changed.
//!
//! [shuttle]: https://docs.rs/shuttle

use std::sync::PoisonError;
use std::time::Duration;

#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(all(test, shuttle))]
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(all(test, shuttle))]
pub(crate) use shuttle::{thread, thread_local};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(all(test, shuttle)))]
pub(crate) use std::{thread, thread_local};

/// Yields to other threads, in a loop that waits for them.
pub(crate) fn pause() {
    #[cfg(not(all(test, shuttle)))]
    thread::sleep(Duration::from_micros(100));
    #[cfg(all(test, shuttle))]
    thread::yield_now();
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait_timeout<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0
}
