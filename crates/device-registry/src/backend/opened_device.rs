//! An opened device: the result of [`Backend::open`](crate::backend::Backend::open).

use std::fmt;

use crate::backend::DeviceDriver;

/// A device that a backend has opened: its driver, which only the core can call.
///
/// A driver's functions are safe, but a driver for hardware contains unsafe code: it passes lengths and addresses to an
/// interface in C. That code is sound because of the checks that the core makes before each call and of the memory that
/// it keeps alive after it (see [the contract](DeviceDriver#the-contract-of-memory)). So nothing else may call a driver.
///
/// This type gives no access to the driver inside. A program that calls [`Backend::open`](crate::backend::Backend::open)
/// cannot reach it, nor can another backend. Programs and kernels use the driver's
/// [native handle](DeviceDriver::native).
///
/// ```compile_fail,E0624
/// # use device_registry::backend::{Backend, BackendError, DeviceDriver};
/// fn close_behind_the_cores_back(backend: &dyn Backend) -> Result<(), BackendError> {
///     backend.open(0)?.into_driver().close()
/// }
/// ```
pub struct OpenedDevice(Box<dyn DeviceDriver>);

impl OpenedDevice {
    /// Wraps a driver, for the core to call.
    #[must_use]
    pub fn new(driver: impl DeviceDriver + 'static) -> Self {
        Self(Box::new(driver))
    }

    pub(crate) fn into_driver(self) -> Box<dyn DeviceDriver> {
        self.0
    }
}

impl fmt::Debug for OpenedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedDevice").finish_non_exhaustive()
    }
}
