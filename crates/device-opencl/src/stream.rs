//! Streams: in-order queues of the device, fed from the caller's thread.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device_registry::backend::testing::FaultPoint;
use device_registry::backend::{
    BackendError, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, Span, StreamDriver,
};

use crate::commands::{self, Commands};
use crate::context::Context;
use crate::error::OpenClError;
use crate::event::OpenClEvent;
use crate::faults::{Faults, WaitList};
use crate::functions::OpenClFunctions;
use crate::handle::Handle;
use crate::handles;
use crate::memory::{DeviceRange, same_length};
use crate::native::OpenClStream;
use crate::queue::QueueOptions;
use crate::reads::{QueuedRead, Reads};
use crate::sys::*;

/// The driver's side of a stream.
pub(crate) struct OpenClQueue {
    options: QueueOptions,
    context: Arc<Context>,
    commands: Arc<Commands>,
    /// The device's reads.
    reads: Arc<Reads>,
    /// All commands up to this number were submitted to the device.
    flushed: AtomicU64,
    faults: Faults,
}

impl OpenClQueue {
    pub(crate) fn new(
        options: QueueOptions,
        context: &Arc<Context>,
        reads: &Arc<Reads>,
        faults: &Faults,
    ) -> Result<Self, BackendError> {
        let queue = OpenClStream::new(options.create(context)?);
        let commands = Arc::new(Commands::new(Arc::new(queue)));
        reads.add_stream(&commands);
        let context = Arc::clone(context);
        let reads = Arc::clone(reads);
        let faults = faults.clone();
        Ok(Self { options, context, commands, reads, flushed: AtomicU64::new(0), faults })
    }

    /// What the command of an operation waits for.
    fn before(&self, operation: FaultPoint) -> Result<WaitList, BackendError> {
        self.faults.before_command(operation, &self.context)
    }

    /// The queue for the next command.
    fn queue(&self) -> Result<Arc<OpenClStream>, BackendError> {
        self.commands.queue(|| self.create_queue())
    }

    fn create_queue(&self) -> Result<Arc<OpenClStream>, BackendError> {
        Ok(Arc::new(OpenClStream::new(self.options.create(&self.context)?)))
    }

    /// The queue for a kernel. A queue that cannot be made is logged: the kernel learns that there is none.
    fn lend_queue(&self) -> Option<Arc<OpenClStream>> {
        self.commands
            .lend_queue(|| self.create_queue())
            .inspect_err(|error| log::error!("a stream that has failed gets no other queue: {error}"))
            .ok()
    }

    /// Enqueues a command to this queue by `enqueue`, which calls `call`, and adds it. Returns its number.
    ///
    /// # Safety
    ///
    /// If `enqueue` succeeds, the command's event is in the place that it gets, and `enqueue` gives one
    /// reference to it away.
    unsafe fn add(
        &self,
        call: &'static str,
        len: usize,
        enqueue: impl FnOnce(&'static OpenClFunctions, *mut cl_event) -> Result<(), OpenClError>,
    ) -> Result<u64, BackendError> {
        // SAFETY: the caller promises the event.
        let event = unsafe { Handle::event_of(self.context.functions(), enqueue) };
        Ok(self.commands.add(call, Arc::new(event.map_err(|error| error.own_of(len))?)))
    }

    /// Has the device begin with what was enqueued.
    fn submit(&self) -> Result<(), BackendError> {
        let queue = self.commands.last_queue();
        // SAFETY: the queue is valid.
        unsafe { self.context.functions().clFlush(queue.command_queue()) }.map_err(OpenClError::own)
    }
}

impl StreamDriver for OpenClQueue {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.lend_queue().map(|queue| queue as _)
    }

