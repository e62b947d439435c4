//! The work of one stream, in order, and the thread that does it where the device has no queue for it.
//!
//! A stream has one of two kinds of queue. If the driver has none of its own, a thread takes one piece of work after
//! the other and does it by the driver's functions that block. If the driver has one, work is submitted to it from the
//! caller's thread; only a host call, an event of another backend, or a copy that the device has no way for is done by
//! the thread, and then what comes behind it goes through the thread too until that has nothing more to do.
//!
//! After a failure, work is skipped until somebody has been told: see [`Failure`].

mod in_flight;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;

use entry_points::message::panic_message;

use crate::backend::{BackendError, EventDriver, EventOptions, Priority, StreamDriver, StreamOptions};
use crate::error::DeviceError;
use crate::runtime::device_use;
use crate::runtime::isolation::{drop_isolated, log_isolated};
use crate::runtime::open_device::OpenDevice;
use crate::runtime::operation::Operation;
use crate::runtime::queue::in_flight::InFlight;
use crate::runtime::transfer::is_unsupported;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, thread, wait};

pub(crate) struct Queue {
    device: &'static OpenDevice,
    priority: Priority,
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
    failure: Option<Failure>,
    has_thread: bool,
    thread_sleeps: bool,
    /// The driver is to be flushed when the thread has nothing more to do.
    flush: bool,
    /// The lowest of the numbers that are waited for: nobody is woken before. Who is woken too early asks again.
    awaited: Option<u64>,
    closed: bool,
}

/// What went wrong, and which work is skipped for it.
struct Failure {
    error: DeviceError,
    /// Once somebody was told: the number of the first piece of work that was submitted after that. What comes before
    /// it was submitted by somebody who did not know, and is skipped.
    told: Option<u64>,
}

