//! The work of one stream, in order, and the thread that does it if the device has no queue for it.
//!
//! A stream has one of two kinds of queue. If the driver has no queues, a thread does one piece of work after
//! the other, by blocking calls to the driver. While all work is done, the thread that enqueues a short piece
//! does it at once. If the driver has queues, the caller's thread submits work to one of them. The stream's
//! thread then does only what the driver cannot: host calls, waits for events of other backends or of
//! a stream that has not submitted them yet, and copies that the device cannot make. Later work also goes
//! through the thread, until the thread has finished all of it.
//!
//! After a failure the queue skips work until the failure is reported: see [`Failure`].

mod dependent;
mod failure;
mod handle;
mod in_flight;
mod submission;
mod worker;

use std::collections::VecDeque;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Weak};

use crate::backend::{
    BackendError, EventDriver, Launch, LaunchOptions, Priority, Progress, Span, StreamDriver, StreamOptions,
    is_any_window_open,
};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::activity::{Activity, Clock, Id, Name, WaitFor, Work};
use crate::runtime::deadline::Deadline;
use crate::runtime::device_use;
use crate::runtime::isolation::{drop_isolated, log_isolated};
use crate::runtime::open_device::{OpenDevice, StreamQueue, log_unreported};
use crate::runtime::operation::{Operation, Route, ended, enqueued, perform_launch};
use crate::runtime::origin::Origin;
use crate::runtime::queue::failure::Failure;
pub(crate) use crate::runtime::queue::handle::QueueHandle;
use crate::runtime::queue::in_flight::InFlight;
use crate::runtime::queue::submission::Submitted;
use crate::runtime::recorded::{Flushes, Recorded};
use crate::runtime::waits::{Ask, Before, Waits};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, thread, wait};

pub(crate) struct Queue {
    device: &'static OpenDevice,
    /// Its number for observers.
    id: Id,
    /// Its label for observers, and how many observations had begun when they last got it.
    label: Mutex<(Option<Name>, u64)>,
    priority: Priority,
    /// The driver's queue, if the driver has queues. The drop takes it.
    driver: Option<Box<dyn StreamDriver>>,
    /// Held while a thread submits work to the driver's queue: one thread at a time submits, and the parts of
    /// two pieces of work do not mix. A driver's code runs under it. No code under it can take it again,
    /// as kernels may not use devices. Taken before `state`.
    submitting: Mutex<()>,
    state: Mutex<State>,
    /// Notified when there is work for the thread, or the stream is closed.
    work: Condvar,
    /// Notified when the thread has finished work that another thread waits for.
    finished: Condvar,
    in_flight: Mutex<InFlight>,
    /// How far the driver's queue has got.
    progress: Arc<Progress>,
    flushes: Arc<Flushes>,
    /// The events that the driver's queue waits for.
    waits: Waits,
}

// A panic in a driver can leave only the driver's own state half changed: every call into it is isolated.
impl UnwindSafe for Queue {}
impl RefUnwindSafe for Queue {}

#[derive(Default)]
struct State {
    /// The work that the thread has not begun.
    queue: VecDeque<Operation>,
    /// The numbers by which observers know the pieces, each with its own number. Empty without observers.
    ids: VecDeque<(u64, Id)>,
    /// How many pieces of work the thread has got, and how many it has finished. The number of a piece is the
    /// count of the pieces before it.
    accepted: u64,
    finished: u64,
    /// The work that the thread does now.
    under_way: Option<&'static str>,
    /// Whether this work ends by itself.
    ends_by_itself: bool,
    failure: Failure,
    has_thread: bool,
    thread_sleeps: bool,
    /// Whether a thread that has enqueued work is doing it at once. The stream's own thread waits meanwhile.
    at_once: bool,
    /// Whether the thread must flush the driver when it has finished its work.
    flush: bool,
    /// The lowest number that a thread waits for. Until then, the worker notifies no thread. A thread that is
    /// notified too early waits again.
    awaited: Option<u64>,
    closed: bool,
}

impl State {
    #[inline]
    fn take_failure(&mut self) -> Result<(), DeviceError> {
        self.failure.report(self.accepted)
    }

    /// Whether all work is done, and the next piece is not skipped.
    fn is_idle(&self) -> bool {
        self.finished == self.accepted && self.failure.skips(self.accepted).is_none()
    }

