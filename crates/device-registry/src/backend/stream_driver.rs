//! The trait of a backend's streams: queues of the device.

use std::any::Any;
use std::sync::Arc;

use crate::backend::{BackendError, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, Span};

/// A queue of the device: it runs submitted work in order, asynchronously to the host.
///
/// Every function submits from the caller's thread and does not wait for the work, unless it says that it
/// blocks. The core calls them from any thread, but for one stream it never calls two of the submitting
/// functions at the same time. These are all except [`flush`](Self::flush), [`query`](Self::query) and
/// [`synchronize`](Self::synchronize).
///
/// [Rules D7 to D17](crate::backend#streams) say what a refusal and a failure are, what the core keeps alive
/// and for how long, what `flush` is for, and how reads, events and a stream end. Host calls, events of other
/// backends and copies that the device cannot make never reach a driver: the core does them, in order.
pub trait StreamDriver: Send + Sync {
    /// The native handle of the queue, to which kernels submit native work:
    /// [`Launch::stream_as`](crate::backend::Launch::stream_as) downcasts it. By default there is none.
    ///
    /// Its type is not the one that implements this trait: see
    /// [Soundness](crate::backend::DeviceDriver#soundness).
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// The queue's handle of a [kind](crate::backend::DeviceDriver::native_handle), such as `cuda.CUstream`.
    /// `None`, the default, for a kind that the queue does not have.
    ///
    /// [`Launch::native_stream`](crate::backend::Launch::native_stream) returns it. It is borrowed: it is
    /// valid until the queue is dropped, and so within a launch. The other rules are the same as for
    /// [`DeviceDriver::native_handle`](crate::backend::DeviceDriver::native_handle).
    ///
    /// The core calls this function only for a device whose backend has opened it with
    /// [`OpenedDevice::with_native_handles`](crate::backend::OpenedDevice::with_native_handles).
    fn native_handle(&self, kind: &str) -> Option<u64> {
        let _ = kind;
        None
    }

    /// Submits a copy from the host to the device. The bytes of `source` neither move nor change until the
    /// work is done.
    ///
    /// # Errors
    ///
    /// If the driver cannot submit the work.
    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError>;

    /// Submits a copy from the device to the host. When it is done, the driver finishes `completion` with
    /// `destination`.
    ///
    /// The driver may finish it on any thread, and later than [`synchronize`](Self::synchronize) returns. A
    /// completion that the driver never finishes becomes an error when the device is lost or closed. A buffer
    /// of another length is an error of the work.
    ///
    /// Events behind a failed read return its error. The driver sees to this while the completion is not
    /// finished: [`Completion::watch`].
    ///
    /// The bytes of a [`HostBuffer`] stay in place when it moves. After a failure that leaves the device
    /// writing to them, a driver must leak the buffer.
    ///
    /// # Errors
    ///
    /// If the driver cannot submit the work.
    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError>;

    /// Submits a copy within the device.
    ///
    /// # Errors
    ///
    /// If the driver cannot submit the work.
    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError>;

    /// Submits a fill with a pattern, repeated to the end.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, for all fills or for this pattern or range, makes
    /// the core write a part and double it by copies.
    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let _ = (destination, pattern);
        Err(BackendError::unsupported("filling"))
    }

    /// Submits a copy from another device of the same backend, in the order of this stream.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core copy through the host.
    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let _ = (source, destination);
        Err(BackendError::unsupported("copying from a peer"))
    }

    /// Records an event, which is done when all work that was submitted before it is done.
    ///
    /// # Errors
    ///
    /// If the driver cannot record the event.
    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError>;

    /// Makes later work wait until an event is done. A stream of this backend has recorded the event, and was
    /// [flushed](Self::flush) since then: the work before the event is submitted.
    ///
    /// If the event fails, this stream fails with it. The driver may fail the later work, or run it and leave
    /// the failure to the core: rule D14.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core wait for the event before it
    /// submits more.
    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let _ = event;
        Err(BackendError::unsupported("waiting for an event"))
    }

    /// Notes that a kernel with access to this stream has returned. It may have submitted native work,
    /// whatever its result.
    ///
    /// The default does nothing. A driver that counts submitted work for [`query`](Self::query) implements
    /// it.
    fn launched(&self) {}

    /// Ensures that all work that the driver has accepted begins without further calls. When it returns, this
    /// also holds for work that another thread flushes at the same time. The default does nothing.
    ///
    /// So a driver may batch work and events, and submit them here. The core calls it when they are needed:
    ///
    /// - before each [`query`](Self::query) and [`synchronize`](Self::synchronize);
    /// - after an event was recorded, before the first call of one of its functions, and before another
    ///   stream [waits for it](Self::wait_event); a polled query of an event counts;
    /// - after a read was accepted, before a thread waits for it, polls it or awaits it;
    /// - after about 64 spans and other values, to find memory that is no longer used, and before the stream
    ///   is dropped.
    ///
    /// One flush covers all work before it, so the core does not flush after each event or read. A driver
    /// that wants its device to begin earlier submits in the other functions.
    ///
    /// A driver never submits batched work after its device was lost: the core drops the memory of
    /// that work with the stream.
    ///
    /// # Errors
    ///
    /// The error of work that the driver submits here; it becomes the stream's failure. The events and reads
    /// of that work end with the error, too.
    fn flush(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Whether all work that was submitted before the call is done. Does not wait. A driver that does not
    /// know returns `false`.
    ///
    /// The core calls it for [`Stream::query`](crate::Stream::query), and when it looks for memory to
    /// release.
    ///
    /// # Errors
    ///
    /// The error of work that failed; it becomes the stream's failure.
    fn query(&self) -> Result<bool, BackendError>;

    /// Waits until all work that was submitted before the call is over. Blocks. It returns no earlier if work
    /// fails, unless the device is lost: a close calls it last, and then frees what the work used.
    ///
    /// The core also calls it in [`Device::allocate`](crate::Device::allocate), when the device is full and
    /// work of this queue is the last user of some memory.
    ///
    /// # Errors
    ///
    /// The error of work that failed; it becomes the stream's failure.
    fn synchronize(&self) -> Result<(), BackendError>;
}
