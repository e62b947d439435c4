//! The trait of a backend's events: points in a queue of the device.

use std::any::Any;
use std::time::Duration;

use crate::backend::BackendError;

/// A recorded point in a stream.
///
/// The core calls none of its functions before it has [flushed](crate::backend::StreamDriver::flush) the
/// stream, so the work before the event is submitted.
///
/// Its functions return the error of failed work before it, every time: the core queries events too, to find
/// finished work. The core may drop it at any time and on any thread, but never within a host call.
pub trait EventDriver: Any + Send + Sync {
    /// Whether the work before it is done. Does not wait.
    ///
    /// # Errors
    ///
    /// The error of work that failed.
    fn query(&self) -> Result<bool, BackendError>;

    /// Whether all work before it has ended, even with a failure. Then the core releases the memory that the
    /// work has used. Does not wait.
    ///
    /// The default calls [`query`](Self::query). The core cannot tell whether the query or the work has
    /// failed, so it releases nothing after an error. Implement this function if the driver can tell:
    /// otherwise the core keeps memory behind a failure until the stream is synchronized.
    ///
    /// # Errors
    ///
    /// If the driver cannot tell whether the work has ended.
    fn is_over(&self) -> Result<bool, BackendError> {
        self.query()
    }

    /// Waits until the work before it is done. Blocks.
    ///
    /// # Errors
    ///
    /// The error of work that failed.
    fn synchronize(&self) -> Result<(), BackendError>;

    /// The time from `start` to this event. Both are done, timed, and on one device. May block to fetch the
    /// timestamps.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if `start` was reached after this one.
    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError>;
}

impl dyn EventDriver {
    /// The event as the type that a backend's stream has recorded, for a driver that gets an event as an
    /// argument.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if it is of another type.
    pub fn downcast_ref<E: EventDriver>(&self) -> Result<&E, BackendError> {
        let event: &dyn Any = self;
        event.downcast_ref().ok_or_else(|| {
            BackendError::invalid(format_args!("expected an event of type `{}`", std::any::type_name::<E>()))
        })
    }
}
