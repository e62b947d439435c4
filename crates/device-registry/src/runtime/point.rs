//! A point in a stream's work, and whether the stream has reached it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::BackendError;
use crate::error::DeviceError;
use crate::runtime::activity::Id;
use crate::runtime::deadline::Deadline;
use crate::runtime::open_device::{Awaited, OpenDevice};
use crate::runtime::recorded::Recorded;
use crate::runtime::waits::{Ask, Awaitable, Before};
use crate::sync::{AtomicU64, Condvar, Mutex, lock, wait, wait_timeout};

/// The state that the handles of one event share.
pub(crate) struct Point {
    device: &'static OpenDevice,
    timed: bool,
    /// The number by which observers know the work that records it; 0 without one.
    id: AtomicU64,
    state: Mutex<State>,
    reached: Condvar,
}

#[derive(Clone)]
enum State {
    /// The thread of its stream has not reached it.
    Queued {
        waited_for: bool,
    },
    /// It is in a queue of the driver.
    Submitted(Arc<Recorded>),
    /// The thread of its stream has reached it.
    Reached(Instant),
    Failed(DeviceError),
}

impl Drop for Point {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Submitted(event) = std::mem::replace(state, State::Queued { waited_for: false }) {
            self.device.drop_when_allowed(event);
        }
    }
}

impl Point {
    pub(crate) fn queued(device: &'static OpenDevice, timed: bool) -> Arc<Self> {
        let state = Mutex::new(State::Queued { waited_for: false });
        Arc::new(Self { device, timed, id: AtomicU64::new(0), state, reached: Condvar::new() })
    }

    /// The number by which observers know the work that records it.
    pub(crate) fn id(&self) -> Option<Id> {
        Id::new(self.id.load(Ordering::Relaxed))
    }

    pub(crate) fn set_id(&self, id: Id) {
        self.id.store(id.get(), Ordering::Relaxed);
    }

    pub(crate) fn reach(&self) {
        self.set(State::Reached(Instant::now()));
    }

    pub(crate) fn submit(&self, event: Arc<Recorded>) {
        self.set(State::Submitted(event));
    }

    pub(crate) fn fail(&self, error: DeviceError) {
        self.set(State::Failed(error));
    }

    fn set(&self, state: State) {
        let before = std::mem::replace(&mut *lock(&self.state), state);
        // Without a waiting thread, this saves a call to the system.
        if let State::Queued { waited_for: true } = before {
            self.reached.notify_all();
        }
    }

    /// The driver's event, once it is submitted.
    pub(crate) fn submitted(&self) -> Option<Arc<Recorded>> {
        match &*lock(&self.state) {
            State::Submitted(event) => Some(Arc::clone(event)),
            _ => None,
        }
    }

    /// Makes the work before it begin, if it is in a queue of the driver. If that fails, so does the event.
    pub(crate) fn begin(&self) {
        if let Some(event) = self.submitted() {
            // The event and its stream have the error.
            let _ = self.begin_submitted(&event);
        }
    }

    fn begin_submitted(&self, event: &Recorded) -> Result<(), DeviceError> {
        event.begin().inspect_err(|error| {
            // The end of the device is not a failure of the work.
            if !self.device.has_ended() {
                self.fail(error.clone());
            }
        })
    }

