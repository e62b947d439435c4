//! The commands of one queue that may not be done, and the errors of those that failed.
//!
//! `clFinish` waits for commands and does not return their errors; only their events have them. So this keeps
//! each command's event until the command is done, and queries it then. The queue is in order: when a command
//! is done, all before it are.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, CompletionWatch};
use parking_lot::{Mutex, MutexGuard};

use crate::error::OpenClError;
use crate::event;
use crate::handle::Handle;
use crate::reads::QueuedRead;
use crate::sys::CL_COMPLETE;

/// Waits until all commands of a queue are done. `failed` returns how many of them are known to have failed.
///
/// NVIDIA's driver sometimes returns a command's error here too, and the call after that waits. So as many
/// errors as commands that failed are theirs. The next one is the call's own.
pub(crate) fn finish(queue: &Handle, failed: impl Fn() -> usize) -> Result<(), OpenClError> {
    let mut errors = 0;
    loop {
        // SAFETY: the queue is valid.
        let Err(error) = (unsafe { queue.functions().clFinish(queue.get()) }) else { return Ok(()) };
        errors += 1;
        if errors > failed() {
            return Err(error);
        }
    }
}

#[derive(Default)]
pub(crate) struct Commands(Mutex<State>);

#[derive(Default)]
struct State {
    /// How many commands were submitted. A command's number is that count after it. All that one kernel
    /// enqueues counts as one command.
    submitted: u64,
    /// All commands up to this number are done.
    done: u64,
    /// Oldest first.
    unfinished: VecDeque<Command>,
    /// The first failure that the stream has not reported.
    failure: Option<BackendError>,
    /// How many commands have failed since `clFinish` last succeeded.
    failed: usize,
    /// The failures of reads whose completions are not finished, and perhaps of some that are finished by
    /// now. Events behind such a read need its failure; once the completion is finished, the core has it.
    read_failures: Vec<(BackendError, CompletionWatch)>,
    /// The markers of the existing events, and the first failure before each. An event returns the same error
    /// each time, whatever the stream has reported since, and whatever else has failed.
    events: BTreeMap<u64, Option<BackendError>>,
}

struct Command {
    number: u64,
    /// The function that enqueued it, for its error.
    call: &'static str,
    /// Of a read, whose completion reports an error to the stream.
    read: Option<(Weak<QueuedRead>, CompletionWatch)>,
    /// Shared with the stream's event, if the command is the marker of one.
    event: Arc<Handle>,
}

impl Commands {
    /// Adds a command that was enqueued, by its event. Returns its number.
    pub(crate) fn add(&self, call: &'static str, event: Arc<Handle>) -> u64 {
        self.lock().add(call, event, None)
    }

    /// Adds a read. Its completion reports its failure to the stream.
    pub(crate) fn add_read(&self, event: Arc<Handle>, read: Weak<QueuedRead>, completion: CompletionWatch) {
        self.lock().add("clEnqueueReadBuffer", event, Some((read, completion)));
    }

    /// Adds the marker of an event, which [removes](Self::forget) its number when it is dropped.
    pub(crate) fn add_event(&self, event: Arc<Handle>) -> u64 {
        let mut state = self.lock();
        let number = state.add("a marker", event, None);
        state.read_failures.retain(|(_, completion)| !completion.is_finished());
        let of_a_read = state.read_failures.first().map(|(error, _)| error);
        let failure = state.failure.as_ref().or(of_a_read).cloned();
        state.events.insert(number, failure);
        number
    }

    /// Removes the event of this number.
    pub(crate) fn forget(&self, number: u64) {
        self.lock().events.remove(&number);
    }

    /// Counts what a kernel has enqueued. The kernel keeps its commands' events to itself.
    pub(crate) fn add_unknown(&self) {
        self.lock().submitted += 1;
    }

    /// How many commands were submitted.
    pub(crate) fn submitted(&self) -> u64 {
        self.lock().submitted
    }

    /// Waits until all commands of the queue are done. Returns the unreported failure.
    pub(crate) fn finish(&self, queue: &Handle) -> Result<(), BackendError> {
        let number = self.submitted();
        finish(queue, || {
            let mut state = self.lock();
            state.collect();
            state.failed
        })
        .map_err(OpenClError::own)?;
        loop {
            let mut state = self.lock();
            state.collect();
            state.failed = 0;
            // Each read ends on another thread, as that runs the wakers of tasks.
            if state.failed_reads_have_ended() {
                state.done = state.done.max(number);
                return state.report();
            }
            drop(state);
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Whether all commands are done. Calls `mark` for a marker behind the last one, if its event is not
    /// known.
    pub(crate) fn query(
        &self,
        mark: impl FnOnce() -> Result<Arc<Handle>, BackendError>,
    ) -> Result<bool, BackendError> {
        let mut state = self.lock();
        state.collect();
        let last = state.unfinished.back().map_or(state.done, |command| command.number);
        if last < state.submitted {
            let (number, event) = (state.submitted, mark()?);
            state.unfinished.push_back(Command { number, call: "a marker", read: None, event });
            state.collect();
        }
        state.report()?;
        Ok(state.done >= state.submitted && state.failed_reads_have_ended())
    }

    /// The failure before the event of this number, whose marker is done.
    pub(crate) fn outcome_before(&self, number: u64) -> Result<(), BackendError> {
        let mut state = self.lock();
        state.collect();
        state.events.get(&number).cloned().flatten().map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    fn add(
        &mut self,
        call: &'static str,
        event: Arc<Handle>,
        read: Option<(Weak<QueuedRead>, CompletionWatch)>,
    ) -> u64 {
        // Keeps the list short in a stream that no thread waits for.
        self.collect();
        self.submitted += 1;
        self.unfinished.push_back(Command { number: self.submitted, call, read, event });
        self.submitted
    }

    /// Whether the completions of the reads that have failed are finished, so that the core has their
    /// failures.
    fn failed_reads_have_ended(&mut self) -> bool {
        self.read_failures.retain(|(_, completion)| !completion.is_finished());
        self.read_failures.is_empty()
    }

    /// Removes the commands that are done.
    fn collect(&mut self) {
        while let Some(oldest) = self.unfinished.front() {
            let outcome = match event::status(&oldest.event) {
                Ok(status) if status > CL_COMPLETE => return,
                status => status.and_then(|status| event::outcome(oldest.call, status)),
            };
            // A callback looks at the event, as long as there is one, so this drops it once the read has the
            // failure.
            let Some(Command { number, read, event: _event, .. }) = self.unfinished.pop_front() else {
                return;
            };
            self.done = self.done.max(number);
            if let Err(error) = outcome {
                if let Some(read) = read.as_ref().and_then(|(read, _)| read.upgrade()) {
                    read.fail(error);
                }
                self.fail(number, error.own(), read.map(|(_, completion)| completion));
            }
        }
    }

    /// Keeps a failure for the stream, which reports the first only, and for each event behind it without
    /// one.
    fn fail(&mut self, number: u64, error: BackendError, completion: Option<CompletionWatch>) {
        self.failed += 1;
        for (_, failure) in self.events.range_mut(number + 1..) {
            failure.get_or_insert_with(|| error.clone());
        }
        match completion {
            None => _ = self.failure.get_or_insert(error),
            Some(completion) => {
                self.read_failures.retain(|(_, completion)| !completion.is_finished());
                self.read_failures.push((error, completion));
            }
        }
    }

    /// The failure of the stream, once.
    fn report(&mut self) -> Result<(), BackendError> {
        self.failure.take().map_or(Ok(()), Err)
    }
}
