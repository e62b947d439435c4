//! The queue that a read or an event comes from, as those see it.

use std::sync::Arc;

use crate::error::DeviceError;
use crate::sync::AtomicBool;

pub(crate) trait Origin: Send + Sync {
    /// Ensures that the work before the event or read with this number begins. A failure is the stream's,
    /// too.
    fn begin(self: Arc<Self>, number: u64) -> Result<(), DeviceError>;

    /// Sets the failure of a read, and under the same lock the flag at which its driver looks.
    fn fail_read(&self, error: DeviceError, finished: Option<&AtomicBool>);
}
