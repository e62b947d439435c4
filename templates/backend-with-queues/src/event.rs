//! Points in the work of a stream.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use device_registry::backend::{BackendError, EventDriver};

/// When a stream reached the point, or the error of the work before it. Unset until then.
pub(crate) type Reached = Arc<OnceLock<Result<Instant, BackendError>>>;

/// An event that a stream has recorded. It may outlive its stream and its device.
#[derive(Default)]
pub(crate) struct QueueEvent {
    pub(crate) reached: Reached,
}

impl EventDriver for QueueEvent {
    fn query(&self) -> Result<bool, BackendError> {
        self.reached.get().cloned().transpose().map(|time| time.is_some())
    }

    // True also behind a failure: then no work before the event still runs, and the core releases its memory.
    fn is_over(&self) -> Result<bool, BackendError> {
        Ok(self.reached.get().is_some())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.reached.wait().clone().map(|_| ())
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        // The core passes events that are done, so neither wait blocks.
        let (start, end) =
            (start.downcast_ref::<Self>()?.reached.wait().clone()?, self.reached.wait().clone()?);
        end.checked_duration_since(start)
            .ok_or_else(|| BackendError::invalid("the start was reached after the end"))
    }
}
