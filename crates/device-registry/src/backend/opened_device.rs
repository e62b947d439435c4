//! An opened device: the result of [`Backend::open`](crate::backend::Backend::open).

use std::fmt;

use crate::backend::{DeviceDriver, LossReporter};

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
pub struct OpenedDevice {
    driver: Box<dyn DeviceDriver>,
    loss_reporter: Option<LossReporter>,
}

impl OpenedDevice {
    /// Wraps a driver, for the core to call.
    #[must_use]
    pub fn new(driver: impl DeviceDriver + 'static) -> Self {
        Self { driver: Box::new(driver), loss_reporter: None }
    }

    /// Adds a reporter, whose clones report at any time that the device is lost.
    #[must_use]
    pub fn with_loss_reporter(self, reporter: LossReporter) -> Self {
        Self { loss_reporter: Some(reporter), ..self }
    }

    pub(crate) fn into_driver(self) -> (Box<dyn DeviceDriver>, Option<LossReporter>) {
        (self.driver, self.loss_reporter)
    }
}

impl fmt::Debug for OpenedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedDevice").finish_non_exhaustive()
    }
}
