//! Statistics of the memory that is allocated on a device.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::runtime::activity::MemoryInUse;
use crate::runtime::memory_cache::Counters;

/// Statistics of the memory that is allocated on a device through this crate, at the time of the call.
///
/// They include the memory of dropped buffers that queued work still uses, except where it was allocated for
/// the [stream](crate::Stream::allocate) of that work: such memory is only in `active` and `reserved`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStatistics {
    /// The number of bytes that are allocated now.
    pub allocated: u64,
    /// The largest value of `allocated` since the device was opened.
    pub peak: u64,
    /// The number of allocations that are not freed.
    pub live: u64,
    /// The number of bytes in use: live allocations, which may be rounded up, and memory that only queued
    /// work of a [stream](crate::Stream::allocate) still uses.
    pub active: u64,
    /// The number of bytes that the device holds for this program: `active` and the bytes in the
    /// [cache](crate::Device::empty_cache). Without a cache it equals `allocated`.
    pub reserved: u64,
    /// The largest value of `reserved` since the device was opened.
    pub peak_reserved: u64,
    /// The number of bytes in the cache.
    pub cached: u64,
    /// How many allocations the cache has served.
    pub reused: u64,
    /// How many allocations were tried again after the device was out of memory and the cache was emptied.
    pub retries: u64,
}

/// The counters of one device.
#[derive(Default)]
pub(crate) struct Statistics {
    allocated: AtomicU64,
    peak: AtomicU64,
    live: AtomicU64,
    /// On a device with a cache: the bytes of allocations that bypass it, and the largest number of bytes
    /// that the device held when there was one.
    passing: AtomicU64,
    peak_reserved: AtomicU64,
}

// Each counter is correct by itself. A consistent snapshot of all is not worth a lock.

impl Statistics {
    pub(crate) fn add(&self, len: usize) {
        let before = self.allocated.fetch_add(len as u64, Ordering::Relaxed);
        // On a backend that accepts any length, the sum may overflow. It is then wrong, but adding never
        // panics.
        let allocated = before.wrapping_add(len as u64);
        self.peak.fetch_max(allocated, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, len: usize) {
        self.allocated.fetch_sub(len as u64, Ordering::Relaxed);
        self.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts an allocation that bypasses the cache, which holds this many bytes.
    #[inline]
    pub(crate) fn pass(&self, len: usize, reserved: u64) {
        let before = self.passing.fetch_add(len as u64, Ordering::Relaxed);
        self.peak_reserved
            .fetch_max(before.wrapping_add(len as u64).wrapping_add(reserved), Ordering::Relaxed);
    }

    /// Counts the free of such an allocation.
    #[inline]
    pub(crate) fn free_passing(&self, len: usize) {
        self.passing.fetch_sub(len as u64, Ordering::Relaxed);
    }

    /// Notes that the cache holds more, which is now this many bytes.
    pub(crate) fn grown(&self, reserved: u64) {
        let passing = self.passing.load(Ordering::Relaxed);
        self.peak_reserved.fetch_max(passing.wrapping_add(reserved), Ordering::Relaxed);
    }

    /// The statistics; the cache, if there is one, holds this many bytes.
    pub(crate) fn in_use(&self, cache: Option<u64>) -> MemoryInUse {
        let allocated = self.allocated.load(Ordering::Relaxed);
        let passing = self.passing.load(Ordering::Relaxed);
        let reserved = cache.map_or(allocated, |reserved| reserved.wrapping_add(passing));
        MemoryInUse { allocated, reserved }
    }

    pub(crate) fn now(&self, cache: Option<Counters>) -> MemoryStatistics {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let allocated = load(&self.allocated);
        let peak = load(&self.peak);
        let live = load(&self.live);
        let without = Counters { reserved: allocated, peak_reserved: peak, ..Counters::default() };
        let with = |cache: Counters| Counters {
            reserved: cache.reserved.wrapping_add(load(&self.passing)),
            peak_reserved: cache.peak_reserved.max(load(&self.peak_reserved)),
            ..cache
        };
        let Counters { reserved, peak_reserved, cached, reused, retries } = cache.map_or(without, with);
        let active = reserved - cached;
        MemoryStatistics { allocated, peak, live, active, reserved, peak_reserved, cached, reused, retries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_overflows_does_not_panic() {
        let statistics = Statistics::default();
        const LEN: usize = isize::MAX as usize;
        (0..3).for_each(|_| statistics.add(LEN));
        assert_eq!(statistics.now(None).live, 3);
        (0..3).for_each(|_| statistics.remove(LEN));
        assert_eq!((statistics.now(None).allocated, statistics.now(None).live), (0, 0));
    }
}
