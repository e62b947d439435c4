//! The backend: which devices there are, in which order, and how one is opened.

use device_registry::backend::{Backend, BackendError, DeviceProperties, LossReporter, OpenedDevice};

use crate::device::WgpuDriver;
use crate::faults::Faults;
use crate::properties::{self, Facts};

pub(crate) struct Wgpu {
    instance: wgpu::Instance,
    devices: Vec<(wgpu::Adapter, Facts)>,
    /// Whether tests requested fault injection.
    offers_faults: bool,
}

impl Wgpu {
    pub(crate) fn new(instance: wgpu::Instance, adapters: Vec<wgpu::Adapter>, offers_faults: bool) -> Self {
        let mut devices: Vec<_> = adapters
            .into_iter()
            .map(|adapter| {
                let facts = Facts::of(&adapter);
                (adapter, facts)
            })
            .collect();
        devices.sort_by_key(|(_, facts)| facts.order());
        Self { instance, devices, offers_faults }
    }

    fn device(&self, ordinal: usize) -> Result<&(wgpu::Adapter, Facts), BackendError> {
        let count = self.devices.len();
        self.devices.get(ordinal).ok_or_else(|| {
            BackendError::invalid(format_args!(
                "no device has the ordinal {ordinal}: there are {count} devices"
            ))
        })
    }
}

impl Backend for Wgpu {
    /// The adapters that were listed when the backend was loaded.
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(self.devices.len())
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let (adapter, facts) = self.device(ordinal)?;
        Ok(properties::of(adapter, facts))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let (adapter, _) = self.device(ordinal)?;
        let reporter = LossReporter::new();
        let faults = if self.offers_faults { Faults::new(&reporter) } else { Faults::default() };
        let driver = WgpuDriver::open(&self.instance, adapter, ordinal, faults)?;
        Ok(OpenedDevice::new(self, driver).with_loss_reporter(reporter))
    }
}
