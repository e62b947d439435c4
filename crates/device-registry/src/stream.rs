//! Queues of work that run beside the host.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use crate::backend::{BackendError, EventOptions, HostBuffer, Launch, Priority, StreamOptions};
use crate::buffer;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{BufferRole, DeviceError};
use crate::event::Event;
use crate::pending::Pending;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::operation::{Operation, QueuedRead};
use crate::runtime::outcome::Outcome;
use crate::runtime::point::Point;
use crate::runtime::queue::{Queue, QueueHandle};
use crate::runtime::table;

/// A queue of work on a device: what is put in is done in that order, beside the host and beside other streams.
///
/// It is a handle that is cheap to clone; each function may be called from any thread and returns at once, unless it
/// says otherwise. Work owns what it touches, so that buffers may be dropped while it waits. When the last handle is
/// dropped, what is in the queue is still done, and nothing waits for it; neither does the end of the process, which ends
/// the work too: [synchronize](Self::synchronize) before.
///
/// ```
/// use device_registry::device;
///
/// let device = device("cpu")?;
/// let (stream, other) = (device.create_stream()?, device.create_stream()?);
/// let (a, b) = (device.allocate(8)?, device.allocate(8)?);
/// stream.fill(&a, 0..8, b"ab")?;
/// let filled = stream.record()?;
/// other.wait_event(&filled)?;
/// other.copy(&a, 0..4, &b, 4)?;
/// let read = other.read(&b, 4..8)?;
/// assert_eq!(*read.wait()?, *b"abab");
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// # Errors in queued work
///
/// A function returns an error if the work is refused: nothing was put in the queue. Work that fails *later* makes the
/// stream skip all that comes behind it, until one [`synchronize`](Self::synchronize) or [`query`](Self::query) has
/// returned the error; all that was put in before that return is skipped, for whoever put it in did not know. Skipped
/// reads and events have the same error as their answer, and a stream that waits for such an event fails with it. So no
/// error is dropped, and none arrives at work that was put in by somebody who knew of it. The error of a stream that
/// nobody asks before it is gone is returned by [`Device::synchronize`], and logged.
///
/// Where a device has queues of its own, work behind a failure that is already in such a queue may be done or not.
/// Most such failures mean that the device is lost.
#[derive(Clone)]
pub struct Stream(Arc<QueueHandle>);

impl Device {
    /// A new stream of normal priority. Opens the device at the first use.
    ///
    /// # Errors
    ///
    /// If the device cannot be opened, or has no more streams.
    pub fn create_stream(self) -> Result<Stream, DeviceError> {
        self.create_stream_with(&StreamOptions::new())
    }

    /// A new stream. Opens the device at the first use.
    ///
    /// # Errors
    ///
    /// As [`create_stream`](Self::create_stream).
    pub fn create_stream_with(self, options: &StreamOptions) -> Result<Stream, DeviceError> {
        QueueHandle::create(table::open(self)?, options).map(Stream::of_queue)
    }

    /// Waits for the work of all streams of the device.
    ///
    /// Work that a program gave to the device by native handles may not be among it. Returns at once for a device that
    /// is not open.
    ///
    /// # Errors
    ///
    /// The first failure of any stream that was not reported; each next call returns the next one. Of streams that were
    /// dropped, the first 1,000 are kept for it, and all are logged.
    pub fn synchronize(self) -> Result<(), DeviceError> {
        match table::find(self)? {
            Some(device) => device.synchronize(),
            None => Ok(()),
        }
    }
}

impl Stream {
    /// The stream of a queue, of which there may be other handles.
    pub(crate) fn of_queue(queue: Arc<QueueHandle>) -> Self {
        Self(queue)
    }

    fn queue(&self) -> &Arc<Queue> {
        self.0.queue()
    }

