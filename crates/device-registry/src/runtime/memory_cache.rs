//! Memory that was freed, kept for the next allocation of its size.
//!
//! The core frees memory only when no work uses it any more. So a block in the cache can be given out at once, to any
//! stream and to any thread, and no event has to be waited for.
//!
//! Sizes are rounded up to one of eight [classes](block_size) between a power of two and the next, so that blocks fit again.
//! A block may also serve a request that is a little smaller. How much is kept follows the program's peak: the device
//! holds at most an eighth more than was ever in use at once.

use std::collections::BTreeMap;

use crate::sync::{Mutex, lock};

/// The smallest block. Also a multiple of all alignments that devices have for parts of memory.
const SMALLEST: usize = 512;

/// A program that never used much may keep this many bytes anyway.
const ALWAYS: u64 = 16 << 20;

/// The size of the block for `len` bytes: at most an eighth longer. `None` if it cannot be expressed.
pub(crate) fn block_size(len: usize) -> Option<usize> {
    let step = (len.checked_next_power_of_two()? / 16).max(SMALLEST);
    len.checked_next_multiple_of(step).filter(|&size| size <= isize::MAX as usize)
}

/// The largest block that serves a request of this size.
fn largest_fit(size: usize) -> usize {
    size.saturating_add(size / 8)
}

/// The freed blocks of one device. `M` is the driver's memory.
pub(crate) struct MemoryCache<M>(Mutex<State<M>>);

struct State<M> {
    /// By size, and then by age: the number of the free that added it.
    blocks: BTreeMap<(usize, u64), M>,
    /// The sizes by age.
    ages: BTreeMap<u64, usize>,
    next: u64,
    /// Bytes of blocks that are given out, those in the cache, and the largest values of the first and of the sum.
    in_use: u64,
    cached: u64,
    peak_in_use: u64,
    peak_reserved: u64,
    /// How many allocations a cached block has served, and how many were tried again after the cache was emptied.
    reused: u64,
    retries: u64,
    /// The most bytes in the cache.
    limit: u64,
    closed: bool,
}

/// A block that was taken from the cache.
pub(crate) struct Taken<M> {
    pub(crate) memory: M,
    pub(crate) size: usize,
}

/// The counters of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) reserved: u64,
    pub(crate) peak_reserved: u64,
    pub(crate) cached: u64,
    pub(crate) reused: u64,
    pub(crate) retries: u64,
}

// Each function that takes blocks out returns them: their `drop` is the driver's code, which no lock may be held for.

impl<M> MemoryCache<M> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State {
            blocks: BTreeMap::new(),
            ages: BTreeMap::new(),
            next: 0,
            in_use: 0,
            cached: 0,
            peak_in_use: 0,
            peak_reserved: 0,
            reused: 0,
            retries: 0,
            limit: u64::MAX,
            closed: false,
        }))
    }

    /// Takes a block of this size or a little more: of the smallest that fit, the one that was freed last.
    pub(crate) fn take(&self, size: usize) -> Option<Taken<M>> {
        let mut state = lock(&self.0);
        let (&(found, _), _) = state.blocks.range((size, 0)..=(largest_fit(size), u64::MAX)).next()?;
        let (&(_, age), _) = state.blocks.range((found, 0)..=(found, u64::MAX)).next_back()?;
        let memory = state.remove(found, age)?;
        state.reused += 1;
        state.give_out(found);
        Some(Taken { memory, size: found })
    }

    /// Makes room for a block of this size, which the driver is about to allocate.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn make_room(&self, size: usize) -> Vec<M> {
        let mut state = lock(&self.0);
        let peak = state.peak_in_use.max(state.in_use + size as u64);
        state.evict(size as u64, peak)
    }

    /// Counts a block that the driver has allocated.
    pub(crate) fn allocated(&self, size: usize) {
        lock(&self.0).give_out(size);
    }

    /// Counts a block that is given back to the driver.
    pub(crate) fn freed(&self, size: usize) {
        let mut state = lock(&self.0);
        state.in_use = state.in_use.saturating_sub(size as u64);
    }

    /// Keeps a block that was given out. Returns what is to be given back to the driver instead, perhaps the block itself.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn put(&self, memory: M, size: usize) -> Vec<M> {
        let mut state = lock(&self.0);
        state.in_use = state.in_use.saturating_sub(size as u64);
        if state.closed || size as u64 > state.limit {
            return vec![memory];
        }
        let age = state.next;
        state.next += 1;
        state.blocks.insert((size, age), memory);
        state.ages.insert(age, size);
        state.cached += size as u64;
        let peak = state.peak_in_use;
        state.evict(0, peak)
    }

    /// Takes all blocks out.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn empty(&self) -> Vec<M> {
        lock(&self.0).take_all()
    }

    /// Counts an allocation that is tried again.
    pub(crate) fn retried(&self) {
        lock(&self.0).retries += 1;
    }

    /// Takes all blocks out, and keeps none from now on.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn close(&self) -> Vec<M> {
        let mut state = lock(&self.0);
        state.closed = true;
        state.take_all()
    }

    /// Sets the most bytes that are kept.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn set_limit(&self, limit: u64) -> Vec<M> {
        let mut state = lock(&self.0);
        state.limit = limit;
        let peak = state.peak_in_use;
        state.evict(0, peak)
    }

    pub(crate) fn counters(&self) -> Counters {
        let state = lock(&self.0);
        Counters {
            reserved: state.in_use + state.cached,
            peak_reserved: state.peak_reserved,
            cached: state.cached,
            reused: state.reused,
            retries: state.retries,
        }
    }
}

