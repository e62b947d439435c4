//! A stream, as far as the core knows it: the handles that keep its queue open.

use std::sync::Arc;

use crate::backend::StreamOptions;
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
        let own = device.call("create a stream", |driver| driver.create_stream(options));
        let driver = match own {
            Ok(driver) => Some(driver),
            Err(_) if is_unsupported(&own) => None,
            Err(error) => return Err(error),
        };
        Ok(Arc::new(Self(Queue::new(device, driver, options))))
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.0
    }
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        self.0.close();
    }
}
