//! The result of queued work, for the thread that enqueued it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::backend::HostBuffer;
use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::activity::{WaitFor, Work};
use crate::runtime::open_device::OpenDevice;
use crate::runtime::outcome::Outcome;

/// The result of queued work, which is not known yet. Wait for it, query it, or await it as a [`Future`].
///
/// Dropping it does not cancel the work.
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
#[must_use = "it has the result of the work"]
pub struct Pending(Arc<Outcome>);

impl Pending {
    pub(crate) fn new(outcome: Arc<Outcome>) -> Self {
        Self(outcome)
    }

    /// A result that is known without any work.
    pub(crate) fn ready(device: &'static OpenDevice, value: HostBuffer) -> Self {
        Self(Outcome::known(device, value))
    }

    /// Whether the work is done or has failed, so that [`wait`](Self::wait) does not block. Returns `true` in
    /// a fork of the process that enqueued the work, where `wait` returns an error at once.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    /// Waits for the work and returns its result. Blocks.
    ///
    /// # Errors
    ///
    /// The error of the work, or of earlier work of its stream that made the stream skip it;
    /// [`DeviceError::InHostCall`] in a host call that would have to wait; [`DeviceError::Forked`] in a fork
    /// of the process that enqueued the work.
    pub fn wait(self) -> Result<HostBuffer, DeviceError> {
        let wait = || (self.0.device().device(), Work::Wait(WaitFor::Read));
        activity::call(wait, || self.0.wait())
    }

    /// Waits for the work, but no longer than `timeout`. Returns whether the work is done or has failed, so
    /// that [`wait`](Self::wait) does not block. It also returns `true` where this thread may not wait, such
    /// as in a host call: `wait` then returns the error.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use device_registry::device;
    ///
    /// let stream = device("cpu")?.create_stream()?;
    /// let buffer = device("cpu")?.allocate(4)?;
    /// let read = stream.read(&buffer, ..)?;
    /// if read.wait_timeout(Duration::from_secs(10)) {
    ///     println!("{:?}", read.wait()?);
    /// } else {
    ///     println!("not yet");
    /// }
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    #[must_use]
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.0.wait_timeout(timeout)
    }
}

impl Future for Pending {
    type Output = Result<HostBuffer, DeviceError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("device", &self.0.device().device())
            .field("is_ready", &self.0.is_known())
            .finish_non_exhaustive()
    }
}
