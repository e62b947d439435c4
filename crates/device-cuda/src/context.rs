//! The context of an open device: the primary context, and the reads that are pending in its streams.

use std::sync::Arc;

use device_registry::backend::BackendError;

use crate::error::DEVICE_UNAVAILABLE;
use crate::library::{Library, PrimaryContext};
use crate::reads::Reads;

/// What everything on an open device belongs to. A clone is the same context.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) primary: Arc<PrimaryContext>,
    pub(crate) reads: Arc<Reads>,
}

impl Context {
    /// Retains the primary context of the device with this ordinal.
    pub(crate) fn retain(library: Library, ordinal: usize) -> Result<Self, BackendError> {
        let primary = PrimaryContext::retain(library.device(ordinal)?).map_err(|error| match error.code {
            DEVICE_UNAVAILABLE => BackendError::unavailable(format_args!(
                "another process has exclusive use of the device, or its compute mode prohibits all use ({error}); \
                 `nvidia-smi -q -d COMPUTE` shows the mode, and `nvidia-smi -c DEFAULT` sets one that all share"
            )),
            _ => error.into(),
        })?;
        Ok(Self { primary: Arc::new(primary), reads: Arc::default() })
    }
}
