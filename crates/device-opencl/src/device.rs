//! One open device.

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use device_registry::backend::testing::FaultPoint;
use device_registry::backend::{
    AllocateOptions, BackendError, BackendErrorKind, DeviceDriver, DeviceKind, FaultInjector, FillPattern,
    HostBuffer, Memory, MemoryInfo, Priority, Span, StreamDriver, StreamOptions,
};
use parking_lot::Mutex;

use crate::commands;
use crate::context::Context;
use crate::error::OpenClError;
use crate::event;
use crate::faults::Faults;
use crate::functions::OpenClFunctions;
use crate::handle::Handle;
use crate::handles;
use crate::memory::{DeviceRange, OpenClMemory, PinnedMemory, same_length};
use crate::native::OpenClDevice;
use crate::properties::Facts;
use crate::queue::QueueOptions;
use crate::reads::Reads;
use crate::stream::OpenClQueue;
use crate::sys::*;

/// Enqueues a command to a queue, and has its event written to a place.
trait Enqueue:
    FnOnce(&'static OpenClFunctions, cl_command_queue, *mut cl_event) -> Result<(), OpenClError>
{
}

impl<F> Enqueue for F where
    F: FnOnce(&'static OpenClFunctions, cl_command_queue, *mut cl_event) -> Result<(), OpenClError>
{
}

/// The driver of an open device.
pub(crate) struct OpenClDriver {
    facts: Facts,
    /// What programs and kernels get; `None` once the device is closed.
    native: Mutex<Option<Arc<OpenClDevice>>>,
    /// Idle queues for blocking calls. Each running call has its own queue, so that it waits for no other
    /// call and no stream.
    idle: Mutex<Vec<Handle>>,
    /// The queue that maps pinned memory. `None` before the first allocation.
    mapping: Mutex<Option<Arc<Handle>>>,
    /// The reads of all streams.
    reads: Arc<Reads>,
    faults: Faults,
}

impl OpenClDriver {
    pub(crate) fn new(context: Context, facts: &Facts, faults: Faults) -> Self {
        let native = Arc::new(OpenClDevice::new(context));
        Self {
            facts: facts.clone(),
            native: Mutex::new(Some(native)),
            idle: Mutex::default(),
            mapping: Mutex::default(),
            reads: Arc::default(),
            faults,
        }
    }

    fn device(&self) -> Result<Arc<OpenClDevice>, BackendError> {
        let native = self.native.lock().clone();
        native.ok_or_else(|| BackendError::invalid("the device is closed"))
    }

    fn queue(&self, priority: Priority) -> Result<Handle, BackendError> {
        QueueOptions::new(&self.facts, priority).create(self.device()?.shared_context())
    }

    /// Enqueues a command to an idle queue by `enqueue`, which calls `call`, and waits for it.
    ///
    /// # Safety
    ///
    /// If `enqueue` succeeds, it has enqueued one command to the queue, the command's event is in the place
    /// that it gets, and it gives one reference to it away. What the command touches may be touched until
    /// this returns.
    unsafe fn block(
        &self,
        call: &'static str,
        len: usize,
        enqueue: impl Enqueue,
    ) -> Result<(), BackendError> {
        let queue = self.idle_queue()?;
        // SAFETY: the caller promises that `enqueue` enqueues one command with an event, and that what the
        // command touches may be touched until this returns.
        unsafe { self.block_in(queue, call, len, enqueue) }
    }

    /// A queue without commands.
    fn idle_queue(&self) -> Result<Handle, BackendError> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| self.queue(Priority::Normal), Ok)
    }

    /// Enqueues a command to this queue by `enqueue`, which calls `call`, waits for it, and keeps the queue
    /// for the next blocking call. A queue whose command has failed is not kept: some drivers refuse the next
    /// command that blocks.
    ///
    /// # Safety
    ///
    /// If `enqueue` succeeds, it has enqueued one command to the queue, the command's event is in the place
    /// that it gets, and it gives one reference to it away. What the command touches may be touched until
    /// this returns.
    unsafe fn block_in(
        &self,
        queue: Handle,
        call: &'static str,
        len: usize,
        enqueue: impl Enqueue,
    ) -> Result<(), BackendError> {
        let functions = queue.functions();
        // SAFETY: the caller promises that the command's event is in the place, with one reference.
        let event = unsafe { Handle::event_of(functions, |cl, event| enqueue(cl, queue.get(), event)) };
        let done = event.and_then(|event| event::wait(call, &event));
        let Err(error) = done else {
            self.idle.lock().push(queue);
            return Ok(());
        };
        // After a failure too, no command may touch the caller's bytes when this returns.
        if let Err(error) = commands::finish(&queue, || 1) {
            let message = "a command on memory of the caller failed, and waiting for its queue failed too";
            return Err(BackendError::lost(message).with_source(error.own()));
        }
        Err(error.own_of(len))
    }

    /// The error of an allocation. It names the largest possible one if the length exceeds it.
    fn too_large(&self, error: BackendError, len: usize) -> BackendError {
        match self.facts.properties.largest_allocation {
            Some(largest) if len as u64 > largest && is_out_of_memory(&error) => {
                let message = format_args!("expected at most {largest} bytes in one allocation, found {len}");
                BackendError::new(error.kind(), message).with_source(error)
            }
            _ => error,
        }
    }

    /// Releases what the device has. The context is released with the last stream, event or memory of it.
    fn release(&self) {
        self.native.lock().take();
        let idle = std::mem::take(&mut *self.idle.lock());
        let mapping = self.mapping.lock().take();
        drop((idle, mapping));
        self.reads.close();
    }

    /// The flag that says where memory lies.
    fn placement(&self) -> cl_mem_flags {
        match self.facts.properties.kind {
            // The memory is the host's anyway. With this flag PoCL allocates it at once; without it PoCL
            // aborts the process if memory runs out when a command first uses the buffer.
            DeviceKind::Cpu => CL_MEM_ALLOC_HOST_PTR,
            _ => 0,
        }
    }
}

