//! A queue of the device: in order, and fed from the caller's thread.

use std::any::Any;
use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cl3::command_queue::*;
use cl3::event::{CL_COMPLETE, set_event_callback};
use cl3::types::{cl_command_queue, cl_event, cl_int};
use device_registry::backend::{
    BackendError, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, Span, StreamDriver,
};

use crate::commands::Commands;
use crate::context::Context;
use crate::error::{call_error, error_of};
use crate::event::{self, OpenClEvent};
use crate::handle::Handle;
use crate::memory::{OpenClMemory, same_length};
use crate::native::OpenClStream;

/// The driver's side of a stream.
pub(crate) struct Queue {
    native: Arc<OpenClStream>,
    context: Arc<Context>,
    commands: Arc<Commands>,
}

impl Queue {
    pub(crate) fn new(queue: Handle, context: &Arc<Context>) -> Self {
        let native = Arc::new(OpenClStream::new(queue));
        Self { native, context: Arc::clone(context), commands: Arc::default() }
    }

    fn command_queue(&self) -> cl_command_queue {
        self.native.command_queue()
    }

    /// Adds a command that was enqueued. Returns its number.
    ///
    /// # Safety
    ///
    /// The event is of a command of this queue, and its reference is given away.
    unsafe fn add(
        &self,
        call: &'static str,
        len: usize,
        enqueued: Result<cl_event, cl_int>,
    ) -> Result<u64, BackendError> {
        let event = enqueued.map_err(|status| error_of(call, status, len))?;
        // SAFETY: the caller promises that the event is a command's of this queue, and gives its reference away.
        Ok(self.commands.add(call, Arc::new(unsafe { Handle::event(event) })))
    }

    fn mark(&self) -> Result<Handle, BackendError> {
        // SAFETY: no list of events is given.
        let marker = unsafe { enqueue_marker_with_wait_list(self.command_queue(), 0, ptr::null()) };
        let marker = marker.map_err(|status| call_error("clEnqueueMarkerWithWaitList", status))?;
        // SAFETY: it was just made, with one reference.
        Ok(unsafe { Handle::event(marker) })
    }
}

impl StreamDriver for Queue {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.native) as _)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        let (to, offset, len) = OpenClMemory::place(destination)?;
        same_length(source.len(), len)?;
        let (queue, bytes) = (self.command_queue(), source.as_ptr().cast());
        // SAFETY: the range lies inside of the buffer, and `source` is as long. The core, which alone calls this, keeps both
        // until an event behind this is done, and nothing writes to the bytes of a shared `HostBuffer`.
        unsafe {
            let written =
                enqueue_write_buffer(queue, to, CL_NON_BLOCKING, offset, len, bytes, 0, ptr::null());
            self.add("clEnqueueWriteBuffer", len, written)?;
        }
        Ok(())
    }

    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let (from, offset, len) = OpenClMemory::place(source)?;
        same_length(destination.len(), len)?;
        let answered = Arc::new(AtomicBool::new(false));
        let mut reading = Box::new(Reading { destination, completion, answered: Arc::clone(&answered) });
        let (queue, bytes) = (self.command_queue(), reading.destination.as_mut_ptr().cast());
        // SAFETY: the range lies inside of the buffer, `destination` is as long, and the core keeps the memory; the bytes
        // stay where they are when their owner moves, and are freed only when the command is done.
        let read =
            unsafe { enqueue_read_buffer(queue, from, CL_NON_BLOCKING, offset, len, bytes, 0, ptr::null()) };
        // Refused: nothing was enqueued, and the completion goes with the error.
        let event = read.map_err(|status| error_of("clEnqueueReadBuffer", status, len))?;
        // SAFETY: it is the command's, with one reference.
        let event = unsafe { Handle::event(event) };
        let reading = Box::into_raw(reading);
        if let Err(status) = set_event_callback(event.get(), CL_COMPLETE, Reading::done, reading.cast()) {
            // Then it is waited for here; what cannot be waited for keeps its bytes for ever.
            if event::wait(&event).is_ok() {
                // SAFETY: it was made by `into_raw` above, and no callback has it.
                drop(unsafe { Box::from_raw(reading) });
            }
            return Err(call_error("clSetEventCallback", status));
        }
        // Its failure is the completion's to tell, but for the events behind it.
        self.commands.add_read(Arc::new(event), answered);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, from_offset, len) = OpenClMemory::place(source)?;
        let (to, to_offset, _) = OpenClMemory::place(destination)?;
        // SAFETY: the core has checked that the ranges lie inside, are as long, and do not overlap, and keeps the memory.
        unsafe {
            let queue = self.command_queue();
            let copied = enqueue_copy_buffer(queue, from, to, from_offset, to_offset, len, 0, ptr::null());
            self.add("clEnqueueCopyBuffer", len, copied)?;
        }
        Ok(())
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let (to, offset, len) = OpenClMemory::place(destination)?;
        let pattern = pattern.as_bytes();
        let start: *const c_void = pattern.as_ptr().cast();
        // SAFETY: the core has checked that the range lies inside and consists of whole patterns, and keeps the memory;
        // the pattern is copied by the call.
        unsafe {
            let queue = self.command_queue();
            let filled = enqueue_fill_buffer(queue, to, start, pattern.len(), offset, len, 0, ptr::null());
            self.add("clEnqueueFillBuffer", len, filled)?;
        }
        Ok(())
    }

    /// Every event has a time where the queue has them: it is the queue that is made for it.
    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        let marker = Arc::new(self.mark()?);
        let number = self.commands.add_event(Arc::clone(&marker));
        Ok(Box::new(OpenClEvent::new(marker, number, &self.commands, &self.context)))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let event = event.downcast_ref::<OpenClEvent>()?;
        if !event.is_of(&self.context) {
            return Err(BackendError::unsupported("waiting for an event of another context"));
        }
        let list = [event.get()];
        // SAFETY: the list has one event, of this context.
        unsafe {
            let barrier = enqueue_barrier_with_wait_list(self.command_queue(), 1, list.as_ptr());
            self.add("clEnqueueBarrierWithWaitList", 0, barrier)?;
        }
        Ok(())
    }

    fn launched(&self) {
        self.commands.add_unknown();
    }

    fn flush(&self) -> Result<(), BackendError> {
        flush(self.command_queue()).map_err(|status| call_error("clFlush", status))
    }

    fn query(&self) -> Result<bool, BackendError> {
        self.commands.query(|| {
            let marker = self.mark()?;
            self.flush()?;
            Ok(Arc::new(marker))
        })
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let number = self.commands.submitted();
        finish(self.command_queue()).map_err(|status| call_error("clFinish", status))?;
        self.commands.finish(number)
    }
}

/// A read in the queue, which its callback owns.
struct Reading {
    destination: HostBuffer,
    completion: Completion,
    answered: Arc<AtomicBool>,
}

impl Reading {
    /// Called once, on any thread, when the command is done or has failed. Nothing of OpenCL is called here.
    extern "C" fn done(_event: cl_event, status: cl_int, reading: *mut c_void) {
        // SAFETY: it was made by `into_raw` of a box, which is given to this call alone.
        let Self { destination, completion, answered } = *unsafe { Box::from_raw(reading.cast::<Self>()) };
        let result = if status < CL_COMPLETE {
            // Nobody can say when a device that has failed no longer writes there; and pinned memory must not be freed
            // on this thread.
            mem::forget(destination);
            Err(call_error("clEnqueueReadBuffer", status))
        } else {
            Ok(destination)
        };
        completion.finish(result);
        answered.store(true, Ordering::Release);
    }
}
