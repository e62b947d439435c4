//! Locks of std without poison: no code panics while it changes what they guard.
//!
//! A lock of another crate would double what an unused backend adds to a program.

use std::sync::PoisonError;
pub(crate) use std::sync::{Mutex, MutexGuard};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
