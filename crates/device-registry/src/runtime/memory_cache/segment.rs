//! Memory of a driver, and its blocks.

use std::collections::BTreeMap;

use crate::runtime::memory_cache::sizes::Pool;

/// A free block. Blocks are taken in this order: the shortest that fits; of equal ones, the whole segment
/// that was freed last, or the first part, so that the last segments become free.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Free {
    pub(super) pool: Pool,
    pub(super) size: usize,
    pub(super) order: u64,
    pub(super) segment: usize,
    pub(super) start: usize,
}

/// Memory that a driver has allocated. Its blocks cover it, and no two free ones touch.
pub(super) struct Segment<M> {
    memory: M,
    size: usize,
    pool: Pool,
    /// The free block that is the whole segment, if it is idle.
    whole: Option<Free>,
    /// The other free blocks, by their start.
    parts: BTreeMap<usize, Free>,
    /// The bytes of blocks in use.
    in_use: usize,
    /// The number of the free that left no block in use.
    idle_since: Option<u64>,
}

impl<M> Segment<M> {
    /// A segment without blocks.
    pub(super) fn new(memory: M, size: usize, pool: Pool) -> Self {
        Self { memory, size, pool, whole: None, parts: BTreeMap::new(), in_use: 0, idle_since: None }
    }

    pub(super) fn memory(&mut self) -> &mut M {
        &mut self.memory
    }

    pub(super) fn into_memory(self) -> M {
        self.memory
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn pool(&self) -> Pool {
        self.pool
    }

    /// Whether no block is in use.
    fn is_idle(&self) -> bool {
        self.in_use == 0
    }

    /// Whether a block of this size is the last one in use.
    pub(super) fn is_last(&self, size: usize) -> bool {
        self.in_use == size
    }

    /// The free block that is the whole segment, if it is idle.
    pub(super) fn whole(&self) -> Option<Free> {
        self.whole
    }

    /// Notes that the segment is idle since the free of this number, if it has become so.
    pub(super) fn idle_since(&mut self, number: u64) -> Option<u64> {
        let becomes_idle = self.is_idle() && self.idle_since.is_none();
        self.idle_since = self.idle_since.or(self.is_idle().then_some(number));
        becomes_idle.then_some(number)
    }

    /// Adds a free block.
    pub(super) fn set_free(&mut self, block: Free) {
        if block.size == self.size {
            self.whole = Some(block);
        } else {
            self.parts.insert(block.start, block);
        }
    }

    /// Uses a part of the free block that begins at `start`; the rest is not a block until it is made one.
    /// Returns since when the segment has been idle, if it has.
    pub(super) fn use_block(&mut self, start: usize, size: usize) -> Option<u64> {
        if self.whole.take().is_none() {
            self.parts.remove(&start);
        }
        self.in_use += size;
        self.idle_since.take()
    }

    /// Ends the use of a block. Returns the free ones that touch it, which are no blocks any more: with them
    /// it is one.
    pub(super) fn put(&mut self, start: usize, size: usize) -> [Option<Free>; 2] {
        self.in_use -= size;
        let before = self.parts.range(..start).next_back().map(|(_, block)| *block);
        let before = before.filter(|block| block.start + block.size == start);
        let after = self.parts.get(&(start + size)).copied();
        for block in [before, after].into_iter().flatten() {
            self.parts.remove(&block.start);
        }
        [before, after]
    }
}
