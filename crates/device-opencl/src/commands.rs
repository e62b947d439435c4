//! The commands of one queue that may not be done, and what became of those that failed.
//!
//! `clFinish` waits for commands and does not tell how they went; their events do. So each is kept until it is done,
//! and asked then. As the queue is in order, a command that is done says that all before it are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cl3::event::CL_COMPLETE;
use cl3::types::cl_int;
use device_registry::backend::BackendError;

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
    /// The first failure that the stream was not told of.
    failure: Option<BackendError>,
    /// The latest failure of a read. Its answer tells the stream; events that are recorded before that have to know.
    read_failure: Option<(BackendError, Arc<AtomicBool>)>,
    /// The markers of the events that are there, and what failed before each. An event says the same whenever it is
    /// asked, whatever the stream was told since, and whatever else has failed.
    events: BTreeMap<u64, Option<BackendError>>,
}

struct Command {
    number: u64,
    /// What it is, for its error.
    call: &'static str,
    /// Of a read: whether its answer was given, which tells the stream.
    answered: Option<Arc<AtomicBool>>,
    /// Shared with the stream's event, if it is a marker of one.
    event: Arc<Handle>,
}

impl Commands {
    /// Adds a command that was enqueued, by its event. Returns its number.
    pub(crate) fn add(&self, call: &'static str, event: Arc<Handle>) -> u64 {
        self.lock().add(call, event, None)
    }

    /// Adds a read, of whose failure the stream is told by its answer, once that is given.
    pub(crate) fn add_read(&self, event: Arc<Handle>, answered: Arc<AtomicBool>) {
        self.lock().add("clEnqueueReadBuffer", event, Some(answered));
    }

    /// Adds the marker of an event, which gives its number [back](Self::forget).
    pub(crate) fn add_event(&self, event: Arc<Handle>) -> u64 {
        let mut state = self.lock();
        let number = state.add("a marker", event, None);
        let of_a_read = state.read_failure.as_ref().filter(|(_, answered)| !answered.load(Ordering::Acquire));
        let failure = state.failure.as_ref().or(of_a_read.map(|(error, _)| error)).cloned();
        state.events.insert(number, failure);
        number
    }

    /// The event of this number is gone.
    pub(crate) fn forget(&self, number: u64) {
        self.lock().events.remove(&number);
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
            state.pending.push_back(Command { number, call: "a marker", answered: None, event });
            state.collect();
        }
        state.tell()?;
        Ok(state.done >= state.submitted)
    }

    /// What went wrong before the event of this number, whose marker is done.
    pub(crate) fn outcome_before(&self, number: u64) -> Result<(), BackendError> {
        let mut state = self.lock();
        state.collect();
        state.events.get(&number).cloned().flatten().map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, call: &'static str, event: Arc<Handle>, answered: Option<Arc<AtomicBool>>) -> u64 {
        // So that they do not pile up in a stream that nobody waits for.
        self.collect();
        self.submitted += 1;
        self.pending.push_back(Command { number: self.submitted, call, answered, event });
        self.submitted
    }

    /// Lets go of the commands that are done.
    fn collect(&mut self) {
        while let Some(oldest) = self.pending.front() {
            let failure: Option<cl_int> = match event::status(&oldest.event) {
                Ok(status) if status > CL_COMPLETE => return,
                Ok(CL_COMPLETE) => None,
                Ok(status) | Err(status) => Some(status),
            };
            let Some(Command { number, call, answered, .. }) = self.pending.pop_front() else { return };
            self.done = self.done.max(number);
            if let Some(status) = failure {
                self.fail(number, call_error(call, status), answered);
            }
        }
    }

    /// The stream is told of the first failure only; and each event of the first before it.
    fn fail(&mut self, number: u64, error: BackendError, answered: Option<Arc<AtomicBool>>) {
        for (_, failure) in self.events.range_mut(number + 1..) {
            failure.get_or_insert_with(|| error.clone());
        }
        match answered {
            None => _ = self.failure.get_or_insert(error),
            Some(answered) => self.read_failure = Some((error, answered)),
        }
    }

    /// The failure, once.
    fn tell(&mut self) -> Result<(), BackendError> {
        self.failure.take().map_or(Ok(()), Err)
    }
}
