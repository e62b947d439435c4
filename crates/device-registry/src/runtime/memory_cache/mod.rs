//! Freed memory that is kept for later allocations.
//!
//! A driver allocates a *segment*, and an allocation gets a *block* of one: the whole segment, or a part of
//! it where the device can [divide](MemoryReuse::Divided) memory. Adjacent free blocks of a segment are
//! merged.
//!
//! The core frees memory only when no work uses it any more. So a free block can be given out at once, to any
//! stream and to any thread, and no event has to be waited for. A block that was allocated for a stream is
//! *promised* when only queued work of that stream uses it: later work of the stream may have it.
//!
//! How much is kept follows the program's peak: a device holds at most an eighth more than was ever in use at
//! once, unless small blocks in use keep segments alive. For host memory it holds as much again.

mod promised;
mod segment;
mod sizes;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::backend::{Block, DeviceProperties, Progress, StreamOrder};
use crate::runtime::memory_cache::promised::Promised;
use crate::runtime::memory_cache::segment::{Free, Segment};
use crate::runtime::memory_cache::sizes::Sizes;
pub(crate) use crate::runtime::memory_cache::sizes::is_allowed;
use crate::sync::{Mutex, lock};

/// A program that never used much may keep this many bytes anyway.
const ALWAYS: u64 = 16 << 20;

/// How many blocks wait outside the lists for a request of their size.
const PARKED: usize = 8;

/// The freed memory of one device. `M` is a handle of the driver's memory.
pub(crate) struct MemoryCache<M> {
    sizes: Sizes,
    /// Whether other code holds a segment's memory, which is then not reused.
    is_held: fn(&mut M) -> bool,
    state: Mutex<State<M>>,
    /// `State::reserved`, for calls that do not take the lock.
    reserved: Arc<AtomicU64>,
}

struct State<M> {
    /// By index. A gap is reused.
    segments: Vec<Option<Segment<M>>>,
    gaps: Vec<usize>,
    free: BTreeSet<Free>,
    /// The whole segments that were freed last, the newest one last: most requests are of their sizes, and
    /// need no list. Their segments count as in use until they are in the lists.
    parked: Vec<Block>,
    /// Only the streams that have any.
    promised: Vec<Promised>,
    /// The segments without a block in use, by the number of the free that made them so.
    idle: BTreeMap<u64, usize>,
    frees: u64,
    /// Bytes of segments, of blocks that are in use or promised, and the largest values of both. The first
    /// changes only under the lock.
    reserved: Arc<AtomicU64>,
    in_use: u64,
    peak_reserved: u64,
    peak_in_use: u64,
    /// How many allocations a free block has served, and how many were tried again after the cache was
    /// emptied.
    reused: u64,
    retries: u64,
    /// The most bytes that are kept.
    limit: u64,
    /// How often the peak of what was in use is halved, for what the device holds beyond it: 3 for an eighth
    /// more than the peak.
    spare: u32,
    closed: bool,
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

// Each function that takes segments out returns their memory: its `drop` is the driver's code, during which
// no lock may be held.

impl<M: Clone> MemoryCache<M> {
    /// A cache for the device, if its memory may be used again.
    pub(crate) fn of(properties: &DeviceProperties, is_held: fn(&mut M) -> bool) -> Option<Self> {
        let sizes = Sizes::of(properties)?;
        let state = State::new(sizes.limit(), sizes.spare());
        let reserved = Arc::clone(&state.reserved);
        Some(Self { sizes, is_held, state: Mutex::new(state), reserved })
    }

    /// Whether allocations of this length go through the cache.
    #[inline]
    pub(crate) fn keeps(&self, len: usize) -> bool {
        self.sizes.keeps(len)
    }

    /// How many bytes the driver has allocated for it.
    #[inline]
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// How long a block for `len` bytes is; `None` if that cannot be expressed.
    pub(crate) fn block_size(&self, len: usize) -> Option<usize> {
        self.sizes.block(len)
    }

