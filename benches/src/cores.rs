//! Which core a thread runs on.
//!
//! A thread that wakes another one on its own core waits a few microseconds for it, and several times as long for a core
//! that sleeps. The scheduler decides which of the two it is, in each run anew and in some runs several times: without a
//! say in it, a ratio is that of two such decisions.

/// Where two threads run that wait for each other.
#[derive(Clone, Copy, Debug)]
pub enum Cores {
    /// Both on one core.
    One,
    /// Each on a core of its own.
    Two,
}

impl Cores {
    /// Both ways, with what they are called in a benchmark.
    pub const BOTH: [(Self, &str); 2] = [(Self::One, "one core"), (Self::Two, "two cores")];

    /// Keeps this thread on the first core, and sees to it by `call` that the other is kept where it belongs.
    pub fn keep(self, call: impl FnOnce(fn())) {
        keep_on(0);
        match self {
            Self::One => call(|| keep_on(0)),
            Self::Two => call(|| keep_on(1)),
        }
    }
}

/// Keeps this thread on the core of this number, and so the threads that it starts. Where there is no such core, or no
/// way to do so, it runs anywhere.
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
