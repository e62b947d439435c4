//! What can go wrong before burn has a device.

use device_burn_backend::{InvalidFallback, TooManyBackends};
use device_registry::DeviceError;

/// Why a device string gives no device for burn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The string is invalid, the backend does not load, or the device does not exist or open.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// `DEVICE_BURN_FALLBACK` is invalid.
    #[error(transparent)]
    Fallback(#[from] InvalidFallback),
    /// burn has no number left for the backend.
    #[error(transparent)]
    Backends(#[from] TooManyBackends),
    /// The server in the process does not start, or does not accept the connection.
    #[cfg(feature = "loopback")]
    #[error(transparent)]
    Loopback(#[from] crate::loopback::LoopbackError),
}
