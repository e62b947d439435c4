//! Memory on a device, and the ranges of it that work is given.

use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use device_registry::backend::{BackendError, Memory, Span};

use crate::library::{DeviceMemory, DeviceRange, PrimaryContext};

/// An allocation on a device `cuda:…`. The [`memory`](Span::memory_as) of its spans is of this type.
pub struct CudaMemory(DeviceMemory);

impl CudaMemory {
    /// Memory with unspecified contents, which the caller overwrites before others see it.
    pub(crate) fn allocate(context: &Arc<PrimaryContext>, len: usize) -> Result<Self, BackendError> {
        DeviceMemory::allocate(context, len).map(Self).map_err(|error| {
            let info = context.memory_info().ok();
            // A length beyond all memory does not fit either, whatever the driver's error for such a number.
            if error.is_out_of_memory() || info.is_some_and(|(_, total)| len > total) {
                let free = info.map(|(free, _)| free as u64);
                BackendError::out_of_memory(len as u64, free).with_source(error)
            } else {
                error.into()
            }
        })
    }

    /// The address of the first byte, on its device: a multiple of at least 256. The bytes of a span begin
    /// [`offset`](Span::offset) bytes further. As a number it has the kind `cuda.CUdeviceptr`.
    #[must_use]
    pub fn pointer(&self) -> CUdeviceptr {
        self.0.pointer()
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.0
    }
}

impl Memory for CudaMemory {
    fn native_handle(&self, kind: &str) -> Option<u64> {
        (kind == "cuda.CUdeviceptr").then(|| self.pointer())
    }
}

impl<'a> DeviceRange<'a> {
    /// The bytes of a span, for work that the core submits.
    pub(crate) fn of(span: &'a Span) -> Result<Self, BackendError> {
        let memory = span.memory_as::<CudaMemory>()?;
        // SAFETY: only the core makes spans and calls this driver with them. It keeps their memory until the
        // driver itself says that the work is done, or that the device is lost.
        unsafe { Self::new(memory.memory(), span.offset(), span.len()) }
    }
}