    /// How long the segment is that the driver allocates for a block of this size.
    pub(crate) fn segment_size(&self, size: usize) -> usize {
        let segment = self.sizes.segment(size);
        // At most what may be kept: with a limit of 0, each block is a segment.
        if segment as u64 <= lock(&self.state).limit { segment } else { size }
    }

    /// Takes a free block of this size, or one that is a little longer.
    pub(crate) fn take(&self, size: usize) -> Option<(M, Block)> {
        let mut state = lock(&self.state);
        if let Some(taken) = state.take_parked(size) {
            return Some(taken);
        }
        state.unpark(&self.sizes);
        let pool = self.sizes.pool(size);
        let longest = self.sizes.longest_fit(size);
        let shortest = Free { pool, size, order: 0, segment: 0, start: 0 };
        let found = *state.free.range(shortest..).next()?;
        if found.pool != pool || found.size > longest {
            return None;
        }
        state.reused += 1;
        Some(state.give_out(&self.sizes, found, size))
    }

    /// Takes a promised block of the stream, of this size or a little more. Returns also the number of the
    /// stream's work below which all uses it.
    pub(crate) fn take_promised(&self, size: usize, progress: &Arc<Progress>) -> Option<(M, Block, u64)> {
        // At most that where memory is divided, as a promised block cannot be.
        let longest = self.sizes.longest_fit(size).min(size.saturating_add(size / 8));
        let mut state = lock(&self.state);
        let (block, number) = state.promised_of(progress)?.take(size..=longest)?;
        state.drop_empty_promised();
        state.reused += 1;
        let memory = state.segment(block.segment).memory().clone();
        Some((memory, block, number))
    }

    /// Makes room for a segment of this size, which the driver is about to allocate.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn make_room(&self, size: usize) -> Vec<M> {
        let mut state = lock(&self.state);
        let peak = state.peak_in_use.max(state.in_use.saturating_add(size as u64));
        state.evict(&self.sizes, size as u64, peak)
    }

    /// Adds a segment that the driver has allocated, and gives out its first block, of `size` bytes.
    pub(crate) fn add(&self, memory: M, segment_size: usize, size: usize) -> (M, Block) {
        let mut state = lock(&self.state);
        let segment = state.insert(Segment::new(memory, segment_size, self.sizes.pool(size)));
        state.reserved.fetch_add(segment_size as u64, Ordering::Relaxed);
        let free = state.make_free(&self.sizes, segment, 0, segment_size);
        state.give_out(&self.sizes, free, size)
    }

    /// Keeps a block that was in use. Returns what is to be given back to the driver instead.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn put(&self, block: Block) -> Vec<M> {
        lock(&self.state).put(self, block)
    }

    /// Like [`put`](Self::put), for a block that queued work of one stream may still use.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn put_promised(&self, block: Block, order: &StreamOrder) -> Vec<M> {
        let progress = order.progress();
        let free_at = order.free_at();
        let mut state = lock(&self.state);
        // Checked under the lock: a thread that advances the progress takes the lock after that, and finds
        // the block.
        if progress.is_done(free_at) {
            return state.put(self, block);
        }
        if state.promised_of(progress).is_none() {
            state.promised.push(Promised::new(progress));
        }
        if let Some(promised) = state.promised_of(progress) {
            promised.add(block, free_at);
        }
        Vec::new()
    }

    /// Keeps the promised blocks of a stream whose work is done by now.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn settle(&self, progress: &Arc<Progress>) -> Vec<M> {
        let mut state = lock(&self.state);
        let mut evicted = Vec::new();
        while let Some(block) = state.promised_of(progress).and_then(Promised::take_free) {
            evicted.append(&mut state.put(self, block));
        }
        state.drop_empty_promised();
        evicted
    }

    /// Whether a stream has promised blocks.
    pub(crate) fn has_promised(&self, progress: &Arc<Progress>) -> bool {
        lock(&self.state).promised_of(progress).is_some()
    }

    /// Takes all segments out that have no block in use.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn empty(&self) -> Vec<M> {
        lock(&self.state).take_idle(&self.sizes)
    }

    /// Counts an allocation that is tried again.
    pub(crate) fn retried(&self) {
        lock(&self.state).retries += 1;
    }

    /// Takes all segments out that have no block in use, and the others as soon as they have none.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn close(&self) -> Vec<M> {
        let mut state = lock(&self.state);
        state.closed = true;
        state.take_idle(&self.sizes)
    }

    /// Sets the most bytes that are kept.
    #[must_use = "the drop of what it returns gives the memory back"]
    pub(crate) fn set_limit(&self, limit: u64) -> Vec<M> {
        let mut state = lock(&self.state);
        state.limit = limit;
        let peak = state.peak_in_use;
        state.evict(&self.sizes, 0, peak)
    }

    pub(crate) fn counters(&self) -> Counters {
        let state = lock(&self.state);
        Counters {
            reserved: state.reserved(),
            peak_reserved: state.peak_reserved,
            cached: state.reserved() - state.in_use,
            reused: state.reused,
            retries: state.retries,
        }
    }
}

