//! Objects of OpenCL that this backend owns.

use std::ffi::c_void;
use std::fmt;

use cl3::types::{cl_command_queue, cl_event, cl_int, cl_mem, cl_program};

use crate::error::Status;

/// An object that dropping this releases. A failed release, which a loss may cause, is logged.
pub(crate) struct Handle {
    object: *mut c_void,
    call: &'static str,
    release: unsafe fn(*mut c_void) -> Result<(), cl_int>,
}

// SAFETY: OpenCL counts references atomically, and all of its functions but `clSetKernelArg` may be called from any thread.
// None of these objects is a kernel.
unsafe impl Send for Handle {}
// SAFETY: a shared reference only gives the pointer, and OpenCL's functions take it on several threads at once.
unsafe impl Sync for Handle {}

impl Handle {
    /// Takes over a reference to a queue.
    ///
    /// # Safety
    ///
    /// The queue is valid, and the caller gives one reference to it away.
    pub(crate) unsafe fn queue(object: cl_command_queue) -> Self {
        Self { object, call: "clReleaseCommandQueue", release: cl3::command_queue::release_command_queue }
    }

    /// Takes over a reference to a buffer.
    ///
    /// # Safety
    ///
    /// The buffer is valid, and the caller gives one reference to it away.
    pub(crate) unsafe fn buffer(object: cl_mem) -> Self {
        Self { object, call: "clReleaseMemObject", release: cl3::memory::release_mem_object }
    }

    /// Takes over a reference to an event.
    ///
    /// # Safety
    ///
    /// The event is valid, and the caller gives one reference to it away.
    pub(crate) unsafe fn event(object: cl_event) -> Self {
        Self { object, call: "clReleaseEvent", release: cl3::event::release_event }
    }

    /// Takes over a reference to a program.
    ///
    /// # Safety
    ///
    /// The program is valid, and the caller gives one reference to it away.
    pub(crate) unsafe fn program(object: cl_program) -> Self {
        Self { object, call: "clReleaseProgram", release: cl3::program::release_program }
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.object
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the constructor's caller gave this value one reference, which is released here once.
        if let Err(status) = unsafe { (self.release)(self.object) } {
            log::warn!("{}: {}", self.call, Status(status));
        }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.object, f)
    }
}
