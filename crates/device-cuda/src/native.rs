//! Native handles of a device and of its streams, for programs and kernels. Nothing that the core's contract
//! protects can be reached through them.

use std::ffi::CStr;
use std::sync::Arc;

use cudarc::driver::sys::{CUcontext, CUdevice_attribute, CUstream};
use device_registry::backend::{BackendError, NativeDevice};

use crate::context::Context;
use crate::handles;
use crate::library::{CudaBatch, CudaKernel, Library, Stream};

/// An open device `cuda:…`.
///
/// A program gets it by [`Device::with_driver`](device_registry::Device::with_driver), and a kernel by
/// [`Launch::driver_as`](device_registry::backend::Launch::driver_as).
///
/// It is not the driver: functions that rely on the core's checks cannot be called through it.
///
/// ```compile_fail,E0277
/// fn is_driver<D: device_registry::backend::DeviceDriver>() {}
/// is_driver::<device_cuda::CudaDevice>();
/// ```
pub struct CudaDevice {
    ordinal: usize,
    context: Context,
}

impl CudaDevice {
    pub(crate) fn new(ordinal: usize, context: Context) -> Self {
        Self { ordinal, context }
    }

    pub(crate) fn shared_context(&self) -> &Context {
        &self.context
    }

    /// The device behind an open one of the backend `cuda`, linked or from a file. This holds the primary
    /// context too.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the device is of another backend; else the driver's refusal.
    pub fn from_native(native: NativeDevice<'_>) -> Result<Self, BackendError> {
        let ordinal = handles::device(native)?;
        let library = Library::open().map_err(BackendError::unavailable)?;
        // The handle of a device is its ordinal, by the reference of `cuDeviceGet`.
        let ordinal = usize::try_from(ordinal)
            .map_err(|_| BackendError::other(format_args!("the driver has a device {ordinal}")))?;
        Ok(Self::new(ordinal, Context::retain(library, ordinal)?))
    }

    /// A number that the driver knows of the device.
    ///
    /// # Errors
    ///
    /// If this driver does not know it.
    pub fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32, BackendError> {
        Ok(self.context.primary.attribute(attribute)?)
    }

    /// Loads the kernel of this name from what a compiler has made for the device: a binary (*cubin*), or
    /// PTX, which the driver compiles.
    ///
    /// # Errors
    ///
    /// The driver's log if it refuses the image, and if there is no such kernel in it.
    ///
    /// # Safety
    ///
    /// A binary is not damaged: the driver does not check it.
    pub unsafe fn load_kernel(&self, image: &[u8], name: &CStr) -> Result<CudaKernel, BackendError> {
        CudaKernel::load(&self.context.primary, image, name)
    }

    /// Does work for a stream of the device, with its context current to this thread.
    ///
    /// # Errors
    ///
    /// If the device is lost; else the error of `work`.
    pub fn batch<T>(
        &self,
        stream: CUstream,
        work: impl FnOnce(&CudaBatch<'_>) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        work(&CudaBatch::enter(&self.context.primary, stream)?)
    }

    /// The ordinal of the device in the driver: 1 for `cuda:1`.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The primary context of the device, into which modules are loaded. The CUDA runtime and the libraries
    /// above it use the same context. As a number it has the kind `cuda.CUcontext`.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.context.primary.handle()
    }

    /// Makes the context current to this thread, and leaves it current, for functions of the driver that a
    /// kernel calls. All other functions of this crate restore the context that they find.
    ///
    /// # Errors
    ///
    /// If the device is lost.
    pub fn make_current(&self) -> Result<(), BackendError> {
        Ok(self.context.primary.make_current()?)
    }
}

/// A queue of a device `cuda:…`.
///
/// A kernel gets it by [`Launch::stream_as`](device_registry::backend::Launch::stream_as).
///
/// It is not the driver: work whose memory the core has to keep is enqueued by a
/// [`Stream`](device_registry::Stream) only.
///
/// ```compile_fail,E0277
/// fn is_driver<D: device_registry::backend::StreamDriver>() {}
/// is_driver::<device_cuda::CudaStream>();
/// ```
pub struct CudaStream(Arc<Stream>);

impl CudaStream {
    pub(crate) fn new(stream: Arc<Stream>) -> Self {
        Self(stream)
    }

    pub(crate) fn shared_stream(&self) -> &Arc<Stream> {
        &self.0
    }

    /// The driver's handle. Work that a kernel submits to it is in the stream's order. As a number it has
    /// the kind `cuda.CUstream`.
    #[must_use]
    pub fn stream(&self) -> CUstream {
        self.0.handle()
    }
}
