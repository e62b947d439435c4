//! How a driver reports that its device is lost without being called.

use std::fmt;
use std::sync::Arc;

use crate::backend::{BackendError, Owner};
use crate::sync::{Mutex, lock};

/// Reports at any time that an open device is lost: a connection that was closed, hardware that was
/// unplugged.
///
/// A driver may also return [`BackendError::lost`] from any call. A reporter is for a driver that finds out
/// while no call runs, or while one of its calls waits. The driver creates a reporter, keeps a clone, and
/// adds the other one to its [`OpenedDevice`](crate::backend::OpenedDevice::with_loss_reporter):
///
/// ```
/// # use device_registry::backend::{Backend, BackendError, DeviceDriver, LossReporter, OpenedDevice};
/// # struct Connection;
/// # impl Connection {
/// #     fn wait_until_closed(&self) -> std::io::Error { std::io::Error::other("closed") }
/// # }
/// fn opened(
///     backend: &dyn Backend,
///     driver: impl DeviceDriver + 'static,
///     connection: Connection,
/// ) -> OpenedDevice {
///     let reporter = LossReporter::new();
///     let reports = reporter.clone();
///     std::thread::spawn(move || {
///         let error = connection.wait_until_closed();
///         reports.report(BackendError::lost("the server closed the connection").with_source(error));
///     });
///     OpenedDevice::new(backend, driver).with_loss_reporter(reporter)
/// }
/// ```
///
/// # What a report does
///
/// From then on the device is [lost](crate::Presence::Lost), and each call returns the error. Reads that are
/// pending finish with it. Threads that wait in the core for a stream or an event wake up, and return it. The
/// core cannot wake a thread that waits inside the driver: a driver that reports a loss ends its own
/// waiting calls. It reports first, so that those calls find the same reason. The report frees nothing that
/// queued work uses: the core keeps that until it has [dropped the stream](crate::backend::StreamDriver).
/// Then the driver ends its connection and, in a driver with fault injection, calls
/// [`FaultCounter::lose`](crate::backend::testing::FaultCounter::lose), which ends injected stalls.
///
/// A report runs the wakers of tasks and the program's logger, which may wait for a thread that resets the
/// device. So [`reset`](crate::backend::DeviceDriver::reset) and `close` do not wait for the thread that
/// reports, and that thread holds no lock that the driver's functions take.
#[derive(Clone, Default)]
pub struct LossReporter(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    /// The reporter has no device yet.
    #[default]
    Unconnected,
    /// A loss was reported before it had one.
    Reported(BackendError),
    Connected {
        device: &'static dyn Owner,
        lost: bool,
    },
}

impl LossReporter {
    /// A reporter that belongs to no device yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reports the device as lost. An error of another kind becomes one of kind
    /// [`Lost`](crate::BackendErrorKind::Lost). Only the first report of a device counts, and none after its
    /// close.
    ///
    /// It may be called on any thread, at any time, even before the device is open. It does not wait for work
    /// and never unwinds. It runs the wakers of tasks that await reads, and the program's logger.
    pub fn report(&self, error: BackendError) {
        let error = error.into_lost();
        let mut state = lock(&self.0);
        match &mut *state {
            State::Connected { device, lost } => {
                *lost = true;
                let device = *device;
                // Waiting threads and the logger may use this reporter.
                drop(state);
                device.lose(error);
            }
            unconnected @ State::Unconnected => *unconnected = State::Reported(error),
            State::Reported(_) => {}
        }
    }

    /// Connects it to an open device. A loss that was reported before takes effect now.
    pub(crate) fn connect(&self, device: &'static dyn Owner) {
        let mut state = lock(&self.0);
        let before = std::mem::replace(&mut *state, State::Connected { device, lost: false });
        drop(state);
        if let State::Reported(error) = before {
            self.report(error);
        }
    }

    /// Whether a loss was reported.
    pub(crate) fn has_reported(&self) -> bool {
        matches!(*lock(&self.0), State::Reported(_) | State::Connected { lost: true, .. })
    }
}

impl fmt::Debug for LossReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.0);
        let device = if let State::Connected { device, .. } = *state { Some(device.device()) } else { None };
        f.debug_struct("LossReporter").field("device", &device).finish_non_exhaustive()
    }
}
