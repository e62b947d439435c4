//! The backend: which devices there are, in which order, and how one is opened.

use device_registry::backend::{Backend, BackendError, DeviceProperties, OpenedDevice};

use crate::device::Driver;
use crate::properties::{self, Facts};

pub(crate) struct Wgpu {
    devices: Vec<(wgpu::Adapter, Facts)>,
}

impl Wgpu {
    pub(crate) fn new(adapters: Vec<wgpu::Adapter>) -> Self {
        let mut devices: Vec<_> = adapters
            .into_iter()
            .map(|adapter| {
                let facts = Facts::of(&adapter);
                (adapter, facts)
            })
            .collect();
        devices.sort_by_key(|(_, facts)| facts.place());
        Self { devices }
    }

    fn device(&self, ordinal: usize) -> Result<&(wgpu::Adapter, Facts), BackendError> {
        self.devices.get(ordinal).ok_or_else(|| {
            BackendError::invalid(format_args!("there are {} adapters, and no {ordinal}", self.devices.len()))
        })
    }
}

impl Backend for Wgpu {
    /// Those that there were when the backend was loaded.
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(self.devices.len())
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let (adapter, facts) = self.device(ordinal)?;
        Ok(properties::of(adapter, facts))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let (adapter, _) = self.device(ordinal)?;
        Ok(OpenedDevice::new(Driver::open(adapter, ordinal)?))
    }
}