fn is_out_of_memory(error: &BackendError) -> bool {
    matches!(error.kind(), BackendErrorKind::OutOfMemory { .. })
}

impl DeviceDriver for OpenClDriver {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.device().ok().map(|native| native as _)
    }

    fn native_handle(&self, kind: &str) -> Option<u64> {
        let native = self.native.lock();
        match kind {
            handles::CONTEXT => Some(handles::number(native.as_ref()?.context())),
            handles::DEVICE_ID => Some(handles::number(native.as_ref()?.device_id())),
            _ => None,
        }
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let total = self.facts.properties.total_memory;
        Ok(total.map_or_else(MemoryInfo::unknown, |total| MemoryInfo::unknown().with_total(total)))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let len = options.len;
        self.faults.before(FaultPoint::Allocate { len })?;
        let native = self.device()?;
        // Done before the memory: an error of the queue is not an error of the allocation.
        let queue = self.idle_queue()?;
        let flags = CL_MEM_READ_WRITE | self.placement();
        let functions = native.functions();
        // SAFETY: `native` keeps the context, and no host pointer is passed: OpenCL allocates the memory.
        let buffer = unsafe { functions.clCreateBuffer(native.context(), flags, len, ptr::null_mut()) }
            .map_err(|error| error.own_allocation(len))?;
        // SAFETY: the call above made the buffer and gave its one reference to this function.
        let memory = OpenClMemory::new(unsafe { Handle::buffer(functions, buffer) }, len);
        // OpenCL does not specify what new memory holds. And many implementations allocate it at its first
        // use: this fill makes the allocation fail here, and not in a stream's later work. SAFETY: the
        // pattern is copied by the call, and the buffer outlives the command, which is waited for. The call
        // writes the command's event to the place, with one reference.
        unsafe {
            self.block_in(queue, "clEnqueueFillBuffer", len, |cl, queue, event| {
                let zero = [0u8].as_ptr().cast();
                cl.clEnqueueFillBuffer(queue, buffer, zero, 1, 0, len, 0, ptr::null(), event)
            })
        }
        .map_err(|error| memory.refused(error))?;
        Ok(Arc::new(memory))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Write)?;
        let DeviceRange { buffer: to, offset, len } = DeviceRange::of(destination)?;
        same_length(source.len(), len)?;
        // SAFETY: a span lies inside its buffer, `source` has the same length, and both live until `block`
        // returns. The call writes the command's event to the place, with one reference.
        unsafe {
            self.block("clEnqueueWriteBuffer", len, |cl, queue, event| {
                let source = source.as_ptr().cast();
                let none = ptr::null();
                cl.clEnqueueWriteBuffer(queue, to, CL_BLOCKING, offset, len, source, 0, none, event)
            })
        }
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Read)?;
        let DeviceRange { buffer: from, offset, len } = DeviceRange::of(source)?;
        same_length(destination.len(), len)?;
        // SAFETY: a span lies inside its buffer, `destination` has the same length, and is borrowed for
        // writing until `block` returns. The call writes the command's event to the place, with one
        // reference.
        unsafe {
            self.block("clEnqueueReadBuffer", len, |cl, queue, event| {
                let destination = destination.as_mut_ptr().cast();
                let none = ptr::null();
                cl.clEnqueueReadBuffer(queue, from, CL_BLOCKING, offset, len, destination, 0, none, event)
            })
        }
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Copy)?;
        let from = DeviceRange::of(source)?;
        let to = DeviceRange::of(destination)?;
        same_length(from.len, to.len)?;
        // SAFETY: spans lie inside their buffers and live until `block` returns, the lengths are equal, and
        // the core passes no ranges that overlap. The call writes the command's event to the place, with one
        // reference.
        unsafe {
            self.block("clEnqueueCopyBuffer", to.len, |cl, queue, event| {
                cl.clEnqueueCopyBuffer(
                    queue,
                    from.buffer,
                    to.buffer,
                    from.offset,
                    to.offset,
                    to.len,
                    0,
                    ptr::null(),
                    event,
                )
            })
        }
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Fill)?;
        let DeviceRange { buffer: to, offset, len } = DeviceRange::of(destination)?;
        let pattern = pattern.as_bytes();
        // SAFETY: a span lies inside its buffer and lives until `block` returns. The core passes whole
        // patterns only, and the call copies the pattern. It writes the command's event to the place, with
        // one reference.
        unsafe {
            self.block("clEnqueueFillBuffer", len, |cl, queue, event| {
                let start = pattern.as_ptr().cast();
                let size = pattern.len();
                cl.clEnqueueFillBuffer(queue, to, start, size, offset, len, 0, ptr::null(), event)
            })
        }
    }

    fn create_stream(&self, options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        let options = QueueOptions::new(&self.facts, options.priority);
        Ok(Box::new(OpenClQueue::new(options, self.device()?.shared_context(), &self.reads, &self.faults)?))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        let mut mapping = self.mapping.lock();
        let queue = match &*mapping {
            Some(queue) => Arc::clone(queue),
            None => Arc::clone(mapping.insert(Arc::new(self.queue(Priority::Normal)?))),
        };
        drop(mapping);
        let pinned = PinnedMemory::map(self.device()?.shared_context(), queue, len);
        if pinned.is_err() {
            // See `block_in`.
            self.mapping.lock().take();
        }
        pinned.map(PinnedMemory::into_host_buffer).map_err(|error| self.too_large(error, len))
    }

    fn reset(&self) -> Result<(), BackendError> {
        // The next open makes a new context that shares nothing with this one, or fails if the device is not
        // back. Calls of other threads keep what they use.
        self.release();
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        self.release();
        Ok(())
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        self.faults.injector()
    }
}
