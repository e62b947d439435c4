//! A queue of the device: it performs its work in order, asynchronously to the host.
//!
//! A worker thread takes the place of the hardware. What is submitted is a job, and the channel is the ring
//! buffer.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use device_registry::backend::{
    BackendError, Completion, CompletionWatch, EventDriver, EventOptions, FillPattern, HostBuffer, Span,
    StreamDriver,
};

use crate::event::{QueueEvent, Reached};
use crate::memory::Place;

/// A piece of work. Its argument is the error of earlier work, for which it skips its own.
type Job = Box<dyn FnOnce(Result<(), BackendError>) -> Outcome + Send>;

/// The outcome of a job.
enum Outcome {
    /// It is done, or it was skipped.
    Done,
    Failed(BackendError),
    /// It is a read that failed, whose completion reports that.
    FailedRead(BackendError, Completion),
}

/// The driver's side of a stream. It is private, as is the device: only the core may call it.
pub(crate) struct QueueStream(Arc<NativeStream>);

/// The native handle of a stream: kernels enqueue work of their own through it.
///
/// It is a separate type from the driver: any code may call its safe functions at any time.
pub struct NativeStream {
    jobs: Sender<Job>,
    progress: Arc<Progress>,
}

impl QueueStream {
    pub(crate) fn new() -> Result<Self, BackendError> {
        let (jobs, queue) = channel();
        let progress = Arc::new(Progress::default());
        let worker = Arc::clone(&progress);
        // The thread ends when the stream is dropped and the channel is empty. Nothing joins it: a drop may
        // not block.
        thread::Builder::new()
            .name("myqueue".to_owned())
            .spawn(move || queue.into_iter().for_each(|job| worker.perform(job)))
            .map_err(|error| BackendError::other("the queue's thread does not start").with_source(error))?;
        Ok(Self(Arc::new(NativeStream { jobs, progress })))
    }
}

impl NativeStream {
    /// Enqueues work of a kernel, in the order of the stream. An error or a panic in it becomes the stream's
    /// failure.
    ///
    /// The work runs on the queue's thread, where it must not use devices: it could wait for itself. It opens
    /// windows on the bytes of [`QueueMemory`](crate::QueueMemory).
    ///
    /// # Errors
    ///
    /// [`BackendError::lost`] if the queue's thread has ended.
    pub fn enqueue(
        &self,
        work: impl FnOnce() -> Result<(), BackendError> + Send + 'static,
    ) -> Result<(), BackendError> {
        self.submit(Box::new(move |before| match before.map(|()| work()) {
            Ok(Err(error)) => Outcome::Failed(error),
            _ => Outcome::Done,
        }))
    }

    fn submit(&self, job: Job) -> Result<(), BackendError> {
        // Held while the job is sent, so that jobs have their numbers in the order of the channel.
        let mut state = self.progress.state();
        state.resume_after_read();
        self.jobs.send(job).map_err(|_| BackendError::lost("the queue's thread has ended"))?;
        state.submitted += 1;
        Ok(())
    }
}

