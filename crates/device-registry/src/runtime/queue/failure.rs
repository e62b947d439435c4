//! The failure of a stream, and which work is skipped for it.
//!
//! A failure is reported once, by the first call that can return it. Work that was enqueued before that call
//! is skipped, as its caller did not know of the failure; work that is enqueued after it is done.
//!
//! `Queue::fail` and the thread of the stream set a failure. What a failed or skipped operation wrote to is
//! unspecified. Skipped reads and events get the same error (`Operation::skip`). If the stream is dropped
//! first, the device reports the failure (`Queue::leave_unreported`).

use crate::error::DeviceError;

/// The latest failure of a queue, if it has failed.
#[derive(Default)]
pub(super) struct Failure {
    latest: Option<Failed>,
    /// How many failures there were.
    count: u64,
    /// Whether the call that enqueued the work waits for it, and returns a failure itself.
    held: bool,
}

struct Failed {
    error: DeviceError,
    /// After the report: the number of the first piece of work that was enqueued after it.
    reported: Option<u64>,
}

impl Failure {
    /// Sets the failure, unless there is an earlier one that is not reported.
    pub(super) fn set(&mut self, error: DeviceError) {
        if !matches!(self.latest, Some(Failed { reported: None, .. })) {
            self.latest = Some(Failed { error, reported: None });
            self.count += 1;
        }
    }

    /// Sets the failure, unless there was one since the [`count`](Self::count) was this.
    pub(super) fn set_since(&mut self, count: u64, error: DeviceError) {
        if self.since(count).is_none() {
            self.set(error);
        }
    }

    /// Holds failures back from [`report`](Self::report), or no longer does.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// How many failures there were, for [`since`](Self::since).
    #[inline]
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The latest failure, whether or not it is reported, if the count was lower before it.
    pub(super) fn since(&self, count: u64) -> Option<DeviceError> {
        self.latest.as_ref().filter(|_| count < self.count).map(|failed| failed.error.clone())
    }

    /// The error that makes the queue skip the piece of work with this number.
    #[inline]
    pub(super) fn skips(&self, number: u64) -> Option<DeviceError> {
        let failed = self.latest.as_ref()?;
        failed.reported.is_none_or(|reported| number < reported).then(|| failed.error.clone())
    }

    /// Reports the failure, once, unless it is held back. `next` is the number of the next piece of work that
    /// is enqueued.
    #[inline]
    pub(super) fn report(&mut self, next: u64) -> Result<(), DeviceError> {
        if self.held { Ok(()) } else { self.take(next) }
    }

    /// Reports the failure, once, even if it is held back.
    #[inline]
    pub(super) fn take(&mut self, next: u64) -> Result<(), DeviceError> {
        match &mut self.latest {
            Some(Failed { error, reported: reported @ None }) => {
                *reported = Some(next);
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    fn error() -> DeviceError {
        DeviceError::Forked { device: Device::cpu() }
    }

    #[test]
    fn work_is_skipped_until_the_failure_was_reported_and_done_after_that() {
        let mut failure = Failure::default();
        assert!(failure.skips(0).is_none() && failure.report(0).is_ok());
        failure.set(error());
        assert!(failure.skips(7).is_some());
        assert!(failure.report(8).is_err());
        assert!(failure.skips(7).is_some() && failure.skips(8).is_none());
        assert!(failure.report(9).is_ok(), "reported twice");
    }

    #[test]
    fn a_failure_that_is_held_back_is_reported_to_the_call_that_holds_it() {
        let mut failure = Failure::default();
        failure.hold(true);
        failure.set(error());
        assert!(failure.report(0).is_ok() && failure.skips(0).is_some());
        assert!(failure.take(0).is_err() && failure.take(0).is_ok());
        failure.set(error());
        failure.hold(false);
        assert!(failure.report(0).is_err());
    }

    #[test]
    fn a_failure_that_arrived_since_a_count_is_found_even_after_its_report() {
        let mut failure = Failure::default();
        let before = failure.count();
        assert!(failure.since(before).is_none());
        failure.set(error());
        assert!(failure.since(before).is_some() && failure.since(failure.count()).is_none());
        let behind = failure.count();
        failure.set(error());
        assert!(failure.since(behind).is_none(), "the first one is not reported yet");
        assert!(failure.report(0).is_err() && failure.since(before).is_some());
        failure.set(error());
        assert!(failure.since(behind).is_some());
    }
}
