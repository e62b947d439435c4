//! The commands of one queue that may not be done, and the errors of those that failed.
//!
//! `clFinish` waits for commands, and drivers differ in whether it returns their errors; their events have them.
//! So this keeps each command's event until the command is done, and queries it then. The queue is in order:
//! when a command is done, all before it are.

use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use device_registry::backend::{BackendError, CompletionWatch};
use parking_lot::{Mutex, MutexGuard};

use crate::error::OpenClError;
use crate::event;
use crate::handle::Handle;
use crate::reads::{self, QueuedRead};

/// Enqueues a marker, and returns its event.
pub(crate) fn mark(queue: &Handle) -> Result<Handle, OpenClError> {
    // SAFETY: the queue is valid, and a length of 0 goes with the null list of events. The call writes the
    // marker's event to the place, with one reference.
    unsafe {
        Handle::event_of(queue.functions(), |cl, event| {
            cl.clEnqueueMarkerWithWaitList(queue.get(), 0, ptr::null(), event)
        })
    }
}

/// Waits for a marker behind all commands of a queue, whose own outcome says nothing.
fn wait_for_marker(queue: &Handle) -> Result<(), OpenClError> {
    let marker = mark(queue)?;
    // SAFETY: the queue is valid.
    unsafe { queue.functions().clFlush(queue.get()) }?;
    let waited = event::wait("a marker", &marker);
    if event::marker_outcome(&marker).is_some() { Ok(()) } else { waited }
}

/// Waits until all commands of a queue are done. `failed` returns how many of them are known to have failed.
/// Returns a failure that is none of theirs: a kernel's command has it.
///
/// What `clFinish` returns after a command that has failed depends on the driver:
///
/// - a success;
/// - the failure, in one call for each. The call after that waits. NVIDIA's driver does so at times;
/// - the failure, in each call until another command is enqueued, which must not block. So does Rusticl of Mesa
///   25.0. In 26.2 the call succeeds, and commands that block are refused until then.
///
/// So an error is a command's, unless there is one more behind a marker than commands that have failed and a
/// kernel's. And a queue whose command has failed gets a marker.
pub(crate) fn finish(queue: &Handle, failed: impl Fn() -> usize) -> Result<Option<OpenClError>, OpenClError> {
    let (mut errors, mut first) = (0, None);
    // SAFETY: the queue is valid.
    while let Err(error) = unsafe { queue.functions().clFinish(queue.get()) } {
        errors += 1;
        if errors > failed() + 1 || mark(queue).is_err() {
            return Err(error);
        }
        first = first.or(Some(error));
    }
    let failed = failed();
    if errors == 0 && failed > 0 {
        mark(queue)?;
    }
    Ok(first.filter(|_| errors > failed))
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
    work: Work,
    /// Shared with the stream's event, if the command is the marker of one.
    event: Arc<Handle>,
}

enum Work {
    /// None of its own: what has failed is before it.
    Marker,
    /// Of this function, for its error.
    Call(&'static str),
    /// Its completion reports an error to the stream.
    Read(Arc<QueuedRead>, CompletionWatch),
}

impl Command {
    /// `None` while the command is not over.
    fn outcome(&self) -> Option<Result<(), OpenClError>> {
        match &self.work {
            Work::Marker => event::marker_outcome(&self.event),
            Work::Call(call) => event::outcome(call, &self.event),
            // What its thread has found is not looked up again.
            Work::Read(read, _) => read.outcome().or_else(|| event::outcome(reads::CALL, &self.event)),
        }
    }
}

impl Commands {
    /// Adds a command that was enqueued, by its event. Returns its number.
    pub(crate) fn add(&self, call: &'static str, event: Arc<Handle>) -> u64 {
        self.lock().add(Work::Call(call), event)
    }

    /// Adds a read. Its completion reports its failure to the stream.
    pub(crate) fn add_read(&self, event: Arc<Handle>, read: Arc<QueuedRead>, completion: CompletionWatch) {
        self.lock().add(Work::Read(read, completion), event);
    }

    /// Adds the marker of an event, which [removes](Self::forget) its number when it is dropped.
    pub(crate) fn add_event(&self, event: Arc<Handle>) -> u64 {
        let mut state = self.lock();
        let number = state.add(Work::Marker, event);
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
    ///
    /// On Rusticl of Mesa 22.3 `clFinish` behind a `clFlush` returns at once. Once the context has `early`,
    /// which this sets where it sees that, a queue gets a marker to wait for.
    pub(crate) fn finish(&self, queue: &Handle, early: &AtomicBool) -> Result<(), BackendError> {
        let number = self.submitted();
        let failed = || {
            let mut state = self.lock();
            state.collect();
            state.failed
        };
        let unknown = finish(queue, failed).map_err(OpenClError::own)?;
        if !self.is_over(number) {
            early.store(true, Ordering::Relaxed);
        }
        if early.load(Ordering::Relaxed) {
            wait_for_marker(queue).map_err(OpenClError::own)?;
        }
        loop {
            let mut state = self.lock();
            state.collect();
            state.failed = 0;
            if let Some(error) = unknown {
                state.failure.get_or_insert_with(|| error.own());
            }
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
            state.unfinished.push_back(Command { number, work: Work::Marker, event });
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

    /// Whether no command up to this number is known not to be over.
    fn is_over(&self, number: u64) -> bool {
        let mut state = self.lock();
        state.collect();
        state.unfinished.front().is_none_or(|command| command.number > number)
    }

    /// Hands over the reads that have failed, unless another thread looks at the commands now.
    pub(crate) fn look(&self) {
        if let Some(mut state) = self.0.try_lock() {
            state.collect();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl State {
    fn add(&mut self, work: Work, event: Arc<Handle>) -> u64 {
        // Keeps the list short in a stream that no thread waits for.
        self.collect();
        self.submitted += 1;
        self.unfinished.push_back(Command { number: self.submitted, work, event });
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
        while let Some(outcome) = self.unfinished.front().and_then(Command::outcome) {
            // The thread of the reads looks at the event, as long as there is one, so this drops it once the
            // read has the failure.
            let Some(Command { number, work, event: _event }) = self.unfinished.pop_front() else { return };
            self.done = self.done.max(number);
            let Err(error) = outcome else { continue };
            let completion = match work {
                Work::Read(read, completion) => {
                    read.fail(error);
                    Some(completion)
                }
                Work::Marker | Work::Call(_) => None,
            };
            self.fail(number, error.own(), completion);
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
