//! A buffer that is being mapped, and whoever waits for it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use device_registry::backend::BackendError;

use crate::loss::Loss;

/// How often those who wait look whether the device is lost. After a loss wgpu may forget its callbacks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The first bytes of a buffer on their way to being mapped.
pub(crate) struct Mapping {
    outcome: Mutex<Option<Result<(), BackendError>>>,
    known: Condvar,
}

/// wgpu's end of it. If wgpu drops its callback uncalled, that is an outcome as well.
struct Callback(Arc<Mapping>);

impl Callback {
    fn tell(&self, outcome: Result<(), BackendError>) {
        let mut known = self.0.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            *known = Some(outcome);
            drop(known);
            self.0.known.notify_all();
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.tell(Err(BackendError::other("wgpu gave up a mapping without a word")));
    }
}

impl Mapping {
    /// Asks for the first `len` bytes of `buffer`. They are mapped when what was submitted is done with them, and
    /// somebody polls.
    pub(crate) fn begin(buffer: &wgpu::Buffer, mode: wgpu::MapMode, len: u64) -> Arc<Self> {
        let mapping = Arc::new(Self { outcome: Mutex::default(), known: Condvar::new() });
        let callback = Callback(Arc::clone(&mapping));
        // It runs on whichever thread polls or submits at that moment: so it keeps the outcome and does no more.
        buffer.map_async(mode, 0..len, move |outcome| {
            callback
                .tell(outcome.map_err(|error| BackendError::other("a mapping failed").with_source(error)));
        });
        mapping
    }

    /// Whether it is done, well or not. Does not wait.
    pub(crate) fn outcome(&self) -> Option<Result<(), BackendError>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for a callback that another thread is about to call.
    pub(crate) fn wait(&self, loss: &Loss) -> Result<(), BackendError> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*outcome {
                Some(Ok(())) => return Ok(()),
                // A loss is the reason of all that fails after it.
                Some(Err(error)) => return loss.check().and(Err(error.clone())),
                None => loss.check()?,
            }
            outcome = self.known.wait_timeout(outcome, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
