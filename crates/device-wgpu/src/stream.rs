//! Streams: each has its own place in the one queue of its device.

use std::any::Any;
use std::sync::Arc;

use device_registry::backend::{
    BackendError, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, ReadThread, Span,
    StreamDriver,
};
use parking_lot::MutexGuard;

use crate::context::Context;
use crate::event::WgpuEvent;
use crate::native::WgpuStream;
use crate::submission::Submission;

/// The driver's side of a stream.
pub(crate) struct WgpuQueue {
    context: Arc<Context>,
    reads: Arc<ReadThread>,
    native: Arc<WgpuStream>,
}

impl WgpuQueue {
    pub(crate) fn new(context: &Arc<Context>, reads: &Arc<ReadThread>) -> Self {
        let native = Arc::new(WgpuStream::new(context));
        Self { context: Arc::clone(context), reads: Arc::clone(reads), native }
    }

    fn last(&self) -> MutexGuard<'_, Option<Arc<Submission>>> {
        self.native.last()
    }

    /// Keeps the submission of an operation as the stream's last one.
    fn submitted(&self, submission: Result<Arc<Submission>, BackendError>) -> Result<(), BackendError> {
        *self.last() = Some(submission?);
        Ok(())
    }
}

impl StreamDriver for WgpuQueue {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.native) as _)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        self.submitted(self.context.write(destination, source))
    }

    fn read(
        &self,
        source: &Span,
        mut destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let staged = self.context.begin_read_of(source)?;
        *self.last() = Some(Arc::clone(staged.submission()));
        let context = Arc::clone(&self.context);
        // Only this closure writes to the destination, so it can be dropped after a failure.
        self.reads.finish(completion, move || {
            context.finish_read(staged, &mut destination)?;
            Ok(destination)
        });
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.submitted(self.context.copy(source, destination))
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.submitted(self.context.fill(destination, pattern))
    }

    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        if !options.timed {
            self.context.check()?;
            return Ok(Box::new(WgpuEvent::new(&self.context, self.last().clone())));
        }
        let event = WgpuEvent::timed(&self.context)?;
        *self.last() = event.submission().cloned();
        Ok(Box::new(event))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let event = event.downcast_ref::<WgpuEvent>()?;
        if !event.is_of(&self.context) {
            return Err(BackendError::unsupported("waiting in the queue for an event of another device"));
        }
        // The event's submission comes before all later work in the one queue.
        self.context.check()
    }

    fn query(&self) -> Result<bool, BackendError> {
        let last = self.last().clone();
        last.map_or(Ok(true), |submission| self.context.is_done(&submission))
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let last = self.last().clone();
        last.map_or(Ok(()), |submission| self.context.wait(&submission))
    }
}
