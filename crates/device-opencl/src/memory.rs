//! Memory on the device, and pinned memory of the host.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use device_registry::backend::{BackendError, BackendErrorKind, HostBuffer, Memory, Span};

use crate::context::Context;
use crate::error::OpenClError;
use crate::event;
use crate::handle::Handle;
use crate::handles;
use crate::sys::*;

/// The memory behind a buffer on a device of `opencl`.
///
/// A kernel gets it by [`Span::memory_as`](device_registry::backend::Span::memory_as), and finds its bytes
/// [`offset`](device_registry::backend::Span::offset) bytes into the [`buffer`](Self::buffer). Buffers do not
/// have an address to add the offset to: a kernel takes it as a second argument.
pub struct OpenClMemory {
    buffer: Handle,
    len: usize,
}

impl Memory for OpenClMemory {
    fn native_handle(&self, kind: &str) -> Option<u64> {
        (kind == handles::BUFFER).then(|| handles::number(self.buffer()))
    }
}

impl OpenClMemory {
    pub(crate) fn new(buffer: Handle, len: usize) -> Self {
        Self { buffer, len }
    }

    /// The buffer. It is valid for as long as `self`.
    #[must_use]
    pub fn buffer(&self) -> cl_mem {
        self.buffer.get()
    }

    /// The error of an allocation whose first use failed.
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

/// The bytes of a span, as commands take them.
#[derive(Clone, Copy)]
pub(crate) struct DeviceRange {
    /// Valid for as long as the span.
    pub(crate) buffer: cl_mem,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl DeviceRange {
    pub(crate) fn of(span: &Span) -> Result<Self, BackendError> {
        let buffer = span.memory_as::<OpenClMemory>()?.buffer();
        Ok(Self { buffer, offset: span.offset(), len: span.len() })
    }
}

/// Compares two lengths that an unsafe block relies on to be equal.
pub(crate) fn same_length(host: usize, device: usize) -> Result<(), BackendError> {
    if host == device {
        return Ok(());
    }
    Err(BackendError::invalid(format_args!("expected {device} bytes, found {host}")))
}

/// A buffer in memory of the host that stays mapped until this is dropped. No command uses the buffer, so
/// that the mapping is host memory like any other; implementations pin it, and copy from and to it directly.
pub(crate) struct PinnedMemory {
    start: NonNull<u8>,
    len: usize,
    buffer: Handle,
    /// Kept for the end of the mapping, which may come after the device is closed.
    queue: Arc<Handle>,
}

// SAFETY: it is an address and two handles that may be used from any thread. Only the `HostBuffer` that owns
// this value reads and writes the bytes.
unsafe impl Send for PinnedMemory {}
// SAFETY: a shared reference to it gives access to nothing.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    pub(crate) fn map(context: &Context, queue: Arc<Handle>, len: usize) -> Result<Self, BackendError> {
        let functions = context.functions();
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        let failed = |error: OpenClError| error.own_allocation(len);
        // SAFETY: `context` is valid, and no host pointer is passed: OpenCL allocates the memory.
        let buffer = unsafe { functions.clCreateBuffer(context.get(), flags, len, ptr::null_mut()) };
        // SAFETY: the call above made the buffer and gave its one reference to this function.
        let buffer = unsafe { Handle::buffer(functions, buffer.map_err(failed)?) };
        let mut start = ptr::null_mut();
        let queue_object = queue.get();
        let object = buffer.get();
        let access = CL_MAP_READ | CL_MAP_WRITE;
        // SAFETY: queue and buffer are of this context, the range is the whole buffer, and no other code has
        // the buffer. The call writes the event of its command to the place, with one reference.
        let mapped = unsafe {
            Handle::event_of(functions, |functions, event| {
                start = functions.clEnqueueMapBuffer(
                    queue_object,
                    object,
                    CL_BLOCKING,
                    access,
                    0,
                    len,
                    0,
                    ptr::null(),
                    event,
                )?;
                Ok(())
            })
        };
        // A call that blocks may succeed although its command has failed.
        mapped.and_then(|event| event::wait("clEnqueueMapBuffer", &event)).map_err(failed)?;
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| {
            BackendError::out_of_memory(len as u64, None)
                .with_source("`clEnqueueMapBuffer` returned the address 0")
        })?;
        // SAFETY: OpenCL has mapped `len` bytes at `start` for writing, and no other code has the address.
        unsafe { start.write_bytes(0, len) };
        Ok(Self { start, len, buffer, queue })
    }

    pub(crate) fn into_host_buffer(self) -> HostBuffer {
        let start = self.start;
        let len = self.len;
        // SAFETY: `map` has initialised `len` bytes at `start`. They stay mapped until `self` is dropped,
        // which the buffer owns, and no other code has their address.
        unsafe { HostBuffer::from_raw_parts(start, len, self) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let queue = self.queue.get();
        let buffer = self.buffer.get();
        let start = self.start.as_ptr().cast();
        // SAFETY: `map` mapped the buffer at `start`, and the `HostBuffer` that used the bytes is being
        // dropped. The call writes the event of its command to the place, with one reference.
        let unmapped = unsafe {
            Handle::event_of(self.queue.functions(), |functions, event| {
                functions.clEnqueueUnmapMemObject(queue, buffer, start, 0, ptr::null(), event)
            })
        };
        // The releases that follow take effect when the command is done.
        // SAFETY: `self` owns the queue.
        if let Err(error) = unmapped.and_then(|_| unsafe { self.queue.functions().clFlush(queue) }) {
            log::warn!("{error}");
        }
    }
}
