//! The work of one stream, in order, and the thread that does it where the device has no queue for it.
//!
//! A stream has one of two kinds of queue. If the driver has none of its own, a thread takes one piece of work after
//! the other and does it by the driver's functions that block. If the driver has one, work is submitted to it from the
//! caller's thread; only a host call, an event of another backend, or a copy that the device has no way for is done by
//! the thread, and then what comes behind it goes through the thread too until that has nothing more to do.
//!
//! After a failure, work is skipped until somebody has been told: see [`Failure`].

mod failure;
mod handle;
mod in_flight;
mod submission;
mod worker;

use std::collections::VecDeque;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::backend::{BackendError, Priority, StreamDriver, StreamOptions};
use crate::error::DeviceError;
use crate::runtime::device_use;
use crate::runtime::isolation::log_isolated;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::operation::Operation;
use crate::runtime::queue::failure::Failure;
pub(crate) use crate::runtime::queue::handle::QueueHandle;
use crate::runtime::queue::in_flight::InFlight;
pub(crate) use crate::runtime::queue::in_flight::Keep;
use crate::runtime::queue::submission::{finish, query};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, thread, wait};

pub(crate) struct Queue {
    device: &'static OpenDevice,
    priority: Priority,
    /// It is no stream of a program's, and the blocking call that uses it returns its failures.
    internal: bool,
    /// The driver's queue, if it has them. It is taken when this is dropped.
    driver: Option<Box<dyn StreamDriver>>,
    /// Held while work is submitted to the driver's queue, so that it comes from one thread at a time, and one piece of
    /// work is not mixed with the parts of another. It is the one lock that a driver's code runs under; nothing that
    /// runs there gets back here, as kernels may not use devices. Taken before `state`.
    submitting: Mutex<()>,
    state: Mutex<State>,
    /// There is work for the thread, or there will be none any more.
    work: Condvar,
    /// Work has been finished that somebody waits for.
    finished: Condvar,
    in_flight: Mutex<InFlight>,
}

// What a panic leaves in a driver's queue is the driver's: every call into it is isolated.
impl UnwindSafe for Queue {}
impl RefUnwindSafe for Queue {}

#[derive(Default)]
struct State {
    /// What the thread has not begun.
    queue: VecDeque<Operation>,
    /// How many pieces of work the thread was given, and how many it has finished. Each has the number of those before
    /// it.
    accepted: u64,
    finished: u64,
    failure: Failure,
    has_thread: bool,
    thread_sleeps: bool,
    /// The driver is to be flushed when the thread has nothing more to do.
    flush: bool,
    /// The lowest of the numbers that are waited for: nobody is woken before. Who is woken too early asks again.
    awaited: Option<u64>,
    closed: bool,
}

impl State {
    #[inline]
    fn take_failure(&mut self) -> Result<(), DeviceError> {
        self.failure.report(self.accepted)
    }
}

impl Queue {
    pub(crate) fn new(
        device: &'static OpenDevice,
        driver: Option<Box<dyn StreamDriver>>,
        options: &StreamOptions,
    ) -> Arc<Self> {
        Self::build(device, driver, options.priority, false)
    }

    /// A queue of the driver's that blocking calls use.
    pub(crate) fn internal(device: &'static OpenDevice, driver: Box<dyn StreamDriver>) -> Arc<Self> {
        Self::build(device, Some(driver), Priority::default(), true)
    }

    fn build(
        device: &'static OpenDevice,
        driver: Option<Box<dyn StreamDriver>>,
        priority: Priority,
        internal: bool,
    ) -> Arc<Self> {
        let queue = Arc::new(Self {
            device,
            priority,
            internal,
            driver,
            submitting: Mutex::default(),
            state: Mutex::default(),
            work: Condvar::new(),
            finished: Condvar::new(),
            in_flight: Mutex::default(),
        });
        device.add_queue(&queue);
        queue
    }