    fn native_handle(&self, kind: &str) -> Option<u64> {
        if kind != handles::COMMAND_QUEUE {
            return None;
        }
        self.lend_queue().map(|queue| handles::number(queue.command_queue()))
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        let DeviceRange { buffer: to, offset, len } = DeviceRange::of(destination)?;
        same_length(source.len(), len)?;
        let queue = self.queue()?;
        let bytes = source.as_ptr().cast();
        let waits = self.before(FaultPoint::Write)?;
        // SAFETY: a span lies inside its buffer, and `source` has the same length. Only the core calls this,
        // and it keeps both until an event behind the command is done. The bytes of a shared `HostBuffer` do
        // not change. The call writes the command's event to the place, with one reference.
        unsafe {
            self.add("clEnqueueWriteBuffer", len, |cl, event| {
                let count = waits.len();
                let list = waits.start();
                cl.clEnqueueWriteBuffer(
                    queue.command_queue(),
                    to,
                    CL_NON_BLOCKING,
                    offset,
                    len,
                    bytes,
                    count,
                    list,
                    event,
                )
            })?;
        }
        Ok(())
    }

    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let DeviceRange { buffer: from, offset, len } = DeviceRange::of(source)?;
        same_length(destination.len(), len)?;
        let open = self.reads.open()?;
        let finished = completion.watch();
        let mut destination = destination;
        let queue = self.queue()?;
        let bytes = destination.as_mut_ptr().cast();
        let waits = self.before(FaultPoint::Read)?;
        // SAFETY: a span lies inside its buffer, `destination` has the same length, and the core keeps the
        // memory. The bytes of a `HostBuffer` stay where they are when it is moved, and are freed only when
        // the command is done. The call writes the command's event to the place, with one reference.
        let read = unsafe {
            Handle::event_of(self.context.functions(), |cl, event| {
                let count = waits.len();
                let list = waits.start();
                cl.clEnqueueReadBuffer(
                    queue.command_queue(),
                    from,
                    CL_NON_BLOCKING,
                    offset,
                    len,
                    bytes,
                    count,
                    list,
                    event,
                )
            })
        };
        // After a refusal nothing is enqueued. The completion is dropped, and the caller gets the error.
        let event = Arc::new(read.map_err(|error| error.own_of(len))?);
        let read = QueuedRead::begin(open, &event, destination, completion).map_err(OpenClError::own)?;
        // The completion reports a failure to the stream; this reports it to the events behind the read.
        self.commands.add_read(event, read, finished);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let from = DeviceRange::of(source)?;
        let to = DeviceRange::of(destination)?;
        same_length(from.len, to.len)?;
        let queue = self.queue()?;
        let waits = self.before(FaultPoint::Copy)?;
        // SAFETY: spans lie inside their buffers, and the lengths are equal. The core passes no ranges that
        // overlap, and keeps the memory until an event behind the command is done. The call writes the
        // command's event to the place, with one reference.
        unsafe {
            self.add("clEnqueueCopyBuffer", to.len, |cl, event| {
                cl.clEnqueueCopyBuffer(
                    queue.command_queue(),
                    from.buffer,
                    to.buffer,
                    from.offset,
                    to.offset,
                    to.len,
                    waits.len(),
                    waits.start(),
                    event,
                )
            })?;
        }
        Ok(())
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let DeviceRange { buffer: to, offset, len } = DeviceRange::of(destination)?;
        let pattern = pattern.as_bytes();
        let start: *const c_void = pattern.as_ptr().cast();
        let queue = self.queue()?;
        let waits = self.before(FaultPoint::Fill)?;
        // SAFETY: a span lies inside its buffer. The core passes whole patterns only, and keeps the memory
        // until an event behind the command is done; the call copies the pattern. The call writes the
        // command's event to the place, with one reference.
        unsafe {
            let size = pattern.len();
            self.add("clEnqueueFillBuffer", len, |cl, event| {
                let count = waits.len();
                let list = waits.start();
                cl.clEnqueueFillBuffer(
                    queue.command_queue(),
                    to,
                    start,
                    size,
                    offset,
                    len,
                    count,
                    list,
                    event,
                )
            })?;
        }
        Ok(())
    }

    /// Every event has a timestamp if the queue was made with timestamps.
    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        let marker = Arc::new(commands::mark(self.queue()?.handle()).map_err(OpenClError::own)?);
        let number = self.commands.add_event(Arc::clone(&marker));
        Ok(Box::new(OpenClEvent::new(marker, number, &self.commands, &self.context)))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let event = event.downcast_ref::<OpenClEvent>()?;
        if !event.is_of(&self.context) {
            return Err(BackendError::unsupported("waiting in the queue for an event of another device"));
        }
        let queue = self.queue()?;
        let list = [event.get()];
        // SAFETY: the list has one event, which `event` owns and which is of this context. The call writes
        // the barrier's event to the place, with one reference.
        unsafe {
            self.add("clEnqueueBarrierWithWaitList", 0, |cl, event| {
                cl.clEnqueueBarrierWithWaitList(queue.command_queue(), 1, list.as_ptr(), event)
            })?;
        }
        Ok(())
    }

    fn launched(&self) {
        self.commands.add_unknown();
    }

    /// The core asks for it before it looks at an event, a read or the stream: each may be a submission.
    fn flush(&self) -> Result<(), BackendError> {
        let number = self.commands.submitted();
        if self.flushed.load(Ordering::Acquire) < number {
            self.submit()?;
            self.flushed.fetch_max(number, Ordering::AcqRel);
        }
        Ok(())
    }

    fn query(&self) -> Result<bool, BackendError> {
        self.commands.query()
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.commands.finish(self.context.finishes_early())
    }
}
