//! What a backend implements for a point in a queue of its device's own.

use std::any::Any;
use std::time::Duration;

use crate::backend::BackendError;

/// A point in a stream that was recorded. It may be dropped at any time, but not within a host call. Work before it that
/// failed is its error each time that it is asked: the core asks events too, for what they show to be done.
pub trait EventDriver: Any + Send + Sync {
    /// Whether the work before it is done. Does not wait.
    ///
    /// # Errors
    ///
    /// That of work that failed.
    fn query(&self) -> Result<bool, BackendError>;

    /// Whether nothing of the work before it runs any more, be it that some has failed: then the core lets go of what that
    /// work has used. Does not wait.
    ///
    /// By default the same as [`query`](Self::query), whose error may be one of the question, so that nothing is let go
    /// after it. A driver that knows better says so, or what is behind a failure is kept until the stream is waited for.
    ///
    /// # Errors
    ///
    /// When it cannot be known.
    fn is_over(&self) -> Result<bool, BackendError> {
        self.query()
    }

    /// Waits until the work before it is done.
    ///
    /// # Errors
    ///
    /// That of work that failed.
    fn synchronize(&self) -> Result<(), BackendError>;

    /// The time from `start` to this event. Both are done, timed, and of one device; it may block to fetch the times.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if `start` was reached after this one.
    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError>;
}

impl dyn EventDriver {
    /// The event as the type that a backend's stream recorded, where a driver gets one as an argument.
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