impl<M: Clone> State<M> {
    fn new(limit: u64, spare: u32) -> Self {
        Self {
            segments: Vec::new(),
            gaps: Vec::new(),
            free: BTreeSet::new(),
            parked: Vec::with_capacity(PARKED),
            promised: Vec::new(),
            idle: BTreeMap::new(),
            frees: 0,
            reserved: Arc::default(),
            in_use: 0,
            peak_reserved: 0,
            peak_in_use: 0,
            reused: 0,
            retries: 0,
            limit,
            spare,
            closed: false,
        }
    }

    fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    fn insert(&mut self, segment: Segment<M>) -> usize {
        let Some(gap) = self.gaps.pop() else {
            self.segments.push(Some(segment));
            return self.segments.len() - 1;
        };
        self.segments[gap] = Some(segment);
        gap
    }

    fn segment(&mut self, index: usize) -> &mut Segment<M> {
        self.segments[index].as_mut().expect("the lists name segments that are there")
    }

    fn promised_of(&mut self, progress: &Arc<Progress>) -> Option<&mut Promised> {
        self.promised.iter_mut().find(|promised| promised.is_of(progress))
    }

    fn drop_empty_promised(&mut self) {
        self.promised.retain(|promised| !promised.is_empty());
    }

    /// Keeps a block that was in use. Returns what is to be given back to the driver instead.
    fn put(&mut self, cache: &MemoryCache<M>, block: Block) -> Vec<M> {
        self.in_use -= block.size as u64;
        let limit = self.limit;
        let closed = self.closed;
        let segment = self.segment(block.segment);
        let is_whole = block.size == segment.size();
        let segment_size = segment.size() as u64;
        let is_held = segment.is_last(block.size) && (cache.is_held)(segment.memory());
        if is_whole && !is_held && !closed && !self.holds_too_much(0, self.peak_in_use) {
            self.park(&cache.sizes, block);
            return Vec::new();
        }
        // Blocks that were freed earlier come first.
        self.unpark(&cache.sizes);
        if self.segment(block.segment).is_last(block.size) && (is_held || closed || segment_size > limit) {
            self.take_from_segment(block);
            return self.remove(block.segment).into_iter().collect();
        }
        self.list(&cache.sizes, block);
        self.evict(&cache.sizes, 0, self.peak_in_use)
    }

    /// Keeps a whole segment for a request of its size.
    fn park(&mut self, sizes: &Sizes, block: Block) {
        if self.parked.len() == PARKED {
            let oldest = self.parked.remove(0);
            self.list(sizes, oldest);
        }
        self.parked.push(block);
    }

    /// Takes the newest parked block of this size.
    #[inline]
    fn take_parked(&mut self, size: usize) -> Option<(M, Block)> {
        let place = self.parked.iter().rposition(|block| block.size == size)?;
        let block = self.parked.remove(place);
        self.reused += 1;
        self.in_use += size as u64;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        Some((self.segment(block.segment).memory().clone(), block))
    }

