//! The current stream: the stream of a device that a thread uses when a call names none.
//!
//! Like the current device it belongs to the thread, and does not follow an async task.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::queue::QueueHandle;
use crate::runtime::{chosen_stream, table};
use crate::stream::Stream;

impl Device {
    /// The device's default stream, which all threads share. The first use creates it, and opens the device.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`create_stream`](Self::create_stream).
    pub fn default_stream(self) -> Result<Stream, DeviceError> {
        QueueHandle::create_default(table::open(self)?).map(Stream::of_queue)
    }

    /// This thread's current stream of the device. Frameworks use it where a call names no stream. It is the
    /// default stream, until a [`StreamGuard`] chooses another one. Opens the device.
    ///
    /// The blocking calls of [`Buffer`](crate::Buffer) wait for it first, so that they run after its work.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`create_stream`](Self::create_stream).
    pub fn current_stream(self) -> Result<Stream, DeviceError> {
        match chosen_stream::of(table::open(self)?) {
            Some(stream) => Ok(Stream::of_queue(stream)),
            None => self.default_stream(),
        }
    }
}

/// Makes a stream the current one of its device on this thread, until the guard is dropped.
///
/// Bind it to a name such as `_guard`: bound to `_`, it is dropped at once. Dropping it restores the previous
/// choice, also on unwinding. Drop guards in the opposite order of their creation, as scopes do. The choice
/// belongs to the thread: it does not follow an async task that moves, and the guard cannot be sent to
/// another thread.
///
/// ```
/// use device_registry::{StreamGuard, device};
///
/// let stream = device("cpu")?.create_stream()?;
/// {
///     let _guard = StreamGuard::new(&stream);
///     assert_eq!(device("cpu")?.current_stream()?, stream);
/// }
/// assert_ne!(device("cpu")?.current_stream()?, stream);
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[must_use = "the choice ends when the guard is dropped"]
pub struct StreamGuard {
    stream: Stream,
    previous: Option<Arc<QueueHandle>>,
    _not_send: PhantomData<*const ()>,
}

impl StreamGuard {
    /// Makes `stream` the current one of its device.
    pub fn new(stream: &Stream) -> Self {
        let previous = chosen_stream::choose(stream.open_device(), Some(stream.clone().into_queue()));
        Self { stream: stream.clone(), previous, _not_send: PhantomData }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let chosen = chosen_stream::choose(self.stream.open_device(), self.previous.take());
        // It may be the stream's last handle. Its `drop` inside `choose` could borrow the list a second time.
        drop(chosen);
    }
}

impl fmt::Debug for StreamGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamGuard").field(&self.stream).finish()
    }
}