impl<M> State<M> {
    fn give_out(&mut self, size: usize) {
        self.in_use += size as u64;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        self.peak_reserved = self.peak_reserved.max(self.in_use + self.cached);
    }

    fn remove(&mut self, size: usize, age: u64) -> Option<M> {
        self.ages.remove(&age);
        self.cached -= size as u64;
        self.blocks.remove(&(size, age))
    }

    /// Takes the oldest blocks out, until `more` bytes can be added to what the device holds.
    fn evict(&mut self, more: u64, peak: u64) -> Vec<M> {
        let allowed = (peak + peak / 8).max(ALWAYS);
        let mut evicted = Vec::new();
        while self.cached > self.limit || self.in_use + self.cached + more > allowed {
            let Some((age, size)) = self.ages.pop_first() else { break };
            evicted.extend(self.remove(size, age));
        }
        evicted
    }

    fn take_all(&mut self) -> Vec<M> {
        self.ages.clear();
        self.cached = 0;
        std::mem::take(&mut self.blocks).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn blocks_are_at_most_an_eighth_longer() {
        for (len, size) in [
            (1, 512),
            (512, 512),
            (513, 1024),
            (8192, 8192),
            (8193, 9216),
            (1 << 20, 1 << 20),
            ((1 << 20) + 1, (1 << 20) + (1 << 17)),
        ] {
            assert_eq!(block_size(len), Some(size), "{len}");
        }
        for len in (8192..1 << 22).step_by(997) {
            let size = block_size(len).unwrap();
            assert!(size >= len && size - len <= len / 8 && size.is_multiple_of(SMALLEST), "{len}: {size}");
            assert_eq!(block_size(size), Some(size));
        }
        assert_eq!((block_size(usize::MAX), block_size(isize::MAX as usize)), (None, None));
    }

    #[test]
    fn a_block_serves_its_size_and_a_little_less() {
        let cache = MemoryCache::new();
        cache.allocated(8192);
        assert!(cache.put('a', 8192).is_empty());
        assert!(cache.take(8704).is_none(), "it is too short");
        assert!(cache.take(4096).is_none(), "most of it would be wasted");
        let taken = cache.take(7680).unwrap();
        assert_eq!((taken.memory, taken.size), ('a', 8192));
        assert!(cache.take(8192).is_none(), "it is given out");
    }

    #[test]
    fn of_blocks_that_fit_the_smallest_is_taken_and_of_those_the_latest() {
        let cache = MemoryCache::new();
        for (name, size) in [('a', 9216), ('b', 8192), ('c', 8192)] {
            cache.allocated(size);
            assert!(cache.put(name, size).is_empty());
        }
        let names: Vec<_> = std::iter::from_fn(|| cache.take(8192)).map(|taken| taken.memory).collect();
        assert_eq!(names, ['c', 'b', 'a']);
    }

    #[test]
    fn the_oldest_blocks_go_where_the_limit_is_exceeded() {
        let cache = MemoryCache::new();
        (0..4).for_each(|_| cache.allocated(1024));
        assert!((0..4).all(|name| cache.put(name, 1024).is_empty()));
        assert_eq!(cache.set_limit(2048), [0, 1]);
        assert_eq!(cache.counters().cached, 2048);
        cache.allocated(4096);
        assert_eq!(cache.put(9, 4096), [9], "it alone is more than the limit");
        assert_eq!(cache.set_limit(0), [2, 3]);
        cache.allocated(512);
        assert_eq!(cache.put(8, 512), [8]);
        assert_eq!(cache.counters(), Counters { peak_reserved: 6144, ..Counters::default() });
    }

    #[test]
    fn a_closed_cache_keeps_nothing() {
        let cache = MemoryCache::new();
        (0..2).for_each(|_| cache.allocated(512));
        assert!(cache.put('a', 512).is_empty());
        assert_eq!(cache.close(), ['a']);
        assert_eq!(cache.put('b', 512), ['b']);
        assert!(cache.take(512).is_none() && cache.empty().is_empty());
        assert_eq!(cache.counters().reserved, 0);
    }

    #[test]
    fn the_cache_holds_as_much_as_was_in_use_and_an_eighth() {
        const MIB: usize = 1 << 20;
        let cache = MemoryCache::new();
        // A training step: 100 MiB are in use, all are freed, and the next step takes them again.
        for step in 0..3 {
            for name in 0..100 {
                if cache.take(MIB).is_none() {
                    assert!(step == 0 && cache.make_room(MIB).is_empty(), "{name}");
                    cache.allocated(MIB);
                }
            }
            assert!((0..100).all(|name| cache.put(name, MIB).is_empty()));
        }
        assert_eq!(cache.counters().reused, 200);
        // Blocks of another size: the old ones make room.
        let evicted: usize = (0..20)
            .map(|_| {
                let evicted = cache.make_room(4 * MIB).len();
                cache.allocated(4 * MIB);
                evicted
            })
            .sum();
        assert_eq!(evicted, 68);
        assert_eq!(cache.counters().peak_reserved, 112 << 20);
    }

    /// The blocks of a plain allocator, which the cache is compared with: each is with the driver, in the cache, or in use.
    #[derive(Default)]
    struct Plain {
        next: u32,
        cached: HashMap<u32, usize>,
        used: Vec<(u32, usize)>,
    }

    impl Plain {
        fn given_back(&mut self, blocks: Vec<u32>) {
            for block in blocks {
                assert!(
                    self.cached.remove(&block).is_some(),
                    "block {block} was given back and is not cached"
                );
            }
        }
    }

    /// A program of random calls. Everything that the cache says is compared with the plain allocator's books.
    fn random_program(seed: u64, steps: usize) {
        let mut random = seed;
        let mut draw = move |below: u64| {
            // Marsaglia's xorshift.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let (cache, mut plain) = (MemoryCache::new(), Plain::default());
        for _ in 0..steps {
            match draw(100) {
                0..=47 => {
                    let most = 1 << (8 + draw(18));
                    let len = 1 + draw(most) as usize;
                    let size = block_size(len).unwrap();
                    if let Some(taken) = cache.take(size) {
                        let size = plain.cached.remove(&taken.memory).expect("it was not in the cache");
                        assert!(size == taken.size && size >= len && size <= len + len / 3 + SMALLEST);
                        plain.used.push((taken.memory, size));
                    } else {
                        assert!(
                            plain.cached.values().all(|&cached| cached < size || cached > largest_fit(size))
                        );
                        let evicted = cache.make_room(size);
                        plain.given_back(evicted);
                        cache.allocated(size);
                        plain.used.push((plain.next, size));
                        plain.next += 1;
                    }
                }
                48..=96 if !plain.used.is_empty() => {
                    let at = draw(plain.used.len() as u64) as usize;
                    let (block, size) = plain.used.swap_remove(at);
                    plain.cached.insert(block, size);
                    let evicted = cache.put(block, size);
                    plain.given_back(evicted);
                }
                97 => plain.given_back(cache.empty()),
                98 => plain.given_back(cache.set_limit(draw(1 << 26))),
                99 => plain.given_back(cache.set_limit(u64::MAX)),
                _ => {}
            }
            let cached: usize = plain.cached.values().sum();
            let used: usize = plain.used.iter().map(|(_, size)| size).sum();
            let counters = cache.counters();
            assert_eq!((counters.cached, counters.reserved), (cached as u64, (cached + used) as u64));
        }
        plain.given_back(cache.close());
        assert!(plain.cached.is_empty(), "{} blocks were never given back", plain.cached.len());
    }

    #[test]
    fn random_programs_agree_with_a_plain_allocator() {
        let (programs, steps): (u64, _) = if cfg!(miri) { (2, 200) } else { (50, 2000) };
        (1..=programs).for_each(|seed| random_program(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), steps));
    }
}
