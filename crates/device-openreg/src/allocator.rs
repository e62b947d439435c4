//! Which parts of a device's memory are free, by offset. It holds no bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Every block begins at a multiple of this, as on CUDA, and its length is a multiple of it.
pub(crate) const ALIGNMENT: usize = 256;

/// Allocates ranges of `0..capacity`, best fit.
///
/// The maintained crate (`offset-allocator`) is limited to 2³² bytes, rounds sizes by up to an eighth, and
/// cannot find the block that an offset lies in.
pub(crate) struct Allocator {
    capacity: usize,
    used: usize,
    /// Every block by its offset, free or not: together they are `0..capacity`, and no two neighbours are
    /// free.
    blocks: BTreeMap<usize, Block>,
    /// The free ones, by length and then by offset.
    free: BTreeSet<(usize, usize)>,
}

#[derive(Clone, Copy)]
struct Block {
    len: usize,
    /// The length of the request, before rounding. `None` if the block is free.
    requested: Option<usize>,
}

impl Allocator {
    pub(crate) fn new(capacity: usize) -> Self {
        let mut new = Self { capacity, used: 0, blocks: BTreeMap::new(), free: BTreeSet::new() };
        new.insert_free(0, capacity);
        new
    }

    pub(crate) fn free(&self) -> usize {
        self.capacity - self.used
    }

    /// The largest length that fits now.
    pub(crate) fn largest(&self) -> usize {
        self.free.last().map_or(0, |&(len, _)| len)
    }

    /// The offset of a new block; `None` if no free one is large enough.
    pub(crate) fn allocate(&mut self, requested: usize) -> Option<usize> {
        let len = requested.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let &(found, offset) = self.free.range((len, 0)..).next()?;
        self.free.remove(&(found, offset));
        self.blocks.insert(offset, Block { len, requested: Some(requested) });
        if found > len {
            self.insert_free(offset + len, found - len);
        }
        self.used += len;
        Some(offset)
    }

    /// Frees the block that begins at `offset`, and joins it with its neighbours that are free. Returns its
    /// length.
    pub(crate) fn release(&mut self, offset: usize) -> usize {
        let block = self.blocks[&offset];
        debug_assert!(block.requested.is_some(), "the block at {offset} is freed twice");
        self.used -= block.len;
        let (mut start, mut end) = (offset, offset + block.len);
        if let Some((&after, &Block { len, requested: None })) = self.blocks.range(end..).next() {
            self.blocks.remove(&after);
            self.free.remove(&(len, after));
            end += len;
        }
        if let Some((&before, &Block { len, requested: None })) = self.blocks.range(..offset).next_back() {
            self.blocks.remove(&offset);
            self.free.remove(&(len, before));
            start = before;
        }
        self.insert_free(start, end - start);
        block.len
    }

    /// The offset and the requested length of the block that the byte at `offset` belongs to, if it is in
    /// use.
    pub(crate) fn find(&self, offset: usize) -> Option<(usize, usize)> {
        let (&start, block) = self.blocks.range(..=offset).next_back()?;
        let requested = block.requested?;
        (offset - start < requested).then_some((start, requested))
    }

    /// The free ranges of at least `len` bytes.
    pub(crate) fn holes(&self, len: usize) -> impl Iterator<Item = Range<usize>> {
        self.free.range((len, 0)..).map(|&(len, offset)| offset..offset + len)
    }

    fn insert_free(&mut self, offset: usize, len: usize) {
        self.blocks.insert(offset, Block { len, requested: None });
        self.free.insert((len, offset));
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
