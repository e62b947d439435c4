//! The standard library's locks, for a process that may be forked.
//!
//! Poisoning is ignored. No plugin's code runs while a lock is held, so a panic in a critical section is a
//! defect of this crate; an error from every later look-up would be a second one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, TryLockError};
use std::thread;

use crate::sync::fork::{Orphaned, process};

pub(crate) use std::sync::atomic::AtomicUsize;
pub(crate) use std::sync::{MutexGuard, OnceLock};
pub(crate) use std::thread::ThreadId;

pub(crate) fn this_thread() -> ThreadId {
    thread::current().id()
}

/// A mutex that returns [`Orphaned`] if a thread of the parent process held it at the time of the fork.
///
/// In each process, the first thread that locks it uses `try_lock`, and all others wait for the verdict. No
/// other thread of the process holds the lock at that moment. So if it is held, its holder is a thread of the
/// parent.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    inner: std::sync::Mutex<T>,
    /// The last verdict and its process: `process << 2 | verdict`.
    verdict: AtomicU32,
}

const SOUND: u32 = 0;
const UNDECIDED: u32 = 1;
const ORPHANED: u32 = 2;

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { inner: std::sync::Mutex::new(value), verdict: AtomicU32::new(0) }
    }

    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>, Orphaned> {
        if self.is_orphaned() {
            Err(Orphaned)
        } else {
            Ok(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    fn is_orphaned(&self) -> bool {
        // The number of a process is above zero, so that the initial value is no process's verdict.
        let process = process() << 2;
        let mut seen = self.verdict.load(Ordering::Acquire);
        loop {
            if seen == process | SOUND {
                return false;
            } else if seen == process | ORPHANED {
                return true;
            } else if seen == process | UNDECIDED {
                thread::yield_now();
                seen = self.verdict.load(Ordering::Acquire);
                continue;
            }
            let undecided = process | UNDECIDED;
            match self.verdict.compare_exchange(seen, undecided, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    let is_held = matches!(self.inner.try_lock(), Err(TryLockError::WouldBlock));
                    let verdict = if is_held { ORPHANED } else { SOUND };
                    self.verdict.store(process | verdict, Ordering::Release);
                    return is_held;
                }
                Err(other) => seen = other,
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_a_thread_of_another_process_holds_is_orphaned() {
        let mutex = Mutex::new(1);
        let guard = mutex.lock().unwrap();
        // This is the state that a child of `fork` finds.
        mutex.verdict.store((process() - 1) << 2 | SOUND, Ordering::Relaxed);
        assert_eq!(mutex.lock().err(), Some(Orphaned));
        assert_eq!(mutex.lock().err(), Some(Orphaned), "the verdict is remembered");
        drop(guard);
    }

    #[test]
    fn a_lock_that_no_thread_held_at_the_fork_is_sound() {
        let mutex = Mutex::new(1);
        drop(mutex.lock().unwrap());
        for verdict in [SOUND, UNDECIDED, ORPHANED] {
            mutex.verdict.store((process() - 1) << 2 | verdict, Ordering::Relaxed);
            assert_eq!(mutex.lock().map(|guard| *guard), Ok(1));
        }
    }

    #[test]
    fn threads_of_one_process_wait_for_the_lock() {
        let mutex = Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| *mutex.lock().unwrap() += 1));
            }
        });
        assert_eq!(*mutex.lock().unwrap(), 4000);
    }
}
