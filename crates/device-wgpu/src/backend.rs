//! The backend: which devices there are, in which order, and how one is opened.

use device_registry::backend::{Backend, BackendError, DeviceProperties, OpenedDevice};

use crate::device::Driver;
use crate::properties::{self, Facts};

pub(crate) struct Wgpu {
    instance: wgpu::Instance,
    devices: Vec<(wgpu::Adapter, Facts)>,
}

impl Wgpu {
    pub(crate) fn new(instance: wgpu::Instance, adapters: Vec<wgpu::Adapter>) -> Self {
        let mut devices: Vec<_> = adapters
            .into_iter()
            .map(|adapter| {
                let facts = Facts::of(&adapter);
                (adapter, facts)
            })
            .collect();
        devices.sort_by_key(|(_, facts)| facts.order());
        Self { instance, devices }
    }
}

impl Backend for Wgpu {
    /// The adapters that were listed when the backend was loaded.
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(self.devices.len())
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        // The core has compared the ordinal with the count.
        let (adapter, facts) = &self.devices[ordinal];
        Ok(properties::of(adapter, facts))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let (adapter, _) = &self.devices[ordinal];
        Ok(OpenedDevice::new(Driver::open(&self.instance, adapter, ordinal)?))
    }
}