impl Queue {
    pub(crate) fn new(
        device: &'static OpenDevice,
        driver: Option<Box<dyn StreamDriver>>,
        options: &StreamOptions,
    ) -> Arc<Self> {
        let queue = Arc::new(Self {
            device,
            priority: options.priority,
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

    pub(crate) fn device(&self) -> &'static OpenDevice {
        self.device
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
        if let Some(error) = state.skips(state.accepted) {
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
        let (submitted, marked) = self.submit(driver, operation);
        let accepted = match submitted {
            // Before anybody else has a turn, as it has its place here.
            Ok(Some(for_the_host)) => self.give_to_thread(lock(&self.state), for_the_host),
            other => other.map(drop),
        };
        drop(turn);
        self.device.announce_loss();
        if marked {
            self.collect_marked();
        }
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
                device_use::run(|| operation.skip(device, error.clone()));
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

    /// What the thread does. It ends when the stream is gone and all work is done.
    fn work(self: Arc<Self>) {
        device_use::enter_stream_thread();
        let mut state = lock(&self.state);
        loop {
            let Some(operation) = state.queue.pop_front() else {
                if std::mem::take(&mut state.flush) {
                    drop(state);
                    self.flush();
                    state = lock(&self.state);
                    continue;
                }
                if state.closed {
                    // Should there be more work after all, of a stream that its device has ended.
                    state.has_thread = false;
                    break;
                }
                state.thread_sleeps = true;
                state = wait(&self.work, state);
                continue;
            };
            let (number, call) = (state.finished, operation.name());
            let skipped = state.skips(number);
            let submits = self.driver.is_some() && skipped.is_none() && operation.is_submittable(self.device);
            drop(state);
            // What is dropped on the way may be a user's, and panic.
            let outcome = catch_unwind(AssertUnwindSafe(|| match skipped {
                Some(error) => {
                    device_use::run(|| operation.skip(self.device.device(), error));
                    Ok(())
                }
                None => self.perform(operation, number),
            }));
            let outcome = outcome.unwrap_or_else(|panic| {
                let error = BackendError::other(format_args!("it panicked: {}", panic_message(panic)));
                Err(DeviceError::Call { device: self.device.device(), call, error })
            });
            // Memory of a plug-in may call the core in its `drop`, and would wait for this very work.
            device_use::run(|| self.device.drop_what_is_due());
            state = lock(&self.state);
            state.flush |= submits;
            // Only now: work that runs is not finished.
            state.finished += 1;
            if let Err(error) = outcome {
                state.fail(error);
            }
            if state.awaited.is_some_and(|number| number <= state.finished) {
                state.awaited = None;
                self.finished.notify_all();
            }
        }
        self.leave_unreported(state);
        // It may be the last that has the queue.
        let device = self.device;
        drop(self);
        device_use::run(|| device.drop_what_is_due());
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

    /// Does the piece of work that has this number, on the thread.
    fn perform(&self, operation: Operation, number: u64) -> Result<(), DeviceError> {
        let Some(driver) = self.driver.as_deref() else {
            return operation.perform(self.device);
        };
        let for_the_host = match operation.is_submittable(self.device) {
            true => {
                let turn = lock(&self.submitting);
                let (submitted, marked) = self.submit(driver, operation);
                drop(turn);
                self.device.announce_loss();
                if marked {
                    self.collect_marked();
                }
                submitted?
            }
            false => Some(operation),
        };
        let Some(operation) = for_the_host else { return Ok(()) };
        // What was submitted before comes before, and may only now be known to have failed.
        let waited = self.device.call("synchronize", |_| finish(driver));
        let skipped = waited.as_ref().err().cloned().or_else(|| lock(&self.state).skips(number));
        match skipped {
            None => operation.perform(self.device),
            Some(error) => {
                device_use::run(|| operation.skip(self.device.device(), error));
                waited
            }
        }
    }

    /// Submits work to the driver's queue, and keeps what it uses. Returns it if only the host can do it. The caller has
    /// its turn, and afterwards [collects](Self::collect) if the second value says so: what is dropped then may be a user's,
    /// whose `drop` may wait for a turn.
    fn submit(
        &self,
        driver: &dyn StreamDriver,
        operation: Operation,
    ) -> (Result<Option<Operation>, DeviceError>, bool) {
        if let Operation::Read { read, .. } = &operation {
            self.device.add_open_read(read.outcome());
        }
        let event = match &operation {
            Operation::Record { event, .. } => Some(event.clone()),
            _ => None,
        };
        let mut kept = Vec::new();
        let submitted = operation.submit(self.device, driver, &mut kept);
        let mut in_flight = lock(&self.in_flight);
        let full = in_flight.keep(kept);
        if let Some(event) = event.and_then(|event| event.submitted()) {
            // It covers what is in flight as one of the core's own does.
            let reached = in_flight.reached();
            in_flight.mark(reached, event);
        }
        let unmarked = in_flight.is_unmarked();
        drop(in_flight);
        if full && unmarked {
            self.mark(driver);
        }
        (submitted, full)
    }

    /// Records an event behind what is in flight. The caller has its turn.
    fn mark(&self, driver: &dyn StreamDriver) {
        let reached = lock(&self.in_flight).reached();
        let event = self.device.call_in_turn("record", |_| {
            let event = driver.record(&EventOptions::new())?;
            driver.flush()?;
            Ok(event)
        });
        // Without an event, nothing more is released before a query or a wait for all work succeeds.
        if let Ok(event) = event {
            lock(&self.in_flight).mark(reached, event.into());
        }
    }

    /// Releases what finished work in a driver's queue has used, as far as events show it. Does not wait. Returns whether
    /// there was any.
    pub(crate) fn collect_marked(&self) -> bool {
        // The newest first: often all is done, and one question is enough.
        let newest = lock(&self.in_flight).newest_mark();
        if self.release_if_over(newest) {
            return true;
        }
        let mut any = false;
        loop {
            let oldest = lock(&self.in_flight).oldest_mark();
            if !self.release_if_over(oldest) {
                return any;
            }
            any = true;
        }
    }

    /// Releases what an event covers, if nothing before it runs any more.
    fn release_if_over(&self, mark: Option<(u64, Arc<dyn EventDriver>)>) -> bool {
        let Some((number, event)) = mark else { return false };
        let over = matches!(self.device.call("query an event", |_| event.is_over()), Ok(true));
        if over {
            self.release(number);
        }
        drop_isolated(self.device.device(), event);
        over
    }

    /// Releases all that finished work in a driver's queue has used. Does not wait. Returns whether there was any.
    ///
    /// It asks the driver where events do not show it, which may cost a command.
    pub(crate) fn collect(&self) -> bool {
        let mut any = self.collect_marked();
        let in_flight = lock(&self.in_flight);
        let (left, reached) = (!in_flight.is_empty(), in_flight.reached());
        drop(in_flight);
        if left && let Some(driver) = self.driver.as_deref() {
            match self.device.call("query", |_| query(driver)) {
                Ok(true) => any |= self.release(reached),
                Ok(false) => {}
                // The driver may report it once only. That the device was closed meanwhile is no failure of the work.
                Err(error) if !self.device.is_gone() => self.fail(error),
                Err(_) => {}
            }
        }
        any
    }

    /// Drops what is kept up to a number. Returns whether there was any.
    fn release(&self, number: u64) -> bool {
        let released = lock(&self.in_flight).release(number);
        let any = !released.is_empty();
        drop_isolated(self.device.device(), released);
        any
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

    fn settle_driver(&self, finish: impl FnOnce() -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        // What is submitted meanwhile is not waited for, and has to be kept.
        let reached = lock(&self.in_flight).reached();
        let finished = finish();
        if finished.is_ok() {
            self.release(reached);
        } else if self.device.is_lost() {
            let released = lock(&self.in_flight).release_all();
            released.leak_host_memory(self.device);
        }
        finished
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
        lock(&self.state).fail(error);
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
        if self.driver.is_some() && device_use::is_running() {
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

/// A handle of a stream's queue: when the last one is dropped, the stream is.
pub(crate) struct QueueHandle(Arc<Queue>);

impl QueueHandle {
    /// A queue for a new stream: the driver's, or the core's where the driver has none.
    pub(crate) fn create(
        device: &'static OpenDevice,
        options: &StreamOptions,
    ) -> Result<Arc<Self>, DeviceError> {
        device.check("create a stream")?;
        device.collect_marked();
        let own = device.call("create a stream", |driver| driver.create_stream(options));
        let driver = match own {
            Ok(driver) => Some(driver),
            Err(_) if is_unsupported(&own) => None,
            Err(error) => return Err(error),
        };
        Ok(Arc::new(Self(Queue::new(device, driver, options))))
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.0
    }
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        self.0.close();
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

/// Whether a driver's queue is done, in which nothing may have begun.
fn query(driver: &dyn StreamDriver) -> Result<bool, BackendError> {
    driver.flush()?;
    driver.query()
}

/// Waits for a driver's queue, in which nothing may have begun.
fn finish(driver: &dyn StreamDriver) -> Result<(), BackendError> {
    driver.flush()?;
    driver.synchronize()
}

impl State {
    /// The first failure counts, until somebody was told.
    fn fail(&mut self, error: DeviceError) {
        if !matches!(self.failure, Some(Failure { told: None, .. })) {
            self.failure = Some(Failure { error, told: None });
        }
    }

    /// The error for which the piece of work of this number is not done.
    fn skips(&self, number: u64) -> Option<DeviceError> {
        let failure = self.failure.as_ref()?;
        failure.told.is_none_or(|told| number < told).then(|| failure.error.clone())
    }

    fn take_failure(&mut self) -> Result<(), DeviceError> {
        match &mut self.failure {
            Some(Failure { error, told: told @ None }) => {
                *told = Some(self.accepted);
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }
}
