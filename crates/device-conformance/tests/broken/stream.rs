//! A queue of a twin's own, as hardware has them: a thread executes one piece of work after the other. Work
//! holds addresses, and keeps no memory alive.

use std::any::Any;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use device_registry::backend::{
    BackendError, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, Span, StreamDriver,
};
use parking_lot::{Mutex, MutexGuard};

use crate::defect::Defect::*;
use crate::event::TwinEvent;
use crate::faults::{Faults, Operation};
use crate::misqueue::{self as wrongly, TwinQueue};
use crate::pool::Place;
use crate::progress::{Outcome, Progress, Work};
use crate::transfer;
use crate::twin::{Queues, Twin};
use crate::wrong::wrong;

pub(crate) struct TwinStream {
    twin: &'static Twin,
    faults: Arc<Faults>,
    progress: Arc<Progress>,
    work: Sender<Work>,
    /// Work that a lazy queue submits when it is flushed.
    gathered: Mutex<Vec<Work>>,
    queue: TwinQueue,
}

impl TwinStream {
    pub(crate) fn new(twin: &'static Twin, faults: &Arc<Faults>) -> Result<Self, BackendError> {
        let (progress, (work, queue)) = (Arc::new(Progress::default()), channel());
        let works = Arc::clone(&progress);
        thread::Builder::new()
            .name(format!("{} queue", twin.name))
            .spawn(move || wrongly::ordered(queue).for_each(|work| works.perform(work)))
            .map_err(|error| BackendError::other("the queue's thread does not start").with_source(error))?;
        let (faults, queue) = (Arc::clone(faults), TwinQueue::new(&progress, Arc::as_ptr(faults).addr()));
        Ok(Self { twin, faults, progress, work, gathered: Mutex::default(), queue })
    }

    fn submit(&self, work: Work) -> Result<(), BackendError> {
        self.faults.check()?;
        let Some(work) = self.queue.submitted(work) else { return Ok(()) };
        // Two threads of the core may call this at once.
        let mut gathered = self.gathered();
        self.progress.submit();
        gathered.push(work);
        drop(gathered);
        if self.twin.queues == Queues::Eager { self.send() } else { Ok(()) }
    }

    /// Starts all gathered work.
    fn send(&self) -> Result<(), BackendError> {
        // Holds the lock until all work is sent, so that no other work overtakes it.
        let mut gathered = self.gathered();
        for work in mem::take(&mut *gathered) {
            self.work.send(work).map_err(|_| BackendError::other("the queue's thread has ended"))?;
        }
        Ok(())
    }

    fn gathered(&self) -> MutexGuard<'_, Vec<Work>> {
        self.gathered.lock()
    }

    /// Submits an operation of the device.
    fn operate(
        &self,
        run: impl FnOnce() -> Result<(), BackendError> + Send + 'static,
    ) -> Result<(), BackendError> {
        let faults = Arc::clone(&self.faults);
        self.submit(Box::new(move |before| {
            wrongly::take_time();
            let done = before.map(|()| faults.before(Operation::Copy).and_then(|()| run()));
            match done {
                Ok(Err(error)) if !wrong(AsynchronousErrorsAreDropped) => {
                    Outcome::Failed(wrongly::reported(error, QueuedWorkSaysNothing))
                }
                _ => Outcome::Done,
            }
        }))
    }
}

impl StreamDriver for TwinStream {
    fn native_handle(&self, _kind: &str) -> Option<u64> {
        wrong(StreamsHaveEveryHandle).then_some(7)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        if wrong(SourcesAreKept) {
            mem::forget(Arc::clone(source));
        }
        let (destination, source) = (Place::of(destination)?, Arc::downgrade(source));
        self.operate(move || match source.upgrade() {
            Some(source) => transfer::write(&destination, &source),
            None => Err(BackendError::other("the host memory was freed before it was read")),
        })
    }

