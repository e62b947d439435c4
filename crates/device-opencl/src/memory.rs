//! Memory on the device, and memory of the host that the device reaches well.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cl3::command_queue::{CL_BLOCKING, enqueue_map_buffer, enqueue_unmap_mem_object, flush};
use cl3::memory::{CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, create_buffer};
use cl3::types::cl_mem;
use device_registry::backend::{BackendError, BackendErrorKind, HostBuffer, Memory, Span};

use crate::context::Context;
use crate::error::{Status, allocation_error};
use crate::handle::Handle;

/// The memory behind a buffer on a device of `opencl`.
///
/// A kernel gets it by [`Span::memory_as`](device_registry::backend::Span::memory_as), and finds its bytes
/// [`offset`](device_registry::backend::Span::offset) bytes into the [`buffer`](Self::buffer). Buffers have no address that could
/// be added to: a kernel takes the offset as an argument beside the buffer.
pub struct OpenClMemory {
    buffer: Handle,
    len: usize,
}

impl Memory for OpenClMemory {}

impl OpenClMemory {
    pub(crate) fn new(buffer: Handle, len: usize) -> Self {
        Self { buffer, len }
    }

    /// The buffer, valid for as long as this is there.
    #[must_use]
    pub fn buffer(&self) -> cl_mem {
        self.buffer.get()
    }

    /// What a command is told of a span: buffer, offset, length.
    pub(crate) fn place(span: &Span) -> Result<(cl_mem, usize, usize), BackendError> {
        Ok((span.memory_as::<Self>()?.buffer(), span.offset(), span.len()))
    }

    /// The error of an allocation that turns out not to be there at its first use.
    pub(crate) fn refused(&self, error: BackendError) -> BackendError {
        match error.kind() {
            BackendErrorKind::Other | BackendErrorKind::OutOfMemory { .. } => {
                BackendError::out_of_memory(self.len as u64, None).with_source(error)
            }
            _ => error,
        }
    }
}

impl fmt::Debug for OpenClMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenClMemory").field("buffer", &self.buffer).field("len", &self.len).finish()
    }
}

/// Two lengths that an unsafe block relies on to be one.
pub(crate) fn same_length(host: usize, device: usize) -> Result<(), BackendError> {
    if host == device {
        return Ok(());
    }
    Err(BackendError::invalid(format_args!("{host} bytes on the host for {device} on the device")))
}

/// A buffer in memory of the host that stays mapped for as long as this is there. No command uses the buffer, so that
/// the mapping is host memory like any other; implementations lock it in place, and copy from and to it directly.
pub(crate) struct Pinned {
    start: NonNull<u8>,
    len: usize,
    buffer: Handle,
    /// It is there when the mapping ends, also after the device was closed.
    queue: Arc<Handle>,
}

// SAFETY: it is an address and two handles, which are used from any thread; only the `HostBuffer` that owns this value
// reaches the bytes.
unsafe impl Send for Pinned {}
// SAFETY: nothing is done through a shared reference to it.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(crate) fn map(context: &Context, queue: Arc<Handle>, len: usize) -> Result<Self, BackendError> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        // SAFETY: the memory is OpenCL's own.
        let buffer = unsafe { create_buffer(context.get(), flags, len, ptr::null_mut()) }
            .map_err(|status| allocation_error("clCreateBuffer", status, len))?;
        // SAFETY: it was just made, with one reference.
        let buffer = unsafe { Handle::buffer(buffer) };
        let mut start: *mut c_void = ptr::null_mut();
        let access = CL_MAP_READ | CL_MAP_WRITE;
        // SAFETY: all of the buffer is mapped, which nobody else knows.
        let mapped = unsafe {
            enqueue_map_buffer(
                queue.get(),
                buffer.get(),
                CL_BLOCKING,
                access,
                0,
                len,
                &mut start,
                0,
                ptr::null(),
            )
        };
        let event = mapped.map_err(|status| allocation_error("clEnqueueMapBuffer", status, len))?;
        // SAFETY: the event is of that command, with one reference.
        drop(unsafe { Handle::event(event) });
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| {
            BackendError::out_of_memory(len as u64, None).with_source("it was mapped nowhere")
        })?;
        // SAFETY: `len` bytes from there are mapped for writing. What they hold is not specified.
        unsafe { start.write_bytes(0, len) };
        Ok(Self { start, len, buffer, queue })
    }

    pub(crate) fn into_host_buffer(self) -> HostBuffer {
        let (start, len) = (self.start, self.len);
        // SAFETY: `len` bytes are mapped there and initialised, until `self` is dropped, and only the result knows them.
        unsafe { HostBuffer::from_raw_parts(start, len, self) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: it is mapped there, and nobody has the bytes any more.
        let unmapped = unsafe {
            enqueue_unmap_mem_object(self.queue.get(), self.buffer.get(), start, 0, ptr::null())
                .map(|event| drop(Handle::event(event)))
        };
        // The releases that follow take effect when that is done.
        if let Err(status) = unmapped.and_then(|()| flush(self.queue.get())) {
            log::warn!("clEnqueueUnmapMemObject: {}", Status(status));
        }
    }
}
