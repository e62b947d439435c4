//! Streams: queues of a device.

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUstream, CUstream_flags};
use device_registry::backend::{
    BackendError, BackendErrorKind, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, Priority,
    Span, StreamDriver, StreamOptions,
};

use crate::context::{Context, Current};
use crate::error::{CAPTURE, CudaError, NOT_READY};
use crate::event::{self, CudaEvent};
use crate::memory::{place, same_length};
use crate::native::CudaStream;
use crate::reads::{Reading, finish_read};

/// The driver's side of a stream.
pub(crate) struct Queue(Arc<CudaStream>);

/// The driver's stream. The thread that watches reads has it as well while there are some, so that it is destroyed when
/// both have let it go.
pub(crate) struct Handle {
    context: Arc<Context>,
    stream: CUstream,
}

// SAFETY: a stream is no thread's own, and the driver's functions may be called from several threads at once.
unsafe impl Send for Handle {}
// SAFETY: the driver's functions may be called for one stream from several threads at once.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn stream(&self) -> CUstream {
        self.stream
    }

    /// What it is told from others by, for as long as it is there.
    pub(crate) fn address(&self) -> usize {
        self.stream.addr()
    }

    /// Whether the stream goes on.
    pub(crate) fn ask(&self) -> Result<(), CudaError> {
        let current = self.context.try_enter()?;
        // SAFETY: the stream is there until `self` is dropped.
        match unsafe { current.cuda().cuStreamQuery(self.stream) } {
            Err(CudaError { code: NOT_READY, .. }) => Ok(()),
            outcome => outcome,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once. It does not wait: what is queued is still done.
        self.context.dispose(|cuda| unsafe { cuda.cuStreamDestroy_v2(self.stream) });
    }
}

impl Queue {
    pub(crate) fn create(context: &Arc<Context>, options: &StreamOptions) -> Result<Self, BackendError> {
        let current = context.enter()?;
        // Numbers of which the smaller is the more urgent, and both 0 where there is nothing to choose.
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: the context is current, and the places are there.
        unsafe { current.cuda().cuCtxGetStreamPriorityRange(&mut least, &mut greatest) }?;
        let priority = match options.priority {
            Priority::Low => least,
            Priority::High => greatest,
            // What streams have that ask for nothing, those of other libraries among them.
            _ => 0,
        };
        let mut stream = ptr::null_mut();
        // Not blocking: else it would wait for all that others put into the null stream of this context.
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current, and the place for the stream is there.
        unsafe { current.cuda().cuStreamCreateWithPriority(&mut stream, flags, priority) }?;
        let handle = Handle { context: Arc::clone(context), stream };
        Ok(Self(Arc::new(CudaStream::new(Arc::new(handle)))))
    }

    fn handle(&self) -> &Arc<Handle> {
        self.0.handle()
    }

    fn stream(&self) -> CUstream {
        self.handle().stream
    }

    fn enter(&self) -> Result<Current<'_>, BackendError> {
        self.handle().context.enter()
    }

    /// Submits a copy from the host.
    ///
    /// # Safety
    ///
    /// The bytes, as many as the destination has, neither move nor change until it is done.
    pub(crate) unsafe fn write_from(
        &self,
        destination: &Span,
        source: *const u8,
    ) -> Result<(), BackendError> {
        let (_, to) = place(destination)?;
        let current = self.enter()?;
        // SAFETY: the span lies within memory of this device, which the core keeps until the work is done, and the
        // caller keeps the source.
        Ok(unsafe {
            current.cuda().cuMemcpyHtoDAsync_v2(to, source.cast(), destination.len(), self.stream())
        }?)
    }

    /// Submits a copy to the host.
    ///
    /// # Safety
    ///
    /// The bytes, as many as the source has, are there and nobody else's until it is done.
    pub(crate) unsafe fn read_into(&self, source: &Span, destination: *mut u8) -> Result<(), BackendError> {
        let (_, from) = place(source)?;
        let current = self.enter()?;
        // SAFETY: the span lies within memory of this device, which the core keeps until the work is done, and the caller
        // keeps the destination.
        Ok(unsafe {
            current.cuda().cuMemcpyDtoHAsync_v2(destination.cast(), from, source.len(), self.stream())
        }?)
    }

    /// Submits the filling of new memory with zeros.
    pub(crate) fn clear(&self, pointer: u64, len: usize) -> Result<(), BackendError> {
        let current = self.enter()?;
        // SAFETY: the caller has allocated so much there, on this device, and waits before it frees that.
        Ok(unsafe { current.cuda().cuMemsetD8Async(pointer, 0, len, self.stream()) }?)
    }
}

