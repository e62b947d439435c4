//! Native handles by their kinds, for kernels that work with the linked backend and with one from a file.
//!
//! A backend of the name `cuda` returns them for the kinds below. A kernel gets them from the parts of a
//! [`Launch`], without the backend's Rust types: see [`Span::native_handle`].
//!
//! | kind | of | what it is | valid |
//! |---|---|---|---|
//! | `cuda.CUdeviceptr` | memory | its address on the device; a span begins [`offset`](Span::offset) bytes further | as long as the span |
//! | `cuda.CUstream` | a stream | the stream | within the launch |
//! | `cuda.CUdevice` | a device | the device, whose primary context all of these are in | until the process ends |
//! | `cuda.CUcontext` | a device | that context | while the device is open |
//!
//! The functions here are safe, as a handle does nothing by itself. A call of the driver with it is the
//! caller's unsafe code. It may rely on the table: a backend returns handles of these kinds only after it has
//! promised that they are such objects, by
//! [`OpenedDevice::with_native_handles`](device_registry::backend::OpenedDevice::with_native_handles), which
//! is unsafe.

use std::ptr;

use cudarc::driver::sys::{CUdevice, CUdeviceptr, CUstream};
use device_registry::backend::{BackendError, Launch, NativeDevice, Span};

/// The address of the first byte of a span, on its device.
///
/// # Errors
///
/// [`BackendError::unsupported`] if the memory belongs to another backend.
pub fn pointer(span: &Span) -> Result<CUdeviceptr, BackendError> {
    Ok(span.native_handle("cuda.CUdeviceptr")? + span.offset() as CUdeviceptr)
}

/// The stream that the kernel is launched in.
///
/// # Errors
///
/// [`BackendError::unsupported`] if the stream belongs to another backend.
pub fn stream(launch: &Launch<'_>) -> Result<CUstream, BackendError> {
    // The number is an address of this process, which fits.
    Ok(ptr::with_exposed_provenance_mut(launch.native_stream("cuda.CUstream")? as usize))
}

/// The device of CUDA behind an open device.
///
/// # Errors
///
/// [`BackendError::unsupported`] if the device is of another backend.
pub fn device(native: NativeDevice<'_>) -> Result<CUdevice, BackendError> {
    Ok(native.handle("cuda.CUdevice")? as CUdevice)
}