    /// The work that the thread has not begun, up to the first piece that may wait for the program.
    fn before_the_first_that_may_not_end(&self) -> impl Iterator<Item = &Operation> {
        let may_begin = self.under_way.is_none() || self.ends_by_itself;
        self.queue.iter().take_while(move |operation| may_begin && operation.ends_by_itself())
    }

    /// The number by which observers know the piece that the thread begins.
    #[inline]
    fn take_id(&mut self, number: u64) -> Option<Id> {
        let (_, id) = self.ids.pop_front_if(|(of, _)| *of == number)?;
        Some(id)
    }

    /// How many pieces the thread finishes whatever the program does meanwhile.
    fn that_end_by_themselves(&self) -> u64 {
        let under_way = self.under_way.is_some() && self.ends_by_itself;
        u64::from(under_way) + self.before_the_first_that_may_not_end().count() as u64
    }

    /// What the thread has not finished, in words.
    fn pending(&self) -> String {
        match (self.under_way, self.queue.len()) {
            (Some(call), 0) => format!("`{call}` is under way"),
            (Some(call), 1) => format!("`{call}` is under way, and 1 piece of work waits behind it"),
            (Some(call), more) => format!("`{call}` is under way, and {more} pieces of work wait behind it"),
            (None, 1) => "1 piece of work waits for the stream's thread".to_owned(),
            (None, more) => format!("{more} pieces of work wait for the stream's thread"),
        }
    }
}

impl Queue {
    pub(crate) fn new(
        device: &'static OpenDevice,
        driver: Option<Box<dyn StreamDriver>>,
        options: &StreamOptions,
    ) -> Arc<Self> {
        let in_flight = InFlight::default();
        let queue = Arc::new(Self {
            device,
            id: activity::stream_id(),
            label: Mutex::default(),
            priority: options.priority,
            driver,
            submitting: Mutex::default(),
            state: Mutex::default(),
            work: Condvar::new(),
            finished: Condvar::new(),
            progress: Arc::clone(in_flight.progress()),
            in_flight: Mutex::new(in_flight),
            flushes: Arc::default(),
            waits: Waits::default(),
        });
        let of_device: Arc<dyn StreamQueue> = queue.clone();
        device.add_queue(Arc::downgrade(&of_device));
        if activity::is_on() {
            queue.record(Activity::StreamCreated { priority: options.priority });
        }
        queue
    }

