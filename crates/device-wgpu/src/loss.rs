//! Whether a device is lost, and why.

use std::sync::OnceLock;

use device_registry::backend::BackendError;
use wgpu::DeviceLostReason;

const DESTROYED: &str = "it was destroyed by its native handle";

/// Set once, by wgpu's callback, which may come on any thread that calls wgpu, and under wgpu's locks: so nothing is
/// done here but to keep it. Whoever waits looks at it from time to time.
#[derive(Default)]
pub(crate) struct Loss(OnceLock<BackendError>);

impl Loss {
    pub(crate) fn set(&self, reason: DeviceLostReason, message: &str) {
        self.0.get_or_init(|| {
            BackendError::lost(match (reason, message) {
                (DeviceLostReason::Destroyed, _) => DESTROYED,
                (_, "") => "wgpu does not say why",
                (_, message) => message,
            })
        });
    }

    /// For what wgpu tells by the way.
    pub(crate) fn infer(&self, message: &str) -> BackendError {
        self.0.get_or_init(|| BackendError::lost(message)).clone()
    }

    /// What was mapped is mapped no more, of which nobody but wgpu can be the cause: it frees the buffers of a device that
    /// was destroyed, before it calls the callback.
    pub(crate) fn unmapped(&self, error: wgpu::MapRangeError) -> BackendError {
        self.0.get_or_init(|| BackendError::lost(DESTROYED).with_source(error)).clone()
    }

    pub(crate) fn check(&self) -> Result<(), BackendError> {
        self.0.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}
