//! How long blocks and segments are.

use crate::backend::{BackendError, DeviceProperties, MemoryReuse};
use crate::runtime::switch;

/// The step of sizes: small enough for small buffers, and a multiple of what devices want of the start of a
/// buffer.
const STEP: usize = 512;

/// In memory that can be divided, blocks below this size share segments of [`SHARED`] bytes. Larger ones have
/// their own segments, which are divided only if at least this much remains.
const LARGE: usize = 1 << 20;

/// The size of a segment for small blocks.
const SHARED: usize = 2 << 20;

/// The most bytes that are kept on a device that allocates from the host, since other processes cannot use
/// them. Such a device never reports a lack of memory that would make the core empty the cache.
const MOST_OF_HOST: u64 = 256 << 20;

/// Which blocks share segments: a small block in a large segment would keep all of it from being reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pool {
    Small,
    Large,
}

/// The rules of a device.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    reuse: MemoryReuse,
    /// Block sizes are multiples of it, and blocks begin at multiples of it.
    step: usize,
    /// The largest allocation of the device.
    largest: usize,
}

/// The variable that turns it off.
const VARIABLE: &str = "DEVICE_MEMORY_REUSE";

/// Whether devices may use memory again: `DEVICE_MEMORY_REUSE=0` says no.
pub(crate) fn is_allowed() -> Result<bool, BackendError> {
    switch::is_on(VARIABLE, true)
}

impl Sizes {
    pub(super) fn of(properties: &DeviceProperties) -> Option<Self> {
        let alignment = match properties.memory_reuse {
            MemoryReuse::Never => return None,
            MemoryReuse::Exact | MemoryReuse::Rounded | MemoryReuse::Large { .. } => 1,
            MemoryReuse::Divided { alignment } => alignment,
        };
        let largest =
            properties.largest_allocation.map_or(usize::MAX, |limit| limit.try_into().unwrap_or(usize::MAX));
        let largest = largest.min(isize::MAX as usize);
        Some(Self {
            reuse: properties.memory_reuse,
            step: STEP.max(alignment).max(properties.copy_alignment),
            largest,
        })
    }

    /// Whether an allocation of this length is kept once it is freed.
    #[inline]
    pub(super) fn keeps(&self, len: usize) -> bool {
        match self.reuse {
            MemoryReuse::Large { from } => len >= from,
            _ => true,
        }
    }

    /// The most bytes that are kept, unless the program says otherwise.
    pub(super) fn limit(&self) -> u64 {
        match self.reuse {
            MemoryReuse::Large { .. } => MOST_OF_HOST,
            _ => u64::MAX,
        }
    }

    /// How often the peak of what was in use is halved, for what the device holds beyond it: 3 for an eighth
    /// more than the peak.
    pub(super) fn spare(&self) -> u32 {
        match self.reuse {
            // Sizes that alternate stay, as `MOST_OF_HOST` bounds what is kept.
            MemoryReuse::Large { .. } => 0,
            _ => 3,
        }
    }

    pub(super) fn divides(&self) -> bool {
        matches!(self.reuse, MemoryReuse::Divided { .. })
    }

    /// The size of the block for `len` bytes: `len` itself, or at most an eighth or a step more. `None` if
    /// the device cannot allocate it.
    pub(super) fn block(&self, len: usize) -> Option<usize> {
        let step = match self.reuse {
            MemoryReuse::Exact => return Some(len),
            // Small blocks of divided memory need no classes: what remains is a block again.
            _ if self.divides() && len < LARGE => self.step,
            _ => (len.checked_next_power_of_two()? / 16).max(self.step),
        };
        len.checked_next_multiple_of(step).filter(|&size| size <= self.largest)
    }

    /// The longest block that serves a request of this size.
    pub(super) fn longest_fit(&self, size: usize) -> usize {
        match self.reuse {
            MemoryReuse::Divided { .. } => usize::MAX,
            MemoryReuse::Rounded | MemoryReuse::Large { .. } => size.saturating_add(size / 8),
            MemoryReuse::Exact | MemoryReuse::Never => size,
        }
    }

    pub(super) fn pool(&self, size: usize) -> Pool {
        if self.divides() && size < LARGE { Pool::Small } else { Pool::Large }
    }

    /// The size of the segment for a block.
    pub(super) fn segment(&self, size: usize) -> usize {
        match self.pool(size) {
            Pool::Small if SHARED <= self.largest => SHARED.next_multiple_of(self.step),
            _ => size,
        }
    }

    /// Whether what remains of a free block becomes a block.
    pub(super) fn splits(&self, pool: Pool, rest: usize) -> bool {
        let least = if pool == Pool::Small { self.step } else { LARGE };
        self.divides() && rest >= least
    }
}
