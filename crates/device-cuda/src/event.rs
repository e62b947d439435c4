//! Events: points in a stream that were recorded.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream};
use device_registry::backend::{BackendError, EventDriver, EventOptions};

use crate::context::Context;
use crate::error::{CudaError, NOT_READY};

/// A point in a [`CudaStream`](crate::CudaStream). Recorded once, when it is made.
pub struct CudaEvent {
    context: Arc<Context>,
    event: CUevent,
}

// SAFETY: an event is no thread's own, and the driver's functions may be called from several threads at once.
unsafe impl Send for CudaEvent {}
// SAFETY: the driver's functions may be called for one event from several threads at once.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Records an event in a stream of the same context.
    pub(crate) fn record(
        context: &Arc<Context>,
        stream: CUstream,
        options: &EventOptions,
    ) -> Result<Self, BackendError> {
        let flags = if options.timed {
            CUevent_flags::CU_EVENT_DEFAULT
        } else {
            CUevent_flags::CU_EVENT_DISABLE_TIMING
        };
        let current = context.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: the context is current, and the place is there.
        unsafe { current.cuda().cuEventCreate(&mut event, flags as u32) }?;
        let event = Self { context: Arc::clone(context), event };
        // SAFETY: the event is new, and of the stream's context, which is current.
        unsafe { current.cuda().cuEventRecord(event.event, stream) }?;
        Ok(event)
    }

    /// The driver's handle.
    #[must_use]
    pub fn event(&self) -> CUevent {
        self.event
    }
}

/// What a question of the driver's answers that is not an error: not yet.
pub(crate) fn is_done(outcome: Result<(), CudaError>) -> Result<bool, BackendError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(CudaError { code: NOT_READY, .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl EventDriver for CudaEvent {
    fn query(&self) -> Result<bool, BackendError> {
        let current = self.context.enter()?;
        // SAFETY: the event is there until `self` is dropped.
        is_done(unsafe { current.cuda().cuEventQuery(self.event) })
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let current = self.context.enter()?;
        // SAFETY: the event is there until `self` is dropped.
        Ok(unsafe { current.cuda().cuEventSynchronize(self.event) }?)
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start = start.downcast_ref::<Self>()?;
        let current = self.context.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both are there until they are dropped, and so is the place.
        unsafe { current.cuda().cuEventElapsedTime(&mut milliseconds, start.event, self.event) }?;
        Duration::try_from_secs_f64(f64::from(milliseconds) / 1000.0).map_err(|_| {
            BackendError::invalid(format_args!("the event was reached {} ms before the start", -milliseconds))
        })
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once. Whoever waits for it goes on waiting: the reference has it released when it is
        // reached.
        self.context.dispose(|cuda| unsafe { cuda.cuEventDestroy_v2(self.event) });
    }
}