    pub(crate) fn open_device(&self) -> &'static OpenDevice {
        self.queue().device()
    }

    /// The device, with its index.
    #[must_use]
    pub fn device(&self) -> Device {
        self.open_device().device()
    }

    /// The priority that it was made with.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.queue().priority()
    }

    /// Puts in a copy of `source` from the host to the bytes from `offset` on. The work owns `source`; a `Vec<u8>` is
    /// taken as it is, and a slice is copied.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`], [`DeviceError::Misaligned`], [`DeviceError::OtherDevice`], or what the backend
    /// reports.
    pub fn write(
        &self,
        destination: &Buffer,
        offset: usize,
        source: impl Into<HostBuffer>,
    ) -> Result<(), DeviceError> {
        let source = source.into().used_by(self.open_device());
        self.check_device(destination, BufferRole::Destination)?;
        let range = offset..offset.saturating_add(source.len());
        match destination.checked(BufferRole::Destination, range)? {
            Some(destination) => {
                self.queue().accept(Operation::Write { source: Arc::new(source), destination })
            }
            None => Ok(()),
        }
    }

    /// Puts in a copy of the bytes of `range` to the host.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), or if the host has not enough memory. What goes wrong later is the answer of the
    /// [`Pending`].
    pub fn read(&self, source: &Buffer, range: impl RangeBounds<usize>) -> Result<Pending, DeviceError> {
        self.enqueue_read(source, source.range_of(range), None)
    }

    /// Puts in a copy of the bytes from `offset` on into `destination`, which the [`Pending`] returns. It may be
    /// [pinned](Device::allocate_host).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_into(
        &self,
        source: &Buffer,
        offset: usize,
        destination: HostBuffer,
    ) -> Result<Pending, DeviceError> {
        self.enqueue_read(source, offset..offset.saturating_add(destination.len()), Some(destination))
    }

    fn enqueue_read(
        &self,
        source: &Buffer,
        range: Range<usize>,
        destination: Option<HostBuffer>,
    ) -> Result<Pending, DeviceError> {
        self.check_device(source, BufferRole::Source)?;
        let device = self.open_device();
        let span = source.checked(BufferRole::Source, range)?;
        let len = span.as_ref().map_or(0, |span| span.len());
        let zeroed = |error| DeviceError::Call { device: device.device(), call: "read", error };
        let destination = destination.map_or_else(|| HostBuffer::zeroed(len), Ok).map_err(zeroed)?;
        let Some(source) = span else {
            return Ok(Pending::ready(device, destination));
        };
        let destination = destination.used_by(device);
        let outcome = Outcome::of_work(device, self.queue(), "read", destination.len());
        let read = QueuedRead::new(&outcome);
        self.queue().accept(Operation::Read { source, destination, read })?;
        Ok(Pending::new(outcome))
    }

    /// Puts in a copy of the bytes of `range` in `source`, a buffer on any device, to the bytes from `offset` on in
    /// `destination`, which is on this stream's device.
    ///
    /// Within a device, and between two of a backend that can do so, it is one copy. Otherwise the bytes go through
    /// the host.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), or [`DeviceError::Overlap`].
    pub fn copy(
        &self,
        source: &Buffer,
        range: impl RangeBounds<usize>,
        destination: &Buffer,
        offset: usize,
    ) -> Result<(), DeviceError> {
        self.check_device(destination, BufferRole::Destination)?;
        match buffer::checked_copy(source, range, destination, offset)? {
            Some((from, to)) => self.queue().accept(Operation::Copy {
                from: source.open_device(),
                source: from,
                destination: to,
            }),
            None => Ok(()),
        }
    }

    /// Puts in a fill of the bytes of `range` with `pattern`, repeated: of 1, 2, 4, 8 or 16 bytes.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), or [`DeviceError::Pattern`] if the pattern has another length or the range does not
    /// begin and end at multiples of it.
    pub fn fill(
        &self,
        destination: &Buffer,
        range: impl RangeBounds<usize>,
        pattern: &[u8],
    ) -> Result<(), DeviceError> {
        self.check_device(destination, BufferRole::Destination)?;
        match buffer::checked_fill(destination, range, pattern)? {
            Some((destination, pattern)) => self.queue().accept(Operation::Fill { destination, pattern }),
            None => Ok(()),
        }
    }

    /// Puts in a call on the host, which runs when all work before it is done, on a thread of the stream's.
    ///
    /// It may not use devices: every such call in it is [`DeviceError::InHostCall`], since a host call that waits for a
    /// stream can be the one that the stream waits for. Buffers that it drops are freed afterwards. A panic in it is an
    /// error of queued work.
    ///
    /// # Errors
    ///
    /// If the device is lost, or there is no thread to be had.
    pub fn host_call(&self, call: impl FnOnce() + Send + 'static) -> Result<(), DeviceError> {
        self.queue().accept(Operation::Call(Box::new(call)))
    }

    /// Puts in a kernel: code that knows the backend, and works on the native memory of `buffers`, all of them on this
    /// stream's device. What it may do is that of a [host call](Self::host_call), but for native work: see
    /// [`Launch::stream_as`].
    ///
    /// ```
    /// use device_registry::backend::HostMemory;
    /// use device_registry::device;
    ///
    /// let (stream, buffer) = (device("cpu")?.create_stream()?, device("cpu")?.allocate(4)?);
    /// stream.fill(&buffer, 0..4, &[20])?;
    /// stream.launch(&[&buffer], |launch| {
    ///     let Some(span) = &launch.spans()[0] else { return Ok(()) };
    ///     let mut bytes = span.memory_as::<HostMemory>()?.write(span.range())?;
    ///     bytes.iter_mut().for_each(|byte| *byte += 1);
    ///     Ok(())
    /// })?;
    /// assert_eq!(*stream.read(&buffer, 0..4)?.wait()?, [21; 4]);
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeviceError::OtherDevice`], or as [`call`](Self::host_call). What the kernel returns is an error of queued work; or,
    /// where it was called at once to submit native work, that of this function.
    pub fn launch(
        &self,
        buffers: &[&Buffer],
        kernel: impl FnOnce(&Launch<'_>) -> Result<(), BackendError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        buffers.iter().try_for_each(|buffer| self.check_device(buffer, BufferRole::Argument))?;
        let spans = buffers.iter().map(|buffer| buffer.span()).collect();
        self.queue().accept(Operation::Launch { spans, kernel: Box::new(kernel) })
    }

    /// Records an event without a time: it is done when all work is that was put in before.
    ///
    /// # Errors
    ///
    /// As [`record_with`](Self::record_with).
    pub fn record(&self) -> Result<Event, DeviceError> {
        self.record_with(&EventOptions::new())
    }

    /// Records an event.
    ///
    /// # Errors
    ///
    /// If the device is lost, or has no events with a time and one is asked for.
    pub fn record_with(&self, options: &EventOptions) -> Result<Event, DeviceError> {
        let device = self.open_device();
        if options.timed && !device.properties().timed_events {
            let error = BackendError::unsupported("events with a time");
            return Err(DeviceError::Call { device: device.device(), call: "record", error });
        }
        let event = Point::queued(device, options.timed);
        self.queue().accept(Operation::Record { event: Arc::clone(&event), options: options.clone() })?;
        Ok(Event::of_point(event))
    }

    /// Holds back all work that is put in after this until `event` is done: an event of any stream of any device.
    ///
    /// # Errors
    ///
    /// If a device is lost. An event that has an error as its answer makes this stream fail with it, later.
    pub fn wait_event(&self, event: &Event) -> Result<(), DeviceError> {
        self.queue().accept(Operation::Wait(Arc::clone(event.point())))
    }

    /// Whether all work is done. Does not wait.
    ///
    /// # Errors
    ///
    /// That of work that failed; returning it counts as telling: see [above](Self#errors-in-queued-work).
    pub fn query(&self) -> Result<bool, DeviceError> {
        self.queue().query()
    }

    /// Waits for all work that was put in before. Blocks.
    ///
    /// # Errors
    ///
    /// That of work that failed; returning it counts as telling: see [above](Self#errors-in-queued-work).
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.queue().synchronize()
    }

    fn check_device(&self, buffer: &Buffer, role: BufferRole) -> Result<(), DeviceError> {
        if std::ptr::eq(buffer.open_device(), self.open_device()) {
            return Ok(());
        }
        // One that was opened before a reset has the same name, and is lost.
        buffer.open_device().check("use a buffer")?;
        self.open_device().check("use a stream")?;
        Err(DeviceError::OtherDevice { role, device: buffer.device(), stream: self.device() })
    }
}

/// Two handles are equal if they are of one queue.
impl PartialEq for Stream {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Stream {}

impl Hash for Stream {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("device", &self.device())
            .field("priority", &self.priority())
            .finish_non_exhaustive()
    }
}
