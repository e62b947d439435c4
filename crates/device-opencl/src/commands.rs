//! The commands of one queue that may not be done, and what became of those that failed.
//!
//! `clFinish` waits for commands and does not tell how they went; their events do. So each is kept until it is done,
//! and asked then. As the queue is in order, a command that is done says that all before it are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cl3::event::CL_COMPLETE;
use cl3::types::cl_int;
use device_registry::BackendError;

use crate::error::call_error;
use crate::event;
use crate::handle::Handle;

#[derive(Default)]
pub(crate) struct Commands(Mutex<State>);

#[derive(Default)]
struct State {
    /// How many commands there were: each has the number of those up to it. What a kernel has enqueued counts as one.
    submitted: u64,
    /// All up to this number are done.
    done: u64,
    /// Oldest first.
    pending: VecDeque<Command>,
    failure: Option<Failure>,
}

struct Command {
    number: u64,
    /// What it is, for its error; `None` if somebody else is told of that.
    call: Option<&'static str>,
    /// Shared with the stream's event, if it is a marker of one.
    event: Arc<Handle>,
}

struct Failure {
    number: u64,
    error: BackendError,
    /// Once the stream was told: the last command that was submitted before.
    told: Option<u64>,
}

impl Commands {
    /// Adds a command that was enqueued, by its event. Returns its number.
    pub(crate) fn add(&self, call: Option<&'static str>, event: Arc<Handle>) -> u64 {
        let mut state = self.lock();
        // So that they do not pile up in a stream that nobody waits for.
        state.collect();
        state.submitted += 1;
        let number = state.submitted;
        state.pending.push_back(Command { number, call, event });
        number
    }

    /// Counts what a kernel has enqueued, of which no event is known.
    pub(crate) fn add_unknown(&self) {
        self.lock().submitted += 1;
    }

    /// How many there were.
    pub(crate) fn submitted(&self) -> u64 {
        self.lock().submitted
    }

    /// The queue was waited for: all up to this number are done.
    pub(crate) fn finish(&self, number: u64) -> Result<(), BackendError> {
        let mut state = self.lock();
        state.collect();
        state.done = state.done.max(number);
        state.tell()
    }

    /// Whether all are done. If only an event behind the last one can tell, `mark` enqueues it.
    pub(crate) fn query(
        &self,
        mark: impl FnOnce() -> Result<Arc<Handle>, BackendError>,
    ) -> Result<bool, BackendError> {
        let mut state = self.lock();
        state.collect();
        let last = state.pending.back().map_or(state.done, |command| command.number);
        if last < state.submitted {
            let (number, event) = (state.submitted, mark()?);
            state.pending.push_back(Command { number, call: Some("a marker"), event });
            state.collect();
        }
        state.tell()?;
        Ok(state.done >= state.submitted)
    }

    /// What went wrong before the command of this number, which is done.
    pub(crate) fn outcome_before(&self, number: u64) -> Result<(), BackendError> {
        let mut state = self.lock();
        state.collect();
        match &state.failure {
            // An event that was recorded after the stream was told has nothing to do with it any more.
            Some(failure) if failure.number < number && failure.told.is_none_or(|told| number <= told) => {
                Err(failure.error.clone())
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Lets go of the commands that are done.
    fn collect(&mut self) {
        while let Some(oldest) = self.pending.front() {
            let failure: Option<cl_int> = match event::status(&oldest.event) {
                Ok(status) if status > CL_COMPLETE => return,
                Ok(CL_COMPLETE) => None,
                Ok(status) | Err(status) => Some(status),
            };
            let Some(Command { number, call, .. }) = self.pending.pop_front() else { return };
            self.done = self.done.max(number);
            if let (Some(status), Some(call)) = (failure, call) {
                self.fail(number, call_error(call, status));
            }
        }
    }

    /// The first failure counts, until somebody was told.
    fn fail(&mut self, number: u64, error: BackendError) {
        if self.failure.as_ref().is_none_or(|failure| failure.told.is_some()) {
            self.failure = Some(Failure { number, error, told: None });
        }
    }

    /// The failure, once.
    fn tell(&mut self) -> Result<(), BackendError> {
        match &mut self.failure {
            Some(Failure { error, told: told @ None, .. }) => {
                *told = Some(self.submitted);
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }
}
