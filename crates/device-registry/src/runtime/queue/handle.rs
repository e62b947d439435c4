//! A stream, as far as the core knows it: the handles that keep its queue open.

use std::sync::Arc;

use crate::backend::{StreamDriver, StreamOptions};
use crate::error::DeviceError;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::queue::Queue;
use crate::runtime::transfer::is_unsupported;

/// A handle of a stream's queue: when the last one is dropped, the stream is.
pub(crate) struct QueueHandle(Arc<Queue>);

impl QueueHandle {
    /// A queue for a new stream: the driver's, or the core's where the driver has none.
    pub(crate) fn create(
        device: &'static OpenDevice,
        options: &StreamOptions,
    ) -> Result<Arc<Self>, DeviceError> {
        device.check("create a stream")?;
        device.collect_marked();
        let driver = driver_queue(device, options)?;
        Ok(Arc::new(Self(Queue::new(device, driver, options))))
    }

    /// A queue of the driver's for blocking calls that the driver leaves to the core; `None` if it has no queues.
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
