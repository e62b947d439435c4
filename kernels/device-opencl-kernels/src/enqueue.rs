//! Plans into commands of a stream's queue.

use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use device_generated_kernels::{Place, Plan, Step, Value};
use device_kernels::Call;
use device_opencl::sys::{
    CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_MEM_READ_WRITE, cl_event, cl_int, cl_mem,
};
use device_opencl::{OpenClError, OpenClFunctions, handles};
use device_registry::activity;
use device_registry::backend::{BackendError, Launch};
use smallvec::SmallVec;

use crate::cache::OpenKernels;
use crate::program::Arguments;

/// How long a launch waits for a kernel that was compiled for it, before its binary is kept. PoCL has more in
/// the binary of a kernel that has run, which saves the next process more than half of the time.
const PATIENCE: Duration = Duration::from_secs(1);

/// An array of a call: its memory, and how many elements of it are before the array's buffer.
pub(crate) struct Array {
    buffer: cl_mem,
    first: i64,
}

/// The memory of an intermediate result, which is released when it is dropped.
struct Scratch {
    buffer: cl_mem,
    cl: &'static OpenClFunctions,
}

// SAFETY: OpenCL's functions take a buffer on any thread.
unsafe impl Send for Scratch {}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: it was made once, and is released once. A release can fail only after a loss, when there is
        // nothing left to do.
        let _: Result<(), OpenClError> = unsafe { self.cl.clReleaseMemObject(self.buffer) };
    }
}

impl Array {
    /// The array in a span of a launch, whose elements have this size.
    ///
    /// # Errors
    ///
    /// If there is no span, or one that ends before the array, or one that does not begin with a whole
    /// element.
    pub(crate) fn of(
        launch: &Launch<'_>,
        place: usize,
        size: usize,
        end: usize,
    ) -> Result<Self, BackendError> {
        let span = launch.spans().get(place).and_then(Option::as_ref);
        let span = span.filter(|span| end.checked_mul(size).is_some_and(|end| end <= span.len()));
        let Some(span) = span else {
            return Err(BackendError::invalid(format_args!(
                "expected a buffer of at least {end} elements of {size} bytes as array {place}"
            )));
        };
        // The core has checked where the buffer begins in its allocation, which may be a part of the memory.
        if span.offset() % size != 0 {
            return Err(BackendError::invalid(format_args!(
                "array {place} begins at byte {} of its memory, expected a multiple of {size}",
                span.offset()
            )));
        }
        let buffer = handles::buffer(span)?;
        Ok(Self { buffer, first: (span.offset() / size) as i64 })
    }

    /// How many elements of the memory are before the buffer.
    pub(crate) fn first(&self) -> usize {
        self.first as usize
    }
}

/// Enqueues the kernels of a call by its plan, on the device of the launch.
///
/// # Safety
///
/// The handles of the launch are what [`handles`] says. With its arguments, each kernel accesses elements of
/// its arrays only.
pub(crate) unsafe fn enqueue(
    plan: &Plan,
    call: &Call,
    arrays: &[Array],
    launch: &Launch<'_>,
    open: &OpenKernels,
) -> Result<(), BackendError> {
    let device = &open.device;
    let cl = device.functions();
    let queue = handles::command_queue(launch)?;
    let mut scratch = Vec::new();
    for &size in &plan.scratch {
        // SAFETY: `device` keeps the context. No host pointer is passed.
        let buffer = unsafe { cl.clCreateBuffer(device.context(), CL_MEM_READ_WRITE, size, ptr::null_mut()) };
        let buffer =
            buffer.map_err(|error| BackendError::out_of_memory(size as u64, None).with_source(error))?;
        scratch.push(Scratch { buffer, cl });
    }
    // All programs first: a text that is rejected leaves nothing enqueued.
    let kernels = plan.steps.iter().map(|step| open.kernel(&step.recipe, call));
    let kernels: SmallVec<[_; 3]> = kernels.collect::<Result<_, BackendError>>()?;
    let mut new = Vec::new();
    for (step, kernel) in plan.steps.iter().zip(&kernels) {
        let mut arguments = kernel.arguments();
        // SAFETY: the kernel is the one of the step's recipe, and the caller promises what it accesses.
        unsafe { set(&mut arguments, step, plan.wide, arrays, &scratch) }?;
        let axes = 1 + step.items.iter().rposition(|&items| items > 1).unwrap_or(0);
        let items = step.items.as_ptr();
        let group = step.group.as_ptr();
        let kernel = arguments.kernel();
        let no_offset = ptr::null();
        // No event, except of a program that was compiled: the stream has events of its own.
        let no_events = ptr::null();
        let compiled = arguments.take_new();
        let mut event = ptr::null_mut();
        let place = if compiled.is_some() { &raw mut event } else { ptr::null_mut() };
        // SAFETY: the queue is the launch's, as the caller promises. The arguments are set, as OpenCL checks.
        // The core keeps the arrays, and the launch the intermediate results, until the commands are
        // done.
        unsafe {
            cl.clEnqueueNDRangeKernel(
                queue,
                kernel,
                axes as u32,
                no_offset,
                items,
                group,
                0,
                no_events,
                place,
            )
        }?;
        if let Some(compiled) = compiled {
            new.push((compiled, Event { event, cl }));
        }
    }
    launch.keep(scratch);
    // A driver may compile until a kernel runs.
    let _first_run = (!new.is_empty()).then(|| activity::span(&format!("first run of {}", call.name())));
    for (compiled, event) in new {
        // SAFETY: the queue is the launch's, as the caller promises. A failure is the stream's.
        let _: Result<(), OpenClError> = unsafe { cl.clFlush(queue) };
        if event.wait(PATIENCE) {
            open.programs.keep(*compiled);
        }
    }
    Ok(())
}

