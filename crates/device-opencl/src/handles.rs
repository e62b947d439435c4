//! Native handles by their kinds, for kernels that work with the linked backend and with one from a file.
//!
//! A backend of the name `opencl` returns them for the kinds below. A kernel gets them from the parts of a
//! [`Launch`], without the backend's Rust types: see [`Span::native_handle`].
//!
//! | kind | of | what it is | valid |
//! |---|---|---|---|
//! | `opencl.cl_mem` | memory | the buffer, into which a span begins [`offset`](Span::offset) bytes | as long as the span |
//! | `opencl.cl_command_queue` | a stream | its queue, which is in order | within the launch |
//! | `opencl.cl_context` | a device | the context of all of these, which has one device | while the device is open |
//! | `opencl.cl_device_id` | a device | that device, which is not a part of another one | until the process ends |
//!
//! A handle is the address of OpenCL's object, of the same loader as
//! [`OpenClFunctions`](crate::OpenClFunctions). To keep an object for longer, retain it by its function of
//! OpenCL; [`OpenClDevice::from_native`](crate::OpenClDevice::from_native) does so for the context.
//!
//! The functions here are safe, as a handle does nothing by itself. A call of OpenCL with it is the caller's
//! unsafe code. It may rely on the table: a backend returns handles of these kinds only after it has promised
//! that they are such objects, by
//! [`OpenedDevice::with_native_handles`](device_registry::backend::OpenedDevice::with_native_handles), which
//! is unsafe.

use std::ffi::c_void;
use std::ptr;

use device_registry::backend::{BackendError, Launch, NativeDevice, Span};

use crate::sys::{cl_command_queue, cl_context, cl_device_id, cl_mem};

pub(crate) const BUFFER: &str = "opencl.cl_mem";
pub(crate) const COMMAND_QUEUE: &str = "opencl.cl_command_queue";
pub(crate) const CONTEXT: &str = "opencl.cl_context";
pub(crate) const DEVICE_ID: &str = "opencl.cl_device_id";

/// The buffer of a span, which begins [`offset`](Span::offset) bytes into it.
///
/// # Errors
///
/// [`BackendError::unsupported`] if the memory belongs to another backend.
pub fn buffer(span: &Span) -> Result<cl_mem, BackendError> {
    span.native_handle(BUFFER).map(object)
}

/// The queue of the stream that the kernel is launched in.
///
/// Commands that a kernel enqueues to it within the launch are work of the stream like any other. The stream
/// does not notice commands that are enqueued later.
///
/// # Errors
///
/// [`BackendError::unsupported`] if the stream belongs to another backend.
pub fn command_queue(launch: &Launch<'_>) -> Result<cl_command_queue, BackendError> {
    launch.native_stream(COMMAND_QUEUE).map(object)
}

/// The context of an open device.
///
/// # Errors
///
/// [`BackendError::unsupported`] if the device is of another backend.
pub fn context(native: NativeDevice<'_>) -> Result<cl_context, BackendError> {
    native.handle(CONTEXT).map(object)
}

/// The device of OpenCL behind an open device.
///
/// # Errors
///
/// [`BackendError::unsupported`] if the device is of another backend.
pub fn device_id(native: NativeDevice<'_>) -> Result<cl_device_id, BackendError> {
    native.handle(DEVICE_ID).map(object)
}

/// The address of an object as a number.
pub(crate) fn number(object: *mut c_void) -> u64 {
    object.expose_provenance() as u64
}

fn object(number: u64) -> *mut c_void {
    // The numbers are addresses of this process, which fit.
    ptr::with_exposed_provenance_mut(number as usize)
}
