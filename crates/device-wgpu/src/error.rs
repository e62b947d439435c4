//! Errors of wgpu as those of a backend, in one place.

use device_registry::backend::{BackendError, BackendErrorKind};

/// What an error scope has caught.
pub(crate) fn caught(error: wgpu::Error) -> BackendError {
    match &error {
        wgpu::Error::OutOfMemory { .. } => {
            let kind = BackendErrorKind::OutOfMemory { asked: 0, free: None };
            BackendError::new(kind, "wgpu has none left, of the device's or of the host's").with_source(error)
        }
        wgpu::Error::Validation { description, .. } => BackendError::invalid(description.trim()),
        wgpu::Error::Internal { description, .. } => BackendError::other(description.trim()),
    }
}

/// The same for a call that was to allocate `len` bytes.
pub(crate) fn for_len(error: BackendError, len: u64) -> BackendError {
    match error.kind() {
        BackendErrorKind::OutOfMemory { .. } => BackendError::out_of_memory(len, None).with_source(error),
        _ => error,
    }
}
