//! The layer before the driver of a stream, its events and its reads.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::guarded_bytes::GuardedBytes;
use crate::backend::{
    BackendError, Completion, EventDriver, EventOptions, FillPattern, Finish, HostBuffer, Span, StreamDriver,
    Watched,
};
use crate::runtime::validation::Ledger;

pub(super) struct ValidatedStream {
    ledger: Arc<Ledger>,
    stream: Box<dyn StreamDriver>,
}

impl ValidatedStream {
    pub(super) fn new(ledger: &Arc<Ledger>, stream: Box<dyn StreamDriver>) -> Self {
        Self { ledger: Arc::clone(ledger), stream }
    }

    fn submit<T>(
        &self,
        call: &str,
        run: impl FnOnce(&dyn StreamDriver) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        self.ledger.read_error(call, run(&*self.stream))
    }
}

impl StreamDriver for ValidatedStream {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.stream.native()
    }

    fn native_handle(&self, kind: &str) -> Option<u64> {
        self.stream.native_handle(kind)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        if source.is_pinned() {
            // The driver knows this memory, and would not know a copy.
            return self.submit("write", |stream| stream.write(destination, source));
        }
        // Overwritten when the driver has dropped it, and the core its own source, as the work is done.
        let copy = HostBuffer::guarded(GuardedBytes::copy_of(source, &self.ledger.sources)?);
        let copy = Arc::new(copy);
        self.ledger.keep(source, &copy);
        self.submit("write", |stream| stream.write(destination, &copy))
    }

    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        self.ledger.drop_unused_sources();
        if destination.is_pinned() {
            let completion = ValidatedRead::begin(&self.ledger, None, completion);
            return self.submit("read", |stream| stream.read(source, destination, completion));
        }
        let guarded = HostBuffer::guarded(GuardedBytes::new(destination.len(), &self.ledger.destinations)?);
        let completion = ValidatedRead::begin(&self.ledger, Some(destination), completion);
        self.submit("read", |stream| stream.read(source, guarded, completion))
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.submit("copy", |stream| stream.copy(source, destination))
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.submit("fill", |stream| stream.fill(destination, pattern))
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.submit("copy from a peer", |stream| stream.copy_from_peer(source, destination))
    }

    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        let event = self.submit("record", |stream| stream.record(options))?;
        let ledger = Arc::clone(&self.ledger);
        Ok(Box::new(ValidatedEvent { ledger, event, is_done: AtomicBool::new(false) }))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let event = event.downcast_ref::<ValidatedEvent>()?;
        self.submit("wait for an event", |stream| stream.wait_event(&*event.event))
    }

    fn launched(&self) {
        self.stream.launched();
    }

    fn flush(&self) -> Result<(), BackendError> {
        self.ledger.read_error("flush", self.stream.flush())
    }

    fn query(&self) -> Result<bool, BackendError> {
        self.ledger.read_error("query", self.stream.query())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.ledger.drop_unused_sources();
        self.ledger.read_error("synchronize", self.stream.synchronize())
    }
}

struct ValidatedEvent {
    ledger: Arc<Ledger>,
    event: Box<dyn EventDriver>,
    /// Whether the driver has said so.
    is_done: AtomicBool,
}

impl EventDriver for ValidatedEvent {
    fn query(&self) -> Result<bool, BackendError> {
        let was_done = self.is_done.load(Ordering::SeqCst);
        let is_done = self.ledger.read_error("query an event", self.event.query())?;
        if is_done {
            self.is_done.store(true, Ordering::SeqCst);
        } else if was_done {
            let rule = "an event that is done stays so, and this one is not done any longer";
            return Err(self.ledger.broken("query an event", rule));
        }
        Ok(is_done)
    }

    fn is_over(&self) -> Result<bool, BackendError> {
        self.ledger.read_error("query an event", self.event.is_over())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.ledger.read_error("synchronize an event", self.event.synchronize())?;
        self.is_done.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start = start.downcast_ref::<Self>()?;
        self.ledger.read_error("elapsed time", self.event.elapsed_since(&*start.event))
    }
}

/// A queued read that a driver has.
struct ValidatedRead {
    ledger: Arc<Ledger>,
    state: Mutex<(Option<HostBuffer>, Option<Completion>)>,
}

impl ValidatedRead {
    /// The driver's end of a read: the destination of the program gets the bytes when the driver's own is full.
    fn begin(ledger: &Arc<Ledger>, destination: Option<HostBuffer>, completion: Completion) -> Completion {
        ledger.reads.fetch_add(1, Ordering::Relaxed);
        let state = Mutex::new((destination, Some(completion)));
        Completion::new(Arc::new(Self { ledger: Arc::clone(ledger), state }))
    }

    /// The result for the program.
    fn check(
        &self,
        destination: Option<HostBuffer>,
        result: Result<HostBuffer, BackendError>,
    ) -> Result<HostBuffer, BackendError> {
        let buffer = self.ledger.read_error("read", result)?;
        let (Some(bytes), Some(mut destination)) = (buffer.as_guarded(), destination) else {
            return Ok(buffer);
        };
        let broken = |rule: String| self.ledger.broken("read", &rule);
        bytes.check_guards().map_err(broken)?;
        if buffer.len() != destination.len() {
            return Err(broken(
                "a read is finished with its own destination, and this one is of another read".to_owned(),
            ));
        }
        bytes.check_written().map_err(broken)?;
        destination.copy_from_slice(&buffer);
        Ok(destination)
    }
}

impl Finish for ValidatedRead {
    fn call(&self) -> &'static str {
        "read"
    }

    fn finish(self: Arc<Self>, result: Result<HostBuffer, BackendError>) {
        let (destination, completion) =
            std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        if self.ledger.is_closed.load(Ordering::Relaxed) {
            let _reported = self
                .ledger
                .broken("read", "a device that is closed finishes no reads, and this one has done so");
        }
        let result = self.check(destination, result);
        if let Some(completion) = completion {
            completion.finish(result);
        }
    }

    fn watched(&self) -> Arc<dyn Watched> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.1 {
            Some(completion) => completion.watch().into_watched(),
            None => Arc::new(crate::sync::AtomicBool::new(true)),
        }
    }

    fn drop_unfinished(self: Arc<Self>) {
        let (_, completion) = std::mem::take(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner));
        drop(completion);
    }
}

impl Drop for ValidatedRead {
    fn drop(&mut self) {
        self.ledger.reads.fetch_sub(1, Ordering::Relaxed);
    }
}
