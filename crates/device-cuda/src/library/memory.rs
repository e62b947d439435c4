//! Allocations on a device, ranges of them, and pinned memory of the host.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::sys::{CU_MEMHOSTALLOC_PORTABLE, CUcontext, CUdeviceptr};
use device_registry::backend::{BackendError, HostBuffer};

use super::PrimaryContext;
use crate::error::CudaError;

/// An allocation on a device. Dropping it frees the memory.
pub(crate) struct DeviceMemory {
    context: Arc<PrimaryContext>,
    pointer: CUdeviceptr,
    len: usize,
}

impl DeviceMemory {
    /// Allocates memory with unspecified contents.
    pub(crate) fn allocate(context: &Arc<PrimaryContext>, len: usize) -> Result<Self, CudaError> {
        let current = context.enter()?;
        let mut pointer = 0;
        // SAFETY: the context is current, and `pointer` is a place for one address.
        unsafe { current.functions().cuMemAlloc_v2(&mut pointer, len) }?;
        Ok(Self { context: Arc::clone(context), pointer, len })
    }

    /// The address on the device.
    pub(crate) fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: `allocate` allocated it once for this value. The makers of its `DeviceRange`s promised that
        // no queued work uses it any more.
        self.context.dispose(|cuda| unsafe { cuda.cuMemFree_v2(self.pointer) });
    }
}

/// A range of an allocation, for queued work.
#[derive(Clone, Copy)]
pub(crate) struct DeviceRange<'a> {
    memory: &'a DeviceMemory,
    offset: usize,
    len: usize,
}

impl<'a> DeviceRange<'a> {
    /// # Errors
    ///
    /// [`BackendError::invalid`] if the range does not lie inside the memory.
    ///
    /// # Safety
    ///
    /// The memory is not dropped before all work is done that was submitted with this range, or the device is
    /// lost.
    pub(crate) unsafe fn new(
        memory: &'a DeviceMemory,
        offset: usize,
        len: usize,
    ) -> Result<Self, BackendError> {
        if offset.checked_add(len).is_none_or(|end| end > memory.len) {
            return Err(BackendError::invalid(format_args!(
                "expected a range inside memory of {} bytes, found {len} bytes at {offset}",
                memory.len
            )));
        }
        Ok(Self { memory, offset, len })
    }

    /// The address of the first byte, on the device.
    pub(super) fn pointer(&self) -> CUdeviceptr {
        self.memory.pointer + self.offset as CUdeviceptr
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The context that the memory belongs to.
    pub(super) fn context(&self) -> CUcontext {
        self.memory.context.handle()
    }
}

/// Host memory that the driver has pinned, for all devices. Dropping it frees the memory.
pub(crate) struct PinnedMemory {
    context: Arc<PrimaryContext>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is an address, which only the `HostBuffer` that owns this value reads and writes, and a context,
// which is `Send`.
unsafe impl Send for PinnedMemory {}
// SAFETY: a shared reference to it gives access to nothing.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Allocates memory that holds zeros.
    pub(crate) fn allocate(context: &Arc<PrimaryContext>, len: usize) -> Result<Self, BackendError> {
        let current = context.enter()?;
        let mut start: *mut c_void = ptr::null_mut();
        // Pinned for every context, and cached by the host as other memory: write-combined memory is slow to
        // read. SAFETY: the context is current, and `start` is a place for one pointer.
        unsafe { current.functions().cuMemHostAlloc(&mut start, len, CU_MEMHOSTALLOC_PORTABLE) }.map_err(
            |error| {
                if error.is_out_of_memory() {
                    BackendError::out_of_memory(len as u64, None).with_source(error)
                } else {
                    error.into()
                }
            },
        )?;
        let start = NonNull::new(start.cast())
            .ok_or_else(|| BackendError::other("the driver pinned memory at the address 0"))?;
        let memory = Self { context: Arc::clone(context), start, len };
        // The reference does not say what new pinned memory holds.
        // SAFETY: the driver has allocated `len` bytes at `start`, and no other code has the address.
        unsafe { start.write_bytes(0, len) };
        Ok(memory)
    }

    pub(crate) fn into_host_buffer(self) -> HostBuffer {
        let start = self.start;
        let len = self.len;
        // SAFETY: `allocate` has initialised `len` bytes at `start`. They stay allocated until `self` is
        // dropped, which the buffer owns, and no other code has their address.
        unsafe { HostBuffer::from_raw_parts(start, len, self) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        // SAFETY: `allocate` allocated it once for this value, which the `HostBuffer` owns. Queued work owns
        // that buffer.
        self.context.dispose(|cuda| unsafe { cuda.cuMemFreeHost(self.start.as_ptr().cast()) });
    }
}
