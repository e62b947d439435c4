//! What queued work returns: one end for the user, one for whoever does the work.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use entry_points::message::panic_message;

use crate::open_device::{OpenDevice, log_isolated};
use crate::queue::{Queue, log_unreported};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait, wait_timeout};
use crate::{BackendError, DeviceError, HostBuffer, host_call};

/// What queued work will return. It can be waited for, asked, or awaited as a [`Future`].
///
/// Dropping it cancels nothing: the work is done all the same.
///
/// ```
/// use device_registry::device;
///
/// let (device, buffer) = (device("cpu")?, device("cpu")?.allocate(4)?);
/// let stream = device.create_stream()?;
/// stream.write(&buffer, 0, b"rust")?;
/// let read = stream.read(&buffer, 0..4)?;
/// assert_eq!(*read.wait()?, *b"rust");
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[must_use = "it holds what the work returns"]
pub struct Pending(Arc<Shared>);

/// The other end of a [`Pending`]: the driver that does the work finishes it, once, from any thread.
///
/// One that is dropped unfinished becomes an error of the work, so that no thread waits for it without end.
pub struct Completion(Option<Unfinished>);

/// What a completion holds until it is finished.
struct Unfinished {
    shared: Arc<Shared>,
    /// For an error: where the work was.
    queue: Weak<Queue>,
    call: &'static str,
    /// How many bytes the work returns.
    len: usize,
}

pub(crate) struct Shared {
    device: &'static OpenDevice,
    state: Mutex<State>,
    done: Condvar,
}

struct State {
    answer: Answer,
    submission: Submission,
    waited_for: bool,
    waker: Option<Waker>,
}

enum Answer {
    Open,
    Given(Result<HostBuffer, DeviceError>),
    /// Returned already.
    Taken,
}

enum Submission {
    /// The driver has not said yet whether it accepts the work. What has failed meanwhile is its refusal.
    UnderWay { failure: Option<DeviceError> },
    /// It is work of a queue, and what fails is that queue's failure.
    Accepted,
}

impl Shared {
    fn new(device: &'static OpenDevice, answer: Answer) -> Arc<Self> {
        let submission = Submission::UnderWay { failure: None };
        let state = Mutex::new(State { answer, submission, waited_for: false, waker: None });
        Arc::new(Self { device, state, done: Condvar::new() })
    }
}

/// Both ends of work that returns `len` bytes. Its errors are those of `call`.
pub(crate) fn pair(
    device: &'static OpenDevice,
    queue: &Arc<Queue>,
    call: &'static str,
    len: usize,
) -> (Pending, Completion) {
    let shared = Shared::new(device, Answer::Open);
    let queue = Arc::downgrade(queue);
    (Pending(Arc::clone(&shared)), Completion(Some(Unfinished { shared, queue, call, len })))
}

impl Shared {
    /// Gives the answer, unless there is one.
    pub(crate) fn finish(&self, result: Result<HostBuffer, DeviceError>) {
        let mut state = lock(&self.state);
        if !matches!(state.answer, Answer::Open) {
            return;
        }
        if let (Err(error), Submission::UnderWay { failure }) = (&result, &mut state.submission) {
            *failure = Some(error.clone());
        }
        self.answer(state, result);
    }

    /// The same for what a driver says has failed. If the work is a queue's, `fail_queue` makes it fail, under one lock with
    /// the answer: a thread that sees the answer finds the failure there.
    ///
    /// Work that is `dropped` while its submission is under way has no answer yet: a driver drops what it refuses, and says
    /// itself why.
    fn fail(&self, error: &DeviceError, dropped: bool, fail_queue: impl FnOnce()) {
        let mut state = lock(&self.state);
        if !matches!(state.answer, Answer::Open) {
            return;
        }
        match &mut state.submission {
            Submission::Accepted => fail_queue(),
            Submission::UnderWay { failure } => {
                failure.get_or_insert_with(|| error.clone());
                if dropped {
                    return;
                }
            }
        }
        self.answer(state, Err(error.clone()));
    }

    fn answer(&self, mut state: MutexGuard<'_, State>, result: Result<HostBuffer, DeviceError>) {
        state.answer = Answer::Given(result);
        let (waker, waited_for) = (state.waker.take(), state.waited_for);
        drop(state);
        // To wake nobody is a call to the system too.
        if waited_for {
            self.done.notify_all();
        }
        if let Some(waker) = waker {
            // An executor's code, on a thread that may be a driver's, and that the task may wait for.
            let wake = AssertUnwindSafe(|| host_call::run(|| waker.wake()));
            if catch_unwind(wake).is_err() {
                log_isolated(|| log::error!("`{}`: the waker of a task panicked", self.device.device()));
            }
        }
    }

