//! The simulated hardware, in place of a vendor's library: queues that run batches of commands in order, and
//! a timeline for each, which counts the batches that are done. The host can look at a timeline or wait for
//! it, and nothing else.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use device_registry::backend::BackendError;

/// A part of a batch. One that fails loses the device, as a fault of a GPU does.
pub(crate) type Command = Box<dyn FnOnce() -> Result<(), BackendError> + Send>;

/// A device.
#[derive(Default)]
pub(crate) struct Hardware {
    lost: Mutex<Option<BackendError>>,
    changed: Condvar,
    submissions: AtomicUsize,
}

impl Hardware {
    pub(crate) fn submissions(&self) -> usize {
        self.submissions.load(Ordering::Relaxed)
    }

    /// The device does not answer any more. A driver finds that by the error of a call.
    pub(crate) fn lose(&self, error: BackendError) {
        self.lost().get_or_insert(error);
        self.changed.notify_all();
    }

    /// Fails if the device is lost.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        self.lost().clone().map_or(Ok(()), Err)
    }

    fn lost(&self) -> MutexGuard<'_, Option<BackendError>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many batches of a queue are done.
pub(crate) struct Timeline {
    hardware: Arc<Hardware>,
    done: AtomicU64,
}

impl Timeline {
    pub(crate) fn is_of(&self, hardware: &Arc<Hardware>) -> bool {
        Arc::ptr_eq(&self.hardware, hardware)
    }

    /// Whether this many batches are done.
    pub(crate) fn has_reached(&self, number: u64) -> Result<bool, BackendError> {
        let lost = self.hardware.lost();
        if self.done.load(Ordering::Acquire) >= number {
            return Ok(true);
        }
        lost.clone().map_or(Ok(false), Err)
    }

    /// Waits until so many batches are done. The wait ends when the device is lost, even for a batch that is
    /// never submitted.
    pub(crate) fn wait(&self, number: u64) -> Result<(), BackendError> {
        let mut lost = self.hardware.lost();
        while self.done.load(Ordering::Acquire) < number {
            if let Some(error) = &*lost {
                return Err(error.clone());
            }
            lost = self.hardware.changed.wait(lost).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Runs a batch, on the thread that takes the place of the hardware.
    fn run(&self, batch: Vec<Command>) {
        let outcome = batch.into_iter().try_for_each(|command| command());
        // Under the lock: a thread that is about to wait has looked at the timeline.
        let mut lost = self.hardware.lost();
        match outcome {
            Ok(()) if lost.is_none() => drop(self.done.fetch_add(1, Ordering::Release)),
            Ok(()) => {}
            Err(error) => *lost = Some(BackendError::lost("a command failed").with_source(error)),
        }
        self.hardware.changed.notify_all();
    }
}

/// A queue of a device.
pub(crate) struct HardwareQueue {
    batches: Sender<Vec<Command>>,
    timeline: Arc<Timeline>,
}

impl HardwareQueue {
    pub(crate) fn new(hardware: &Arc<Hardware>) -> Result<Self, BackendError> {
        let (batches, queue) = channel();
        let timeline = Arc::new(Timeline { hardware: Arc::clone(hardware), done: AtomicU64::new(0) });
        let runs = Arc::clone(&timeline);
        // The thread ends when the queue is dropped and the channel is empty.
        thread::Builder::new()
            .name("myfence".to_owned())
            .spawn(move || queue.into_iter().for_each(|batch| runs.run(batch)))
            .map_err(|error| BackendError::other("the queue's thread does not start").with_source(error))?;
        Ok(Self { batches, timeline })
    }

    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    pub(crate) fn submit(&self, batch: Vec<Command>) -> Result<(), BackendError> {
        self.timeline.hardware.submissions.fetch_add(1, Ordering::Relaxed);
        self.batches.send(batch).map_err(|_| BackendError::lost("the queue's thread has ended"))
    }
}
