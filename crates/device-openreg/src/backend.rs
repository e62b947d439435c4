//! The backend: how many devices there are, and how one is opened.

use device_registry::{Backend, BackendError, DeviceDriver, DeviceKind, DeviceProperties};

use crate::device::OpenRegDevice;

const DEVICES: usize = 2;

/// The memory of each device, in bytes.
const CAPACITY: usize = 1 << 30;

pub(crate) struct OpenReg;

impl OpenReg {
    pub(crate) fn new() -> Self {
        Self
    }
}

impl Backend for OpenReg {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(DEVICES)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let driver = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));
        Ok(DeviceProperties::new("OpenReg simulated device")
            .with_kind(DeviceKind::Simulated)
            .with_driver(driver)
            .with_total_memory(CAPACITY as u64))
    }

    fn open(&self, _ordinal: usize) -> Result<Box<dyn DeviceDriver>, BackendError> {
        // The devices are alike, and what tells them apart is their memory.
        Ok(Box::new(OpenRegDevice::new(CAPACITY)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_that_is_counted_opens_with_all_its_memory_free() {
        let backend = OpenReg::new();
        for ordinal in 0..backend.device_count().unwrap() {
            let device = backend.open(ordinal).unwrap();
            let memory = device.memory_info().unwrap();
            assert_eq!((memory.total, memory.free), (Some(1 << 30), Some(1 << 30)));
        }
    }
}
