//! Which parts of a device's memory are free, by offset. It holds no bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Every block begins at a multiple of this, as on CUDA, and its length is a multiple of it.
pub(crate) const ALIGNMENT: usize = 256;

/// The pages of shorter free blocks stay, and are not counted: to find them all costs more than it saves.
const SMALLEST_HOLE: usize = 1 << 17;

/// Blocks up to this length wait, when they are freed, for a request of their length, at most [`MOST_IDLE`]
/// of each length: to join a block with its neighbours and to divide it again takes ten times as long.
const LONGEST_IDLE: usize = 16 << 10;
const MOST_IDLE: usize = 16;

/// Allocates ranges of `0..capacity`, best fit.
///
/// The maintained crate (`offset-allocator`) is limited to 2³² bytes, rounds sizes by up to an eighth, and
/// cannot find the block that an offset lies in.
pub(crate) struct Allocator {
    capacity: usize,
    used: usize,
    /// Every block by its offset: together they are `0..capacity`, and no two neighbours are free. Those that
    /// are idle count as neither free nor used.
    blocks: BTreeMap<usize, Block>,
    /// The free ones, by length and then by offset.
    free: BTreeSet<(usize, usize)>,
    /// How many pieces of free blocks that are not too short may have pages.
    kept: usize,
    /// The offsets of idle blocks, by their length in units of [`ALIGNMENT`].
    idle: [Vec<usize>; LONGEST_IDLE / ALIGNMENT + 1],
}

#[derive(Clone, Copy)]
struct Block {
    len: usize,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Used {
        /// The length of the request, before rounding.
        requested: usize,
    },
    /// Freed, and not joined with its neighbours.
    Idle,
    Free(Kept),
}

/// The pieces of a free block that may have pages, by their numbers: as short as a length.
#[derive(Clone, Copy)]
struct Kept {
    start: u32,
    end: u32,
}

impl Kept {
    /// The length of a piece: the largest page of Linux.
    const PIECE: usize = 1 << 16;
    const NONE: Self = Self { start: 0, end: 0 };

    fn of(range: Range<usize>) -> Self {
        // With more memory than today's processors address, pages would stay.
        let number = |piece: usize| u32::try_from(piece).unwrap_or(u32::MAX);
        Self { start: number(range.start / Self::PIECE), end: number(range.end.div_ceil(Self::PIECE)) }
    }

    fn is_none(self) -> bool {
        self.start >= self.end
    }

