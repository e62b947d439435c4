//! The interface between the values of the contract and the open device that they belong to.

use std::any::Any;
use std::sync::Arc;

use crate::backend::{BackendError, Block, DeviceValues, Memory, StreamOrder};
use crate::device::Device;

/// An allocation that is freed, without its memory.
pub(crate) struct Freed {
    pub(crate) len: usize,
    pub(crate) block: Option<Block>,
    pub(crate) order: Option<StreamOrder>,
    /// Its number for observers; 0 if there was none when it was allocated.
    pub(crate) number: u64,
}

/// The open device that owns memory. Any thread may drop memory, but not every thread may call a driver, so
/// the device chooses the thread that frees it.
pub(crate) trait Owner: Send + Sync {
    /// The device, resolved.
    fn device(&self) -> Device;

    /// Whether its backend has declared that it has native handles that are numbers.
    fn has_native_handles(&self) -> bool;

    /// What kernels keep with it.
    fn values(&self) -> &DeviceValues;

    /// Frees an allocation: here, or later on a thread that may use devices.
    fn free(&'static self, memory: Arc<dyn Memory>, freed: Freed);

    /// Runs a short query of memory while the device is open: a close waits for it.
    ///
    /// # Errors
    ///
    /// If the device is lost or closed, or was opened by the parent of this process.
    fn while_open(&self, query: &mut dyn FnMut()) -> Result<(), BackendError>;

    /// Drops a value, here or later on a thread that may use devices.
    fn drop_value(&self, value: Box<dyn Any + Send>);

    /// The driver reports the device as lost. Does not unwind.
    fn lose(&'static self, error: BackendError);
}
