//! Whether a device is lost, and why.

use std::sync::OnceLock;

use device_registry::backend::BackendError;
use wgpu::DeviceLostReason;

const DESTROYED: &str = "it was destroyed by its native handle";

/// The loss of a device, set once. wgpu's callback may run on any thread that calls wgpu, under wgpu's locks:
/// so it only stores the loss, and waiting threads check it from time to time.
#[derive(Default)]
pub(crate) struct Loss(OnceLock<BackendError>);

impl Loss {
    pub(crate) fn set(&self, reason: DeviceLostReason, message: &str) {
        self.0.get_or_init(|| {
            BackendError::lost(match (reason, message) {
                (DeviceLostReason::Destroyed, _) => DESTROYED,
                (_, "") => "wgpu gives no reason",
                (_, message) => message,
            })
        });
    }

    /// Sets a loss that another result of wgpu shows, unless one is set. Returns the loss.
    pub(crate) fn infer(&self, message: &str) -> BackendError {
        self.0.get_or_init(|| BackendError::lost(message)).clone()
    }

    /// Sets the loss after which mapped memory is not mapped any more. Only wgpu unmaps it: it frees the
    /// buffers of a destroyed device before it calls the callback.
    pub(crate) fn unmapped(&self, error: wgpu::MapRangeError) -> BackendError {
        self.0.get_or_init(|| BackendError::lost(DESTROYED).with_source(error)).clone()
    }

    pub(crate) fn check(&self) -> Result<(), BackendError> {
        self.0.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}
