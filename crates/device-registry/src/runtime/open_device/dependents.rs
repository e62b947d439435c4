//! What an open device requires of the queues, reads and events that use it.

use std::any::Any;
use std::sync::Arc;

use crate::backend::{Allocation, Progress, Span};
use crate::error::DeviceError;
use crate::runtime::deadline::Deadline;
use crate::runtime::open_device::OpenDevice;

/// A read or an event that threads may wait for.
pub(crate) trait Awaited: Send + Sync {
    /// Ends the waits, as the device has ended with this error.
    fn device_ended(&self, error: &DeviceError);
}

/// The queue of a stream.
pub(crate) trait StreamQueue: Send + Sync {
    /// How far the driver's queue has got; `None` if the driver has no queues.
    fn progress(&self) -> Option<&Arc<Progress>>;

    /// Waits for all work that was accepted before. Keeps a failure for a later report.
    fn settle(&self);

    /// Like [`settle`](Self::settle), until the deadline.
    fn settle_until(&self, deadline: &Deadline) -> Result<(), DeviceError>;

    /// Waits only for the driver's queue, and releases the values of its work. It does not wait for the
    /// stream's thread. Keeps a failure for a later report.
    ///
    /// If the driver has no queues, waits for the thread's work up to the first piece that may not end by
    /// itself.
    fn settle_submitted(&self);

    /// Waits for the driver's queue of a device that is being closed, when no other thread can submit to it.
    fn settle_closed(&self);

    /// Waits until all work below a number of the driver's queue is done. A failure of the work stays the
    /// stream's.
    fn wait_until_done(&self, number: u64) -> Result<(), DeviceError>;

    /// Reports the failure that was not reported yet.
    fn take_failure(&self) -> Result<(), DeviceError>;

    /// Releases the values of all finished work in a driver's queue. Does not wait. Returns whether it has
    /// released any.
    ///
    /// Queries the driver where events are not enough, which may cost a command.
    fn collect(&self) -> bool;

    /// Like [`collect`](Self::collect), as far as events show what is finished.
    fn collect_marked(&self) -> bool;

    /// The memory of the queue's device that the driver's queue may still use, or the pieces of work that the
    /// thread has not begun and [`settle_submitted`](Self::settle_submitted) waits for.
    fn memory_in_flight(&self) -> Vec<KeptMemory>;

    /// The number of the piece of work that the thread is doing, if it ends by itself. Which memory it uses
    /// is not known.
    fn under_way(&self) -> Option<u64>;

    /// Waits only for that piece, by its number.
    fn settle_under_way(&self, number: u64);

    /// Whether a dropped stream's work is done, or never will be because its device is lost or closed. Passes
    /// an unreported failure to the device.
    fn is_done(&self) -> bool;

    /// Wakes the threads that wait for the stream's thread, after the loss of the device.
    fn wake_waiting_threads(&self);
}

/// The handle of a stream that the device itself keeps.
pub(crate) trait StreamHandle: Any + Send + Sync {
    /// Closes the queue, although programs may have handles too.
    fn close(&self);
}

/// Memory that a queue keeps for its work, as it was at the time of the call.
pub(crate) struct KeptMemory {
    /// Which memory it is. It is only compared, as the memory may be freed meanwhile.
    pub(crate) place: *const Allocation,
    /// How many spans and buffers share it, whether or not they are in flight.
    pub(crate) users: usize,
}

impl KeptMemory {
    /// The memory of a span, if it is of this device.
    pub(crate) fn of(span: &Span, device: &OpenDevice) -> Option<Self> {
        let allocation = span.allocation();
        let place = Arc::as_ptr(allocation);
        let users = Arc::strong_count(allocation);
        allocation.is_owned_by(device).then_some(Self { place, users })
    }
}
