//! A context: what everything on an open device belongs to.

use std::ffi::{CStr, c_char, c_void};
use std::panic::catch_unwind;
use std::ptr;

use cl3::context::{CL_CONTEXT_PLATFORM, cl_context_properties};
use cl3::types::{cl_context, cl_device_id, cl_platform_id};
use device_registry::backend::BackendError;

use crate::error::{Status, call_error};

/// The context of one device, released with the last that uses it.
pub(crate) struct Context {
    context: cl_context,
    device: cl_device_id,
}

// SAFETY: OpenCL's functions may be called from any thread, all that are given a context or a device among them.
unsafe impl Send for Context {}
// SAFETY: a shared reference gives two pointers, to functions of which several threads may call at once.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn new(
        ordinal: usize,
        platform: cl_platform_id,
        device: cl_device_id,
    ) -> Result<Self, BackendError> {
        let properties = [CL_CONTEXT_PLATFORM, platform as cl_context_properties, 0];
        // The number itself, as nobody can say when the last call comes.
        let ordinal = ptr::without_provenance_mut(ordinal);
        let context = cl3::context::create_context(&[device], properties.as_ptr(), Some(notify), ordinal)
            .map_err(|status| call_error("clCreateContext", status))?;
        Ok(Self { context, device })
    }

    pub(crate) fn get(&self) -> cl_context {
        self.context
    }

    pub(crate) fn device(&self) -> cl_device_id {
        self.device
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's own, and given back once. OpenCL keeps the context as long as buffers, queues
        // and events in it are left.
        if let Err(status) = unsafe { cl3::context::release_context(self.context) } {
            log::warn!("clReleaseContext: {}", Status(status));
        }
    }
}

/// What an implementation reports beside the statuses that it returns, in its own words and on any thread.
unsafe extern "C" fn notify(message: *const c_char, _: *const c_void, _: usize, ordinal: *mut c_void) {
    let ordinal = ordinal.addr();
    // A logger is somebody else's code, and nothing may unwind into a driver.
    let logged = catch_unwind(|| {
        if message.is_null() {
            log::warn!("`opencl:{ordinal}` reports something without a message")
        } else {
            // SAFETY: OpenCL gives a text that ends with a zero, valid for the call.
            let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
            log::warn!("`opencl:{ordinal}` reports: {}", message.trim_end());
        }
    });
    drop(logged);
}
