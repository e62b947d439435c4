//! The commands of one queue that may not be done, and the errors of failed ones.
//!
//! `clFinish` waits for commands, and drivers differ in whether it returns their errors; the commands' events
//! have them. So this keeps each command's event until the command is done, and then queries it. The queue is
//! in order: when a command is done, all before it are.

use std::collections::{BTreeMap, VecDeque};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use device_registry::backend::{BackendError, CompletionWatch};
use parking_lot::{Mutex, MutexGuard};

use crate::error::OpenClError;
use crate::event;
use crate::handle::Handle;
use crate::native::OpenClStream;
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

/// Enqueues a marker and submits it. Returns its event.
fn mark_and_flush(queue: &Handle) -> Result<Handle, OpenClError> {
    let marker = mark(queue)?;
    // SAFETY: the queue is valid.
    unsafe { queue.functions().clFlush(queue.get()) }?;
    Ok(marker)
}

/// Waits for a marker behind all commands of a queue; the marker's own outcome says nothing.
fn wait_for_marker(queue: &Handle) -> Result<(), OpenClError> {
    let marker = mark_and_flush(queue)?;
    let waited = event::wait("a marker", &marker);
    if event::marker_outcome(&marker).is_some() { Ok(()) } else { waited }
}

/// Waits until all commands of a queue are done. Returns the error of `clFinish` where that is the failure of
/// a command.
///
/// After failures NVIDIA's driver may return one in each call, and Rusticl of Mesa 25.0 one in every call. So
/// a marker behind the commands shows whether they are over. `failed` returns how many are known to have
/// failed: their errors are not left for a later call.
pub(crate) fn finish(queue: &Handle, failed: impl Fn() -> usize) -> Result<Option<OpenClError>, OpenClError> {
    // SAFETY: the queue is valid.
    let finish = || unsafe { queue.functions().clFinish(queue.get()) };
    let Err(error) = finish() else { return Ok(None) };
    wait_for_marker(queue).map_err(|_| error)?;
    let mut left = 0..failed();
    while left.next().is_some() && finish().is_err() {}
    Ok(Some(error))
}

/// How long the next command after a failure may wait for those that were enqueued before it.
const PATIENCE: Duration = Duration::from_millis(100);

/// The commands of a stream, and the queue for them.
pub(crate) struct Commands(Mutex<State>);

struct State {
    queue: Arc<OpenClStream>,
    /// How many commands of the queue have failed.
    failed: usize,
    /// Whether commands behind it may be about to fail because of it.
    settles: bool,
    /// Whether a kernel that has not returned may have the queue.
    lent: bool,
    /// How many commands were submitted. A command's number is that count after it. All that one kernel
    /// enqueues counts as one command.
    submitted: u64,
    /// All commands up to this number are done.
    done: u64,
    /// Oldest first.
    unfinished: VecDeque<Command>,
    /// The first failure that the stream has not reported.
    failure: Option<BackendError>,
    /// How many commands were submitted when the stream reported a failure. They may have failed because of
    /// it.
    reported: u64,
    /// The failures of reads whose completions are not finished, and perhaps of some that are by now. Events
    /// behind such a read need its failure; once the completion is finished, the core has it.
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
    /// It has no error of its own: earlier work has failed.
    Marker,
    /// A call of this function, named in its error.
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
            // An outcome that its thread has found is not queried again.
            Work::Read(read, _) => read.outcome().or_else(|| event::outcome(reads::CALL, &self.event)),
        }
    }
}