    #[inline]
    pub(crate) fn device(&self) -> &'static OpenDevice {
        self.device
    }

    pub(crate) fn priority(&self) -> Priority {
        self.priority
    }

    /// Describes a wait for the queue, for observers.
    pub(crate) fn wait(&self) -> (Device, Work) {
        (self.device.device(), Work::Wait(WaitFor::Stream(self.id)))
    }

    /// Names it for observers.
    pub(crate) fn set_label(&self, label: &str) {
        *lock(&self.label) = (Some(Name::new(label)), 0);
        self.record_label();
    }

    /// Gives the label to observers that do not have it.
    fn record_label(&self) {
        let observations = activity::observations();
        let mut label = lock(&self.label);
        if label.1 < observations
            && let Some(text) = label.0
        {
            label.1 = observations;
            self.record(Activity::StreamLabeled { label: text });
        }
    }

    #[cold]
    #[inline(never)]
    fn record(&self, activity: Activity) {
        activity::record(Some(self.device.device()), Some(self.id), activity);
    }

    /// Records that an operation is enqueued. Returns its number.
    #[cold]
    fn record_operation(&self, operation: &Operation) -> Option<Id> {
        let id = self.record_enqueued(operation.work())?;
        if let Operation::Record { event, .. } = operation {
            event.set_id(id);
        }
        Some(id)
    }

    /// Records that work is enqueued. Returns its number.
    #[cold]
    fn record_enqueued(&self, what: Work) -> Option<Id> {
        self.record_label();
        if self.driver.is_some() {
            self.device.align_clocks();
        }
        enqueued(self.device.device(), self.id, what)
    }

    /// Accepts a piece of work. It runs in order, or is skipped because earlier work failed.
    ///
    /// # Errors
    ///
    /// If the work is refused. It then does not run, and the queue has no failure.
    pub(crate) fn accept(self: &Arc<Self>, operation: Operation) -> Result<(), DeviceError> {
        self.device.check(operation.name())?;
        if let Operation::Read { read, .. } = &operation {
            self.device.add_open_read(read.outcome().awaited());
        }
        let id = if activity::is_on() { self.record_operation(&operation) } else { None };
        let accepted = match self.driver.as_deref() {
            Some(driver) => self.accept_with_driver_queue(driver, operation, id),
            None => self.accept_without_driver_queue(operation, id),
        };
        if id.is_some() && accepted.is_err() {
            ended(self.device.device(), self.id, id, Clock::Host, activity::Outcome::Failed);
        }
        accepted
    }

    #[inline]
    fn accept_with_driver_queue(
        self: &Arc<Self>,
        driver: &dyn StreamDriver,
        operation: Operation,
        id: Option<Id>,
    ) -> Result<(), DeviceError> {
        // Both are done before the lock. The `drop` of a driver's memory may enqueue work, which would take
        // the lock twice.
        self.device.drop_what_is_due();
        operation.begin_awaited();
        let turn = lock(&self.submitting);
        let state = lock(&self.state);
        if let Some(error) = state.failure.skips(state.accepted) {
            drop(state);
            drop(turn);
            operation.skip(self.device.device(), error);
            ended(self.device.device(), self.id, id, Clock::Host, activity::Outcome::Skipped);
            return Ok(());
        }
        let failures = state.failure.count();
        // Behind other work of the thread, it is not yet this work's turn.
        let is_turn = state.finished == state.accepted;
        let route = if is_turn { operation.route(self.device, true) } else { Route::Thread };
        if !route.is_submitted() {
            return self.give_to_thread(state, operation, id);
        }
        drop(state);
        let submitted = self.submit(driver, operation, route, failures, id);
        let Submitted { left_to_host, collects, not_kept } = submitted;
        let accepted = match left_to_host {
            // Done under the lock: after it, another thread's work could overtake this piece.
            Ok(Some(operation)) => self.give_to_thread(lock(&self.state), operation, id),
            other => other.map(drop),
        };
        drop(turn);
        self.after_turn(collects, not_kept);
        accepted
    }

    #[inline]
    fn accept_without_driver_queue(
        self: &Arc<Self>,
        operation: Operation,
        id: Option<Id>,
    ) -> Result<(), DeviceError> {
        // Done before the lock, as it only looks at the work.
        let route = operation.route(self.device, false);
        let state = lock(&self.state);
        if route.is_at_once() && state.is_idle() {
            let name = operation.name();
            self.perform_at_once(state, name, || {
                self.perform_observed(id, || operation.perform(self.device))
            });
            return Ok(());
        }
        self.give_to_thread(state, operation, id)
    }

    /// Accepts a kernel, as [`accept`](Self::accept) does an operation. A short one, whose route is
    /// [`AtOnce`](Route::AtOnce), is not boxed, which would take as long as the kernel. Takes the spans.
    pub(crate) fn launch(
        self: &Arc<Self>,
        spans: &mut [Option<Span>],
        kernel: impl FnOnce(&Launch<'_>) -> Result<(), BackendError> + Send + 'static,
        options: &LaunchOptions,
    ) -> Result<(), DeviceError> {
        let is_at_once = self.driver.is_none() && self.device.at_once().launches(options.short);
        if is_at_once && !is_any_window_open() {
            self.device.check("launch")?;
            let state = lock(&self.state);
            if state.is_idle() {
                let device = self.device;
                let queue = &**self;
                let work = || Work::Launch { kernel: options.name, buffers: spans.len() };
                let id = if activity::is_on() { self.record_enqueued(work()) } else { None };
                let launch = || {
                    let launched = perform_launch(device, spans, kernel);
                    // Before it counts as finished.
                    spans.iter_mut().for_each(|span| drop(span.take()));
                    launched
                };
                self.perform_at_once(state, "launch", || queue.perform_observed(id, launch));
                return Ok(());
            }
        }
        let spans = spans.iter_mut().map(Option::take).collect();
        self.accept(Operation::Launch { spans, name: options.name, kernel: Box::new(kernel) })
    }

    fn give_to_thread(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        operation: Operation,
        id: Option<Id>,
    ) -> Result<(), DeviceError> {
        if !state.has_thread {
            let queue = Arc::clone(self);
            let thread = thread::Builder::new().name(format!("{} stream", self.device.device()));
            if let Err(error) = thread.spawn(move || queue.work()) {
                drop(state);
                let error = BackendError::other("cannot start the stream's thread").with_source(error);
                let device = self.device.device();
                let call = operation.name();
                let error = DeviceError::Call { device, call, error };
                operation.skip(device, error.clone());
                return Err(error);
            }
            state.has_thread = true;
        }
        if let Some(id) = id {
            let number = state.accepted;
            state.ids.push_back((number, id));
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

    /// Ensures that submitted work begins, even if no further call of the stream follows. A failure is the
    /// stream's.
    fn flush(&self) -> Result<(), DeviceError> {
        let Some(driver) = self.driver.as_deref() else { return Ok(()) };
        self.device.check("flush")?;
        self.device.call("flush", |_| self.flush_driver(driver)).inspect_err(|error| {
            if !self.device.has_ended() {
                self.fail(error.clone());
            }
        })
    }

    /// Lets the stream's thread flush the driver.
    fn flush_on_thread(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if state.flush && state.has_thread {
            // The thread does so before it sleeps or ends.
            return;
        }
        state.flush = true;
        // Empty work wakes the thread. It never waits behind blocking work that has no flush: the thread
        // flushes before each piece of work that the driver does not do.
        if self.give_to_thread(state, Operation::Call(Box::new(|| ())), None).is_err() {
            log_isolated(|| {
                log::warn!("`{}`: queued work may not begin: cannot start a thread", self.device.device());
            });
        }
    }

    /// An event that the driver has just recorded in this queue, and the waits before it.
    fn recorded(self: &Arc<Self>, event: Box<dyn EventDriver>, waits: Option<Before>) -> Arc<Recorded> {
        Recorded::new(event, self.as_origin(), &self.flushes, waits)
    }

    /// For the results that come from this queue.
    pub(crate) fn as_origin(self: &Arc<Self>) -> Weak<dyn Origin> {
        let origin: Arc<dyn Origin> = self.clone();
        Arc::downgrade(&origin)
    }

    /// Passes an unreported failure to the device, which reports it.
    fn leave_unreported(&self, mut state: MutexGuard<'_, State>) {
        let Err(error) = state.take_failure() else { return };
        // Done under the lock: otherwise another thread could find the failure neither here nor at the
        // device.
        self.device.report_later(error.clone());
        drop(state);
        log_unreported(&error);
    }

    fn wait_for_thread<'a>(&self, mut state: MutexGuard<'a, State>, number: u64) -> MutexGuard<'a, State> {
        // The thread of a lost device may hang in a call.
        while state.finished < number && !self.device.is_lost() {
            state.awaited = Some(state.awaited.map_or(number, |other| other.min(number)));
            state = wait(&self.finished, state);
        }
        state
    }

    /// Like [`synchronize`](Self::synchronize), until the deadline.
    pub(crate) fn synchronize_until(&self, deadline: &Deadline) -> Result<(), DeviceError> {
        self.device.check(deadline.call())?;
        self.settle_until(deadline)?;
        self.take_failure()?;
        self.device.check(deadline.call())
    }

    /// Keeps failures from every call except [`take_held_failure`](Self::take_held_failure): the call that
    /// enqueued the work returns them itself.
    pub(crate) fn hold_failures(&self) {
        lock(&self.state).failure.hold(true);
    }

    /// Lets every call report a failure again, because the call that enqueued the work does not wait for it
    /// any longer.
    pub(crate) fn release_failures(&self) {
        lock(&self.state).failure.hold(false);
    }

    /// Reports the failure that was held back.
    pub(crate) fn take_held_failure(&self) -> Result<(), DeviceError> {
        let mut state = lock(&self.state);
        let next = state.accepted;
        state.failure.take(next)
    }

    /// Sets the failure of work that a driver's queue reports later.
    pub(crate) fn fail(&self, error: DeviceError) {
        lock(&self.state).failure.set(error);
    }

    /// The latest failure, if there were fewer before.
    pub(crate) fn failed_since(&self, failures: u64) -> Option<DeviceError> {
        lock(&self.state).failure.since(failures)
    }

    /// Asks the events that the driver's queue waited for, now that the driver says that all work is done. A
    /// failed one is a failure of the queue, unless the driver has reported one since the wait. Returns
    /// `false` if one of them is not done.
    pub(crate) fn ask_awaited(&self, ask: Ask) -> bool {
        match self.waits.ask(ask) {
            // The end of the device is not a failure of the work.
            _ if self.device.has_ended() => true,
            Some(Ok(())) => true,
            Some(Err((failures, error))) => {
                lock(&self.state).failure.set_since(failures, error);
                true
            }
            None => false,
        }
    }

    /// Waits for all work, and returns the unreported failure.
    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.device.check("synchronize")?;
        self.settle();
        if activity::wants_device_times() {
            self.device.align_clocks_again();
        }
        self.take_failure()?;
        // If the device was lost and another thread got the failure, this call must not succeed.
        self.device.check("synchronize")
    }

    /// Whether all work is done. Does not wait.
    pub(crate) fn query(&self) -> Result<bool, DeviceError> {
        self.device.check("query")?;
        let mut state = lock(&self.state);
        // Under one lock: between two, the last work could fail, and this query would return `true` without
        // the failure.
        state.take_failure()?;
        let thread_is_done = state.finished == state.accepted;
        drop(state);
        if !thread_is_done {
            return Ok(false);
        }
        if let Some(driver) = self.driver.as_deref() {
            let reached = lock(&self.in_flight).reached();
            let done = match self.device.call("query", |_| self.query_driver(driver)) {
                Ok(done) => done,
                Err(error) if self.device.has_ended() => return Err(error),
                // A failure of the queue, which covers the events that it waits for.
                Err(error) => {
                    self.fail(error);
                    false
                }
            };
            let done = done && {
                self.release(reached);
                self.ask_awaited(Ask::Query)
            };
            // A driver may finish a completion with an error before it counts the read as done: look for it
            // again.
            self.take_failure()?;
            if !done {
                return Ok(false);
            }
        }
        // If the device was closed or lost and another thread got the failure, this call must not succeed.
        self.device.check("query")?;
        Ok(true)
    }

    /// Closes the queue of a dropped stream. Does not wait: the thread ends by itself, and the device keeps a
    /// driver's queue until its work is done.
    pub(crate) fn close(self: &Arc<Self>) {
        if !self.device.is_of_this_process() {
            // In a fork the thread does not exist, may have held the lock, and the driver is unusable: leak
            // the queue.
            return std::mem::forget(Arc::clone(self));
        }
        if self.driver.is_some() && device_use::is_forbidden() && !self.device.has_ended() {
            // This thread may not call the driver.
            self.flush_on_thread();
        } else {
            // A failure belongs to the stream, which leaves it to the device below.
            let _ = self.flush();
        }
        let mut state = lock(&self.state);
        state.closed = true;
        // A thread passes an unreported failure to the device itself, at its end.
        if !state.has_thread {
            self.leave_unreported(state);
        } else {
            drop(state);
            self.work.notify_one();
        }
        if self.driver.is_some() {
            self.device.keep_closed(self.clone());
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // A read may have failed after the last check for failures.
        self.leave_unreported(lock(&self.state));
        self.waits.clear();
        if let Some(driver) = self.driver.take() {
            let in_flight = std::mem::take(&mut *lock(&self.in_flight));
            self.device.drop_when_allowed(DriverQueue {
                device: self.device,
                driver: Some(driver),
                in_flight,
            });
        }
    }
}

/// A driver's queue that is dropped with the values that its work may still use: the device was lost, or the
/// wait for the driver failed.
struct DriverQueue {
    device: &'static OpenDevice,
    driver: Option<Box<dyn StreamDriver>>,
    in_flight: InFlight,
}

impl Drop for DriverQueue {
    fn drop(&mut self) {
        // Dropped first: this makes the driver end the work that uses the values.
        drop_isolated(self.device.device(), self.driver.take());
        let progress = Arc::clone(self.in_flight.progress());
        self.in_flight.release_all().leak_host_memory(self.device);
        self.device.settle_memory(&progress);
    }
}
