//! Blocks that only the queued work of one stream uses.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::backend::{Block, Progress};

/// The blocks of one stream: its later work may have them at once, and other users when the work is done.
pub(super) struct Promised {
    progress: Arc<Progress>,
    /// Sorted by size, and within a size by when they are free.
    by_size: BTreeSet<(usize, u64, Block)>,
    by_number: BTreeSet<(u64, Block)>,
}

impl Promised {
    pub(super) fn new(progress: &Arc<Progress>) -> Self {
        Self { progress: Arc::clone(progress), by_size: BTreeSet::new(), by_number: BTreeSet::new() }
    }

    pub(super) fn is_of(&self, progress: &Arc<Progress>) -> bool {
        Arc::ptr_eq(&self.progress, progress)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Adds a block that is free when all work below the number is done.
    pub(super) fn add(&mut self, block: Block, free_at: u64) {
        self.by_size.insert((block.size, free_at, block));
        self.by_number.insert((free_at, block));
    }

    /// Takes the shortest block whose size is one of these, with the number at which it is free.
    pub(super) fn take(&mut self, sizes: RangeInclusive<usize>) -> Option<(Block, u64)> {
        let first = Block { segment: 0, start: 0, size: 0 };
        let found = self.by_size.range((*sizes.start(), 0, first)..).next();
        let (size, free_at, block) = *found.filter(|(size, ..)| sizes.contains(size))?;
        self.by_size.remove(&(size, free_at, block));
        self.by_number.remove(&(free_at, block));
        Some((block, free_at))
    }

    /// Takes a block that is free by now.
    pub(super) fn take_free(&mut self) -> Option<Block> {
        let &(free_at, block) = self.by_number.first()?;
        if !self.progress.is_done(free_at) {
            return None;
        }
        self.by_number.pop_first();
        self.by_size.remove(&(block.size, free_at, block));
        Some(block)
    }
}
