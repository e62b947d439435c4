//! The layer before the driver of a stream, its events and its reads.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::guarded_bytes::{self, GuardedBytes};
use crate::backend::{
    BackendError, BackendErrorKind, Completion, EventDriver, EventOptions, FillPattern, Finish, HostBuffer,
    Span, StreamDriver, Watched,
};
use crate::runtime::validation::locks::{Shared, SharedWeak};
use crate::runtime::validation::{Ledger, locks};

pub(super) struct ValidatedStream {
    ledger: Arc<Ledger>,
    shared: Shared,
    /// How many events were recorded.
    recorded: AtomicU64,
    /// The events below this number are done.
    done: Arc<AtomicU64>,
}

impl ValidatedStream {
    pub(super) fn new(ledger: &Arc<Ledger>, stream: Box<dyn StreamDriver>) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            shared: Shared::new(stream),
            recorded: AtomicU64::new(0),
            done: Arc::default(),
        }
    }

    fn submit<T>(
        &self,
        call: &str,
        run: impl FnOnce(&dyn StreamDriver) -> Result<T, BackendError>,
    ) -> Result<T, BackendError> {
        self.ledger.call(call, || run(self.shared.stream()))
    }

    /// Submits a read that was begun.
    fn submit_read(
        &self,
        source: &Span,
        destination: HostBuffer,
        (read, completion): (Arc<ValidatedRead>, Completion),
    ) -> Result<(), BackendError> {
        let result = self.submit("read", |stream| stream.read(source, destination, completion));
        match result {
            // A loss finishes reads too, perhaps before the call returns.
            Err(error)
                if error.kind() != BackendErrorKind::Lost && read.is_finished.load(Ordering::SeqCst) =>
            {
                let rule = "a read that is refused is dropped, and this one was finished";
                Err(self.ledger.broken("read", rule))
            }
            result => result,
        }
    }
}

impl StreamDriver for ValidatedStream {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.shared.stream().native()
    }

    fn native_handle(&self, kind: &str) -> Option<u64> {
        self.shared.stream().native_handle(kind)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        if source.is_pinned() {
            // The driver knows this memory, and would not know a copy.
            return self.submit("write", |stream| stream.write(destination, source));
        }
        // Overwritten when the driver has dropped it and the core its own source, as the work is then done.
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
            // The driver knows this memory, and would not know other memory.
            let mut pinned = destination;
            let canary = guarded_bytes::next_canary();
            guarded_bytes::write_canaries(canary, &mut pinned);
            let read = ValidatedRead::begin(self, &pinned, Destination::Pinned { canary }, completion);
            return self.submit_read(source, pinned, read);
        }
        let guarded = HostBuffer::guarded(GuardedBytes::new(destination.len(), &self.ledger.destinations)?);
        let read = ValidatedRead::begin(self, &guarded, Destination::Of(destination), completion);
        self.submit_read(source, guarded, read)
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
        let number = self.recorded.fetch_add(1, Ordering::SeqCst);
        let ledger = Arc::clone(&self.ledger);
        let done = Arc::clone(&self.done);
        Ok(Box::new(ValidatedEvent { ledger, event, number, done, is_done: AtomicBool::new(false) }))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let event = event.downcast_ref::<ValidatedEvent>()?;
        self.submit("wait for an event", |stream| stream.wait_event(&*event.event))
    }

    fn launched(&self) {
        self.shared.stream().launched();
    }

    fn flush(&self) -> Result<(), BackendError> {
        self.shared.take_failure()?;
        self.submit("flush", |stream| stream.flush())
    }

    fn query(&self) -> Result<bool, BackendError> {
        let recorded = self.recorded.load(Ordering::SeqCst);
        let is_done = self.submit("query", |stream| stream.query())?;
        if is_done {
            self.done.fetch_max(recorded, Ordering::SeqCst);
        }
        Ok(is_done)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.ledger.drop_unused_sources();
        let recorded = self.recorded.load(Ordering::SeqCst);
        self.submit("synchronize", |stream| stream.synchronize())?;
        self.done.fetch_max(recorded, Ordering::SeqCst);
        Ok(())
    }
}

