//! Errors on their way to ONNX Runtime.

use std::fmt::Display;

use device_kernels::{LayoutError, RunError};
use device_registry::{DeviceError, ErrorChain};

/// An error, as a text. Its code in ONNX Runtime is always `ORT_FAIL`: for `ORT_EP_FAIL`, the Python package
/// computes on the CPU instead, with a line on the standard output.
#[derive(Clone, Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(message: impl Display) -> Self {
        Self(message.to_string())
    }

    /// The same with what was done, before it.
    pub(crate) fn of(self, what: impl Display) -> Self {
        Self(format!("{what}: {}", self.0))
    }

    pub(crate) fn message(&self) -> &str {
        &self.0
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::new(ErrorChain::new(&error))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        Self::new(ErrorChain::new(&error))
    }
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        Self::new(ErrorChain::new(&error))
    }
}
