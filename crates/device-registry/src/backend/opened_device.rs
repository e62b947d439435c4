//! What a backend returns when it opens a device.

use std::fmt;

use crate::backend::DeviceDriver;

/// A device that a backend has opened: its driver, which only the core can call from here on.
///
/// A driver's functions are safe, and a driver for hardware does unsafe things in them: it passes lengths and addresses
/// to an interface in C. Those are sound because of what the core checks before each call and keeps alive after it (see
/// [the contract](DeviceDriver#the-contract-of-memory)). So a driver must not be called by anything else, and this type
/// has no way to reach the one inside: neither a program that calls [`Backend::open`](crate::backend::Backend::open) by itself
/// nor another backend gets at it. What programs and kernels use of a driver is its
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
    /// Hands a driver to the core.
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
