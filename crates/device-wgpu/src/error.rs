//! Errors of wgpu as errors of a backend.

use device_registry::backend::{BackendError, BackendErrorKind};

/// The error that an error scope has caught.
pub(crate) fn caught(error: wgpu::Error) -> BackendError {
    match &error {
        wgpu::Error::OutOfMemory { .. } => {
            let kind = BackendErrorKind::OutOfMemory { asked: 0, free: None };
            BackendError::new(kind, "wgpu found no memory left on the device or the host").with_source(error)
        }
        wgpu::Error::Validation { description, .. } => BackendError::invalid(description.trim()),
        wgpu::Error::Internal { description, .. } => BackendError::other(description.trim()),
    }
}

/// The error of a call that allocates `len` bytes.
pub(crate) fn for_len(error: BackendError, len: u64) -> BackendError {
    match error.kind() {
        BackendErrorKind::OutOfMemory { .. } => BackendError::out_of_memory(len, None).with_source(error),
        _ => error,
    }
}
