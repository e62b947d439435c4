//! The locks and the clock of the loading state machine, for a process that may fork.

use std::time::{Duration, Instant};

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

// Models use loom's versions of the same types.
#[cfg_attr(all(test, loom), path = "sync/of_loom.rs")]
mod of_std;

mod fork;

pub(crate) use self::fork::{Orphaned, process};
pub(crate) use self::of_std::{AtomicUsize, Condvar, Mutex, MutexGuard, OnceLock, ThreadId, this_thread};

#[cfg(all(test, loom))]
pub(crate) mod model;

/// A point in time; empty on wasm32-unknown-unknown, where `Instant::now` panics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Option<Instant>);

impl Clock {
    pub(crate) fn now() -> Self {
        let has_clock = !cfg!(all(target_family = "wasm", target_os = "unknown"));
        Self(has_clock.then(now))
    }

    /// Zero where there is no clock.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.map_or(Duration::ZERO, |start| now().saturating_duration_since(start))
    }
}

#[cfg(not(test))]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
pub(crate) use self::time_of_tests::{now, pass};

/// The time of unit tests and models. It stands still until a test lets it pass, so that no test depends on
/// being fast.
#[cfg(test)]
mod time_of_tests {
    use std::cell::Cell;
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    static START: OnceLock<Instant> = OnceLock::new();

    thread_local! {
        // Tests run in parallel, so each thread has its own time. Loom runs all threads of a model on one.
        static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    pub(crate) fn now() -> Instant {
        *START.get_or_init(Instant::now) + PASSED.get()
    }

    /// Lets this time pass, for this thread.
    pub(crate) fn pass(time: Duration) {
        PASSED.set(PASSED.get() + time);
    }
}
