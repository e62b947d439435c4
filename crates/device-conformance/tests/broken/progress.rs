//! The progress of the work in a queue: how much is done, and the error if some has failed.

use std::sync::atomic::{AtomicBool, Ordering};

use device_registry::backend::{BackendError, Completion, CompletionWatch};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::defect::Defect::*;
use crate::misqueue as wrongly;
use crate::wrong::wrong;

/// A piece of work. It gets the result of the earlier work, and does nothing if that failed.
pub(crate) type Work = Box<dyn FnOnce(Result<(), BackendError>) -> Outcome + Send>;

/// The outcome of a piece of work.
pub(crate) enum Outcome {
    /// It was done, or skipped.
    Done,
    Failed(BackendError),
    /// It is a read that failed, whose completion reports that.
    FailedRead(BackendError, Completion),
}

/// Whether work of any queue has failed.
static ANY_FAILED: AtomicBool = AtomicBool::new(false);

/// The progress of a queue. Work is numbered in the order of submission.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    submitted: u64,
    done: u64,
    failure: Option<Failure>,
    closed: bool,
}

/// The queue skips work behind a failure: all of it until the error is reported, and then what was submitted
/// by that time.
struct Failure {
    error: BackendError,
    until: Option<u64>,
    /// For a read, its completion, which reports the error in place of the queue.
    read: Option<CompletionWatch>,
}

impl Progress {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn submit(&self) {
        let mut state = self.state();
        let submitted = state.submitted;
        if let Some(Failure { until: until @ None, read: Some(read), .. }) = &mut state.failure
            && read.is_finished()
        {
            // The core submits nothing until a caller has received the failure.
            *until = Some(submitted);
        }
        state.submitted += 1;
    }

    /// The number of submitted pieces of work.
    pub(crate) fn submitted(&self) -> u64 {
        self.state().submitted
    }

    /// The number of pieces of work that are done.
    pub(crate) fn done(&self) -> u64 {
        self.state().done
    }

    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.done == state.submitted
    }

    /// The number of pieces of work that are not done.
    pub(crate) fn len(&self) -> u64 {
        let state = self.state();
        state.submitted - state.done
    }

    /// Stops the queue: it does no more work.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Does the next piece of work.
    pub(crate) fn perform(&self, work: Work) {
        let state = self.state();
        if state.closed {
            return;
        }
        let before = match &state.failure {
            _ if wrong(FailuresAreOfAllStreams) && ANY_FAILED.load(Ordering::Relaxed) => {
                Err(BackendError::other("a stream has failed"))
            }
            Some(Failure { error, until, .. }) if until.is_none_or(|until| state.done < until) => {
                Err(error.clone())
            }
            _ => Ok(()),
        };
        drop(state);
        let outcome = work(before);
        let fail = |error, read| self.state().failure = Some(Failure { error, until: None, read });
        match outcome {
            Outcome::Done => {}
            Outcome::Failed(error) => {
                ANY_FAILED.store(true, Ordering::Relaxed);
                fail(error, None);
            }
            Outcome::FailedRead(error, completion) => {
                // Done first, so that work submitted before the report finds the failure.
                fail(error.clone(), Some(completion.watch()));
                wrongly::complete(completion, Err(error));
            }
        }
        self.state().done += 1;
        self.changed.notify_all();
    }

    /// Whether all work is done. Reports a failure once.
    pub(crate) fn query(&self) -> Result<bool, BackendError> {
        let state = self.state();
        if state.done < state.submitted {
            return Ok(false);
        }
        if wrong(QueryReportsNoErrors) { Ok(true) } else { report(state).map(|()| true) }
    }

    /// Waits for the work that was submitted before. Reports a failure once.
    pub(crate) fn synchronize(&self) -> Result<(), BackendError> {
        let mut state = self.state();
        let all = state.submitted;
        while state.done < all {
            self.changed.wait(&mut state);
        }
        report(state)
    }
}

fn report(mut state: MutexGuard<'_, State>) -> Result<(), BackendError> {
    let submitted = state.submitted;
    match &mut state.failure {
        Some(Failure { error, until: until @ None, read: None }) => {
            if !wrong(ErrorsAreReportedForEver) {
                *until = Some(submitted);
            }
            Err(error.clone())
        }
        _ => Ok(()),
    }
}
