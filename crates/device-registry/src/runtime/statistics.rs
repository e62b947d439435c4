//! What is allocated on a device.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is allocated on a device through this crate, at the moment of asking.
///
/// Memory of buffers that were dropped is counted as long as queued work uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStatistics {
    /// Bytes that were asked for and are not freed.
    pub allocated: u64,
    /// The most that `allocated` has been since the device was opened.
    pub peak: u64,
    /// Allocations that are not freed.
    pub live: u64,
}

/// Counters of one device.
#[derive(Default)]
pub(crate) struct Statistics {
    allocated: AtomicU64,
    peak: AtomicU64,
    live: AtomicU64,
}

// Each number is right by itself; that they were read at one moment is worth no lock.

impl Statistics {
    pub(crate) fn add(&self, len: usize) {
        let before = self.allocated.fetch_add(len as u64, Ordering::Relaxed);
        // A backend that accepts any length may be asked for more than a number holds: then the sum is wrong, as the
        // memory is, and adding never panics.
        let allocated = before.wrapping_add(len as u64);
        self.peak.fetch_max(allocated, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, len: usize) {
        self.allocated.fetch_sub(len as u64, Ordering::Relaxed);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> MemoryStatistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MemoryStatistics { allocated: load(&self.allocated), peak: load(&self.peak), live: load(&self.live) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_number_holds_is_added_without_a_panic() {
        let statistics = Statistics::default();
        const LEN: usize = isize::MAX as usize;
        (0..3).for_each(|_| statistics.add(LEN));
        assert_eq!(statistics.now().live, 3);
        (0..3).for_each(|_| statistics.remove(LEN));
        assert_eq!((statistics.now().allocated, statistics.now().live), (0, 0));
    }
}
