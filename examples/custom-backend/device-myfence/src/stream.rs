//! A stream: it gathers commands into batches, and submits them when it is flushed. An event is a number of
//! its timeline.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use device_registry::backend::testing::{FaultCounter, FaultPoint};
use device_registry::backend::{
    BackendError, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, ReadThread, Span,
    StreamDriver,
};

use crate::hardware::{Command, Hardware, HardwareQueue, Timeline};
use crate::memory::Place;

/// The length at which a batch is submitted without a flush, so that the device begins early.
const FULL: usize = 64;

/// The driver's side of a stream. It is private, as is the device: only the core may call it.
pub(crate) struct FenceStream {
    hardware: Arc<Hardware>,
    faults: Arc<FaultCounter>,
    queue: HardwareQueue,
    open: Mutex<Batch>,
    reads: ReadThread,
}

/// The batch that is not submitted yet.
#[derive(Default)]
struct Batch {
    commands: Vec<Command>,
    /// How many batches were submitted before it.
    before: u64,
}

impl Batch {
    /// What the timeline reaches when all commands so far are done.
    fn end(&self) -> u64 {
        self.before + u64::from(!self.commands.is_empty())
    }
}

impl FenceStream {
    pub(crate) fn new(
        hardware: &Arc<Hardware>,
        faults: &Arc<FaultCounter>,
        reads: ReadThread,
    ) -> Result<Self, BackendError> {
        let queue = HardwareQueue::new(hardware)?;
        let (hardware, faults) = (Arc::clone(hardware), Arc::clone(faults));
        Ok(Self { hardware, faults, queue, open: Mutex::default(), reads })
    }

    /// The core calls `flush`, `query` and `synchronize` while another thread submits, so the batch has a
    /// lock.
    fn open(&self) -> MutexGuard<'_, Batch> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command to the batch. Returns what the timeline reaches when it is done.
    fn add(
        &self,
        command: impl FnOnce() -> Result<(), BackendError> + Send + 'static,
    ) -> Result<u64, BackendError> {
        self.hardware.check()?;
        let mut open = self.open();
        open.commands.push(Box::new(command));
        let end = open.end();
        if open.commands.len() >= FULL {
            self.submit(&mut open)?;
        }
        Ok(end)
    }

    fn submit(&self, open: &mut Batch) -> Result<(), BackendError> {
        if open.commands.is_empty() {
            return Ok(());
        }
        let commands = std::mem::take(&mut open.commands);
        open.before += 1;
        // An error here would have to end the events and reads of the batch too. This one is a loss, which
        // ends all.
        self.queue.submit(commands)
    }
}

// After a loss the core calls none of these. It drops the stream, and then the memory of its work: the open
// batch is dropped unsubmitted. A driver for hardware also waits in its `Drop` for the batches that run;
// commands own their memory here.
impl StreamDriver for FenceStream {
    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Write)?;
        let (to, source) = (Place::of(destination)?, Arc::clone(source));
        self.add(move || to.write(&source)).map(drop)
    }

    fn read(
        &self,
        source: &Span,
        mut destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Read)?;
        let (from, staged) = (Place::of(source)?, Arc::new(Place::staging(destination.len())?));
        let lands = Arc::clone(&staged);
        let end = self.add(move || lands.copy_from(&from))?;
        let timeline = Arc::clone(self.queue.timeline());
        // The thread waits as `synchronize` does. A read that fails needs no `Completion::watch` here: every
        // failure is the loss of the device.
        self.reads.finish(completion, move || {
            timeline.wait(end)?;
            staged.read(&mut destination)?;
            Ok(destination)
        });
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Copy)?;
        let (from, to) = (Place::of(source)?, Place::of(destination)?);
        self.add(move || to.copy_from(&from)).map(drop)
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Fill)?;
        let (to, pattern) = (Place::of(destination)?, *pattern);
        self.add(move || to.fill(&pattern)).map(drop)
    }

    // An event submits nothing. The core flushes before it looks at one.
    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        let time = Arc::new(OnceLock::new());
        if options.timed {
            let takes = Arc::clone(&time);
            self.add(move || {
                // Set once, by this command alone.
                let _ = takes.set(Instant::now());
                Ok(())
            })?;
        }
        let timeline = Arc::clone(self.queue.timeline());
        Ok(Box::new(FenceEvent { timeline, end: self.open().end(), time }))
    }

    // The queue waits, not the caller. The batch of the event is submitted, so two queues never wait for each
    // other.
    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let event = event.downcast_ref::<FenceEvent>()?;
        if !event.timeline.is_of(&self.hardware) {
            return Err(BackendError::unsupported("waiting in the queue for an event of another device"));
        }
        let (timeline, end) = (Arc::clone(&event.timeline), event.end);
        self.add(move || timeline.wait(end)).map(drop)
    }

    fn flush(&self) -> Result<(), BackendError> {
        self.submit(&mut self.open())
    }

    fn query(&self) -> Result<bool, BackendError> {
        let end = self.open().end();
        self.queue.timeline().has_reached(end)
    }

    // The core has flushed: the last batch is submitted.
    fn synchronize(&self) -> Result<(), BackendError> {
        let end = self.open().end();
        self.queue.timeline().wait(end)
    }
}

/// A recorded event. It may outlive its stream and its device.
struct FenceEvent {
    timeline: Arc<Timeline>,
    end: u64,
    time: Arc<OnceLock<Instant>>,
}

impl EventDriver for FenceEvent {
    fn query(&self) -> Result<bool, BackendError> {
        self.timeline.has_reached(self.end)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.timeline.wait(self.end)
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        // The core passes events that are done and timed.
        let (Some(start), Some(end)) = (start.downcast_ref::<Self>()?.time.get(), self.time.get()) else {
            return Err(BackendError::invalid("expected two timed events that are done"));
        };
        end.checked_duration_since(*start)
            .ok_or_else(|| BackendError::invalid("the start was reached after the end"))
    }
}
