//! Which core a thread runs on.
//!
//! Waking a thread on the same core takes a few microseconds, and several times as long on a core that
//! sleeps. The scheduler chooses the core, differently in each run. Without pinning, a ratio compares two
//! such choices.

/// The cores of two threads that wait for each other.
#[derive(Clone, Copy, Debug)]
pub enum Cores {
    /// Both on one core.
    One,
    /// Each on its own core.
    Two,
}

impl Cores {
    /// Both choices, with their names in a benchmark.
    pub const BOTH: [(Self, &str); 2] = [(Self::One, "one core"), (Self::Two, "two cores")];

    /// Pins this thread to the first core. The other thread has to run the function that `call` gets, which
    /// pins it.
    pub fn keep(self, call: impl FnOnce(fn())) {
        keep_on(0);
        match self {
            Self::One => call(|| keep_on(0)),
            Self::Two => call(|| keep_on(1)),
        }
    }
}

/// Pins this thread, and the threads that it starts, to the core of this number. If that fails, it prints a
/// line and the thread runs on any core.
#[cfg(target_os = "linux")]
pub fn keep_on(core: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};

    let mut set = CpuSet::new();
    set.set(core);
    if let Err(error) = sched_setaffinity(None, &set) {
        eprintln!("a thread does not stay on core {core}: {error}");
    }
}

/// Does nothing.
#[cfg(not(target_os = "linux"))]
pub fn keep_on(_core: usize) {}
