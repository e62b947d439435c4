//! The handles that keep the queue of a stream open.

use std::any::Any;
use std::sync::Arc;

use crate::backend::StreamOptions;
use crate::error::DeviceError;
use crate::runtime::open_device::{OpenDevice, StreamHandle};
use crate::runtime::queue::Queue;

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
        let driver = device.create_driver_stream(options)?;
        Ok(Arc::new(Self(Queue::new(device, driver, options))))
    }

    /// The device's default stream, if it has one by now.
    pub(crate) fn default_of(device: &OpenDevice) -> Option<Arc<Self>> {
        of_device(device.default_stream()?)
    }

    /// The device's default stream. The first call creates it.
    pub(crate) fn create_default(device: &'static OpenDevice) -> Result<Arc<Self>, DeviceError> {
        if let Some(stream) = Self::default_of(device) {
            return Ok(stream);
        }
        let stream = Self::create(device, &StreamOptions::new())?;
        Ok(of_device(device.default_stream_or(stream.clone())).unwrap_or(stream))
    }

    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.0
    }
}

/// The handle of a device's own stream, which this module has made.
fn of_device(stream: Arc<dyn StreamHandle>) -> Option<Arc<QueueHandle>> {
    let stream: Arc<dyn Any + Send + Sync> = stream;
    stream.downcast().ok()
}

impl StreamHandle for QueueHandle {
    fn close(&self) {
        self.0.close();
    }
}

impl Drop for QueueHandle {
    fn drop(&mut self) {
        self.0.close();
    }
}