struct ValidatedEvent {
    ledger: Arc<Ledger>,
    event: Box<dyn EventDriver>,
    number: u64,
    /// The events of its stream below this number are done.
    done: Arc<AtomicU64>,
    /// Whether the driver has said so of this one.
    is_done: AtomicBool,
}

impl ValidatedEvent {
    fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst) > self.number
    }

    fn set_done(&self) {
        self.is_done.store(true, Ordering::SeqCst);
        self.done.fetch_max(self.number + 1, Ordering::SeqCst);
    }
}

impl EventDriver for ValidatedEvent {
    fn query(&self) -> Result<bool, BackendError> {
        // Read before the call: another thread may find a later event done meanwhile.
        let was_done = self.is_done();
        let is_done = self.ledger.call("query an event", || self.event.query())?;
        if is_done {
            self.set_done();
        } else if was_done {
            let rule = if self.is_done.load(Ordering::SeqCst) {
                "an event that is done stays so, and this one is not done any longer"
            } else {
                "an event is done when all work before it is done, and this one is not"
            };
            return Err(self.ledger.broken("query an event", rule));
        }
        Ok(is_done)
    }

    fn is_over(&self) -> Result<bool, BackendError> {
        self.ledger.call("query an event", || self.event.is_over())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.ledger.call("synchronize an event", || self.event.synchronize())?;
        self.set_done();
        Ok(())
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start = start.downcast_ref::<Self>()?;
        self.ledger.call("elapsed time", || self.event.elapsed_since(&*start.event))
    }
}

/// Where the bytes of a read go.
enum Destination {
    /// The program's buffer, which gets them when the driver's own is full.
    Of(HostBuffer),
    /// Pinned memory, which the driver itself gets, with these canaries in it.
    Pinned { canary: u64 },
}

/// A queued read that a driver has.
struct ValidatedRead {
    ledger: Arc<Ledger>,
    stream: SharedWeak,
    /// Where the bytes begin that the driver has. It is only compared.
    start: usize,
    is_finished: AtomicBool,
    state: Mutex<Option<(Destination, Completion)>>,
}

impl ValidatedRead {
    /// The read and the driver's end of it.
    fn begin(
        stream: &ValidatedStream,
        bytes: &HostBuffer,
        destination: Destination,
        completion: Completion,
    ) -> (Arc<Self>, Completion) {
        let ledger = Arc::clone(&stream.ledger);
        ledger.reads.fetch_add(1, Ordering::Relaxed);
        let read = Arc::new(Self {
            ledger,
            stream: stream.shared.downgrade(),
            start: bytes.as_ptr().addr(),
            is_finished: AtomicBool::new(false),
            state: Mutex::new(Some((destination, completion))),
        });
        (Arc::clone(&read), Completion::new(read))
    }

    fn take(&self) -> Option<(Destination, Completion)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The result for the program.
    fn check(
        &self,
        destination: Destination,
        result: Result<HostBuffer, BackendError>,
    ) -> Result<HostBuffer, BackendError> {
        let buffer = self.ledger.read_error("read", result)?;
        let broken = |rule: String| self.ledger.broken("read", &rule);
        let is_own = buffer.as_ptr().addr() == self.start;
        match destination {
            Destination::Of(mut destination) => {
                let Some(bytes) = buffer.as_guarded() else { return Ok(buffer) };
                bytes.check_guards().map_err(broken)?;
                if !is_own {
                    return Err(broken(
                        "a read is finished with its own destination, and this one is of another read"
                            .to_owned(),
                    ));
                }
                bytes.check_written().map_err(broken)?;
                destination.copy_from_slice(&buffer);
                Ok(destination)
            }
            Destination::Pinned { canary } => {
                guarded_bytes::check_guard_behind(buffer.guard(), buffer.len()).map_err(broken)?;
                if is_own {
                    guarded_bytes::check_written(canary, &buffer).map_err(broken)?;
                }
                Ok(buffer)
            }
        }
    }
}

