//! What a backend implements for a queue of its device's own.

use std::any::Any;
use std::sync::Arc;

use crate::backend::{BackendError, Completion, EventDriver, EventOptions, FillPattern, HostBuffer, Span};

/// A queue of a device's own: what is submitted is done in that order, beside the host.
///
/// Every function submits from the caller's thread and does not wait for the work, except where it says so. It may be
/// called from any thread; for one stream the core never calls two of the submitting functions at once, which are all but
/// [`flush`](Self::flush), [`query`](Self::query) and [`synchronize`](Self::synchronize). An error is a
/// refusal, after which the queue goes on as if it had not been asked. What fails later is reported by the
/// [`EventDriver`]s behind it, [`query`](Self::query) and [`synchronize`](Self::synchronize), once or each time; if the
/// device cannot go on, as [`BackendError::lost`]. A driver need not skip what is behind a failure.
///
/// The core keeps all memory alive that queued work touches, until an event behind it [is over](EventDriver::is_over),
/// [`query`](Self::query) returns that all work is done, or [`synchronize`](Self::synchronize) succeeds. Host calls, events
/// of other backends and copies that the device has no way for never reach a driver: the core does them in their place in
/// the order.
pub trait StreamDriver: Send + Sync {
    /// The handle that kernels get of the queue, to submit native work to it:
    /// [`Launch::stream_as`](crate::backend::Launch::stream_as) downcasts it. By default there is none.
    ///
    /// It is a type beside the one that implements this trait: see [Soundness](crate::backend::DeviceDriver#soundness).
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Copies from the host to the device. The bytes of `source` neither move nor change until the work is done.
    ///
    /// # Errors
    ///
    /// When it cannot be submitted.
    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError>;

    /// Copies from the device to the host, and finishes `completion` with `destination` when it is done, from any
    /// thread, perhaps later than [`synchronize`](Self::synchronize) returns. One that is never finished becomes an error
    /// when the device is lost or closed, and one that is finished with a buffer of another length an error of the work.
    ///
    /// The bytes of a [`HostBuffer`] stay where they are when it is moved. After a failure that leaves the device writing
    /// to them, a driver has to leak it.
    ///
    /// # Errors
    ///
    /// When it cannot be submitted.
    fn read(
        &self,
        source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError>;

    /// Copies within the device.
    ///
    /// # Errors
    ///
    /// When it cannot be submitted.
    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError>;

    /// Fills with a pattern that is repeated to the end.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core write a part and double it by copies.
    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let _ = (destination, pattern);
        Err(BackendError::unsupported("filling"))
    }

    /// Copies from another device of the same backend, in the order of this stream.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core copy through the host.
    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let _ = (source, destination);
        Err(BackendError::unsupported("copying from a peer"))
    }

    /// An event that is done when all work submitted before it is.
    ///
    /// # Errors
    ///
    /// When it cannot be submitted.
    fn record(&self, options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError>;

    /// Holds later work back until an event is done that a stream of this backend has recorded.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core hold it back.
    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let _ = event;
        Err(BackendError::unsupported("waiting for an event"))
    }

    /// A kernel has returned that was given this stream, and may have submitted native work to it, whatever its outcome. By
    /// default nothing: it is for a driver that counts what is submitted, to answer [`query`](Self::query).
    fn launched(&self) {}

    /// Sees to it that what was submitted begins without further calls. The core calls it before anything that waits,
    /// and after every event and read. By default nothing.
    ///
    /// # Errors
    ///
    /// As those of the work.
    fn flush(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Whether all work is done that was submitted before the call. Does not wait. A driver that cannot say so now returns
    /// `false`.
    ///
    /// The core calls it for [`Stream::query`](crate::Stream::query), and when it looks for memory to release.
    ///
    /// # Errors
    ///
    /// That of work that failed: it becomes the stream's failure.
    fn query(&self) -> Result<bool, BackendError>;

    /// Waits until all work is done that was submitted before the call.
    ///
    /// # Errors
    ///
    /// That of work that failed.
    fn synchronize(&self) -> Result<(), BackendError>;
}
