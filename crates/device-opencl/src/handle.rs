//! Objects of OpenCL that this backend owns.

use std::ffi::c_void;
use std::fmt;
use std::ptr;

use crate::error::OpenClError;
use crate::functions::OpenClFunctions;
use crate::sys::{cl_command_queue, cl_event, cl_mem, cl_program};

/// An object that dropping this releases. A failed release, which a loss may cause, is logged.
pub(crate) struct Handle {
    object: *mut c_void,
    release: unsafe fn(&OpenClFunctions, *mut c_void) -> Result<(), OpenClError>,
    functions: &'static OpenClFunctions,
}

// SAFETY: OpenCL counts references atomically, and all of its functions but `clSetKernelArg` may be called
// from any thread. None of these objects is a kernel.
unsafe impl Send for Handle {}
// SAFETY: a shared reference only gives the pointer, and OpenCL's functions take it on several threads at
// once.
unsafe impl Sync for Handle {}

impl Handle {
    /// Takes over a reference to a queue.
    ///
    /// # Safety
    ///
    /// The queue is valid, and the caller gives one reference to it away.
    pub(crate) unsafe fn queue(functions: &'static OpenClFunctions, object: cl_command_queue) -> Self {
        Self { object, release: OpenClFunctions::clReleaseCommandQueue, functions }
    }

    /// Takes over a reference to a buffer.
    ///
    /// # Safety
    ///
    /// The buffer is valid, and the caller gives one reference to it away.
    pub(crate) unsafe fn buffer(functions: &'static OpenClFunctions, object: cl_mem) -> Self {
        Self { object, release: OpenClFunctions::clReleaseMemObject, functions }
    }

    /// Takes over a reference to a program.
    ///
    /// # Safety
    ///
    /// The program is valid, and the caller gives one reference to it away.
    pub(crate) unsafe fn program(functions: &'static OpenClFunctions, object: cl_program) -> Self {
        Self { object, release: OpenClFunctions::clReleaseProgram, functions }
    }

    /// Enqueues a command by `enqueue`, which has its event written to a place. Returns that event.
    ///
    /// # Safety
    ///
    /// If `enqueue` succeeds, a valid event is in the place, and `enqueue` gives one reference to it away.
    pub(crate) unsafe fn event_of(
        functions: &'static OpenClFunctions,
        enqueue: impl FnOnce(&'static OpenClFunctions, *mut cl_event) -> Result<(), OpenClError>,
    ) -> Result<Self, OpenClError> {
        let mut object = ptr::null_mut();
        enqueue(functions, &mut object)?;
        Ok(Self { object, release: OpenClFunctions::clReleaseEvent, functions })
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.object
    }

    pub(crate) fn functions(&self) -> &'static OpenClFunctions {
        self.functions
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the constructor's caller gave this value one reference, which is released here once.
        if let Err(error) = unsafe { (self.release)(self.functions, self.object) } {
            log::warn!("{error}");
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.object, f)
    }
}
