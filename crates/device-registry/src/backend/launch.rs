//! The argument of a kernel.

use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::fmt;

use crate::backend::native::{Native, downcast, handle};
use crate::backend::{BackendError, DeviceDriver, NativeDevice, Owner, Span, StreamDriver};
use crate::device::Device;

/// The argument of a kernel: its device, its buffers, and the backend's native handles.
///
/// Native handles come in two forms. Rust types, from [`driver_as`](Self::driver_as),
/// [`stream_as`](Self::stream_as) and [`Span::memory_as`], work for a backend that is linked into the
/// program. Numbers of a kind, from [`native_device`](Self::native_device),
/// [`native_stream`](Self::native_stream) and [`Span::native_handle`], work for a backend from a file as
/// well.
pub struct Launch<'a> {
    owner: &'a dyn Owner,
    spans: &'a [Option<Span>],
    driver: &'a dyn DeviceDriver,
    stream: Option<&'a dyn StreamDriver>,
    native_driver: OnceCell<Native>,
    native_stream: OnceCell<Native>,
    kept: RefCell<Vec<Box<dyn Any + Send>>>,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(
        owner: &'a dyn Owner,
        spans: &'a [Option<Span>],
        driver: &'a dyn DeviceDriver,
        stream: Option<&'a dyn StreamDriver>,
    ) -> Self {
        Self {
            owner,
            spans,
            driver,
            stream,
            native_driver: OnceCell::new(),
            native_stream: OnceCell::new(),
            kept: RefCell::default(),
        }
    }

    /// The values that the kernel has kept.
    pub(crate) fn into_kept(self) -> Vec<Box<dyn Any + Send>> {
        self.kept.into_inner()
    }

    /// The device that the kernel is launched on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.owner.device()
    }

    /// The buffers of the launch, in their order. Each is a memory and a range in it, or `None` for an empty
    /// buffer.
    #[must_use]
    pub fn spans(&self) -> &[Option<Span>] {
        self.spans
    }

    /// The backend's handle of the stream, for submitting native work to it.
    ///
    /// For a driver with queues, the core calls the kernel when the stream is ready to submit it. Otherwise
    /// it calls the kernel after all earlier work is done, and the kernel must finish its own work before it
    /// returns.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the stream is not a queue of the driver, or its handle is of another
    /// type.
    pub fn stream_as<S: Any>(&self) -> Result<&S, BackendError> {
        let native = self.native_stream.get_or_init(|| self.stream.and_then(StreamDriver::native));
        downcast(native, self.device(), "stream", "Launch::native_stream")
    }

    /// The backend's handle of the device, for example for its context.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the backend has no handle, or one of another type.
    pub fn driver_as<D: Any>(&self) -> Result<&D, BackendError> {
        let native = self.native_driver.get_or_init(|| self.driver.native());
        downcast(native, self.device(), "device", "Launch::native_device")
    }

    /// The stream's handle of a [kind](StreamDriver::native_handle), such as `cuda.CUstream`, for submitting
    /// native work to it. It is borrowed: it is valid within the launch.
    ///
    /// On a stream without a handle, a kernel finishes its work before it returns, as for
    /// [`stream_as`](Self::stream_as).
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the stream is not a queue of the driver, or does not have a handle of
    /// this kind.
    pub fn native_stream(&self, kind: &str) -> Result<u64, BackendError> {
        let Some(stream) = self.stream else {
            let device = self.device();
            return Err(BackendError::unsupported(format_args!(
                "the stream of `{device}` is not a queue of the driver, so it does not have a native handle of the kind \
                 `{kind}`; a kernel there finishes its work before it returns"
            )));
        };
        handle(self.owner, "the stream of ", kind, || stream.native_handle(kind))
    }

    /// The handles of the device by their [kinds](DeviceDriver::native_handle), such as `opencl.cl_context`.
    #[must_use]
    pub fn native_device(&self) -> NativeDevice<'_> {
        NativeDevice::new(self.owner, self.driver)
    }

    /// Keeps a value alive, such as arguments or scratch memory, until the native work that the kernel
    /// submits is done.
    pub fn keep(&self, value: impl Send + 'static) {
        self.kept.borrow_mut().push(Box::new(value));
    }
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("device", &self.device())
            .field("spans", &self.spans)
            .finish_non_exhaustive()
    }
}