    pub(crate) fn open_device(&self) -> &'static OpenDevice {
        self.device
    }

    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    /// Whether the work before it is done.
    pub(crate) fn query(&self) -> Result<bool, DeviceError> {
        self.device.check("query an event")?;
        let state = lock(&self.state).clone();
        match state {
            State::Queued { .. } => Ok(false),
            State::Submitted(event) => {
                self.begin_submitted(&event)?;
                self.query_submitted("query an event", &event)
            }
            State::Reached(_) => Ok(true),
            State::Failed(error) => Err(error),
        }
    }

    fn query_submitted(&self, call: &'static str, event: &Recorded) -> Result<bool, DeviceError> {
        if !self.device.call(call, |_| event.event().query())? {
            return Ok(false);
        }
        match event.waits() {
            None => Ok(true),
            Some(waits) => waits.ask(Ask::Query).map_or(Ok(false), |outcome| outcome.map(|()| true)),
        }
    }

    /// Waits until the work before it is done.
    pub(crate) fn synchronize(self: &Arc<Self>) -> Result<(), DeviceError> {
        self.device.check("synchronize an event")?;
        match self.wait_until_processed() {
            State::Submitted(event) => {
                self.begin_submitted(&event)?;
                self.device.call("synchronize an event", |_| event.event().synchronize())?;
                event.waits().and_then(|waits| waits.ask(Ask::Wait)).unwrap_or(Ok(()))
            }
            State::Failed(error) => Err(error),
            State::Reached(_) => Ok(()),
            State::Queued { .. } => self.device.check("synchronize an event"),
        }
    }

    /// Like [`synchronize`](Self::synchronize), until the deadline.
    pub(crate) fn synchronize_until(self: &Arc<Self>, deadline: &Deadline) -> Result<(), DeviceError> {
        self.device.check(deadline.call())?;
        self.register_waiting_thread();
        let mut state = lock(&self.state);
        while matches!(*state, State::Queued { .. }) && !self.device.is_lost() {
            let Some(left) = deadline.left() else {
                drop(state);
                return Err(
                    deadline.timed_out(self.device.device(), "work before the event waits in its stream")
                );
            };
            state = wait_timeout(&self.reached, state, left);
        }
        let reached = state.clone();
        drop(state);
        match reached {
            State::Submitted(event) => {
                self.begin_submitted(&event)?;
                if deadline.poll(|| self.query_submitted(deadline.call(), &event))? {
                    return Ok(());
                }
                Err(deadline
                    .timed_out(self.device.device(), "work before the event is in a queue of the driver"))
            }
            State::Failed(error) => Err(error),
            State::Reached(_) => Ok(()),
            State::Queued { .. } => self.device.check(deadline.call()),
        }
    }

    /// Waits until its stream has reached, submitted or skipped it. It is still queued if the device was lost
    /// meanwhile.
    fn wait_until_processed(self: &Arc<Self>) -> State {
        self.register_waiting_thread();
        let mut state = lock(&self.state);
        while matches!(*state, State::Queued { .. }) && !self.device.is_lost() {
            state = wait(&self.reached, state);
        }
        state.clone()
    }

    /// Ensures that a change of the state and the loss of the device wake the threads that wait.
    fn register_waiting_thread(self: &Arc<Self>) {
        if let State::Queued { waited_for } = &mut *lock(&self.state) {
            if std::mem::replace(waited_for, true) {
                return;
            }
        } else {
            return;
        }
        let event: Arc<dyn Awaited> = Arc::<Self>::clone(self);
        self.device.add_awaited(Arc::downgrade(&event));
    }

    /// The time from `start` to this event. Waits for both.
    pub(crate) fn elapsed_since(self: &Arc<Self>, start: &Arc<Self>) -> Result<Duration, DeviceError> {
        const CALL: &str = "elapsed time";
        let device = self.device;
        let refuse = |message: String| {
            Err(DeviceError::Call {
                device: device.device(),
                call: CALL,
                error: BackendError::invalid(message),
            })
        };
        if !std::ptr::eq(device, start.device) {
            let start = start.device.device();
            let end = self.device.device();
            return refuse(format!(
                "expected events of one device, found events of `{start}` and `{end}`: their clocks differ"
            ));
        }
        for (event, role) in [(start, "first"), (self, "second")] {
            if !event.timed {
                return refuse(format!(
                    "the {role} event has no timestamp; record it with `EventOptions::timed`"
                ));
            }
        }
        start.synchronize()?;
        self.synchronize()?;
        match (start.wait_until_processed(), self.wait_until_processed()) {
            (State::Submitted(from), State::Submitted(to)) => {
                device.call(CALL, |_| to.event().elapsed_since(from.event()))
            }
            (State::Reached(from), State::Reached(to)) => match to.checked_duration_since(from) {
                Some(elapsed) => Ok(elapsed),
                None => refuse(format!("the first event was reached {:?} after the second", from - to)),
            },
            _ => refuse("expected events of one kind of stream, found two kinds: their clocks differ".into()),
        }
    }
}

impl Awaitable for Point {
    fn waits_before(&self) -> Option<Before> {
        self.submitted().and_then(|event| event.waits().cloned())
    }

    fn ask(self: Arc<Self>, ask: Ask) -> Result<bool, DeviceError> {
        match ask {
            Ask::Query => self.query(),
            Ask::Wait => self.synchronize().map(|()| true),
        }
    }
}

impl Awaited for Point {
    fn device_ended(&self, _error: &DeviceError) {
        // Under the lock: a thread that is about to wait has looked for the loss.
        let state = lock(&self.state);
        self.reached.notify_all();
        drop(state);
    }
}
