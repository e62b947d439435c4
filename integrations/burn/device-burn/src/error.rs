//! What can go wrong before burn has a device.

use device_burn_backend::{InvalidVariable, TooManyBackends};
use device_registry::backend::BackendError;
use device_registry::{Device, DeviceError};
use entry_points::LoadError;

use crate::engines::LinkedEngine;

/// Why a device string gives no device for burn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The string is invalid, the backend does not load, or the device does not exist or open.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// `DEVICE_BURN_FALLBACK`, `DEVICE_BURN_FUSION` or `DEVICE_BURN_KERNELS` is invalid.
    #[error(transparent)]
    Variable(#[from] InvalidVariable),
    /// burn has no number left for the backend.
    #[error(transparent)]
    Backends(#[from] TooManyBackends),
    /// A burn engine is linked for the backend, and does not load.
    #[error("cannot load burn's engine for the backend; DEVICE_BURN_ENGINES_DISABLE={} does without", .0.name())]
    Engines(#[source] LoadError),
    /// A burn engine is linked for the backend, and cannot use the device.
    #[error(
        "{engine} cannot compute on `{device}`; DEVICE_BURN_ENGINES_DISABLE={} does without",
        .device.name()
    )]
    Engine {
        /// The device.
        device: Device,
        /// The engine.
        engine: LinkedEngine,
        /// The reason.
        source: BackendError,
    },
    /// No burn engine is linked for the backend, and this program has no door for other devices.
    #[cfg(not(any(feature = "group", feature = "loopback", feature = "patch")))]
    #[error(
        "burn has no way to `{device}`: no engine for `{}` is linked and on, and `device-burn` has none of the features that \
         reach other devices: `patch` and `loopback`, or `group` with burn 0.23",
        .device.name()
    )]
    NoDoor {
        /// The device.
        device: Device,
    },
    /// burn makes no group of the devices.
    #[cfg(feature = "group")]
    #[error(transparent)]
    Group(#[from] crate::group::NoGroup),
    /// The server in the process does not start, or does not accept the connection.
    #[cfg(feature = "loopback")]
    #[error(transparent)]
    Loopback(#[from] crate::loopback::LoopbackError),
}