    #[inline]
    pub(crate) fn device(&self) -> &'static OpenDevice {
        self.device
    }

    /// Whether a blocking call uses it, and returns its failures.
    pub(crate) fn is_internal(&self) -> bool {
        self.internal
    }

    pub(crate) fn priority(&self) -> Priority {
        self.priority
    }

    /// Accepts a piece of work: it will be done in its place, or skipped because earlier work failed.
    ///
    /// # Errors
    ///
    /// If it is refused. It is then not done, and leaves no failure behind.
    pub(crate) fn accept(self: &Arc<Self>, operation: Operation) -> Result<(), DeviceError> {
        self.device.check(operation.name())?;
        let Some(driver) = self.driver.as_deref() else {
            return self.give_to_thread(lock(&self.state), operation);
        };
        // Before the turn: it may be memory of a plug-in, whose `drop` enqueues work.
        self.device.drop_what_is_due();
        let turn = lock(&self.submitting);
        let state = lock(&self.state);
        if let Some(error) = state.failure.skips(state.accepted) {
            drop(state);
            drop(turn);
            operation.skip(self.device.device(), error);
            return Ok(());
        }
        let busy = state.finished < state.accepted;
        if busy || !operation.is_submittable(self.device) {
            return self.give_to_thread(state, operation);
        }
        drop(state);
        let submitted = self.submit(driver, operation);
        let accepted = match submitted.left_to_host {
            // Before the next turn, as it has its place here.
            Ok(Some(operation)) => self.give_to_thread(lock(&self.state), operation),
            other => other.map(drop),
        };
        drop(turn);
        self.after_turn(submitted.collects);
        accepted
    }

    fn give_to_thread(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        operation: Operation,
    ) -> Result<(), DeviceError> {
        if !state.has_thread {
            let queue = Arc::clone(self);
            let thread = thread::Builder::new().name(format!("{} stream", self.device.device()));
            if let Err(error) = thread.spawn(move || queue.work()) {
                drop(state);
                let error = BackendError::other("the stream's thread does not start").with_source(error);
                let (device, call) = (self.device.device(), operation.name());
                let error = DeviceError::Call { device, call, error };
                // Somebody's turn may last, which what is dropped here could wait for.
                device_use::forbid(|| operation.skip(device, error.clone()));
                return Err(error);
            }
            state.has_thread = true;
        }
        state.queue.push_back(operation);
        state.accepted += 1;
        let wake = std::mem::take(&mut state.thread_sleeps);
        drop(state);
        if wake {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Sees to it that what was submitted to a driver's queue begins, though no call of the stream's may follow.
    fn flush(&self) {
        if let Some(driver) = self.driver.as_deref()
            && self.device.check("flush").is_ok()
            && let Err(error) = self.device.call("flush", |_| driver.flush())
            && !self.device.is_gone()
        {
            self.fail(error);
        }
    }

    /// Leaves to the device a failure that was not reported.
    fn leave_unreported(&self, mut state: MutexGuard<'_, State>) {
        let Err(error) = state.take_failure() else { return };
        // Under the lock, so that whoever finds nothing here any more finds it there.
        self.device.report_later(error.clone());
        drop(state);
        log_unreported(&error);
    }

    /// Waits for all work that was accepted before. What failed is kept to be told.
    pub(crate) fn settle(&self) {
        let state = lock(&self.state);
        let all = state.accepted;
        drop(self.wait_for_thread(state, all));
        if let Some(driver) = self.driver.as_deref()
            && let Err(error) = self.settle_driver(|| self.device.call("synchronize", |_| finish(driver)))
        {
            self.fail(error);
        }
    }

    /// The same for a device that is being closed, to which nobody else has access any more.
    pub(crate) fn settle_for_good(&self) {
        if let Some(driver) = self.driver.as_deref() {
            let settled = self.settle_driver(|| self.device.isolated("synchronize", || finish(driver)));
            settled.unwrap_or_else(|error| self.fail(error));
        }
    }

    fn wait_for_thread<'a>(&self, mut state: MutexGuard<'a, State>, number: u64) -> MutexGuard<'a, State> {
        while state.finished < number {
            state.awaited = Some(state.awaited.map_or(number, |other| other.min(number)));
            state = wait(&self.finished, state);
        }
        state
    }

    /// The failure that nobody was told of, as an error. From then on work is done again.
    pub(crate) fn take_failure(&self) -> Result<(), DeviceError> {
        lock(&self.state).take_failure()
    }

    /// Work has failed of which a driver's queue says so only now.
    pub(crate) fn fail(&self, error: DeviceError) {
        lock(&self.state).failure.set(error);
    }

    /// Waits for all work, and says what went wrong.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.device.check("synchronize")?;
        self.settle();
        self.take_failure()?;
        // Another thread may have been told of the work that was lost.
        self.device.check("synchronize")
    }

    /// Whether all work is done. Does not wait.
    pub(crate) fn query(&self) -> Result<bool, DeviceError> {
        self.device.check("query")?;
        let mut state = lock(&self.state);
        // Under one lock: between two, the last work could fail, and would count as done without its failure.
        state.take_failure()?;
        let thread_is_done = state.finished == state.accepted;
        drop(state);
        let Some(driver) = self.driver.as_deref().filter(|_| thread_is_done) else {
            return Ok(thread_is_done);
        };
        let reached = lock(&self.in_flight).reached();
        let done = self.device.call("query", |_| query(driver))?;
        if done {
            self.release(reached);
        }
        // A read may have failed since, whose completion was finished before the driver counted it as done.
        self.take_failure()?;
        Ok(done)
    }

    /// Whether nothing is left to be done of a stream that was dropped, or never will be, as its device is lost or closed. A
    /// failure that was not reported is left to the device.
    pub(crate) fn is_done(&self) -> bool {
        self.leave_unreported(lock(&self.state));
        match self.query() {
            Ok(done) => done,
            Err(_) if self.device.is_gone() => self.device.is_settled(),
            Err(error) => {
                self.device.report_later(error.clone());
                log_unreported(&error);
                false
            }
        }
    }

    /// The stream was dropped. Does not wait: the thread ends by itself, and a driver's queue is kept until its work is done.
    pub(crate) fn close(self: &Arc<Self>) {
        if !self.device.is_of_this_process() {
            // There is no thread, the lock may be that of one, and the driver is not whole.
            return std::mem::forget(Arc::clone(self));
        }
        let mut state = lock(&self.state);
        if self.driver.is_some() && device_use::is_forbidden() {
            // Here the driver may not be called. Work that does nothing has the thread do so.
            state.flush = true;
            if self.give_to_thread(state, Operation::Call(Box::new(|| ()))).is_err() {
                log_isolated(|| log::warn!("`{}`: work may not begin: no thread", self.device.device()));
            }
            state = lock(&self.state);
        } else {
            drop(state);
            self.flush();
            state = lock(&self.state);
        }
        state.closed = true;
        // The thread leaves a failure that was not reported to the device, if there is a thread.
        if !state.has_thread {
            self.leave_unreported(state);
        } else {
            drop(state);
            self.work.notify_one();
        }
        if self.driver.is_some() {
            self.device.keep_closed(Arc::clone(self));
            // Of a device that is gone there will be no call any more that looks at it.
            if self.device.is_gone() {
                self.device.collect_marked();
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A read may have failed after the last look at a stream that was dropped.
        self.leave_unreported(lock(&self.state));
        // What is left was never known to be done: the device was lost, or the driver could not be waited for.
        let in_flight = lock(&self.in_flight).release_all();
        in_flight.leak_host_memory(self.device);
        if let Some(driver) = self.driver.take() {
            self.device.drop_when_allowed(driver);
        }
    }
}

/// Logs the failure of a stream that was dropped.
pub(crate) fn log_unreported(error: &DeviceError) {
    log_isolated(|| log::error!("a stream was dropped before its failure was reported: {error}"));
}
