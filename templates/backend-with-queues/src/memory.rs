//! Memory of a device, and the ranges of it that work names.

use std::ops::Range;
use std::sync::Arc;

use device_registry::backend::{BackendError, FillPattern, HostMemory, Memory, Span, open_windows};

/// One allocation. A driver for hardware keeps its handle here, and frees it in `Drop`.
pub struct QueueMemory {
    bytes: Arc<HostMemory>,
}

impl Memory for QueueMemory {}

impl QueueMemory {
    pub(crate) fn new(len: usize) -> Result<Self, BackendError> {
        Ok(Self { bytes: Arc::new(HostMemory::zeroed(len)?) })
    }

    /// The bytes, for kernels.
    #[must_use]
    pub fn bytes(&self) -> &Arc<HostMemory> {
        &self.bytes
    }
}

/// The bytes that a piece of work reads or writes.
///
/// It takes the place of an address. Hardware cannot hold an `Arc`, and need not: the core keeps the memory
/// of queued work until the driver reports that the work is done.
pub(crate) struct Place {
    bytes: Arc<HostMemory>,
    range: Range<usize>,
}

impl Place {
    pub(crate) fn of(span: &Span) -> Result<Self, BackendError> {
        let memory = span.memory_as::<QueueMemory>()?;
        Ok(Self { bytes: Arc::clone(&memory.bytes), range: span.range() })
    }

    pub(crate) fn write(&self, source: &[u8]) -> Result<(), BackendError> {
        self.bytes.write(self.range.clone())?.copy_from_slice(source);
        Ok(())
    }

    pub(crate) fn read(&self, destination: &mut [u8]) -> Result<(), BackendError> {
        destination.copy_from_slice(&self.bytes.read(self.range.clone())?);
        Ok(())
    }

    pub(crate) fn copy_from(&self, source: &Self) -> Result<(), BackendError> {
        // Both windows open at once: two copies in opposite directions would otherwise wait for each other.
        let reads = [(&*source.bytes, source.range.clone())];
        let ([from], [mut to]) = open_windows(reads, [(&*self.bytes, self.range.clone())])?;
        to.copy_from_slice(&from);
        Ok(())
    }

    pub(crate) fn fill(&self, pattern: &FillPattern) -> Result<(), BackendError> {
        pattern.fill(&mut self.bytes.write(self.range.clone())?);
        Ok(())
    }
}