/// The event of a command, which is released when it is dropped.
struct Event {
    event: cl_event,
    cl: &'static OpenClFunctions,
}

impl Event {
    /// Waits until the command is done or has failed, but no longer than that. Returns whether it is.
    fn wait(&self, limit: Duration) -> bool {
        let start = Instant::now();
        let mut pause = Duration::from_micros(50);
        while !self.is_over() {
            if start.elapsed() >= limit {
                return false;
            }
            thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(5));
        }
        true
    }

    fn is_over(&self) -> bool {
        let mut status: cl_int = CL_COMPLETE;
        let size = size_of_val(&status);
        let place = (&raw mut status).cast();
        let what = CL_EVENT_COMMAND_EXECUTION_STATUS;
        // SAFETY: the event is valid, and `status` is a place for the number that this query writes.
        let known = unsafe { self.cl.clGetEventInfo(self.event, what, size, place, ptr::null_mut()) };
        known.is_err() || status <= CL_COMPLETE
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the call that enqueued the command gave one reference away, which is released once. A
        // release can fail only after a loss, when there is nothing left to do.
        let _: Result<(), OpenClError> = unsafe { self.cl.clReleaseEvent(self.event) };
    }
}

/// Sets the arguments of a kernel, in the order of its parameters.
///
/// # Safety
///
/// The arrays have valid buffers. With these arguments, the kernel accesses elements of its arrays only.
unsafe fn set(
    arguments: &mut Arguments<'_>,
    step: &Step,
    wide: bool,
    arrays: &[Array],
    scratch: &[Scratch],
) -> Result<(), BackendError> {
    for &(place, offset) in &step.arrays {
        let (buffer, first) = match place {
            Place::Array(place) => (arrays[place].buffer, arrays[place].first),
            Place::Scratch(place) => (scratch[place].buffer, 0),
        };
        // SAFETY: a buffer is an argument by its handle, and valid while the launch runs; the caller promises
        // that it is one.
        unsafe { arguments.add(&buffer) }?;
        // SAFETY: it is a number.
        unsafe { add_index(arguments, first + offset, wide) }?;
    }
    for value in &step.values {
        // SAFETY: it is a number of at most eight bytes.
        unsafe {
            match value {
                Value::Float(value) => arguments.add_number(*value),
                Value::Double(value) => arguments.add_number(*value),
                Value::Int(value) => arguments.add_number(*value),
                Value::Long(value) => arguments.add_number(*value),
                Value::Uint(value) => arguments.add_number(*value),
                Value::Ulong(value) => arguments.add_number(*value),
            }
        }?;
    }
    for &index in &step.indices {
        // SAFETY: it is a number.
        unsafe { add_index(arguments, index, wide) }?;
    }
    Ok(())
}

/// # Safety
///
/// The next parameter is an index.
unsafe fn add_index(arguments: &mut Arguments<'_>, index: i64, wide: bool) -> Result<(), BackendError> {
    if wide {
        // SAFETY: it is a number.
        return unsafe { arguments.add_number(index) };
    }
    let index = i32::try_from(index).map_err(|_| {
        BackendError::other(format_args!("the index {index} does not fit 32 bits, as it was planned to"))
    })?;
    // SAFETY: it is a number.
    unsafe { arguments.add_number(index) }
}
