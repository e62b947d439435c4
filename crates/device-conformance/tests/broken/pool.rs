//! The memory of a device: one range of bytes, parts of which are allocated.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use device_registry::backend::{BackendError, HostMemory, Memory, Span};
use parking_lot::{Mutex, MutexGuard};

use crate::defect::Defect::*;
use crate::misallocate::{self, Maker};
use crate::wrong::wrong;

/// The bytes of each device.
pub(crate) const CAPACITY: usize = 256 << 20;

/// The memory of a device.
pub(crate) struct Pool {
    pub(crate) bytes: Arc<HostMemory>,
    /// The free ranges: their starts and lengths. No two are adjacent.
    gaps: Mutex<BTreeMap<usize, usize>>,
}

impl Pool {
    pub(crate) fn new() -> Result<Self, BackendError> {
        Ok(Self::over(Arc::new(HostMemory::zeroed(CAPACITY)?)))
    }

    pub(crate) fn over(bytes: Arc<HostMemory>) -> Self {
        Self { bytes, gaps: Mutex::new(BTreeMap::from([(0, CAPACITY)])) }
    }

    fn gaps(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.gaps.lock()
    }

    pub(crate) fn free(&self) -> usize {
        self.gaps().values().sum()
    }

    /// Takes the first free range that is long enough.
    pub(crate) fn take(&self, len: usize) -> Option<usize> {
        let mut gaps = self.gaps();
        let (&start, &gap) = gaps.iter().find(|&(_, &gap)| gap >= len)?;
        gaps.remove(&start);
        if gap > len {
            gaps.insert(start + len, gap - len);
        }
        Some(start)
    }

    pub(crate) fn give_back(&self, mut start: usize, mut len: usize) {
        let mut gaps = self.gaps();
        if let Some((&before, &gap)) = gaps.range(..start).next_back()
            && before + gap == start
        {
            (start, len) = (before, gap + len);
        }
        if let Some(gap) = gaps.remove(&(start + len)) {
            len += gap;
        }
        gaps.insert(start, len);
    }
}

/// One allocation.
pub(crate) struct TwinMemory {
    pub(crate) pool: Arc<Pool>,
    pub(crate) start: usize,
    /// The requested length.
    len: usize,
    /// The length in the pool, in whole words.
    pub(crate) taken: usize,
    alignment: usize,
    pub(crate) made_by: Maker,
}

impl Memory for TwinMemory {
    fn native_handle(&self, _kind: &str) -> Option<u64> {
        wrong(MemoryHasEveryHandle).then_some(7)
    }
}

impl TwinMemory {
    pub(crate) fn allocate(pool: &Arc<Pool>, len: usize, alignment: usize) -> Result<Self, BackendError> {
        let out_of_memory = || BackendError::out_of_memory(len as u64, Some(pool.free() as u64));
        let taken = match len.checked_next_multiple_of(alignment) {
            _ if wrong(LengthsWrap) => (len as u32 as usize).max(1),
            _ if wrong(SharesTheLastByte) && len > 1 => len - 1,
            _ if wrong(DoesNotRoundUp) => len,
            taken => taken.ok_or_else(out_of_memory)?,
        };
        let mut start = pool.take(taken).ok_or_else(out_of_memory)?;
        if wrong(LargeOnesShare) && len >= 1 << 20 {
            start &= !((1 << 20) - 1);
        }
        Ok(Self { pool: Arc::clone(pool), start, len, taken, alignment, made_by: Maker::new() })
    }
}

impl Drop for TwinMemory {
    fn drop(&mut self) {
        if !misallocate::freed(self) {
            self.pool.give_back(self.start, self.taken);
        }
    }
}

/// A range of bytes on a device. Like an address, it keeps no memory alive.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) pool: Arc<Pool>,
    /// The range in the pool, in whole words.
    pub(crate) range: Range<usize>,
    /// The start of the allocation.
    pub(crate) memory: usize,
}

impl Place {
    /// The place of a span. An error if the core has not checked the span.
    pub(crate) fn of(span: &Span) -> Result<Self, BackendError> {
        let memory = span.memory_as::<TwinMemory>()?;
        misallocate::look_at(memory)?;
        let (alignment, Range { start, end }) = (memory.alignment, span.range());
        let is_in_words =
            start.is_multiple_of(alignment) && (end.is_multiple_of(alignment) || end == memory.len);
        if !is_in_words || start >= end || end > memory.len {
            return Err(BackendError::invalid(format_args!(
                "{start}..{end} of {} bytes, in words of {alignment}",
                memory.len
            )));
        }
        let range = memory.start + start..memory.start + end.next_multiple_of(alignment);
        Ok(Self { pool: Arc::clone(&memory.pool), range, memory: memory.start })
    }
}
