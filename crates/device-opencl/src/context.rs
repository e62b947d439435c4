//! The context that everything on an open device belongs to.

use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::atomic::AtomicBool;

use device_registry::backend::BackendError;

use crate::error::OpenClError;
use crate::functions::OpenClFunctions;
use crate::sys::{CL_CONTEXT_PLATFORM, cl_context, cl_context_properties, cl_device_id, cl_platform_id};

/// The context of one device. Dropping it releases the context.
pub(crate) struct Context {
    context: cl_context,
    device: cl_device_id,
    functions: &'static OpenClFunctions,
    /// Whether `clFinish` was seen to return before the commands of a queue were over.
    finishes_early: AtomicBool,
}

// SAFETY: OpenCL's functions take a context and a device on any thread.
unsafe impl Send for Context {}
// SAFETY: a shared reference gives two handles, and OpenCL's functions take these on several threads at once.
unsafe impl Sync for Context {}

impl Context {
    /// # Safety
    ///
    /// Platform and device are valid, and the device is of the platform.
    pub(crate) unsafe fn new(
        functions: &'static OpenClFunctions,
        ordinal: usize,
        platform: cl_platform_id,
        device: cl_device_id,
    ) -> Result<Self, BackendError> {
        let properties = [CL_CONTEXT_PLATFORM, platform as cl_context_properties, 0];
        // The number itself in place of a pointer: the last call may come at any time, so that nothing can be
        // freed after it.
        let ordinal = ptr::without_provenance_mut(ordinal);
        // SAFETY: the properties end with 0, the caller promises a valid device, whose length is 1, and
        // `notify` takes any number.
        let context =
            unsafe { functions.clCreateContext(properties.as_ptr(), 1, &device, Some(notify), ordinal) };
        let finishes_early = AtomicBool::new(false);
        Ok(Self { context: context.map_err(OpenClError::own)?, device, functions, finishes_early })
    }

    /// Takes its own reference to a context.
    ///
    /// # Safety
    ///
    /// The context is valid, and the device is the one that it was made for, which is never freed.
    pub(crate) unsafe fn retain(
        functions: &'static OpenClFunctions,
        context: cl_context,
        device: cl_device_id,
    ) -> Result<Self, BackendError> {
        // SAFETY: the caller promises a valid context.
        unsafe { functions.clRetainContext(context) }.map_err(OpenClError::own)?;
        Ok(Self { context, device, functions, finishes_early: AtomicBool::new(false) })
    }

    pub(crate) fn functions(&self) -> &'static OpenClFunctions {
        self.functions
    }

    pub(crate) fn get(&self) -> cl_context {
        self.context
    }

    pub(crate) fn device(&self) -> cl_device_id {
        self.device
    }

    pub(crate) fn finishes_early(&self) -> &AtomicBool {
        &self.finishes_early
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `new` or `retain` gave this value its reference, which is released here once. OpenCL keeps
        // the context until the buffers, queues and events in it are released.
        if let Err(error) = unsafe { self.functions.clReleaseContext(self.context) } {
            log::warn!("{error}");
        }
    }
}

/// Logs what an implementation reports in addition to the statuses that it returns: texts of its own, on any
/// thread.
unsafe extern "system" fn notify(message: *const c_char, _: *const c_void, _: usize, ordinal: *mut c_void) {
    let ordinal = ordinal.addr();
    // The program's logger may panic, and a panic must not unwind into a driver.
    let logged = catch_unwind(|| {
        if message.is_null() {
            log::warn!("`opencl:{ordinal}` reports something without a message")
        } else {
            // SAFETY: OpenCL passes a text that ends with a zero and is valid for the call.
            let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
            log::warn!("`opencl:{ordinal}` reports: {}", message.trim_end());
        }
    });
    drop(logged);
}
