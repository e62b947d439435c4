//! Memory on a device, and pinned memory of the host.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::sys::{CU_MEMHOSTALLOC_PORTABLE, CUcontext, CUdeviceptr};
use device_registry::backend::{BackendError, HostBuffer, Memory, Span};

use crate::context::Context;
use crate::error::OUT_OF_MEMORY;

/// An allocation on a device `cuda:…`. The [`memory`](Span::memory_as) of its spans is of this type.
pub struct CudaMemory {
    context: Arc<Context>,
    pointer: CUdeviceptr,
}

impl CudaMemory {
    /// Memory that holds anything, which is for the caller to change before others see it.
    pub(crate) fn allocate(context: &Arc<Context>, len: usize) -> Result<Self, BackendError> {
        let current = context.enter()?;
        let mut pointer = 0;
        // SAFETY: the context is current, and the place is there.
        match unsafe { current.cuda().cuMemAlloc_v2(&mut pointer, len) } {
            Ok(()) => Ok(Self { context: Arc::clone(context), pointer }),
            Err(error) => {
                let (mut free, mut total) = (0, 0);
                // SAFETY: the context is current, and the places are there.
                let told = unsafe { current.cuda().cuMemGetInfo_v2(&mut free, &mut total) }.is_ok();
                // What is longer than all memory does not fit either, whatever the driver says of such a number.
                if error.code == OUT_OF_MEMORY || told && len > total {
                    let free = told.then_some(free as u64);
                    Err(BackendError::out_of_memory(len as u64, free).with_source(error))
                } else {
                    Err(error.into())
                }
            }
        }
    }

    /// Where the memory begins, on its device. The bytes of a span begin [`offset`](Span::offset) bytes further. A
    /// multiple of at least 256.
    #[must_use]
    pub fn pointer(&self) -> CUdeviceptr {
        self.pointer
    }

    /// The context that it was allocated in.
    pub(crate) fn context(&self) -> CUcontext {
        self.context.handle()
    }
}

impl Memory for CudaMemory {}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated once, and freed nowhere else. The core drops memory when no queued work uses it.
        self.context.dispose(|cuda| unsafe { cuda.cuMemFree_v2(self.pointer) });
    }
}

/// The memory of a span, and the address of its first byte.
pub(crate) fn place(span: &Span) -> Result<(&CudaMemory, CUdeviceptr), BackendError> {
    let memory = span.memory_as::<CudaMemory>()?;
    Ok((memory, memory.pointer + span.offset() as CUdeviceptr))
}

/// Two lengths that an unsafe block relies on to be one.
pub(crate) fn same_length(host: usize, device: usize) -> Result<(), BackendError> {
    if host == device {
        return Ok(());
    }
    Err(BackendError::invalid(format_args!("{host} bytes on the host for {device} on the device")))
}

/// Host memory that the driver has pinned, for all devices.
pub(crate) struct CudaPinned {
    context: Arc<Context>,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is an address, which only the `HostBuffer` that owns this value reaches, and a context, which is `Send`.
unsafe impl Send for CudaPinned {}
// SAFETY: nothing is done through a shared reference to it.
unsafe impl Sync for CudaPinned {}

impl CudaPinned {
    pub(crate) fn allocate(context: &Arc<Context>, len: usize) -> Result<Self, BackendError> {
        let current = context.enter()?;
        let mut start: *mut c_void = ptr::null_mut();
        // Pinned for every context, and cached by the host as other memory: write-combined memory is slow to read.
        // SAFETY: the context is current, and the place is there.
        match unsafe { current.cuda().cuMemHostAlloc(&mut start, len, CU_MEMHOSTALLOC_PORTABLE) } {
            Ok(()) => {}
            Err(error) if error.code == OUT_OF_MEMORY => {
                return Err(BackendError::out_of_memory(len as u64, None).with_source(error));
            }
            Err(error) => return Err(error.into()),
        }
        let start = NonNull::new(start.cast())
            .ok_or_else(|| BackendError::other("the driver pinned memory at the address 0"))?;
        // The reference does not say what it holds.
        // SAFETY: the driver has allocated so many bytes there, for nobody else.
        unsafe { start.write_bytes(0, len) };
        Ok(Self { context: Arc::clone(context), start, len })
    }

    pub(crate) fn into_host_buffer(self) -> HostBuffer {
        let (start, len) = (self.start, self.len);
        // SAFETY: the driver has allocated `len` bytes there, initialised above, until `self` is dropped, and only the result
        // knows them.
        unsafe { HostBuffer::from_raw_parts(start, len, self) }
    }
}

impl Drop for CudaPinned {
    fn drop(&mut self) {
        // SAFETY: it was allocated once, and freed nowhere else. Work that uses it owns it.
        self.context.dispose(|cuda| unsafe { cuda.cuMemFreeHost(self.start.as_ptr().cast()) });
    }
}
