//! Streams: queues of work that a device runs asynchronously.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Range, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{
    BackendError, EventOptions, HostBuffer, Launch, LaunchOptions, Priority, Progress, StreamOptions,
};
use crate::buffer;
use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{BufferRole, DeviceError};
use crate::event::Event;
use crate::pending::Pending;
use crate::runtime::activity;
use crate::runtime::activity::{WaitFor, Work};
use crate::runtime::deadline::Deadline;
use crate::runtime::open_device::{OpenDevice, StreamQueue};
use crate::runtime::operation::{Operation, QueuedRead};
use crate::runtime::outcome::Outcome;
use crate::runtime::point::Point;
use crate::runtime::queue::{Queue, QueueHandle};
use crate::runtime::table;

/// A queue of work on a device. Work runs in the order in which it is enqueued, asynchronously to the host
/// and to other streams.
///
/// A stream is a handle that is cheap to clone. Its functions may be called from any thread, and return at
/// once unless they say that they block, with one exception: work that writes to memory which was allocated
/// for [another stream](Self::allocate), and a launch that uses such memory, are enqueued when that stream's
/// earlier work with it is done.
///
/// Queued work owns the buffers that it uses, so they may be dropped before it runs. Work continues after the
/// last handle is dropped, and the drop does not wait for it. The end of the process does not wait either,
/// and aborts the work: [synchronize](Self::synchronize) first.
///
/// ```
/// use device_registry::device;
///
/// let device = device("cpu")?;
/// let stream = device.create_stream()?;
/// let other = device.create_stream()?;
/// let a = device.allocate(8)?;
/// let b = device.allocate(8)?;
/// stream.fill(&a, 0..8, b"ab")?;
/// let filled = stream.record()?;
/// other.wait_event(&filled)?;
/// other.copy(&a.slice(..4)?, &b.slice(4..)?)?;
/// let read = other.read(&b, 4..8)?;
/// assert_eq!(*read.wait()?, *b"abab");
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// The arguments are in [the same order as for a buffer's calls](Buffer#the-order-of-arguments).
///
/// # Errors in queued work
///
/// A function returns an error if it refuses the work: then it has enqueued nothing. Work that fails *later*
/// makes the stream skip the work after it, until one [`synchronize`](Self::synchronize) or
/// [`query`](Self::query) has returned the error. The stream skips everything enqueued before that call
/// returned: the caller could not have known of the failure. Skipped reads and events return the same error,
/// and a stream that [waits for such an event](Self::wait_event) fails with it.
///
/// So every error is reported exactly once, and work that is enqueued after the report runs. If a stream is
/// dropped before it reports its error, [`Device::synchronize`] returns the error, and the log has it too.
///
/// Where a device has queues of its own, work that such a queue already contains behind a failure may run or
/// not. Most such failures mean that the device is lost.
#[derive(Clone)]
pub struct Stream(Arc<QueueHandle>);

impl Device {
    /// Creates a stream of normal priority. Opens the device at the first use.
    ///
    /// # Errors
    ///
    /// If the device cannot be opened, or the driver cannot create another stream.
    pub fn create_stream(self) -> Result<Stream, DeviceError> {
        self.create_stream_with(&StreamOptions::new())
    }

    /// Creates a stream with options. Opens the device at the first use.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`create_stream`](Self::create_stream).
    pub fn create_stream_with(self, options: &StreamOptions) -> Result<Stream, DeviceError> {
        QueueHandle::create(table::open(self)?, options).map(Stream::of_queue)
    }

    /// Waits for the work of all streams of the device. Blocks, except for a device that is not open.
    ///
    /// It need not wait for work that a program submitted with native handles.
    ///
    /// # Errors
    ///
    /// The first failure of any stream that was not reported; each later call returns the next one. The
    /// device keeps the first 1,000 failures of streams that were dropped, and logs all of them.
    pub fn synchronize(self) -> Result<(), DeviceError> {
        match table::find(self)? {
            Some(device) => activity::call(|| wait_for(device), || device.synchronize()),
            None => Ok(()),
        }
    }

