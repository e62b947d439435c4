//! A point in a stream's work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::activity::{WaitFor, Work};
use crate::runtime::deadline::Deadline;
use crate::runtime::point::Point;

/// A point in a stream's work: the event is done when all work before it is done. [`Stream::record`] makes
/// one.
///
/// An event never changes: recording again makes another one. Cloning it is cheap, and its functions may be
/// called from any thread. If work before it failed, every call returns that error.
///
/// [`Stream::record`]: crate::Stream::record
///
/// ```
/// use device_registry::{EventOptions, device};
///
/// let stream = device("cpu")?.create_stream()?;
/// let start = stream.record_with(&EventOptions::new().timed())?;
/// stream.host_call(|| println!("between the two"))?;
/// let end = stream.record_with(&EventOptions::new().timed())?;
/// println!("took {:?}", end.elapsed_since(&start)?);
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Event(Arc<Point>);

impl Event {
    pub(crate) fn of_point(point: Arc<Point>) -> Self {
        Self(point)
    }

    pub(crate) fn point(&self) -> &Arc<Point> {
        &self.0
    }

    /// Describes a wait for the event, for observers.
    fn wait(&self) -> (Device, Work) {
        (self.device(), Work::Wait(WaitFor::Event(self.0.id())))
    }

    /// The device of the event's stream, with its index.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.open_device().device()
    }

    /// Whether the event has a timestamp.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.0.is_timed()
    }

    /// Whether the work before it is done. Does not wait.
    ///
    /// # Errors
    ///
    /// The error of the work before it, or why the device cannot be queried: it is lost or closed, or the
    /// caller is a host call or a fork.
    pub fn query(&self) -> Result<bool, DeviceError> {
        self.0.query()
    }

    /// Waits until the work before it is done. Blocks.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`query`](Self::query).
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        activity::call(|| self.wait(), || self.0.synchronize())
    }

    /// Like [`synchronize`](Self::synchronize), but waits no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// [`DeviceError::TimedOut`] if the event is not done by then: the work continues. Otherwise the errors
    /// of [`query`](Self::query).
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<(), DeviceError> {
        let deadline = Deadline::new("synchronize an event", timeout);
        activity::call(|| self.wait(), || self.0.synchronize_until(&deadline))
    }

    /// The time from `start` to this event. Blocks until both are done.
    ///
    /// The timestamps come from the device's clock. So both events must be on one device, and recorded with
    /// [timestamps](crate::EventOptions::timed).
    ///
    /// # Errors
    ///
    /// [`DeviceError::Call`] with [`BackendErrorKind::Invalid`](crate::BackendErrorKind::Invalid) if one
    /// event has no timestamp, if they are on two devices, or if `start` was reached later. Otherwise the
    /// errors of [`query`](Self::query).
    pub fn elapsed_since(&self, start: &Self) -> Result<Duration, DeviceError> {
        self.0.elapsed_since(&start.0)
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
