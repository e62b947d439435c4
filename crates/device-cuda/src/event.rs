//! Events: points in a stream that were recorded.

use std::time::Duration;

use cudarc::driver::sys::CUevent;
use device_registry::backend::{BackendError, EventDriver};

use crate::library::Event;

/// A point in a [`CudaStream`](crate::CudaStream). Recorded once, when it is made.
pub struct CudaEvent(Event);

impl CudaEvent {
    pub(crate) fn new(event: Event) -> Self {
        Self(event)
    }

    /// The driver's handle, which is this event's as long as `self` exists.
    #[must_use]
    pub fn event(&self) -> CUevent {
        self.0.handle()
    }

    pub(crate) fn recorded(&self) -> &Event {
        &self.0
    }
}

impl EventDriver for CudaEvent {
    fn query(&self) -> Result<bool, BackendError> {
        Ok(self.0.is_done()?)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(self.0.synchronize()?)
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start = start.downcast_ref::<Self>()?;
        let milliseconds = self.0.milliseconds_since(&start.0)?;
        Duration::try_from_secs_f64(f64::from(milliseconds) / 1000.0).map_err(|_| {
            BackendError::invalid(format_args!("the event was reached {} ms before the start", -milliseconds))
        })
    }
}
