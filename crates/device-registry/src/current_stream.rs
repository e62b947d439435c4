//! The current stream: the stream of a device that a thread uses when a call names none.
//!
//! Like the current device it belongs to the thread, and does not follow an async task.

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::backend::StreamOptions;
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::deadline::Deadline;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::queue::QueueHandle;
use crate::runtime::table;
use crate::stream::Stream;

thread_local! {
    /// At most one stream for each device, and none where the default stream is current. A list of few is
    /// fast enough.
    static CURRENT: RefCell<Vec<Stream>> = const { RefCell::new(Vec::new()) };
}

fn is_of(device: &OpenDevice) -> impl Fn(&Stream) -> bool {
    move |stream| std::ptr::eq(stream.open_device(), device)
}

/// The chosen stream of a device, if there is one. While a thread ends, its list may be destroyed: then there
/// is none.
fn chosen(device: &OpenDevice) -> Option<Stream> {
    CURRENT.try_with(|current| current.borrow().iter().find(|stream| is_of(device)(stream)).cloned()).ok()?
}

/// The stream that a thread's new memory is for: the one that it has chosen, on a device that uses memory
/// again.
#[inline]
pub(crate) fn for_memory(device: &OpenDevice) -> Option<Stream> {
    if device.keeps_memory() { chosen(device) } else { None }
}

/// Sets or clears the chosen stream of a device. Returns the previous one.
fn choose(device: &OpenDevice, stream: Option<Stream>) -> Option<Stream> {
    let replaced = CURRENT.try_with(|current| {
        let mut current = current.borrow_mut();
        let before = current.iter().position(is_of(device)).map(|place| current.swap_remove(place));
        current.extend(stream);
        before
    });
    replaced.ok().flatten()
}

/// Waits for the current stream, so that a blocking call runs after the work that was enqueued there.
pub(crate) fn settle(device: &'static OpenDevice) -> Result<(), DeviceError> {
    match chosen(device) {
        Some(stream) => stream.synchronize(),
        None => device.default_stream().map_or(Ok(()), |stream| stream.queue().synchronize()),
    }
}

/// Like [`settle`], until the deadline.
pub(crate) fn settle_until(device: &'static OpenDevice, deadline: &Deadline) -> Result<(), DeviceError> {
    let current = chosen(device).map(Stream::into_queue).or_else(|| device.default_stream());
    current.map_or(Ok(()), |stream| stream.queue().synchronize_until(deadline))
}

impl Device {
    /// The device's default stream, which all threads share. The first use creates it, and opens the device.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`create_stream`](Self::create_stream).
    pub fn default_stream(self) -> Result<Stream, DeviceError> {
        let device = table::open(self)?;
        if let Some(stream) = device.default_stream() {
            return Ok(Stream::of_queue(stream));
        }
        let stream = QueueHandle::create(device, &StreamOptions::new())?;
        Ok(Stream::of_queue(device.default_stream_or(stream)))
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
        match chosen(table::open(self)?) {
            Some(stream) => Ok(stream),
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
#[derive(Debug)]
#[must_use = "the choice ends when the guard is dropped"]
pub struct StreamGuard {
    stream: Stream,
    previous: Option<Stream>,
    _not_send: PhantomData<*const ()>,
}

impl StreamGuard {
    /// Makes `stream` the current one of its device.
    pub fn new(stream: &Stream) -> Self {
        let previous = choose(stream.open_device(), Some(stream.clone()));
        Self { stream: stream.clone(), previous, _not_send: PhantomData }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let chosen = choose(self.stream.open_device(), self.previous.take());
        // It may be the stream's last handle. Its `drop` inside of `choose` could borrow the list a second
        // time.
        drop(chosen);
    }
}
