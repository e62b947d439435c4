//! A point in a stream's work.

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::open_device::OpenDevice;
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::{BackendError, Device, DeviceError, EventDriver};

/// A point in a stream's work, made by recording it: done when all work before it is. A cheap clone, which never
/// changes: recording again makes another one.
///
/// If the stream's work failed before it, every question to the event has that error as its answer.
///
/// ```
/// use device_registry::{EventOptions, device};
///
/// let stream = device("cpu")?.create_stream()?;
/// let start = stream.record_with(&EventOptions::new().timed())?;
/// stream.call(|| println!("between the two"))?;
/// let end = stream.record_with(&EventOptions::new().timed())?;
/// println!("took {:?}", end.elapsed_since(&start)?);
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Event(Arc<Point>);

struct Point {
    device: &'static OpenDevice,
    timed: bool,
    state: Mutex<State>,
    reached: Condvar,
}

#[derive(Clone)]
enum State {
    /// Its stream has not come to it.
    Queued {
        waited_for: bool,
    },
    /// It is in a queue of the driver's.
    Submitted(Arc<dyn EventDriver>),
    /// A stream of the core's has come to it.
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

impl Event {
    pub(crate) fn queued(device: &'static OpenDevice, timed: bool) -> Self {
        let state = Mutex::new(State::Queued { waited_for: false });
        Self(Arc::new(Point { device, timed, state, reached: Condvar::new() }))
    }

    pub(crate) fn reach(&self) {
        self.become_(State::Reached(Instant::now()));
    }

    pub(crate) fn submit(&self, event: Box<dyn EventDriver>) {
        self.become_(State::Submitted(event.into()));
    }

    pub(crate) fn fail(&self, error: DeviceError) {
        self.become_(State::Failed(error));
    }

    fn become_(&self, state: State) {
        let before = std::mem::replace(&mut *lock(&self.0.state), state);
        // To wake nobody is a call to the system too.
        if let State::Queued { waited_for: true } = before {
            self.0.reached.notify_all();
        }
    }

    /// The driver's event, once it is submitted.
    pub(crate) fn submitted(&self) -> Option<Arc<dyn EventDriver>> {
        match &*lock(&self.0.state) {
            State::Submitted(event) => Some(Arc::clone(event)),
            _ => None,
        }
    }

    pub(crate) fn open_device(&self) -> &'static OpenDevice {
        self.0.device
    }

    /// The device of its stream.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device.device()
    }

    /// Whether it has a time.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.0.timed
    }

    /// Whether the work before it is done. Does not wait.
    ///
    /// # Errors
    ///
    /// That of the work before it, or that the device cannot be asked: it is lost, this is a host call or a fork.
    pub fn query(&self) -> Result<bool, DeviceError> {
        self.0.device.check("query an event")?;
        let state = lock(&self.0.state).clone();
        match state {
            State::Queued { .. } => Ok(false),
            State::Submitted(event) => self.0.device.call("query an event", |_| event.query()),
            State::Reached(_) => Ok(true),
            State::Failed(error) => Err(error),
        }
    }

    /// Waits until the work before it is done.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.0.device.check("synchronize an event")?;
        match self.wait_for_its_place() {
            State::Submitted(event) => self.0.device.call("synchronize an event", |_| event.synchronize()),
            State::Failed(error) => Err(error),
            State::Queued { .. } | State::Reached(_) => Ok(()),
        }
    }

    /// Waits until its stream has come to it.
    fn wait_for_its_place(&self) -> State {
        let mut state = lock(&self.0.state);
        while let State::Queued { waited_for } = &mut *state {
            *waited_for = true;
            state = wait(&self.0.reached, state);
        }
        state.clone()
    }

    /// The time from `start` to this event. Waits for both.
    ///
    /// The clock is the device's, so that both are to be events of one device, recorded as
    /// [timed](crate::EventOptions::timed).
    ///
    /// # Errors
    ///
    /// [`DeviceError::Call`] with [`BackendErrorKind::Invalid`](crate::BackendErrorKind::Invalid) if one has no time, if they are of
    /// two devices, or if `start` came later; else as [`query`](Self::query).
    pub fn elapsed_since(&self, start: &Self) -> Result<Duration, DeviceError> {
        const CALL: &str = "elapsed time";
        let device = self.0.device;
        let refuse = |message: String| {
            Err(DeviceError::Call {
                device: device.device(),
                call: CALL,
                error: BackendError::invalid(message),
            })
        };
        if !std::ptr::eq(device, start.0.device) {
            let (start, end) = (start.device(), self.device());
            return refuse(format!(
                "the events are of two devices, `{start}` and `{end}`, whose clocks differ"
            ));
        }
        for (event, role) in [(start, "first"), (self, "second")] {
            if !event.is_timed() {
                return refuse(format!("the {role} event has no time: record it with `EventOptions::timed`"));
            }
        }
        start.synchronize()?;
        self.synchronize()?;
        match (start.wait_for_its_place(), self.wait_for_its_place()) {
            (State::Submitted(from), State::Submitted(to)) => device.call(CALL, |_| to.elapsed_since(&*from)),
            (State::Reached(from), State::Reached(to)) => match to.checked_duration_since(from) {
                Some(elapsed) => Ok(elapsed),
                None => refuse(format!("the first event was reached {:?} after the second", from - to)),
            },
            _ => refuse("the events are of streams of two kinds, whose clocks differ".into()),
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("device", &self.device())
            .field("timed", &self.is_timed())
            .finish_non_exhaustive()
    }
}
