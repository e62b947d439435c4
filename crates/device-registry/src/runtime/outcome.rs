//! The result of queued work, shared by the waiting thread and the driver or worker that does the work.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use entry_points::message::panic_message;

use crate::backend::{BackendError, Finish, HostBuffer, Watched};
use crate::error::DeviceError;
use crate::runtime::deadline::Deadline;
use crate::runtime::device_use;
use crate::runtime::isolation::log_isolated;
use crate::runtime::open_device::{Awaited, OpenDevice, log_unreported};
use crate::runtime::origin::Origin;
use crate::runtime::waits::{Ask, Before};
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, lock, thread, wait, wait_timeout};

/// The result of one piece of queued work, from its submission until it is taken.
pub(crate) struct Outcome {
    device: &'static OpenDevice,
    reporter: Reporter,
    /// The name of the work in errors.
    call: &'static str,
    /// The number of bytes that the work returns.
    len: usize,
    state: Mutex<State>,
    known: Condvar,
}

/// Who reports a failure of the work.
enum Reporter {
    /// The queue, which fails. If its stream is dropped, it may be freed first: then the device reports the
    /// failure.
    Queue(Weak<dyn Origin>),
    /// The call that waits for the work.
    Caller,
}

struct State {
    result: ReadResult,
    submission: Submission,
    waited_for: bool,
    waker: Option<Waker>,
    /// Set for a driver that [looks](crate::backend::Completion::watch) whether the work is finished.
    finished: Option<Arc<AtomicBool>>,
}

enum ReadResult {
    Empty,
    Full(Result<HostBuffer, DeviceError>),
    /// The caller already has the result.
    Taken,
}

enum Submission {
    /// The driver has not accepted or refused the work yet.
    UnderWay { failure: Option<DeviceError> },
    /// The work belongs to a queue, and its failure is that queue's failure. A thread that looks at the
    /// outcome first makes the queue begin it. A driver may do it although an event that the queue waited for
    /// before has failed: the thread that takes the result asks first.
    Accepted { number: u64, waits: Option<Before> },
}

impl State {
    /// The waits before work that the driver has done, while their outcome is not known.
    fn unknown_waits(&self) -> Option<&Before> {
        match (&self.result, &self.submission) {
            (ReadResult::Full(Ok(_)), Submission::Accepted { waits, .. }) => waits.as_ref(),
            _ => None,
        }
    }
}

impl Outcome {
    /// The outcome of a stream's work, which returns `len` bytes.
    pub(crate) fn of_work(
        device: &'static OpenDevice,
        queue: Weak<dyn Origin>,
        call: &'static str,
        len: usize,
    ) -> Arc<Self> {
        Self::new(device, Reporter::Queue(queue), call, len, ReadResult::Empty)
    }

    /// The outcome of work that returns `len` bytes, for a call that waits for it.
    pub(crate) fn of_call(device: &'static OpenDevice, call: &'static str, len: usize) -> Arc<Self> {
        Self::new(device, Reporter::Caller, call, len, ReadResult::Empty)
    }

    /// An outcome that is known without any work.
    pub(crate) fn known(device: &'static OpenDevice, value: HostBuffer) -> Arc<Self> {
        let len = value.len();
        Self::new(device, Reporter::Caller, "read", len, ReadResult::Full(Ok(value)))
    }

    fn new(
        device: &'static OpenDevice,
        reporter: Reporter,
        call: &'static str,
        len: usize,
        result: ReadResult,
    ) -> Arc<Self> {
        let submission = Submission::UnderWay { failure: None };
        let state = Mutex::new(State { result, submission, waited_for: false, waker: None, finished: None });
        Arc::new(Self { device, reporter, call, len, state, known: Condvar::new() })
    }

