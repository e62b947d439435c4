//! A point in a stream's work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::point::Point;

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

    /// The device of its stream.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.open_device().device()
    }

    /// Whether it has a time.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.0.is_timed()
    }

    /// Whether the work before it is done. Does not wait.
    ///
    /// # Errors
    ///
    /// That of the work before it, or that the device cannot be asked: it is lost, this is a host call or a fork.
    pub fn query(&self) -> Result<bool, DeviceError> {
        self.0.query()
    }

    /// Waits until the work before it is done.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.0.synchronize()
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
