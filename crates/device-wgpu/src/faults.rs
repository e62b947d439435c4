//! Fault injection, which the option `faults` offers to tests.

use std::sync::Arc;

use device_registry::backend::testing::{FaultCounter, FaultPoint};
use device_registry::backend::{BackendError, BackendErrorKind, FaultInjector, LossReporter};

use crate::loss::Loss;

/// The injected faults of a device. Without the option there are none.
#[derive(Clone, Default)]
pub(crate) struct Faults(Option<Arc<FaultCounter>>);

impl Faults {
    pub(crate) fn new(reporter: &LossReporter) -> Self {
        let counter = FaultCounter::new().without_stalls().with_loss_reporter(reporter.clone());
        Self(Some(Arc::new(counter)))
    }

    pub(crate) fn injector(&self) -> Option<&dyn FaultInjector> {
        Some(&**self.0.as_ref()?)
    }

    /// Counts an operation that is about to be submitted. wgpu has no work that fails later, so an injected
    /// failure is a refusal, as the error of an error scope is. After an injected loss all calls and waits
    /// find it.
    pub(crate) fn before(&self, operation: FaultPoint, loss: &Loss) -> Result<(), BackendError> {
        let Some(counter) = &self.0 else { return Ok(()) };
        counter.before(operation).map_err(|error| match error.kind() {
            BackendErrorKind::Lost => loss.infer(error.message()),
            _ => error,
        })
    }
}