    pub(crate) fn device(&self) -> &'static OpenDevice {
        self.device
    }

    /// For the device, which ends all waits when it ends.
    pub(crate) fn awaited(self: &Arc<Self>) -> Weak<dyn Awaited> {
        let outcome: Arc<dyn Awaited> = Arc::<Self>::clone(self);
        Arc::downgrade(&outcome)
    }

    /// Sets the result, unless it is already set.
    pub(crate) fn set(&self, result: Result<HostBuffer, DeviceError>) {
        let mut state = lock(&self.state);
        if !matches!(state.result, ReadResult::Empty) {
            return;
        }
        if let (Err(error), Submission::UnderWay { failure }) = (&result, &mut state.submission) {
            *failure = Some(error.clone());
        }
        self.fill(state, result);
    }

    /// Sets a failure that a driver reports. If the work is a queue's, `fail_queue` fails the queue under the
    /// same lock: a thread that sees the result finds the queue failed. It gets the flag that the driver
    /// looks at, to set it with the failure.
    ///
    /// Work that is `dropped` while its submission is under way gets no result yet: a driver drops work that
    /// it refuses, and then returns the reason.
    fn fail(&self, error: &DeviceError, dropped: bool, fail_queue: impl FnOnce(Option<&AtomicBool>)) {
        let mut state = lock(&self.state);
        if !matches!(state.result, ReadResult::Empty) {
            return;
        }
        match &mut state.submission {
            Submission::Accepted { .. } => fail_queue(state.finished.as_deref()),
            Submission::UnderWay { failure } => {
                failure.get_or_insert_with(|| error.clone());
                if dropped {
                    return;
                }
            }
        }
        self.fill(state, Err(error.clone()));
    }

    fn fill(&self, mut state: MutexGuard<'_, State>, result: Result<HostBuffer, DeviceError>) {
        state.result = ReadResult::Full(result);
        if let Some(finished) = &state.finished {
            finished.store(true, Ordering::Release);
        }
        let waker = state.waker.take();
        let waited_for = state.waited_for;
        drop(state);
        // Without a waiting thread, this saves a call to the system.
        if waited_for {
            self.known.notify_all();
        }
        if let Some(waker) = waker {
            self.wake(waker);
        }
    }

    fn wake(&self, waker: Waker) {
        // A waker is an executor's code. This may be a thread of the driver, for which the task could wait.
        let wake = AssertUnwindSafe(|| device_use::forbid(|| waker.wake()));
        if catch_unwind(wake).is_err() {
            log_isolated(|| log::error!("`{}`: the waker of a task panicked", self.device.device()));
        }
    }

    /// The driver has accepted the work, as the event or read of its queue with this `number`, behind these
    /// waits: its failure is the queue's failure, also one from before this call. If no queue reports it,
    /// such a failure is returned.
    pub(crate) fn accept(&self, number: u64, waits: Option<Before>) -> Result<(), DeviceError> {
        let accepted = Submission::Accepted { number, waits };
        let before = std::mem::replace(&mut lock(&self.state).submission, accepted);
        let Submission::UnderWay { failure: Some(error) } = before else { return Ok(()) };
        self.set(Err(error.clone()));
        let Reporter::Queue(queue) = &self.reporter else { return Err(error) };
        if let Some(queue) = queue.upgrade() {
            queue.fail_read(error, None);
        }
        Ok(())
    }

    /// Ensures that the work begins, for a thread that looks at the outcome.
    fn begin(&self) {
        let state = lock(&self.state);
        let (ReadResult::Empty, Submission::Accepted { number, .. }) = (&state.result, &state.submission)
        else {
            return;
        };
        let number = *number;
        drop(state);
        // The queue of a dropped stream is flushed before it is freed.
        if let Reporter::Queue(queue) = &self.reporter
            && let Some(queue) = queue.upgrade()
            && let Err(error) = queue.begin(number)
        {
            self.set(Err(error));
        }
    }

    /// Asks the events that the queue waited for before work that the driver has done. Their failure is the
    /// result, and becomes the queue's when that is asked itself. Returns `false` if it is not known: an
    /// event is not done, or this thread may not call drivers.
    fn ask_awaited(&self, ask: Ask) -> bool {
        let Some(waits) = lock(&self.state).unknown_waits().cloned() else { return true };
        let Some(outcome) = waits.ask(ask) else { return false };
        let mut state = lock(&self.state);
        if state.unknown_waits().is_none() {
            return true;
        }
        if let Submission::Accepted { waits, .. } = &mut state.submission {
            *waits = None;
        }
        // Dropped without the lock: a driver's memory.
        let before =
            outcome.err().map(|error| std::mem::replace(&mut state.result, ReadResult::Full(Err(error))));
        drop(state);
        drop((before, waits));
        true
    }

    /// Lets a thread of its own ask the events, for a task that waits.
    fn ask_on_thread(self: &Arc<Self>) -> Result<(), DeviceError> {
        let outcome = Arc::clone(self);
        let asks = thread::Builder::new().name(format!("{} read", self.device.device())).spawn(move || {
            outcome.ask_awaited(Ask::Wait);
            let waker = lock(&outcome.state).waker.take();
            if let Some(waker) = waker {
                outcome.wake(waker);
            }
        });
        let failed = |error| {
            let error = BackendError::other("cannot start a thread for the task").with_source(error);
            DeviceError::Call { device: self.device.device(), call: "wait", error }
        };
        asks.map(drop).map_err(failed)
    }

    /// Whether the work is done or has failed. Ensures that it begins.
    pub(crate) fn is_ready(&self) -> bool {
        // Before the lock: in a fork, a thread that does not exist there may hold it.
        if self.device.is_of_this_process() {
            self.begin();
        }
        self.is_known()
    }

    /// Whether waiting returns at once.
    pub(crate) fn is_known(&self) -> bool {
        // Before the lock: in a fork, a thread that does not exist there may hold it.
        !self.device.is_of_this_process() || !matches!(lock(&self.state).result, ReadResult::Empty)
    }

    /// Waits for the result and takes it.
    pub(crate) fn wait(&self) -> Result<HostBuffer, DeviceError> {
        // Before the lock: in a fork, a thread that does not exist there may hold it.
        self.device.check_process()?;
        if !self.is_known() {
            self.device.check_thread("wait")?;
            self.begin();
        }
        let mut state = lock(&self.state);
        while matches!(state.result, ReadResult::Empty) {
            state.waited_for = true;
            state = wait(&self.known, state);
        }
        if state.unknown_waits().is_some() {
            drop(state);
            if !self.ask_awaited(Ask::Wait) {
                self.device.check_thread("wait")?;
            }
            state = lock(&self.state);
        }
        self.take(&mut state)
    }

    /// Waits for the result, at most for `timeout`. Returns whether [`wait`](Self::wait) does not block,
    /// which is also true where it may not.
    pub(crate) fn wait_timeout(&self, timeout: Duration) -> bool {
        let start = Instant::now();
        if self.device.check_thread("wait").is_err() {
            return true;
        }
        self.begin();
        let mut state = lock(&self.state);
        while matches!(state.result, ReadResult::Empty) {
            state.waited_for = true;
            let Some(left) = timeout.checked_sub(start.elapsed()) else { return false };
            state = wait_timeout(&self.known, state, left);
        }
        true
    }

    /// Waits for the result, at most until the deadline, and takes it; `None` after the deadline.
    pub(crate) fn wait_until(&self, deadline: &Deadline) -> Option<Result<HostBuffer, DeviceError>> {
        loop {
            // A wait may end before the deadline, as no clock can express every deadline.
            if self.wait_timeout(deadline.left().unwrap_or_default()) {
                return Some(self.wait());
            }
            deadline.left()?;
        }
    }

    /// Takes the result, or registers the task to be woken when it is known.
    pub(crate) fn poll(self: &Arc<Self>, context: &Context<'_>) -> Poll<Result<HostBuffer, DeviceError>> {
        if let Err(error) = self.device.check_process() {
            return Poll::Ready(Err(error));
        }
        self.begin();
        // An executor's code clones and drops wakers. Under the lock, it could deadlock.
        let waker = context.waker().clone();
        let mut state = lock(&self.state);
        let is_done = !matches!(state.result, ReadResult::Empty);
        if is_done && state.unknown_waits().is_some() {
            drop(state);
            self.ask_awaited(Ask::Query);
            state = lock(&self.state);
        }
        if is_done && state.unknown_waits().is_none() {
            return Poll::Ready(self.take(&mut state));
        }
        let previous = state.waker.replace(waker);
        drop(state);
        drop(previous);
        if is_done && let Err(error) = self.ask_on_thread() {
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    }

    /// Takes the result, which must be known.
    fn take(&self, state: &mut State) -> Result<HostBuffer, DeviceError> {
        match std::mem::replace(&mut state.result, ReadResult::Taken) {
            ReadResult::Full(result) => result,
            ReadResult::Empty | ReadResult::Taken => {
                let error = BackendError::invalid("the result of the work was already taken");
                Err(DeviceError::Call { device: self.device.device(), call: "wait", error })
            }
        }
    }

    /// Finishes the work and catches panics: a driver's callback from C may call it, through which no panic
    /// may unwind.
    fn finish_isolated(self: Arc<Self>, result: Result<HostBuffer, BackendError>, dropped: bool) {
        // It also isolates the drop of the result, which is a driver's memory if the waiting end was dropped.
        let device = self.device.device();
        let finish = || device_use::forbid(|| self.finish_within(result, dropped));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(finish)) {
            log_isolated(|| {
                log::error!("`{device}`: a panic while finishing work: {}", panic_message(panic));
            });
        }
    }

    fn finish_within(self: Arc<Self>, result: Result<HostBuffer, BackendError>, dropped: bool) {
        let device = self.device;
        let len = self.len;
        let error = match result {
            Ok(value) if value.len() == len => {
                self.set(Ok(value));
                return;
            }
            Ok(value) => BackendError::other(format_args!(
                "the backend returned a buffer of the wrong length: expected {len} bytes, found {}",
                value.len()
            )),
            Err(error) => error,
        };
        device.note_loss(&error);
        let error = DeviceError::Call { device: device.device(), call: self.call, error };
        // Dropped without the lock of the result: it may be the last handle of a queue, whose `drop` takes
        // other locks.
        let queue = match &self.reporter {
            Reporter::Queue(queue) => Some(queue.upgrade()),
            Reporter::Caller => None,
        };
        let dropped_stream_failed = Cell::new(false);
        self.fail(&error, dropped, |finished| match &queue {
            None => {}
            Some(Some(queue)) => queue.fail_read(error.clone(), finished),
            Some(None) => {
                device.report_later(error.clone());
                dropped_stream_failed.set(true);
            }
        });
        if dropped_stream_failed.get() {
            log_unreported(&error);
        }
        device.announce_loss();
    }
}

impl Finish for Outcome {
    fn call(&self) -> &'static str {
        self.call
    }

    fn finish(self: Arc<Self>, result: Result<HostBuffer, BackendError>) {
        self.finish_isolated(result, false);
    }

    fn watched(&self) -> Arc<dyn Watched> {
        let mut state = lock(&self.state);
        let known = !matches!(state.result, ReadResult::Empty);
        let finished = state.finished.get_or_insert_with(|| Arc::new(AtomicBool::new(known)));
        Arc::<AtomicBool>::clone(finished)
    }

    fn drop_unfinished(self: Arc<Self>) {
        let error = BackendError::other("the backend dropped the work unfinished");
        self.finish_isolated(Err(error), true);
    }
}

impl Awaited for Outcome {
    fn device_ended(&self, error: &DeviceError) {
        self.set(Err(error.clone()));
    }
}
