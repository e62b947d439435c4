//! The end of a wait that has a time limit.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::DeviceError;
use crate::runtime::open_device::OpenDevice;

/// When a wait ends, and the call that it belongs to.
pub(crate) struct Deadline {
    call: &'static str,
    timeout: Duration,
    /// `None` if the clock cannot express it.
    at: Option<Instant>,
}

impl Deadline {
    pub(crate) fn new(call: &'static str, timeout: Duration) -> Self {
        Self { call, timeout, at: Instant::now().checked_add(timeout) }
    }

    pub(crate) fn call(&self) -> &'static str {
        self.call
    }

    /// How long the wait may still take; `None` if it is over.
    pub(crate) fn left(&self) -> Option<Duration> {
        /// A thread that waits longer looks again.
        const LONG: Duration = Duration::from_secs(3600);

        match self.at {
            None => Some(LONG),
            Some(at) => at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()),
        }
    }

    /// Polls until `is_done`, which is called at least once. Returns whether it is done.
    pub(crate) fn poll(
        &self,
        mut is_done: impl FnMut() -> Result<bool, DeviceError>,
    ) -> Result<bool, DeviceError> {
        const SHORTEST: Duration = Duration::from_micros(10);
        const LONGEST: Duration = Duration::from_millis(2);

        let mut pause = SHORTEST;
        loop {
            if is_done()? {
                return Ok(true);
            }
            let Some(left) = self.left() else { return Ok(false) };
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(LONGEST);
        }
    }

    /// The error after the end: `pending` says what the wait was for.
    pub(crate) fn timed_out(&self, device: &OpenDevice, pending: &str) -> DeviceError {
        DeviceError::TimedOut {
            device: device.device(),
            call: self.call,
            timeout: self.timeout,
            pending: Arc::from(pending),
        }
    }
}
