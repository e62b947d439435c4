//! burn's profiling windows: two events of the device's stream, with timestamps.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use burn_backend::{ExecutionError, ProfileDuration, ProfileToken};
use burn_std::profile::{Instant, ProfileTicks};
use device_registry::{ErrorChain, Event};
use parking_lot::Mutex;

use crate::queue::BurnQueue;

/// The windows of one device that are open.
#[derive(Default)]
pub(crate) struct Windows(Mutex<HashMap<u64, Window>>);

struct Window {
    start: Event,
    opened: Instant,
}

impl Windows {
    /// Opens a window after the enqueued work. `None` if the device has no timestamps: burn then
    /// measures with the host's clock, and waits.
    pub(crate) fn open(&self, queue: &BurnQueue) -> Result<Option<ProfileToken>, ExecutionError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Some(start) = queue.record_timed().map_err(|error| failed("opened", &error))? else {
            return Ok(None);
        };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.0.lock().insert(id, Window { start, opened: Instant::now() });
        Ok(Some(ProfileToken { id, opened_on: 0 }))
    }

    /// Closes a window after the enqueued work. Its duration waits for the device.
    pub(crate) fn close(
        &self,
        token: ProfileToken,
        queue: &BurnQueue,
    ) -> Result<ProfileDuration, ExecutionError> {
        let unknown = || ExecutionError::with_context(format!("no profiling window {} is open", token.id));
        let Window { start, opened } = self.0.lock().remove(&token.id).ok_or_else(unknown)?;
        let end = queue.record_timed().map_err(|error| failed("closed", &error))?;
        Ok(ProfileDuration::new_device_time_maybe(async move {
            let end = end?;
            match end.synchronize().and_then(|()| end.elapsed_since(&start)) {
                Ok(elapsed) => Some(ProfileTicks::from_start_end(opened, opened + elapsed)),
                Err(error) => {
                    log::warn!("a profiling window measured nothing: {}", ErrorChain::new(&error));
                    None
                }
            }
        }))
    }

    /// Forgets a window.
    pub(crate) fn abandon(&self, token: ProfileToken) {
        let window = self.0.lock().remove(&token.id);
        // Dropped without the lock, as its event is the device's.
        drop(window);
    }
}

fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> ExecutionError {
    ExecutionError::with_context(format!(
        "the profiling window could not be {what}: {}",
        ErrorChain::new(error)
    ))
}