impl StreamDriver for Queue {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        same_length(source.len(), destination.len())?;
        // SAFETY: the bytes are as many, do not change in a shared `HostBuffer`, and are kept until the work is done by the
        // core, which alone calls this.
        unsafe { self.write_from(destination, source.as_ptr()) }
    }

    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        same_length(destination.len(), source.len())?;
        let mut reading = Reading::open(self.handle(), destination, completion)?;
        // SAFETY: the bytes are as many, stay where they are, and are kept until they are written.
        if let Err(error) = unsafe { self.read_into(source, reading.start()) } {
            // An error may be one of earlier work, which does not say that this has not begun.
            match error.kind() {
                BackendErrorKind::Lost => reading.leak(),
                _ => reading.refuse(),
            }
            return Err(error);
        }
        let entry = reading.entry();
        let reading = Box::into_raw(Box::new(reading));
        let launched = self.enter().and_then(|current| {
            // SAFETY: the function gets its box once. If it is never called, the box is leaked: the device may still
            // write into what it holds.
            Ok(unsafe { current.cuda().cuLaunchHostFunc(self.stream(), Some(finish_read), reading.cast()) }?)
        });
        launched.inspect_err(|error| {
            // One of earlier work does not say that the driver has refused it: it may know the box, and call the function.
            if error.kind() == BackendErrorKind::Lost {
                entry.close();
                return;
            }
            // SAFETY: the driver has refused it, and does not know it.
            let reading = *unsafe { Box::from_raw(reading) };
            // The copy is under way, and nobody will say when it is done.
            match self.synchronize() {
                Ok(()) => reading.refuse(),
                Err(_) => reading.leak(),
            }
        })
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let ((_, from), (_, to)) = (place(source)?, place(destination)?);
        let current = self.enter()?;
        // SAFETY: both lie within memory of this device, which the core keeps until the work is done.
        Ok(unsafe { current.cuda().cuMemcpyDtoDAsync_v2(to, from, source.len(), self.stream()) }?)
    }

    /// Patterns of 8 and 16 bytes are left to the core, which writes some and doubles them by copies. The driver has no
    /// function for them, and whether a pitch of 8 bytes is allowed everywhere where it fills rows is not determined.
    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let (_, to) = place(destination)?;
        let current = self.enter()?;
        let (cuda, stream, len) = (current.cuda(), self.stream(), destination.len());
        // SAFETY: the span lies within memory of this device, which the core keeps until the work is done. It begins and
        // ends at multiples of the pattern, and the memory at a multiple of more.
        Ok(unsafe {
            match *pattern.as_bytes() {
                [a] => cuda.cuMemsetD8Async(to, a, len, stream),
                [a, b] => cuda.cuMemsetD16Async(to, u16::from_ne_bytes([a, b]), len / 2, stream),
                [a, b, c, d] => cuda.cuMemsetD32Async(to, u32::from_ne_bytes([a, b, c, d]), len / 4, stream),
                _ => return Err(BackendError::unsupported("filling with more than 4 bytes")),
            }
        }?)
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let ((memory, from), (_, to)) = (place(source)?, place(destination)?);
        let current = self.enter()?;
        let (from_context, to_context) = (memory.context(), self.handle().context.handle());
        // SAFETY: each lies within memory of its context, which the core keeps until the work is done.
        Ok(unsafe {
            current.cuda().cuMemcpyPeerAsync(to, to_context, from, from_context, source.len(), self.stream())
        }?)
    }

    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        Ok(Box::new(CudaEvent::record(&self.handle().context, self.stream(), options)?))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let event = event.downcast_ref::<CudaEvent>()?;
        let current = self.enter()?;
        // SAFETY: both are there. The event may be another device's; only recording asks for the same context.
        Ok(unsafe { current.cuda().cuStreamWaitEvent(self.stream(), event.event(), 0) }?)
    }

    fn query(&self) -> Result<bool, BackendError> {
        let current = self.enter()?;
        // SAFETY: the stream is there until `self` is dropped.
        match unsafe { current.cuda().cuStreamQuery(self.stream()) } {
            // It says nothing of the work.
            Err(CudaError { code, .. }) if CAPTURE.contains(&code) => Ok(false),
            outcome => event::is_done(outcome),
        }
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let current = self.enter()?;
        // SAFETY: the stream is there until `self` is dropped.
        Ok(unsafe { current.cuda().cuStreamSynchronize(self.stream()) }?)
    }
}
