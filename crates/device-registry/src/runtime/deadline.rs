//! The end of a wait that has a time limit.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::DeviceError;

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

    /// How long the wait may still take; `None` if it is over. A thread that has waited so long looks again:
    /// if the clock cannot express the deadline, the wait is not over then.
    pub(crate) fn left(&self) -> Option<Duration> {
        const LONG: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_secs(3600) };

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
    pub(crate) fn timed_out(&self, device: Device, pending: &str) -> DeviceError {
        DeviceError::TimedOut { device, call: self.call, timeout: self.timeout, pending: Arc::from(pending) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::HostBuffer;
    use crate::runtime::outcome::Outcome;
    use crate::runtime::queue::QueueHandle;
    use crate::runtime::table;
    use crate::testing::fake;

    #[test]
    fn a_wait_without_an_end_does_not_end_when_its_thread_looks_again() {
        let device = table::open(fake(None)).unwrap();
        let stream = QueueHandle::create(device, &Default::default()).unwrap();
        let outcome = Outcome::of_work(device, stream.queue().as_origin(), "read", 4);
        let sets = Arc::clone(&outcome);
        let thread = thread::spawn(move || {
            // In tests, the waiting thread looks again after one millisecond.
            thread::sleep(Duration::from_millis(30));
            sets.set(Ok(HostBuffer::from(vec![7; 4])));
        });
        let result = outcome.wait_until(&Deadline::new("read", Duration::MAX));
        assert_eq!(*result.expect("it has no end").unwrap(), [7; 4]);
        thread.join().unwrap();
    }
}
