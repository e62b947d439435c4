//! The handles that keep the queue of a stream open.

use std::sync::Arc;

use crate::backend::{StreamDriver, StreamOptions};
use crate::error::DeviceError;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::queue::Queue;
use crate::runtime::transfer::is_unsupported;

/// The handle of a queue that all clones of a stream share. Its drop closes the queue.
pub(crate) struct QueueHandle(Arc<Queue>);

impl QueueHandle {
    /// Creates a queue for a new stream: a queue of the driver, or a thread where the driver has no queues.
    pub(crate) fn create(
        device: &'static OpenDevice,
        options: &StreamOptions,
    ) -> Result<Arc<Self>, DeviceError> {
        device.check("create a stream")?;
        device.collect_marked();
        let driver = driver_queue(device, options)?;
        Ok(Arc::new(Self(Queue::new(device, driver, options))))
    }

    /// A queue of the driver's for blocking calls that the driver leaves to the core; `None` if it has no
    /// queues.
    pub(crate) fn for_blocking_calls(device: &'static OpenDevice) -> Result<Option<Arc<Self>>, DeviceError> {
        let driver = driver_queue(device, &StreamOptions::new())?;
        Ok(driver.map(|driver| Arc::new(Self(Queue::internal(device, driver)))))
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.0
    }
}

fn driver_queue(
    device: &'static OpenDevice,
    options: &StreamOptions,
) -> Result<Option<Box<dyn StreamDriver>>, DeviceError> {
    let own = device.call("create a stream", |driver| driver.create_stream(options));
    if is_unsupported(&own) { Ok(None) } else { own.map(Some) }
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        self.0.close();
    }
}
