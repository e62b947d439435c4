//! The backend that is always there: the host itself, as one device.

use std::alloc::{Layout, alloc_zeroed};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{
    AllocateOptions, Backend, BackendError, DeviceDriver, DeviceProperties, LoadFailure, Memory, MemoryInfo,
    Span,
};

pub(crate) const NAME: &str = "cpu";

pub(crate) fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(Cpu))
}

struct Cpu;

impl Backend for Cpu {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(1)
    }

    fn open(&self, _ordinal: usize) -> Result<Box<dyn DeviceDriver>, BackendError> {
        Ok(Box::new(CpuDevice))
    }
}

struct CpuDevice;

impl DeviceDriver for CpuDevice {
    fn properties(&self) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new(format!("host ({})", std::env::consts::ARCH)))
    }

    /// What the host has free is not the process's to take, and std does not tell.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let bytes =
            zeroed(options.len).ok_or_else(|| BackendError::out_of_memory(options.len as u64, None))?;
        Ok(Arc::new(HostMemory { bytes: RwLock::new(bytes) }))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let memory = destination.memory_as::<HostMemory>()?;
        memory.bytes_mut()[destination.range()].copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let memory = source.memory_as::<HostMemory>()?;
        destination.copy_from_slice(&memory.bytes()[source.range()]);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (source.memory_as::<HostMemory>()?, destination.memory_as::<HostMemory>()?);
        from.copy_to(source.range(), to, destination.range());
        Ok(())
    }
}

/// One allocation. A lock over all of it is enough while every operation is a copy that blocks.
struct HostMemory {
    bytes: RwLock<Box<[u8]>>,
}

impl Memory for HostMemory {}

impl HostMemory {
    // Bytes are never half written in a way that matters, so that poison is no reason to stop.
    fn bytes(&self) -> RwLockReadGuard<'_, Box<[u8]>> {
        self.bytes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes_mut(&self) -> RwLockWriteGuard<'_, Box<[u8]>> {
        self.bytes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn copy_to(&self, from: Range<usize>, destination: &Self, to: Range<usize>) {
        if std::ptr::eq(self, destination) {
            return self.bytes_mut().copy_within(from, to.start);
        }
        // In the order of their addresses: two copies in opposite directions must not wait for each other.
        let (source, mut destination) = if std::ptr::from_ref(self) < std::ptr::from_ref(destination) {
            let source = self.bytes();
            (source, destination.bytes_mut())
        } else {
            let destination = destination.bytes_mut();
            (self.bytes(), destination)
        };
        destination[to].copy_from_slice(&source[from]);
    }
}

/// Zero bytes from the allocator, or `None` if it has none left.
///
/// `vec![0; len]` would end the process then, and `Vec::try_reserve` leaves the zeros to be written, which takes
/// pages that may never be used and, where memory is overcommitted, may end the process as well.
#[expect(unsafe_code, reason = "std has no fallible allocation of zeros")]
fn zeroed(len: usize) -> Option<Box<[u8]>> {
    // It also refuses what is larger than `isize::MAX`.
    let layout = Layout::array::<u8>(len).ok()?;
    if layout.size() == 0 {
        return Some(Box::default());
    }
    // SAFETY: the layout's size is not zero.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return None;
    }
    let bytes = std::ptr::slice_from_raw_parts_mut(start, len);
    // SAFETY: `start` comes from the global allocator with the layout of `[u8; len]`, and all of it is initialised.
    Some(unsafe { Box::from_raw(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_memory_is_zero_and_of_the_length_asked_for() {
        assert_eq!(zeroed(3).unwrap()[..], [0; 3]);
        assert!(zeroed(0).unwrap().is_empty());
        assert!(zeroed(usize::MAX).is_none());
    }

    #[test]
    fn copies_in_opposite_directions_do_not_wait_for_each_other() {
        let memory = || HostMemory { bytes: RwLock::new(zeroed(64).unwrap()) };
        let (a, b) = (memory(), memory());
        std::thread::scope(|scope| {
            scope.spawn(|| (0..1000).for_each(|_| a.copy_to(0..64, &b, 0..64)));
            scope.spawn(|| (0..1000).for_each(|_| b.copy_to(0..64, &a, 0..64)));
        });
    }
}