impl Finish for ValidatedRead {
    fn call(&self) -> &'static str {
        "read"
    }

    fn finish(self: Arc<Self>, result: Result<HostBuffer, BackendError>) {
        self.is_finished.store(true, Ordering::SeqCst);
        if self.ledger.is_closed.load(Ordering::Relaxed) {
            let _reported = self
                .ledger
                .broken("read", "a device that is closed finishes no reads, and this one has done so");
        }
        let Some((destination, completion)) = self.take() else { return };
        locks::within_a_call(&self.ledger, &self.stream, || {
            completion.finish(self.check(destination, result));
        });
    }

    fn watched(&self) -> Arc<dyn Watched> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            Some((_, completion)) => completion.watch().into_watched(),
            None => Arc::new(crate::sync::AtomicBool::new(true)),
        }
    }

    fn drop_unfinished(self: Arc<Self>) {
        drop(self.take());
    }
}

impl Drop for ValidatedRead {
    fn drop(&mut self) {
        self.ledger.reads.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use crate::backend::{AllocateOptions, DeviceDriver, Memory, MemoryInfo};
    use crate::device::Device;

    use super::*;

    /// A driver that keeps its reads.
    #[derive(Clone, Default)]
    struct Keeping(Arc<Mutex<Vec<(HostBuffer, Completion)>>>);

    impl DeviceDriver for Keeping {
        fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
            Ok(MemoryInfo::unknown())
        }
        fn allocate(&self, _: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
            Err(BackendError::unsupported("memory"))
        }
    }

    impl StreamDriver for Keeping {
        fn write(&self, _: &Span, _: &Arc<HostBuffer>) -> Result<(), BackendError> {
            Ok(())
        }
        fn read(&self, _: &Span, bytes: HostBuffer, completion: Completion) -> Result<(), BackendError> {
            self.0.lock().unwrap().push((bytes, completion));
            Ok(())
        }
        fn copy(&self, _: &Span, _: &Span) -> Result<(), BackendError> {
            Ok(())
        }
        fn record(&self, _: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
            Err(BackendError::unsupported("events"))
        }
        fn query(&self) -> Result<bool, BackendError> {
            Ok(true)
        }
        fn synchronize(&self) -> Result<(), BackendError> {
            Ok(())
        }
    }

    /// The program's end of a read.
    #[derive(Default)]
    struct Outcome(Mutex<Option<Result<HostBuffer, BackendError>>>);

    impl Finish for Outcome {
        fn call(&self) -> &'static str {
            "read"
        }
        fn finish(self: Arc<Self>, result: Result<HostBuffer, BackendError>) {
            *self.0.lock().unwrap() = Some(result);
        }
        fn watched(&self) -> Arc<dyn Watched> {
            Arc::new(crate::sync::AtomicBool::new(false))
        }
        fn drop_unfinished(self: Arc<Self>) {}
    }

    #[test]
    fn a_read_that_is_finished_with_the_destination_of_another_one_is_an_error() {
        let source = Device::cpu().allocate(4).unwrap().span().unwrap();
        for swaps in [false, true] {
            let driver = Keeping::default();
            let ledger = Ledger::new(Device::cpu(), Box::new(driver.clone()), None);
            let stream = ValidatedStream::new(&ledger, Box::new(driver.clone()));
            let outcomes = [(); 2].map(|()| Arc::new(Outcome::default()));
            for outcome in &outcomes {
                let completion = Completion::new(outcome.clone());
                let destination = HostBuffer::zeroed(4).unwrap();
                stream.read(&source, destination, completion).unwrap();
            }
            let mut reads = std::mem::take(&mut *driver.0.lock().unwrap());
            reads.iter_mut().for_each(|(bytes, _)| bytes.fill(7));
            let [(first, begun), (second, then)] = <[_; 2]>::try_from(reads).unwrap();
            let (first, second) = if swaps { (second, first) } else { (first, second) };
            begun.finish(Ok(first));
            then.finish(Ok(second));
            for outcome in outcomes {
                let result = outcome.0.lock().unwrap().take().unwrap();
                if swaps {
                    let message = result.unwrap_err().message().to_owned();
                    assert!(message.ends_with("and this one is of another read"), "{message}");
                } else {
                    assert_eq!(*result.unwrap(), [7; 4]);
                }
            }
        }
    }
}
