//! Memory of devices, at addresses that are invalid on the host, and pinned memory of the host.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::driver::sys::CUdeviceptr;
use parking_lot::RwLock;

use crate::state::{MEMORY, State, misuse, state};

const OUT_OF_MEMORY: u32 = 2;
const BLOCK: usize = 512;
const JUNK: u8 = 0xD7;

/// Something that queued work uses as long as it has one of these.
#[derive(Default)]
pub(crate) struct Uses(Arc<AtomicUsize>);

impl Uses {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Clone for Uses {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        // Dropping the table's own one makes it wrap, when no code looks any more.
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(crate) struct Allocation {
    pub(crate) device: usize,
    bytes: Arc<RwLock<Guarded>>,
    uses: Uses,
    /// Whether it was taken back in a stream's order, by work that may not be done.
    pub(crate) in_order: bool,
}

/// Bytes between two zones that no kernel may write to.
pub(crate) struct Guarded {
    /// In units that are aligned as any type of a kernel.
    all: Box<[u128]>,
    len: usize,
}

const UNIT: usize = size_of::<u128>();
/// The bytes of each zone.
const ZONE: usize = 256 * UNIT;
const GUARD: u8 = 0xE5;

impl Guarded {
    fn new(len: usize) -> Self {
        let units = (2 * ZONE + len).div_ceil(UNIT);
        let mut new = Self { all: vec![u128::from_ne_bytes([GUARD; UNIT]); units].into(), len };
        new.fill(JUNK);
        new
    }

    fn all(&self) -> &[u8] {
        // SAFETY: the units are so many bytes, each of which has a value.
        unsafe { slice::from_raw_parts(self.all.as_ptr().cast(), self.all.len() * UNIT) }
    }

    /// Ends the process if a zone was written to.
    pub(crate) fn check(&self) {
        let (before, rest) = self.all().split_at(ZONE);
        for (zone, of) in [(before, "before"), (&rest[self.len..], "behind")] {
            if *zone != [GUARD; ZONE + UNIT][..zone.len()] {
                misuse(format_args!("a kernel has written {of} memory of {} bytes", self.len));
            }
        }
    }
}

impl Deref for Guarded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.all()[ZONE..ZONE + self.len]
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the zones and the bytes between are less than all units.
        unsafe { slice::from_raw_parts_mut(self.all.as_mut_ptr().cast::<u8>().add(ZONE), self.len) }
    }
}

impl Allocation {
    fn len(&self) -> usize {
        self.bytes.read().len()
    }
}

pub(crate) struct Pinned {
    pub(crate) device: usize,
    layout: Layout,
    uses: Uses,
}

impl State {
    pub(crate) fn allocate(&mut self, device: usize, len: usize) -> Result<CUdeviceptr, u32> {
        if len > MEMORY || len.next_multiple_of(BLOCK) > self.free_memory(device) {
            return Err(OUT_OF_MEMORY);
        }
        // No address is given twice, so that freed memory is known permanently.
        let blocks = len.next_multiple_of(BLOCK);
        let start = self.next_address;
        self.next_address += (blocks + BLOCK) as CUdeviceptr;
        self.contexts[device].used += blocks;
        let bytes = Arc::new(RwLock::new(Guarded::new(len)));
        let in_order = false;
        self.allocations.insert(start, Allocation { device, bytes, uses: Uses::default(), in_order });
        Ok(start)
    }

    /// Takes memory back whose last work is not done yet.
    pub(crate) fn free_in_order(&mut self, device: usize, pointer: CUdeviceptr) {
        match self.allocations.get_mut(&pointer) {
            Some(found) if found.device == device && !found.in_order => found.in_order = true,
            _ => misuse(format_args!("{pointer:#x} is freed, which is no allocation, or was freed before")),
        }
    }

    pub(crate) fn free_memory(&self, device: usize) -> usize {
        MEMORY - self.contexts[device].used
    }

    pub(crate) fn free(&mut self, device: usize, pointer: CUdeviceptr) {
        let Some(freed) = self.allocations.remove(&pointer) else {
            misuse(format_args!("{pointer:#x} is freed, which is no allocation, or was freed before"));
        };
        if freed.device != device {
            misuse("memory is freed in another context than its own");
        }
        if freed.uses.count() > 0 {
            misuse("memory is freed while queued work uses it");
        }
        self.contexts[device].used -= freed.len().next_multiple_of(BLOCK);
    }

    pub(crate) fn allocate_pinned(&mut self, device: usize, len: usize) -> Result<*mut c_void, u32> {
        // The host has as much memory as a device.
        let layout = Layout::from_size_align(len, 4096).map_err(|_| OUT_OF_MEMORY)?;
        if len > MEMORY {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: the length is not zero.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: so much was allocated.
        unsafe { start.write_bytes(JUNK, len) };
        self.pinned.insert(start.expose_provenance(), Pinned { device, layout, uses: Uses::default() });
        Ok(start.cast())
    }

    pub(crate) fn free_pinned(&mut self, device: usize, pointer: *mut c_void) {
        let Some(freed) = self.pinned.remove(&pointer.addr()) else {
            misuse(format_args!("{pointer:?} is freed, which is no pinned memory, or was freed before"));
        };
        if freed.device != device {
            misuse("pinned memory is freed in another context than its own");
        }
        if freed.uses.count() > 0 {
            misuse("pinned memory is freed while queued work uses it");
        }
        // SAFETY: it was allocated with this layout, and no other code uses it.
        unsafe { dealloc(pointer.cast(), freed.layout) };
    }

    /// The use of pinned memory in which a range lies, if it is pinned.
    pub(crate) fn pinned_use(&self, start: usize, len: usize) -> Option<Uses> {
        let (base, pinned) = self.pinned.range(..=start).next_back()?;
        let inside = start - base < pinned.layout.size();
        if inside && start - base + len > pinned.layout.size() {
            misuse("a range of the host begins in pinned memory and ends outside");
        }
        inside.then(|| pinned.uses.clone())
    }
}

/// A range in an allocation, in use.
pub(crate) struct Place {
    pub(crate) bytes: Arc<RwLock<Guarded>>,
    pub(crate) start: usize,
    len: usize,
    _use: Uses,
}

impl Place {
    /// The rest of an allocation of this device, from an address in it or at its end.
    pub(crate) fn rest(device: usize, pointer: CUdeviceptr) -> Self {
        let state = state();
        let found = state.allocations.range(..=pointer).next_back();
        let len = found.and_then(|(base, found)| found.len().checked_sub((pointer - base) as usize));
        drop(state);
        Self::new(device, pointer, len.unwrap_or(1))
    }

    /// The range must lie within an allocation of this device.
    pub(crate) fn new(device: usize, pointer: CUdeviceptr, len: usize) -> Self {
        let state = state();
        let found =
            state.allocations.range(..=pointer).next_back().map(|(base, found)| (pointer - base, found));
        match found {
            Some((start, found)) if start as usize + len <= found.len() => {
                if found.device != device {
                    misuse("memory of another context than the stream's");
                }
                if found.in_order {
                    misuse(format_args!("{pointer:#x} was freed in the order of a stream"));
                }
                let (bytes, start) = (Arc::clone(&found.bytes), start as usize);
                Self { bytes, start, len, _use: found.uses.clone() }
            }
            _ => misuse(format_args!("{len} bytes at {pointer:#x} are not inside of an allocation")),
        }
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes)
            && self.start < other.start + other.len
            && other.start < self.start + self.len
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        let bytes = self.bytes.read();
        bytes[self.start..self.start + self.len].to_vec()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.bytes.write();
        change(&mut bytes[self.start..self.start + self.len]);
    }
}
