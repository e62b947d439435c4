//! A buffer that is being mapped, and the wait for that.

use std::sync::Arc;
use std::time::Duration;

use device_registry::backend::BackendError;
use parking_lot::{Condvar, Mutex};

use crate::loss::Loss;

/// How often a waiting thread checks whether the device is lost. After a loss wgpu may never call its
/// callbacks.
const LOSS_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A mapping of the first bytes of a buffer, requested or done.
pub(crate) struct Mapping {
    outcome: Mutex<Option<Result<(), BackendError>>>,
    known: Condvar,
}

/// wgpu's end of a mapping. A callback that wgpu drops uncalled is an error of the mapping.
struct Callback(Arc<Mapping>);

impl Callback {
    fn finish(&self, outcome: Result<(), BackendError>) {
        let mut known = self.0.outcome.lock();
        if known.is_none() {
            *known = Some(outcome);
            drop(known);
            self.0.known.notify_all();
        }
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.finish(Err(BackendError::other("wgpu dropped the callback of a mapping")));
    }
}

impl Mapping {
    /// Requests the first `len` bytes of `buffer`. They are mapped once submitted work no longer uses them
    /// and a thread polls.
    pub(crate) fn begin(buffer: &wgpu::Buffer, mode: wgpu::MapMode, len: u64) -> Arc<Self> {
        let mapping = Arc::new(Self { outcome: Mutex::default(), known: Condvar::new() });
        let callback = Callback(Arc::clone(&mapping));
        // The callback runs on any thread that polls or submits, so it only stores the outcome.
        buffer.map_async(mode, 0..len, move |outcome| {
            callback
                .finish(outcome.map_err(|error| BackendError::other("a mapping failed").with_source(error)));
        });
        mapping
    }

    /// The outcome, once there is one. Does not wait.
    pub(crate) fn outcome(&self) -> Option<Result<(), BackendError>> {
        self.outcome.lock().clone()
    }

    /// Waits for a callback that another thread is about to call.
    pub(crate) fn wait(&self, loss: &Loss) -> Result<(), BackendError> {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Some(Ok(())) => return Ok(()),
                // A loss is the cause of every later failure.
                Some(Err(error)) => return loss.check().and(Err(error.clone())),
                None => loss.check()?,
            }
            self.known.wait_for(&mut outcome, LOSS_CHECK_INTERVAL);
        }
    }
}
