//! What the values of the contract need of the open device that they belong to.

use std::any::Any;
use std::sync::Arc;

use crate::backend::Memory;
use crate::device::Device;

/// The open device that memory belongs to. Memory may be dropped on any thread, and a driver is not to be called on every
/// one: the device chooses the place.
pub(crate) trait Owner: Send + Sync {
    /// The device, resolved.
    fn device(&self) -> Device;

    /// Frees an allocation of `len` bytes, or has a thread do so that may use devices.
    fn free(&'static self, memory: Arc<dyn Memory>, len: usize);

    /// Drops a value here, or as soon as a thread may use devices.
    fn drop_value(&self, value: Box<dyn Any + Send>);
}