impl Commands {
    pub(crate) fn new(queue: Arc<OpenClStream>) -> Self {
        Self(Mutex::new(State {
            queue,
            failed: 0,
            settles: false,
            lent: false,
            submitted: 0,
            done: 0,
            unfinished: VecDeque::new(),
            failure: None,
            reported: 0,
            read_failures: Vec::new(),
            events: BTreeMap::new(),
        }))
    }

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
        let mut state = self.lock();
        state.submitted += 1;
        state.lent = false;
    }

    /// How many commands were submitted.
    pub(crate) fn submitted(&self) -> u64 {
        self.lock().submitted
    }

    /// The queue for the next command.
    ///
    /// After a command has failed, a queue of Rusticl fails all that come later, and one of a newer version
    /// refuses those that block. So `create` makes another queue, once the commands before are over. Their
    /// order stays, and a driver whose queues continue loses nothing.
    pub(crate) fn queue(
        &self,
        create: impl FnOnce() -> Result<Arc<OpenClStream>, BackendError>,
    ) -> Result<Arc<OpenClStream>, BackendError> {
        let mut state = self.lock();
        if state.failed > 0 {
            state = self.settle(state);
            if state.is_over() && !state.lent {
                state.queue = create()?;
                state.failed = 0;
            }
        }
        Ok(Arc::clone(&state.queue))
    }

    /// The queue for the commands of a kernel. It is the same until the kernel has returned.
    pub(crate) fn lend_queue(
        &self,
        create: impl FnOnce() -> Result<Arc<OpenClStream>, BackendError>,
    ) -> Result<Arc<OpenClStream>, BackendError> {
        let queue = self.queue(create)?;
        self.lock().lent = true;
        Ok(queue)
    }

    /// The queue of the commands that were enqueued last.
    pub(crate) fn last_queue(&self) -> Arc<OpenClStream> {
        Arc::clone(&self.lock().queue)
    }

    /// Waits for commands that fail because of an earlier one. That takes little time, unless they do not
    /// fail.
    #[cold]
    fn settle<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let start = Instant::now();
        loop {
            state.collect();
            if !state.settles || state.is_over() {
                return state;
            }
            if start.elapsed() > PATIENCE {
                state.settles = false;
                return state;
            }
            drop(state);
            thread::sleep(Duration::from_micros(100));
            state = self.lock();
        }
    }

    /// Waits until all commands of the queue are done. Returns the unreported failure.
    ///
    /// On Rusticl of Mesa 22.3 `clFinish` behind a `clFlush` returns at once. Once the context has `early`,
    /// which this sets where it sees that, a queue gets a marker to wait for.
    pub(crate) fn finish(&self, early: &AtomicBool) -> Result<(), BackendError> {
        let number = self.submitted();
        let queue = self.last_queue();
        let queue = queue.handle();
        let failed = || {
            let mut state = self.lock();
            state.collect();
            state.failed
        };
        let error = finish(queue, failed).map_err(OpenClError::own)?;
        if !self.is_over(number) {
            early.store(true, Ordering::Relaxed);
        }
        if early.load(Ordering::Relaxed) {
            wait_for_marker(queue).map_err(OpenClError::own)?;
        }
        let mut state = self.lock();
        state.collect();
        if let Some(error) = error
            && state.failed == 0
        {
            // None of the commands whose events are here has failed, but one of a kernel's has.
            state.failed = 1;
            state.failure.get_or_insert_with(|| error.own());
        }
        drop(state);
        loop {
            let mut state = self.lock();
            state.collect();
            // Each read ends on another thread, as that runs the wakers of tasks.
            if state.failed_reads_have_ended() {
                state.done = state.done.max(number);
                return state.report();
            }
            drop(state);
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Whether all commands are done. Enqueues a marker behind the last one, if its event is not known.
    pub(crate) fn query(&self) -> Result<bool, BackendError> {
        let mut state = self.lock();
        state.collect();
        let last = state.unfinished.back().map_or(state.done, |command| command.number);
        if last < state.submitted {
            let marker = mark_and_flush(state.queue.handle()).map_err(OpenClError::own)?;
            let number = state.submitted;
            let event = Arc::new(marker);
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

    /// Whether all commands up to this number may be over.
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
    /// Whether all commands are known to be over.
    fn is_over(&self) -> bool {
        self.unfinished.is_empty() && self.done >= self.submitted
    }

    fn add(&mut self, work: Work, event: Arc<Handle>) -> u64 {
        // Keeps the list short if no thread waits for the stream.
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
            let Err(error) = outcome else {
                // Commands behind a failure do not fail because of it.
                self.settles = false;
                continue;
            };
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

    /// Keeps a failure for the stream, which reports only the first, and for each event behind it without
    /// one.
    fn fail(&mut self, number: u64, error: BackendError, completion: Option<CompletionWatch>) {
        self.settles |= self.failed == 0;
        self.failed += 1;
        for (_, failure) in self.events.range_mut(number + 1..) {
            failure.get_or_insert_with(|| error.clone());
        }
        match completion {
            None if number <= self.reported => {}
            None => _ = self.failure.get_or_insert(error),
            Some(completion) => {
                self.read_failures.retain(|(_, completion)| !completion.is_finished());
                self.read_failures.push((error, completion));
            }
        }
    }

    /// The failure of the stream, once.
    fn report(&mut self) -> Result<(), BackendError> {
        let Some(failure) = self.failure.take() else { return Ok(()) };
        self.reported = self.submitted;
        Err(failure)
    }
}