    /// Adds the parked blocks to the lists, the oldest first.
    fn unpark(&mut self, sizes: &Sizes) {
        // The block stays allocated.
        let mut parked = std::mem::take(&mut self.parked);
        parked.drain(..).for_each(|block| self.list(sizes, block));
        self.parked = parked;
    }

    /// Ends a block's use of its segment, and adds it to the lists, as one with the free blocks that touch
    /// it.
    fn list(&mut self, sizes: &Sizes, block: Block) {
        let (start, size) = self.take_from_segment(block);
        self.make_free(sizes, block.segment, start, size);
    }

    /// Ends a block's use of its segment. Returns where it begins, and how long it is, with the free blocks
    /// that touch it, which are not in the lists any more.
    fn take_from_segment(&mut self, block: Block) -> (usize, usize) {
        let touching = self.segment(block.segment).put(block.start, block.size);
        let mut start = block.start;
        let mut size = block.size;
        for other in touching.into_iter().flatten() {
            (start, size) = (start.min(other.start), size + other.size);
            self.free.remove(&other);
        }
        (start, size)
    }

    /// Adds a free block to the lists.
    fn make_free(&mut self, sizes: &Sizes, index: usize, start: usize, size: usize) -> Free {
        self.frees += 1;
        let number = self.frees;
        let segment = self.segment(index);
        let order = if sizes.divides() { 0 } else { u64::MAX - number };
        let free = Free { pool: segment.pool(), size, order, segment: index, start };
        segment.set_free(free);
        if let Some(idle) = segment.idle_since(number) {
            self.idle.insert(idle, index);
        }
        self.free.insert(free);
        free
    }

    /// Gives out the first `size` bytes of a free block, or all of it where the rest is not worth a block.
    fn give_out(&mut self, sizes: &Sizes, found: Free, size: usize) -> (M, Block) {
        self.free.remove(&found);
        let size = if sizes.splits(found.pool, found.size - size) { size } else { found.size };
        let segment = self.segment(found.segment);
        let idle = segment.use_block(found.start, size);
        let memory = segment.memory().clone();
        if let Some(idle) = idle {
            self.idle.remove(&idle);
        }
        if size < found.size {
            self.make_free(sizes, found.segment, found.start + size, found.size - size);
        }
        self.in_use += size as u64;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        self.peak_reserved = self.peak_reserved.max(self.reserved());
        (memory, Block { segment: found.segment, start: found.start, size })
    }

    /// Takes out a segment without a block in use or in the list of free ones.
    fn remove(&mut self, index: usize) -> Option<M> {
        let segment = self.segments[index].take()?;
        self.gaps.push(index);
        self.reserved.fetch_sub(segment.size() as u64, Ordering::Relaxed);
        Some(segment.into_memory())
    }

    /// Takes out the segment that has been idle for longest.
    fn pop_idle(&mut self) -> Option<M> {
        let (_, index) = self.idle.pop_first()?;
        if let Some(whole) = self.segment(index).whole() {
            self.free.remove(&whole);
        }
        self.remove(index)
    }

    /// Whether the device would hold more than it may, with `more` bytes.
    #[inline]
    fn holds_too_much(&self, more: u64, peak: u64) -> bool {
        let allowed = peak.saturating_add(peak >> self.spare).max(ALWAYS);
        let held = self.reserved();
        held - self.in_use > self.limit || held.saturating_add(more) > allowed
    }

    /// Takes out the segments that have been idle for longest, until `more` bytes can be added to what the
    /// device holds.
    fn evict(&mut self, sizes: &Sizes, more: u64, peak: u64) -> Vec<M> {
        let mut evicted = Vec::new();
        while self.holds_too_much(more, peak) {
            self.unpark(sizes);
            let Some(memory) = self.pop_idle() else { break };
            evicted.push(memory);
        }
        evicted
    }

    fn take_idle(&mut self, sizes: &Sizes) -> Vec<M> {
        self.unpark(sizes);
        std::iter::from_fn(|| self.pop_idle()).collect()
    }
}