    fn read(
        &self,
        source: &Span,
        mut destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let (source, faults) = (Place::of(source)?, Arc::clone(&self.faults));
        if wrong(ReadsAreDoneAtOnce) {
            transfer::read(&source, &mut destination)?;
        }
        self.submit(Box::new(move |before| {
            let was_done = before.is_ok();
            let read = before.and_then(|()| faults.before(Operation::Copy)).and_then(|()| {
                if wrong(ReadsAreDoneAtOnce) { Ok(()) } else { transfer::read(&source, &mut destination) }
            });
            match read {
                Err(error) if was_done => {
                    return Outcome::FailedRead(wrongly::reported(error, QueuedReadsSayNothing), completion);
                }
                _ if !was_done && wrong(SkippedWorkIsForgotten) => mem::forget(completion),
                read => wrongly::complete(completion, read.map(|()| destination)),
            }
            Outcome::Done
        }))
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (source, destination) = (Place::of(source)?, Place::of(destination)?);
        self.operate(move || transfer::copy(&source, &destination))
    }

    /// A lazy queue fills with zeros only, as some hardware does.
    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        if self.twin.queues == Queues::Lazy && pattern.as_bytes() != [0] {
            return Err(BackendError::unsupported("filling with anything but zeros"));
        }
        let (destination, pattern) = (Place::of(destination)?, *pattern);
        self.operate(move || transfer::fill(&destination, &pattern))
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        if !self.twin.all {
            return Err(BackendError::unsupported("copying from a peer"));
        }
        let (source, destination) = (Place::of(source)?, Place::of(destination)?);
        self.operate(move || transfer::copy_from_peer(&source, &destination))
    }

    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        if options.timed && wrong(TimesAreDeclaredOnly) {
            return Err(BackendError::unsupported("timed events"));
        }
        let event = self.queue.event(options)?;
        let (point, time, faults) = (event.point(), event.record.time_place(), Arc::clone(&self.faults));
        self.submit(Box::new(move |before| {
            wrongly::note_time(&time);
            if before.is_ok() || !wrong(SkippedWorkIsForgotten) {
                let before = if wrong(EventsForgetFailures) { Ok(()) } else { before };
                point.reach(before.and_then(|()| faults.check()));
            }
            Outcome::Done
        }))?;
        Ok(Box::new(event))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        if self.twin.queues == Queues::Lazy {
            return Err(BackendError::unsupported("waiting for an event"));
        }
        let event: &dyn Any = event;
        let event: &TwinEvent =
            event.downcast_ref().ok_or_else(|| BackendError::invalid("an event of another backend"))?;
        let Some(point) = self.queue.waits_for(event) else { return Ok(()) };
        let (faults, twin) = (Arc::clone(&self.faults), self.twin);
        self.submit(Box::new(move |before| match before.map(|()| point.synchronize()) {
            Ok(Err(_)) if wrong(WaitsForFailuresNeverEnd) => loop {
                thread::park();
            },
            // A queue may run the work behind a failed event: the core fails its stream.
            Ok(Err(_)) if twin.runs_behind_failed_events() => Outcome::Done,
            // The error may be the loss of another device.
            Ok(Err(error)) => Outcome::Failed(match faults.check() {
                Ok(()) if wrong(LossSpreadsByEvents) => error,
                Ok(()) => BackendError::other("the event failed").with_source(error),
                Err(lost) => lost,
            }),
            _ => Outcome::Done,
        }))
    }

    fn flush(&self) -> Result<(), BackendError> {
        self.send()
    }

    fn query(&self) -> Result<bool, BackendError> {
        self.faults.check()?;
        if wrong(StreamQueriesWait) {
            self.progress.synchronize()?;
        }
        Ok(self.progress.query()? && !wrong(StreamsAreNeverDone) || self.queue.query())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.faults.check()?;
        if wrong(SynchronizeDoesNotWait) { Ok(()) } else { self.progress.synchronize() }
    }
}

/// Drops the remaining work. The core drops a stream when it has none.
impl Drop for TwinStream {
    fn drop(&mut self) {
        self.progress.close();
    }
}