    /// Like [`synchronize`](Self::synchronize), but waits no longer than `timeout`.
    ///
    /// # Errors
    ///
    /// [`DeviceError::TimedOut`] if the work of a stream is not done by then: it continues. Otherwise the
    /// errors of [`synchronize`](Self::synchronize).
    pub fn synchronize_timeout(self, timeout: Duration) -> Result<(), DeviceError> {
        match table::find(self)? {
            Some(device) => {
                let deadline = Deadline::new("synchronize", timeout);
                activity::call(|| wait_for(device), || device.synchronize_until(&deadline))
            }
            None => Ok(()),
        }
    }
}

/// A wait for all work of a device, for observers.
fn wait_for(device: &OpenDevice) -> (Device, Work) {
    (device.device(), Work::Wait(WaitFor::Device))
}

impl Stream {
    /// A stream for a queue that may have other handles.
    pub(crate) fn of_queue(queue: Arc<QueueHandle>) -> Self {
        Self(queue)
    }

    pub(crate) fn into_queue(self) -> Arc<QueueHandle> {
        self.0
    }

    fn queue(&self) -> &Arc<Queue> {
        self.0.queue()
    }

    pub(crate) fn open_device(&self) -> &'static OpenDevice {
        self.queue().device()
    }

    /// The device of the stream, with its index.
    #[must_use]
    pub fn device(&self) -> Device {
        self.open_device().device()
    }

    /// The priority that the stream was created with.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.queue().priority()
    }

    /// Names the stream for [observers](crate::activity): `uploads`. A longer label than
    /// [`Name::MAX_LEN`](crate::activity::Name::MAX_LEN) bytes is cut.
    pub fn set_label(&self, label: &str) {
        self.queue().set_label(label);
    }

    /// How far the driver's queue has got; `None` if the driver has no queues.
    pub(crate) fn progress(&self) -> Option<&Arc<Progress>> {
        self.queue().progress()
    }

    /// Allocates `len` bytes of memory of the device, to be used in this stream.
    ///
    /// The memory may have belonged to a dropped buffer, and earlier work of the stream may still use it. The
    /// stream does its work in order, so nothing has to wait, and a program with many temporary buffers needs
    /// little memory. If another stream or a blocking call is the first to write to the new buffer, that call
    /// waits until the earlier work is done. Once this stream itself has used the bytes, the core no longer
    /// waits: the program orders further uses, as for any buffer. A launch counts as a use of all bytes of
    /// its buffers.
    ///
    /// Where the device does not [use memory again](crate::DeviceProperties::memory_reuse), or its driver has
    /// no queues, it is [`Device::allocate`].
    ///
    /// ```
    /// use device_registry::device;
    ///
    /// let stream = device("cpu")?.create_stream()?;
    /// for value in 0..100 {
    ///     let temporary = stream.allocate(1 << 16)?;
    ///     stream.fill(&temporary, .., &[value])?;
    /// }
    /// stream.synchronize()?;
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Device::allocate`].
    pub fn allocate(&self, len: usize) -> Result<Buffer, DeviceError> {
        let device = self.open_device();
        device.check("allocate")?;
        Buffer::new(device, len, self.progress())
    }

    /// Enqueues a copy of `source` from the host to the bytes of `destination` from `offset` on. The work
    /// owns `source`: a `Vec<u8>` moves into it without a copy, and a slice is copied.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`], [`DeviceError::Misaligned`], [`DeviceError::OtherDevice`], or the error
    /// of the backend if it refuses the work.
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
            Some(span) => {
                self.open_device().wait_for_memory(&span, self.progress(), "write")?;
                self.queue().accept(Operation::Write { source: Arc::new(source), destination: span })
            }
            None => Ok(()),
        }
    }

    /// Enqueues a copy of the bytes of `range` in `source` to the host. The [`Pending`] returns them.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write`](Self::write), and an error if the host does not have enough memory.
    /// The [`Pending`] returns an error that happens later.
    pub fn read(&self, source: &Buffer, range: impl RangeBounds<usize>) -> Result<Pending, DeviceError> {
        self.enqueue_read(source, source.range_of(range), None)
    }

    /// Enqueues a copy of the bytes of `source` from `offset` on into `destination`, which the [`Pending`]
    /// returns. The destination may be [pinned](Device::allocate_host).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`](Self::read).
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
        let outcome = Outcome::of_work(device, self.queue().as_origin(), "read", destination.len());
        let read = QueuedRead::new(&outcome);
        self.queue().accept(Operation::Read { source, destination, read })?;
        Ok(Pending::new(outcome))
    }

    /// Enqueues a copy of all bytes of `source` to `destination`, which has the same length;
    /// [slices](Buffer::slice) are parts of buffers. The source may be on any device; the destination must be
    /// on this stream's device.
    ///
    /// Within a device, and between two devices of a backend with peer copies, it is one copy. Otherwise the
    /// bytes go through the host.
    ///
    /// # Errors
    ///
    /// [`DeviceError::LengthMismatch`], [`DeviceError::Overlap`], [`DeviceError::Misaligned`],
    /// [`DeviceError::OtherDevice`], or the error of the backend if it refuses the work.
    pub fn copy(&self, source: &Buffer, destination: &Buffer) -> Result<(), DeviceError> {
        self.check_device(destination, BufferRole::Destination)?;
        match buffer::checked_copy(source, destination)? {
            Some((from, to)) => {
                self.open_device().wait_for_memory(&to, self.progress(), "copy")?;
                let from_device = source.open_device();
                self.queue().accept(Operation::Copy { from: from_device, source: from, destination: to })
            }
            None => Ok(()),
        }
    }

    /// Enqueues a fill of the bytes of `range` with `pattern`, repeated. The pattern has 1, 2, 4, 8 or 16
    /// bytes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`write`](Self::write), and [`DeviceError::Pattern`] if the pattern has another
    /// length or the range does not start and end at multiples of that length.
    pub fn fill(
        &self,
        destination: &Buffer,
        range: impl RangeBounds<usize>,
        pattern: &[u8],
    ) -> Result<(), DeviceError> {
        self.check_device(destination, BufferRole::Destination)?;
        match buffer::checked_fill(destination, range, pattern)? {
            Some((span, pattern)) => {
                self.open_device().wait_for_memory(&span, self.progress(), "fill")?;
                self.queue().accept(Operation::Fill { destination: span, pattern })
            }
            None => Ok(()),
        }
    }

    /// Enqueues a call of a function on the host. It runs on a thread of the stream, when all work before it
    /// is done.
    ///
    /// The function may not use devices: such a call in it returns [`DeviceError::InHostCall`]. Otherwise it
    /// could wait for a stream that waits for it. Buffers that it drops are freed later. A panic in it is an
    /// error of queued work.
    ///
    /// # Errors
    ///
    /// If the device is lost or closed, or the system cannot start a thread.
    pub fn host_call(&self, call: impl FnOnce() + Send + 'static) -> Result<(), DeviceError> {
        self.queue().accept(Operation::Call(Box::new(call)))
    }

    /// Enqueues a kernel: code that knows the backend and works on the native memory of `buffers`, which must
    /// be on this stream's device. Like a [host call](Self::host_call) it may not use devices, but it may
    /// submit native work: see [`Launch`], also for how a kernel works with a backend from a file. It has to
    /// end by itself, without waiting for a thread that uses devices: an allocation on a full device may wait
    /// for the kernel.
    ///
    /// ```
    /// use device_registry::backend::HostMemory;
    /// use device_registry::device;
    ///
    /// let stream = device("cpu")?.create_stream()?;
    /// let buffer = device("cpu")?.allocate(4)?;
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
    /// [`DeviceError::OtherDevice`], or the errors of [`host_call`](Self::host_call). An error of the kernel
    /// is an error of queued work. Where the kernel runs at once, to submit native work, this function
    /// returns its error.
    pub fn launch(
        &self,
        buffers: &[&Buffer],
        kernel: impl FnOnce(&Launch<'_>) -> Result<(), BackendError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        self.launch_with(&LaunchOptions::new(), buffers, kernel)
    }

    /// Enqueues a kernel with options, such as that it is [short](LaunchOptions::short).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`launch`](Self::launch).
    pub fn launch_with(
        &self,
        options: &LaunchOptions,
        buffers: &[&Buffer],
        kernel: impl FnOnce(&Launch<'_>) -> Result<(), BackendError> + Send + 'static,
    ) -> Result<(), DeviceError> {
        buffers.iter().try_for_each(|buffer| self.check_device(buffer, BufferRole::Argument))?;
        // A kernel that is done at once needs no memory for them.
        let mut few = [const { None }; 4];
        let mut many = Vec::new();
        let spans = match few.get_mut(..buffers.len()) {
            Some(few) => few,
            None => {
                many.resize_with(buffers.len(), || None);
                &mut many[..]
            }
        };
        let device = self.open_device();
        for (span, buffer) in spans.iter_mut().zip(buffers) {
            *span = buffer.span_of_launch();
            if let Some(span) = span {
                device.wait_for_memory(span, self.progress(), "launch")?;
            }
        }
        self.queue().launch(spans, kernel, options)
    }

    /// Records an event without a timestamp. It is done when all work that was enqueued before it is done.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`record_with`](Self::record_with).
    pub fn record(&self) -> Result<Event, DeviceError> {
        self.record_with(&EventOptions::new())
    }

    /// Records an event with options, such as a timestamp.
    ///
    /// # Errors
    ///
    /// If the device is lost or closed, or does not support the timed event that the options request.
    pub fn record_with(&self, options: &EventOptions) -> Result<Event, DeviceError> {
        let device = self.open_device();
        if options.timed && !device.properties().timed_events {
            let error = BackendError::unsupported("timed events");
            return Err(DeviceError::Call { device: device.device(), call: "record", error });
        }
        let event = Point::queued(device, options.timed);
        self.queue().accept(Operation::Record { event: Arc::clone(&event), options: options.clone() })?;
        Ok(Event::of_point(event))
    }

    /// Makes all work that is enqueued after this call wait until `event` is done. The event may be of any
    /// stream of any device.
    ///
    /// If the event fails, this stream fails with it on every backend, because work behind the wait may use
    /// data that was never written: its reads and events behind the wait return an error, and
    /// [`synchronize`](Self::synchronize) or [`query`](Self::query) reports one, once. A device that waits by
    /// itself may have run the work behind the wait, or not.
    ///
    /// # Errors
    ///
    /// If either device is lost or closed. If the event fails, or its device is lost, this stream fails
    /// later.
    pub fn wait_event(&self, event: &Event) -> Result<(), DeviceError> {
        self.queue().accept(Operation::Wait(Arc::clone(event.point())))
    }

    /// Whether all work is done. Does not wait.
    ///
    /// # Errors
    ///
    /// The first error of queued work that was not reported. Returning it reports it: see [Errors in queued
    /// work](Self#errors-in-queued-work).
    pub fn query(&self) -> Result<bool, DeviceError> {
        self.queue().query()
    }

    /// Waits for all work that was enqueued before the call. Blocks.
    ///
    /// # Errors
    ///
    /// The first error of queued work that was not reported. Returning it reports it: see [Errors in queued
    /// work](Self#errors-in-queued-work).
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        let queue = self.queue();
        activity::call(|| queue.wait(), || queue.synchronize())
    }

    /// Like [`synchronize`](Self::synchronize), but waits no longer than `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use device_registry::{DeviceError, device};
    ///
    /// let stream = device("cpu")?.create_stream()?;
    /// let (release, released) = std::sync::mpsc::channel::<()>();
    /// stream.host_call(move || released.recv().unwrap_or(()))?;
    /// match stream.synchronize_timeout(Duration::from_millis(20)) {
    ///     Err(error @ DeviceError::TimedOut { .. }) => println!("{error}"),
    ///     other => panic!("{other:?}"),
    /// }
    /// drop(release);
    /// stream.synchronize()?;
    /// # Ok::<(), DeviceError>(())
    /// ```
    ///
    /// prints
    ///
    /// ```text
    /// `cpu`: synchronize: not done after 20ms, and the work goes on: `host call` is under way
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeviceError::TimedOut`] if the work is not done by then, with what is under way. The work continues,
    /// and this error reports no failure. Otherwise the errors of [`synchronize`](Self::synchronize).
    pub fn synchronize_timeout(&self, timeout: Duration) -> Result<(), DeviceError> {
        let queue = self.queue();
        let deadline = Deadline::new("synchronize", timeout);
        activity::call(|| queue.wait(), || queue.synchronize_until(&deadline))
    }

    fn check_device(&self, buffer: &Buffer, role: BufferRole) -> Result<(), DeviceError> {
        if std::ptr::eq(buffer.open_device(), self.open_device()) {
            return Ok(());
        }
        // A device that was opened before a reset has the same name: `OtherDevice` would name one device
        // twice.
        buffer.open_device().check("use a buffer")?;
        self.open_device().check("use a stream")?;
        Err(DeviceError::OtherDevice { role, device: buffer.device(), stream: self.device() })
    }
}

/// Two handles are equal if they share a queue.
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
