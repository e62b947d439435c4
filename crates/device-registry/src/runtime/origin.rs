//! A read's or an event's view of the queue that it comes from.

use std::sync::Arc;

use crate::error::DeviceError;
use crate::sync::AtomicBool;

pub(crate) trait Origin: Send + Sync {
    /// Ensures that the work before the event or read with this number begins. A failure is the stream's,
    /// too.
    fn begin(self: Arc<Self>, number: u64) -> Result<(), DeviceError>;

    /// Sets the failure of a read and, under the same lock, the flag that its driver looks at.
    fn fail_read(&self, error: DeviceError, finished: Option<&AtomicBool>);
}
