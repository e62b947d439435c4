//! One open device.

use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cl3::command_queue::*;
use cl3::error_codes::DLOPEN_FUNCTION_NOT_AVAILABLE;
use cl3::ext::{
    CL_QUEUE_PRIORITY_HIGH_KHR, CL_QUEUE_PRIORITY_KHR, CL_QUEUE_PRIORITY_LOW_KHR, cl_queue_priority_khr,
};
use cl3::memory::{CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, cl_mem_flags, create_buffer};
use cl3::types::{cl_command_queue, cl_device_id, cl_event, cl_int, cl_platform_id};
use device_registry::backend::{
    AllocateOptions, BackendError, BackendErrorKind, DeviceDriver, DeviceKind, FillPattern, HostBuffer,
    Memory, MemoryInfo, Priority, Span, StreamDriver, StreamOptions,
};

use crate::context::Context;
use crate::error::{allocation_error, call_error, error_of};
use crate::event;
use crate::handle::Handle;
use crate::memory::{OpenClMemory, Pinned, same_length};
use crate::native::OpenClDevice;
use crate::properties::Facts;
use crate::stream::Queue;

/// The driver of an open device.
pub(crate) struct Driver {
    facts: Facts,
    /// What programs and kernels get; `None` once the device is closed.
    native: Mutex<Option<Arc<OpenClDevice>>>,
    /// Queues for the functions that block, for as many as are called at the same time. None of them waits for another,
    /// or for a stream.
    idle: Mutex<Vec<Handle>>,
    /// The queue in which pinned memory is mapped, once there is any.
    mapping: Mutex<Option<Arc<Handle>>>,
}

impl Driver {
    pub(crate) fn open(
        ordinal: usize,
        platform: cl_platform_id,
        device: cl_device_id,
        facts: &Facts,
    ) -> Result<Self, BackendError> {
        let native = Arc::new(OpenClDevice::new(Context::new(ordinal, platform, device)?));
        let (idle, mapping) = Default::default();
        Ok(Self { facts: facts.clone(), native: Mutex::new(Some(native)), idle, mapping })
    }

    fn device(&self) -> Result<Arc<OpenClDevice>, BackendError> {
        let native = lock(&self.native).clone();
        native.ok_or_else(|| BackendError::invalid("the device is closed"))
    }

    fn queue(&self, priority: Priority) -> Result<Handle, BackendError> {
        let profiling = if self.facts.properties.timed_events { CL_QUEUE_PROFILING_ENABLE } else { 0 };
        let hint: Option<cl_queue_priority_khr> = match priority {
            _ if !self.facts.priorities => None,
            Priority::High => Some(CL_QUEUE_PRIORITY_HIGH_KHR),
            Priority::Low => Some(CL_QUEUE_PRIORITY_LOW_KHR),
            _ => None,
        };
        let native = self.device()?;
        let (context, device) = (native.context(), native.device_id());
        let mut list = vec![CL_QUEUE_PROPERTIES as cl_queue_properties, profiling];
        list.extend(
            hint.into_iter().flat_map(|hint| [CL_QUEUE_PRIORITY_KHR as cl_queue_properties, hint.into()]),
        );
        list.push(0);
        // SAFETY: the device is the context's, and `native` keeps that.
        let without_hints = || unsafe { create_command_queue(context, device, profiling) };
        let created = if self.facts.version >= (2, 0) {
            match unsafe { create_command_queue_with_properties(context, device, list.as_ptr()) } {
                // The loader may be older than the device.
                Err(DLOPEN_FUNCTION_NOT_AVAILABLE) => without_hints(),
                created => created,
            }
        } else {
            without_hints()
        };
        let queue = created.map_err(|status| call_error("clCreateCommandQueue", status))?;
        // SAFETY: it was just made, with one reference.
        Ok(unsafe { Handle::queue(queue) })
    }