    /// A driver has accepted the work: what fails from now on is its queue's failure. What has failed already is
    /// returned, as if it had been refused.
    pub(crate) fn accept(&self) -> Result<(), DeviceError> {
        let before = std::mem::replace(&mut lock(&self.state).submission, Submission::Accepted);
        match before {
            Submission::UnderWay { failure: Some(error) } => {
                self.finish(Err(error.clone()));
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

impl Pending {
    /// What there is without any work.
    pub(crate) fn ready(device: &'static OpenDevice, value: HostBuffer) -> Self {
        Self(Shared::new(device, Answer::Given(Ok(value))))
    }

    /// Whether the work is done or has failed, so that [`wait`](Self::wait) does not block. In a fork of the process that
    /// enqueued it that is so, too: `wait` returns an error there.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // Before the lock, which a thread may have held that the fork does not have.
        !self.0.device.is_of_this_process() || !matches!(lock(&self.0.state).answer, Answer::Open)
    }

    /// Waits for the work and returns what it returns.
    ///
    /// # Errors
    ///
    /// That of the work, or of earlier work of its stream, for which it was skipped; that of a host call, which may not
    /// wait; or that this process is a fork of the one that waits.
    pub fn wait(self) -> Result<HostBuffer, DeviceError> {
        // Before the lock, which in a fork may be that of a thread that is not there.
        self.0.device.check_process()?;
        if !self.is_ready() {
            self.0.device.check_thread("wait")?;
        }
        let mut state = lock(&self.0.state);
        while matches!(state.answer, Answer::Open) {
            state.waited_for = true;
            state = wait(&self.0.done, state);
        }
        self.take(&mut state)
    }

    /// Waits for the work, but no longer than `timeout`: then it gives itself back, to be asked again.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use device_registry::device;
    ///
    /// let (stream, buffer) = (device("cpu")?.create_stream()?, device("cpu")?.allocate(4)?);
    /// match stream.read(&buffer, ..)?.wait_timeout(Duration::from_secs(10)) {
    ///     Ok(result) => println!("{:?}", result?),
    ///     Err(_pending) => println!("not yet"),
    /// }
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Itself, if the time is over. Else the inner result is that of [`wait`](Self::wait).
    pub fn wait_timeout(self, timeout: Duration) -> Result<Result<HostBuffer, DeviceError>, Self> {
        let start = Instant::now();
        if self.0.device.check_thread("wait").is_err() {
            return Ok(self.wait());
        }
        let mut state = lock(&self.0.state);
        while matches!(state.answer, Answer::Open) {
            state.waited_for = true;
            let Some(left) = timeout.checked_sub(start.elapsed()) else {
                drop(state);
                return Err(self);
            };
            state = wait_timeout(&self.0.done, state, left);
        }
        let result = self.take(&mut state);
        drop(state);
        Ok(result)
    }

    /// The answer, which is there.
    fn take(&self, state: &mut State) -> Result<HostBuffer, DeviceError> {
        match std::mem::replace(&mut state.answer, Answer::Taken) {
            Answer::Given(result) => result,
            Answer::Open | Answer::Taken => {
                let error = BackendError::invalid("what the work returned was taken already");
                Err(DeviceError::Call { device: self.0.device.device(), call: "wait", error })
            }
        }
    }
}

impl Future for Pending {
    type Output = Result<HostBuffer, DeviceError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Err(error) = self.0.device.check_process() {
            return Poll::Ready(Err(error));
        }
        // Wakers are cloned and dropped by an executor's code, and that not under the lock.
        let waker = context.waker().clone();
        let mut state = lock(&self.0.state);
        if !matches!(state.answer, Answer::Open) {
            return Poll::Ready(self.take(&mut state));
        }
        let previous = state.waker.replace(waker);
        drop(state);
        drop(previous);
        Poll::Pending
    }
}

impl Completion {
    /// Ends the work: with the buffer that it was to fill, or with what went wrong. A buffer of another length is an error
    /// of the work.
    ///
    /// It may be called on any thread, also on one of a driver's own that may not call the driver: what has to be freed
    /// is freed later, on another. It does not wait for work and never unwinds, so that a callback from C may call it. It
    /// runs the waker of a task that awaits the work and, after a loss, the program's logger.
    pub fn finish(mut self, result: Result<HostBuffer, BackendError>) {
        if let Some(unfinished) = self.0.take() {
            unfinished.finish(result, false);
        }
    }

    /// What the core's own worker says.
    pub(crate) fn finish_with(mut self, result: Result<HostBuffer, DeviceError>) {
        if let Some(unfinished) = self.0.take() {
            unfinished.shared.finish(result);
        }
    }

    /// The other end, for those who may have to answer in its place.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.as_ref().expect("only `finish` and `drop` take it").shared
    }
}

impl Unfinished {
    fn finish(self, result: Result<HostBuffer, BackendError>, dropped: bool) {
        let device = self.shared.device;
        // All of it, with what is dropped on the way: the other end may be gone, and its memory be the driver's.
        let finish = || host_call::run(|| self.finish_within(result, dropped));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(finish)) {
            log_isolated(|| {
                log::error!(
                    "`{}`: a panic while work was finished: {}",
                    device.device(),
                    panic_message(panic)
                );
            });
        }
    }

    fn finish_within(self, result: Result<HostBuffer, BackendError>, dropped: bool) {
        let Self { shared, queue, call, len } = self;
        let device = shared.device;
        let error = match result {
            Ok(value) if value.len() == len => {
                shared.finish(Ok(value));
                return;
            }
            Ok(value) => BackendError::other(format_args!(
                "the backend returned {} bytes, and {len} were asked for",
                value.len()
            )),
            Err(error) => error,
        };
        device.note_loss(&error);
        let error = DeviceError::Call { device: device.device(), call, error };
        // Dropped after the lock of the answer: it may be the last that a dropped stream's queue has.
        let queue = queue.upgrade();
        let dropped_stream_failed = Cell::new(false);
        shared.fail(&error, dropped, || match &queue {
            Some(queue) => queue.fail(error.clone()),
            None => {
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

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(unfinished) = self.0.take() {
            unfinished.finish(Err(BackendError::other("the backend dropped the work unfinished")), true);
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("device", &self.0.device.device())
            .field("is_ready", &self.is_ready())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.0.as_ref().map(|unfinished| unfinished.call);
        f.debug_struct("Completion").field("call", &call).finish_non_exhaustive()
    }
}
