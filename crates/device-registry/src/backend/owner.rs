//! The interface between the values of the contract and the open device that they belong to.

use std::any::Any;
use std::sync::Arc;

use crate::backend::{BackendError, Block, DeviceValues, Memory, StreamOrder};
use crate::device::Device;

/// The open device that owns memory. Any thread may drop memory, but not every thread may call a driver, so
/// the device chooses the thread that frees it.
pub(crate) trait Owner: Send + Sync {
    /// The device, resolved.
    fn device(&self) -> Device;

    /// Whether its backend has declared that it has native handles that are numbers.
    fn has_native_handles(&self) -> bool;

    /// What kernels keep with it.
    fn values(&self) -> &DeviceValues;

    /// Frees an allocation of `len` bytes: here, or later on a thread that may use devices.
    fn free(
        &'static self,
        memory: Arc<dyn Memory>,
        len: usize,
        block: Option<Block>,
        order: Option<StreamOrder>,
    );

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
