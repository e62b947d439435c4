//! The locks and the clock of the loading state machine, in one place.

use std::time::{Duration, Instant};

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

// For the models, see once_load/model.rs: the same types, of which loom tries every interleaving.
#[cfg_attr(all(test, loom), path = "sync/of_loom.rs")]
mod of_std;

pub(crate) use self::of_std::{Condvar, Mutex, MutexGuard, OnceLock, ThreadId, this_thread};

/// A thread of the parent process held the lock when this process was forked. It does not exist here, so the lock
/// is never released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orphaned;

/// The number of this process. Each call is a system call, so only slow paths make it.
pub(crate) fn process() -> u32 {
    // Without `fork` one number serves all; wasm has none.
    if cfg!(unix) { std::process::id() } else { 1 }
}

/// A point in time, or nothing on wasm32-unknown-unknown, where `Instant::now` panics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Option<Instant>);

impl Clock {
    pub(crate) fn now() -> Self {
        let has_clock = !cfg!(all(target_family = "wasm", target_os = "unknown"));
        Self(has_clock.then(Instant::now))
    }

    /// Zero where there is no clock.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.map_or(Duration::ZERO, |start| start.elapsed())
    }
}
