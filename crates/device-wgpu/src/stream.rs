//! Streams: each gathers its work, and submits it to the one queue of its device.

use std::any::Any;
use std::sync::Arc;

use device_registry::backend::testing::FaultPoint;
use device_registry::backend::{
    BackendError, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, ReadThread, Span,
    StreamDriver,
};

use crate::context::Context;
use crate::event::WgpuEvent;
use crate::memory::{DeviceRange, whole_words};
use crate::native::WgpuStream;
use crate::staging::PIECE;

/// The driver's side of a stream.
pub(crate) struct WgpuQueue {
    context: Arc<Context>,
    native: Arc<WgpuStream>,
}

impl WgpuQueue {
    pub(crate) fn new(context: &Arc<Context>, reads: &Arc<ReadThread>) -> Self {
        Self { context: Arc::clone(context), native: WgpuStream::new(context, reads) }
    }
}

impl StreamDriver for WgpuQueue {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.native) as _)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        self.context.before(FaultPoint::Write)?;
        let to = DeviceRange::of(destination)?;
        for (number, piece) in source.chunks(PIECE).enumerate() {
            let to = to.part((number * PIECE) as u64, whole_words(piece.len()));
            self.native.gather(|batch| batch.write(to, piece))?;
        }
        Ok(())
    }

    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        self.context.before(FaultPoint::Read)?;
        let from = DeviceRange::of(source)?;
        self.native.gather(|batch| batch.read(from, destination, completion))
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.context.before(FaultPoint::Copy)?;
        let from = DeviceRange::of(source)?;
        let to = DeviceRange::of(destination)?;
        self.native.gather(|batch| batch.copy(from, to))
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.context.before(FaultPoint::Fill)?;
        let to = DeviceRange::of(destination)?;
        self.native.gather(|batch| batch.fill(to, pattern))
    }

    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        self.context.check()?;
        if !options.timed {
            return Ok(Box::new(WgpuEvent::new(&self.context, self.native.track_last())));
        }
        let event = self.native.submit_alone(|| {
            let event = WgpuEvent::timed(&self.context)?;
            Ok((event.submission().cloned(), event))
        })?;
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

    fn flush(&self) -> Result<(), BackendError> {
        self.native.flush()
    }

    fn query(&self) -> Result<bool, BackendError> {
        self.native.last().map_or(Ok(true), |submission| self.context.is_done(&submission))
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        // Another thread may have enqueued more since the core's flush.
        let (last, flushed) = self.native.flush_all();
        // Done in any case, since running work uses memory.
        let waited = last.map_or(Ok(()), |submission| self.context.wait(&submission));
        flushed.and(waited)
    }
}