    fn count(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    /// The shortest range that has all of both.
    fn with(self, other: Self) -> Self {
        if other.is_none() {
            return self;
        }
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The part from an offset on.
    fn behind(self, offset: usize) -> Self {
        Self { start: self.start.max(Self::of(offset..offset).start), ..self }
    }

    /// The bytes, as far as they are in the block.
    fn bytes(self, block: &Range<usize>) -> Range<usize> {
        let at = |piece: u32| (piece as usize * Self::PIECE).clamp(block.start, block.end);
        at(self.start)..at(self.end)
    }
}

impl Allocator {
    pub(crate) fn new(capacity: usize) -> Self {
        let idle = std::array::from_fn(|_| Vec::new());
        let blocks = BTreeMap::new();
        let free = BTreeSet::new();
        let mut new = Self { capacity, used: 0, blocks, free, kept: 0, idle };
        new.insert_free(0, capacity, Kept::NONE);
        new
    }

    pub(crate) fn free(&self) -> usize {
        self.capacity - self.used
    }

    /// The largest length that fits now.
    pub(crate) fn largest(&mut self) -> usize {
        self.join_idle();
        self.free.last().map_or(0, |&(len, _)| len)
    }

    /// The offset of a new block; `None` if no free one is large enough.
    pub(crate) fn allocate(&mut self, requested: usize) -> Option<usize> {
        let len = requested.max(1).checked_next_multiple_of(ALIGNMENT)?;
        if let Some(offset) = self.idle.get_mut(len / ALIGNMENT).and_then(Vec::pop) {
            self.blocks.insert(offset, Block { len, state: State::Used { requested } });
            self.used += len;
            return Some(offset);
        }
        self.divide(len, requested).or_else(|| {
            self.join_idle();
            self.divide(len, requested)
        })
    }

    /// The offset of a new block, which is divided from a free one.
    fn divide(&mut self, len: usize, requested: usize) -> Option<usize> {
        let &(found, offset) = self.free.range((len, 0)..).next()?;
        let before = self.blocks.insert(offset, Block { len, state: State::Used { requested } });
        let Some(Block { state: State::Free(kept), .. }) = before else {
            unreachable!("the list has blocks that are free")
        };
        self.remove_free(offset, found, kept);
        if found > len {
            self.insert_free(offset + len, found - len, kept.behind(offset + len));
        }
        self.used += len;
        Some(offset)
    }

    /// Frees the block that begins at `offset`.
    pub(crate) fn release(&mut self, offset: usize) {
        let Some(block) = self.blocks.get_mut(&offset) else { unreachable!("no block begins at {offset}") };
        debug_assert!(matches!(block.state, State::Used { .. }), "the block at {offset} is freed twice");
        let len = block.len;
        self.used -= len;
        match self.idle.get_mut(len / ALIGNMENT) {
            Some(idle) if idle.len() < MOST_IDLE => {
                block.state = State::Idle;
                idle.push(offset);
            }
            _ => self.join(offset, len),
        }
    }

    /// Makes all idle blocks free ones.
    fn join_idle(&mut self) {
        for unit in 0..self.idle.len() {
            for offset in std::mem::take(&mut self.idle[unit]) {
                self.join(offset, unit * ALIGNMENT);
            }
        }
    }

    /// Joins a block that is not used any more with its neighbours that are free.
    fn join(&mut self, offset: usize, len: usize) {
        let mut start = offset;
        let mut end = offset + len;
        let mut kept = Kept::of(start..end);
        if let Some((&after, &Block { len, state: State::Free(more) })) = self.blocks.range(end..).next() {
            self.blocks.remove(&after);
            self.remove_free(after, len, more);
            kept = kept.with(more);
            end += len;
        }
        if let Some((&before, &Block { len, state: State::Free(more) })) =
            self.blocks.range(..offset).next_back()
        {
            self.blocks.remove(&offset);
            self.remove_free(before, len, more);
            kept = kept.with(more);
            start = before;
        }
        self.insert_free(start, end - start, kept);
    }

    /// The offset and the requested length of the block that the byte at `offset` belongs to, if it is in
    /// use.
    pub(crate) fn find(&self, offset: usize) -> Option<(usize, usize)> {
        let (&start, block) = self.blocks.range(..=offset).next_back()?;
        let State::Used { requested } = block.state else { return None };
        (offset - start < requested).then_some((start, requested))
    }

    /// How many bytes of the free blocks may have pages, without the short ones.
    pub(crate) fn kept(&self) -> usize {
        self.kept * Kept::PIECE
    }

    /// The ranges that [`kept`](Self::kept) counts. The caller returns their pages to the system.
    pub(crate) fn take_kept(&mut self) -> Vec<Range<usize>> {
        self.kept = 0;
        let mut ranges = Vec::new();
        for &(len, offset) in self.free.range((SMALLEST_HOLE, 0)..) {
            if let Some(Block { state: State::Free(kept), .. }) = self.blocks.get_mut(&offset)
                && !kept.is_none()
            {
                ranges.push(kept.bytes(&(offset..offset + len)));
                *kept = Kept::NONE;
            }
        }
        ranges
    }

    fn insert_free(&mut self, offset: usize, len: usize, kept: Kept) {
        self.blocks.insert(offset, Block { len, state: State::Free(kept) });
        self.free.insert((len, offset));
        if len >= SMALLEST_HOLE {
            self.kept += kept.count();
        }
    }

    /// Takes a block out of the list of free ones.
    fn remove_free(&mut self, offset: usize, len: usize, kept: Kept) {
        self.free.remove(&(len, offset));
        if len >= SMALLEST_HOLE {
            self.kept -= kept.count();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: usize = ALIGNMENT;

    #[test]
    fn blocks_are_disjoint_aligned_and_inside_and_what_is_freed_joins_to_one() {
        let mut allocator = Allocator::new(1000 * A);
        let mut held: Vec<Range<usize>> = Vec::new();
        let mut random = 1_u64;
        for round in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (random >> 33) as usize;
            if number % 5 < 3 {
                let len = number % (20 * A);
                match allocator.allocate(len) {
                    Some(offset) => held.push(offset..offset + len.max(1)),
                    None => assert!(len > allocator.largest(), "round {round}"),
                }
            } else if !held.is_empty() {
                allocator.release(held.swap_remove(number % held.len()).start);
            }
            if round % 100 == 0 {
                held.sort_by_key(|range| range.start);
                assert!(held.windows(2).all(|two| two[0].end <= two[1].start), "{held:?}");
                assert!(held.iter().all(|range| range.start.is_multiple_of(A) && range.end <= 1000 * A));
                let used: usize = held.iter().map(|range| range.len().next_multiple_of(A)).sum();
                assert_eq!(allocator.free(), 1000 * A - used);
            }
        }
        for range in held {
            allocator.release(range.start);
        }
        assert_eq!((allocator.free(), allocator.largest()), (1000 * A, 1000 * A));
        assert_eq!((allocator.blocks.len(), allocator.free.len()), (1, 1));
    }

    #[test]
    fn a_block_joins_what_is_free_on_either_side_of_it() {
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut allocator = Allocator::new(3 * A);
            let offsets = [(); 3].map(|()| allocator.allocate(A).unwrap());
            for index in order {
                allocator.release(offsets[index]);
            }
            assert_eq!(allocator.allocate(3 * A), Some(0), "{order:?}");
        }
    }

    #[test]
    fn the_smallest_that_is_large_enough_is_taken() {
        let mut allocator = Allocator::new(10 * A);
        let offsets = [3, 1, 2, 1, 3].map(|len| allocator.allocate(len * A).unwrap());
        allocator.release(offsets[0]);
        allocator.release(offsets[2]);
        assert_eq!(allocator.allocate(2 * A), Some(offsets[2]));
        assert_eq!(allocator.allocate(4 * A), None, "three are free in one piece, and two, but never four");
    }

    #[test]
    fn pages_that_are_used_again_are_not_kept() {
        const MIB: usize = 1 << 20;
        let mut allocator = Allocator::new(1 << 30);
        for _ in 0..100 {
            let offsets = [(); 4].map(|()| allocator.allocate(MIB).unwrap());
            offsets.into_iter().for_each(|offset| allocator.release(offset));
            assert_eq!(allocator.kept(), 4 * MIB);
        }
        let one = allocator.allocate(MIB).unwrap();
        assert_eq!(allocator.kept(), 3 * MIB);
        assert_eq!(allocator.take_kept(), vec![one + MIB..one + 4 * MIB]);
        assert_eq!((allocator.kept(), allocator.take_kept().len()), (0, 0));
        let large = allocator.allocate(8 * MIB).unwrap();
        allocator.release(one);
        allocator.release(large);
        assert_eq!(allocator.take_kept(), vec![0..9 * MIB]);
    }

    #[test]
    fn short_free_blocks_are_not_kept_until_they_join() {
        let mut allocator = Allocator::new(4 * SMALLEST_HOLE);
        let offsets = [(); 8].map(|()| allocator.allocate(SMALLEST_HOLE / 2).unwrap());
        for (offset, kept) in [(0, 0), (2, 0), (1, 3)].map(|(at, halves)| (offsets[at], halves)) {
            allocator.release(offset);
            assert_eq!(allocator.kept(), kept * SMALLEST_HOLE / 2);
        }
    }

    #[test]
    fn sizes_that_overflow_do_not_fit() {
        let mut allocator = Allocator::new(10 * A);
        for len in [usize::MAX, usize::MAX - 1, isize::MAX as usize, 10 * A + 1] {
            assert_eq!(allocator.allocate(len), None, "{len}");
        }
        assert_eq!(allocator.allocate(10 * A), Some(0));
        assert_eq!((allocator.allocate(1), allocator.largest()), (None, 0));
    }

    #[test]
    fn a_byte_is_found_in_the_block_that_it_was_given_with() {
        let mut allocator = Allocator::new(10 * A);
        let first = allocator.allocate(10).unwrap();
        let second = allocator.allocate(A + 1).unwrap();
        assert_eq!(allocator.find(first + 9), Some((first, 10)));
        assert_eq!(allocator.find(first + 10), None, "the rest of the block was not requested");
        assert_eq!(allocator.find(second + A), Some((second, A + 1)));
        assert_eq!(allocator.find(9 * A), None);
        allocator.release(first);
        assert_eq!(allocator.find(first), None);
    }
}
