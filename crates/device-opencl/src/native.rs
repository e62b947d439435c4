//! Native handles of a device and of its streams, for programs and kernels. Nothing that the core's contract
//! protects can be reached through them.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use device_registry::backend::{BackendError, NativeDevice};

use crate::context::Context;
use crate::error::OpenClError;
use crate::functions::{OpenClFunctions, value};
use crate::handle::Handle;
use crate::handles;
use crate::program::OpenClProgram;
use crate::sys::{
    CL_DEVICE_PLATFORM, cl_command_queue, cl_context, cl_device_id, cl_device_info, cl_platform_id,
    cl_platform_info,
};

/// An open device: its own context with one device in it.
///
/// A program gets it by [`Device::with_driver`](device_registry::Device::with_driver), and a kernel by
/// [`Launch::driver_as`](device_registry::backend::Launch::driver_as), if the backend is linked. Both can
/// make one [from native handles](Self::from_native), whether it is linked or from a file.
///
/// It is not the driver: functions that rely on the core's checks cannot be called through it.
///
/// ```compile_fail,E0277
/// fn is_driver<D: device_registry::backend::DeviceDriver>() {}
/// is_driver::<device_opencl::OpenClDevice>();
/// ```
pub struct OpenClDevice(Arc<Context>);

impl OpenClDevice {
    /// An open device by its [native handles](handles), which has its own reference to the context: objects
    /// made with it belong to the context of the device's streams and memory. It stays valid when the device
    /// is closed or reset, and then belongs to the old context; compare [`context`](Self::context) with
    /// [`handles::context`] to notice that.
    ///
    /// ```no_run
    /// use device_opencl::OpenClDevice;
    ///
    /// let source = "kernel void nothing() {}";
    /// let program = device_registry::device("opencl")?.with_native(|native| {
    ///     OpenClDevice::from_native(native)?.build(source, "")
    /// })?;
    /// # drop(program);
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the device is of another backend, [`BackendError::unavailable`] if
    /// there is no loader of OpenCL, or the error of the loader.
    pub fn from_native(native: NativeDevice<'_>) -> Result<Self, BackendError> {
        let context = handles::context(native)?;
        let device = handles::device_id(native)?;
        let functions = OpenClFunctions::open().map_err(BackendError::unavailable)?;
        // SAFETY: the device's backend has promised that its handles of these kinds are what `handles` says,
        // and the device stays open while `native` exists.
        unsafe { Context::retain(functions, context, device) }.map(|context| Self(Arc::new(context)))
    }

    pub(crate) fn new(context: Context) -> Self {
        Self(Arc::new(context))
    }

    pub(crate) fn shared_context(&self) -> &Arc<Context> {
        &self.0
    }

    /// The context, which has only this device. It is valid for as long as `self`.
    #[must_use]
    pub fn context(&self) -> cl_context {
        self.0.get()
    }

    /// The device.
    #[must_use]
    pub fn device_id(&self) -> cl_device_id {
        self.0.device()
    }

    /// The functions of OpenCL, which stay valid until the process ends.
    #[must_use]
    pub fn functions(&self) -> &'static OpenClFunctions {
        self.0.functions()
    }

    /// What the device says about itself: the bytes of `clGetDeviceInfo`. Drivers return numbers of other
    /// sizes than the specification says, so compare the length.
    ///
    /// # Errors
    ///
    /// If the device does not know the answer.
    pub fn info(&self, what: cl_device_info) -> Result<Vec<u8>, OpenClError> {
        // SAFETY: the device is the one that the context was made for, and devices that are not parts of
        // others are never freed.
        unsafe { self.functions().device_info(self.device_id(), what) }
    }

    /// What the device's platform says about itself: the bytes of `clGetPlatformInfo`.
    ///
    /// # Errors
    ///
    /// If the device does not name its platform, or the platform does not know the answer.
    pub fn platform_info(&self, what: cl_platform_info) -> Result<Vec<u8>, OpenClError> {
        let functions = self.functions();
        let mut platform: cl_platform_id = ptr::null_mut();
        let size = size_of_val(&platform);
        let place = (&raw mut platform).cast();
        let device = self.device_id();
        let of_device = CL_DEVICE_PLATFORM;
        // SAFETY: the device is valid, as in `info`, and `platform` is a place for what this query writes.
        unsafe { functions.clGetDeviceInfo(device, of_device, size, place, ptr::null_mut()) }?;
        // SAFETY: the device has named its platform, and `value` passes a place together with its size.
        value(|size, place, written| unsafe {
            functions.clGetPlatformInfo(platform, what, size, place, written)
        })
    }

    /// Compiles OpenCL C for the device, with options of `clBuildProgram`. The call blocks, perhaps for
    /// seconds.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] with the compiler's log if the source does not compile,
    /// [`BackendError::unsupported`] if the device does not have a compiler.
    pub fn build(&self, source: &str, options: &str) -> Result<OpenClProgram, BackendError> {
        OpenClProgram::build(&self.0, source, options)
    }
}

impl fmt::Debug for OpenClDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenClDevice").field("device_id", &self.device_id()).finish_non_exhaustive()
    }
}

/// A stream of an open device.
///
/// A kernel gets it by [`Launch::stream_as`](device_registry::backend::Launch::stream_as), and enqueues to
/// its [queue](Self::command_queue).
///
/// It is not the driver: work whose memory the core has to keep is enqueued by a
/// [`Stream`](device_registry::Stream) only.
///
/// ```compile_fail,E0277
/// fn is_driver<D: device_registry::backend::StreamDriver>() {}
/// is_driver::<device_opencl::OpenClStream>();
/// ```
pub struct OpenClStream(Handle);

impl OpenClStream {
    pub(crate) fn new(queue: Handle) -> Self {
        Self(queue)
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0
    }

    /// The queue, which is in order, and valid for as long as `self`. After a failure of its work the stream
    /// has another one, so a kernel gets it again in each launch.
    ///
    /// Commands that a kernel enqueues to it within a [launch](device_registry::Stream::launch) are work of
    /// the stream like any other. The stream does not notice commands that are enqueued later.
    #[must_use]
    pub fn command_queue(&self) -> cl_command_queue {
        self.0.get()
    }
}

impl fmt::Debug for OpenClStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenClStream").field("command_queue", &self.0).finish()
    }
}