    /// Enqueues a command where nothing else is, and waits for it.
    ///
    /// # Safety
    ///
    /// `enqueue` enqueues one command to the queue and returns its event; and what the command touches may be touched
    /// until this returns.
    unsafe fn block(
        &self,
        call: &'static str,
        len: usize,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> Result<(), BackendError> {
        let queue = self.idle_queue()?;
        // SAFETY: the caller promises that `enqueue` enqueues one command and returns its event, and that what the command
        // touches may be touched until this returns.
        unsafe { self.block_in(queue, call, len, enqueue) }
    }

    /// A queue in which nothing is.
    fn idle_queue(&self) -> Result<Handle, BackendError> {
        let idle = lock(&self.idle).pop();
        idle.map_or_else(|| self.queue(Priority::Normal), Ok)
    }

    /// The same in this queue, which is kept for the next.
    ///
    /// # Safety
    ///
    /// `enqueue` enqueues one command to the queue and returns its event; and what the command touches may be touched until
    /// this returns.
    unsafe fn block_in(
        &self,
        queue: Handle,
        call: &'static str,
        len: usize,
        enqueue: impl FnOnce(cl_command_queue) -> Result<cl_event, cl_int>,
    ) -> Result<(), BackendError> {
        let done = enqueue(queue.get()).and_then(|event| {
            // SAFETY: the event is of the command, with one reference.
            event::wait(&unsafe { Handle::event(event) })
        });
        // Whatever failed: nothing may touch the caller's bytes when this returns.
        if done.is_err()
            && let Err(status) = finish(queue.get())
        {
            let message = "a command on memory of the caller failed, and its queue cannot be waited for";
            return Err(BackendError::lost(message).with_source(call_error("clFinish", status)));
        }
        lock(&self.idle).push(queue);
        done.map_err(|status| error_of(call, status, len))
    }

    /// The error of an allocation, with the largest that is possible if it is larger.
    fn too_large(&self, error: BackendError, len: usize) -> BackendError {
        match self.facts.properties.largest_allocation {
            Some(largest) if len as u64 > largest && is_out_of_memory(&error) => {
                let message = format_args!("{len} bytes asked for, at most {largest} in one allocation");
                BackendError::new(error.kind(), message).with_source(error)
            }
            _ => error,
        }
    }

    /// Where memory is to lie.
    fn placement(&self) -> cl_mem_flags {
        match self.facts.properties.kind {
            // It is the host's anyway, and asked for like this PoCL takes it at once: it aborts the process if there is
            // too little when a command first uses it.
            DeviceKind::Cpu => CL_MEM_ALLOC_HOST_PTR,
            _ => 0,
        }
    }
}

fn is_out_of_memory(error: &BackendError) -> bool {
    matches!(error.kind(), BackendErrorKind::OutOfMemory { .. })
}

/// Nothing that is held here can be left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeviceDriver for Driver {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.device().ok().map(|native| native as _)
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let total = self.facts.properties.total_memory;
        Ok(total.map_or_else(MemoryInfo::unknown, |total| MemoryInfo::unknown().with_total(total)))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let len = options.len;
        let native = self.device()?;
        // First, as its error is not that of the memory.
        let queue = self.idle_queue()?;
        let flags = CL_MEM_READ_WRITE | self.placement();
        // SAFETY: the context is there as long as `native`, and the memory is OpenCL's own.
        let buffer = unsafe { create_buffer(native.context(), flags, len, ptr::null_mut()) }
            .map_err(|status| allocation_error("clCreateBuffer", status, len))?;
        // SAFETY: it was just made, with one reference.
        let memory = OpenClMemory::new(unsafe { Handle::buffer(buffer) }, len);
        // OpenCL promises nothing about what new memory holds, and many implementations take it at its first use only:
        // that it is not there is to be said here, and not by work in a stream.
        // SAFETY: the pattern is copied by the call, and the buffer outlives the command, which is waited for.
        unsafe {
            self.block_in(queue, "clEnqueueFillBuffer", len, |queue| {
                enqueue_fill_buffer(queue, buffer, [0u8].as_ptr().cast(), 1, 0, len, 0, ptr::null())
            })
        }
        .map_err(|error| memory.refused(error))?;
        Ok(Arc::new(memory))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let (to, offset, len) = OpenClMemory::place(destination)?;
        same_length(source.len(), len)?;
        // SAFETY: the range lies inside of the buffer, `source` is as long, and lives until this returns.
        unsafe {
            self.block("clEnqueueWriteBuffer", len, |queue| {
                let source = source.as_ptr().cast();
                enqueue_write_buffer(queue, to, CL_BLOCKING, offset, len, source, 0, ptr::null())
            })
        }
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let (from, offset, len) = OpenClMemory::place(source)?;
        same_length(destination.len(), len)?;
        // SAFETY: the range lies inside of the buffer, `destination` is as long, and is borrowed for writing until this
        // returns.
        unsafe {
            self.block("clEnqueueReadBuffer", len, |queue| {
                let destination = destination.as_mut_ptr().cast();
                enqueue_read_buffer(queue, from, CL_BLOCKING, offset, len, destination, 0, ptr::null())
            })
        }
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, from_offset, len) = OpenClMemory::place(source)?;
        let (to, to_offset, _) = OpenClMemory::place(destination)?;
        // SAFETY: the core has checked that the ranges lie inside, are as long, and do not overlap.
        unsafe {
            self.block("clEnqueueCopyBuffer", len, |queue| {
                enqueue_copy_buffer(queue, from, to, from_offset, to_offset, len, 0, ptr::null())
            })
        }
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let (to, offset, len) = OpenClMemory::place(destination)?;
        let pattern = pattern.as_bytes();
        // SAFETY: the core has checked that the range lies inside and consists of whole patterns, and the pattern is
        // copied by the call.
        unsafe {
            self.block("clEnqueueFillBuffer", len, |queue| {
                let start: *const c_void = pattern.as_ptr().cast();
                enqueue_fill_buffer(queue, to, start, pattern.len(), offset, len, 0, ptr::null())
            })
        }
    }

    fn create_stream(&self, options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        let queue = self.queue(options.priority)?;
        Ok(Box::new(Queue::new(queue, self.device()?.shared_context())))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        let mut mapping = lock(&self.mapping);
        let queue = match &*mapping {
            Some(queue) => Arc::clone(queue),
            None => Arc::clone(mapping.insert(Arc::new(self.queue(Priority::Normal)?))),
        };
        drop(mapping);
        let pinned = Pinned::map(self.device()?.shared_context(), queue, len);
        pinned.map(Pinned::into_host_buffer).map_err(|error| self.too_large(error, len))
    }

    fn reset(&self) -> Result<(), BackendError> {
        // The next open makes a context of its own, which shares nothing with this one; or fails, if the device is not
        // back. This one is not released: other threads may be in calls that were given it.
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        lock(&self.idle).clear();
        lock(&self.mapping).take();
        // The context is released with the last stream, event or memory that is left of it.
        lock(&self.native).take();
        Ok(())
    }
}