/// Each function submits a job and returns. None of them waits for the work, except `synchronize`.
impl StreamDriver for QueueStream {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        let (to, source) = (Place::of(destination)?, Arc::clone(source));
        self.0.enqueue(move || to.write(&source))
    }

    fn read(
        &self,
        source: &Span,
        mut destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let from = Place::of(source)?;
        // Whatever the outcome, the completion gets it, because a thread or a task may wait for it.
        self.0.submit(Box::new(move |before| {
            if let Err(error) = before {
                completion.finish(Err(error));
                return Outcome::Done;
            }
            match from.read(&mut destination) {
                Ok(()) => completion.finish(Ok(destination)),
                Err(error) => return Outcome::FailedRead(error, completion),
            }
            Outcome::Done
        }))
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (Place::of(source)?, Place::of(destination)?);
        self.0.enqueue(move || to.copy_from(&from))
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let (to, pattern) = (Place::of(destination)?, *pattern);
        self.0.enqueue(move || to.fill(&pattern))
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.copy(source, destination)
    }

    // Every event has a timestamp here; hardware may want `options.timed`.
    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        let event = QueueEvent::default();
        let reached = Arc::clone(&event.reached);
        self.0.submit(Box::new(move |before| {
            // Set once, by this job alone.
            let _ = reached.set(before.map(|()| Instant::now()));
            Outcome::Done
        }))?;
        Ok(Box::new(event))
    }

    // The queue waits, not the caller. The event is recorded already, so two queues never wait for each
    // other.
    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let reached: Reached = Arc::clone(&event.downcast_ref::<QueueEvent>()?.reached);
        self.0.enqueue(move || match reached.wait() {
            Ok(_) => Ok(()),
            // Not the error itself: it may say that a device is lost, and that may be another device. A
            // driver that can lose its own device looks here whether it has.
            Err(error) => Err(BackendError::other("the event failed").with_source(error.clone())),
        })
    }

    fn query(&self) -> Result<bool, BackendError> {
        let mut state = self.0.progress.state();
        if state.done < state.submitted {
            return Ok(false);
        }
        state.report().map(|()| true)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let progress = &self.0.progress;
        let mut state = progress.state();
        // Work that another thread submits from here on is not waited for.
        let all = state.submitted;
        while state.done < all {
            state = progress.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.report()
    }
}

/// How far the worker is. The stream and its worker share it.
#[derive(Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    submitted: u64,
    done: u64,
    failure: Option<Failure>,
}

/// An error of a job. Later jobs are skipped until a caller has received it.
struct Failure {
    error: BackendError,
    /// Once it is reported, the number of the first job that is performed again. Jobs before that were
    /// submitted by a caller who did not know of the failure.
    skipped_below: Option<u64>,
    /// Of a read: its completion, which reports the error in place of this queue.
    read: Option<CompletionWatch>,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Performs the next job, on the worker thread.
    fn perform(&self, job: Job) {
        let before = self.state().outcome_before();
        // A job of a kernel may panic, and the worker has to survive that. The job is dropped here, done or
        // not: what it holds is released before it counts as done.
        let outcome = catch_unwind(AssertUnwindSafe(|| job(before))).unwrap_or_else(|panic| {
            // A payload may panic again when it is dropped.
            mem::forget(panic);
            Outcome::Failed(BackendError::other("queued work panicked"))
        });
        let fail = |error, read| self.state().failure = Some(Failure { error, skipped_below: None, read });
        match outcome {
            Outcome::Done => {}
            Outcome::Failed(error) => fail(error, None),
            Outcome::FailedRead(error, completion) => {
                // First, so that what is submitted before the report finds the failure. And without the lock:
                // `finish` runs the waker of a task, which is a program's code.
                fail(error.clone(), Some(completion.watch()));
                completion.finish(Err(error));
            }
        }
        self.state().done += 1;
        self.changed.notify_all();
    }
}

impl State {
    /// The error for which the next job is skipped.
    fn outcome_before(&self) -> Result<(), BackendError> {
        match &self.failure {
            Some(failure) if failure.skipped_below.is_none_or(|number| self.done < number) => {
                Err(failure.error.clone())
            }
            _ => Ok(()),
        }
    }

    /// Performs work again after a read that failed, from the next job on, if its completion is finished: the
    /// core has its failure then, and submits nothing until a caller has received it.
    fn resume_after_read(&mut self) {
        let submitted = self.submitted;
        if let Some(Failure { skipped_below: skipped_below @ None, read: Some(read), .. }) = &mut self.failure
            && read.is_finished()
        {
            *skipped_below = Some(submitted);
        }
    }

    /// Returns a failure once, unless a completion does. The stream performs work again after that.
    fn report(&mut self) -> Result<(), BackendError> {
        let submitted = self.submitted;
        match &mut self.failure {
            Some(Failure { error, skipped_below: skipped_below @ None, read: None }) => {
                *skipped_below = Some(submitted);
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }
}
