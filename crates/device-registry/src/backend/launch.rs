//! The argument of a kernel.

use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::sync::Arc;

use crate::backend::{BackendError, DeviceDriver, Span, StreamDriver};
use crate::device::Device;

/// A driver's native handle.
pub(crate) type Native = Option<Arc<dyn Any + Send + Sync>>;

/// The argument of a kernel: its device, its buffers, and the backend's native handles.
pub struct Launch<'a> {
    device: Device,
    spans: &'a [Option<Span>],
    driver: &'a dyn DeviceDriver,
    stream: Option<&'a dyn StreamDriver>,
    native_driver: OnceCell<Native>,
    native_stream: OnceCell<Native>,
    kept: RefCell<Vec<Box<dyn Any + Send>>>,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(
        device: Device,
        spans: &'a [Option<Span>],
        driver: &'a dyn DeviceDriver,
        stream: Option<&'a dyn StreamDriver>,
    ) -> Self {
        Self {
            device,
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
        self.device
    }

    /// The buffers of the launch, in their order. Each is a memory and a range in it, or `None` for an empty buffer.
    #[must_use]
    pub fn spans(&self) -> &[Option<Span>] {
        self.spans
    }

    /// The backend's handle of the stream, for submitting native work to it.
    ///
    /// For a driver with queues, the core calls the kernel when the stream is ready to submit it. Otherwise it calls the kernel
    /// after all earlier work is done, and the kernel must finish its own work before it returns.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the stream is not a queue of the driver, or its handle is of another type.
    pub fn stream_as<S: Any>(&self) -> Result<&S, BackendError> {
        let native = self.native_stream.get_or_init(|| self.stream.and_then(StreamDriver::native));
        downcast(native, "stream")
    }

    /// The backend's handle of the device, for example for its context.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the backend has no handle, or one of another type.
    pub fn driver_as<D: Any>(&self) -> Result<&D, BackendError> {
        downcast(self.native_driver.get_or_init(|| self.driver.native()), "device")
    }

    /// Keeps a value alive, such as arguments or scratch memory, until the native work that the kernel submits is done.
    pub fn keep(&self, value: impl Send + 'static) {
        self.kept.borrow_mut().push(Box::new(value));
    }
}

/// A native handle as the type `T`.
pub(crate) fn downcast<'a, T: Any>(native: &'a Native, of: &str) -> Result<&'a T, BackendError> {
    native.as_deref().and_then(|native| native.downcast_ref()).ok_or_else(|| {
        let name = std::any::type_name::<T>();
        BackendError::unsupported(format_args!("native work: the {of} has no handle of type `{name}`"))
    })
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("device", &self.device)
            .field("spans", &self.spans)
            .finish_non_exhaustive()
    }
}
