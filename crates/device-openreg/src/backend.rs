//! The backend: how many devices there are, and how one is opened.

use std::sync::atomic::{AtomicBool, Ordering};

use device_registry::{
    Backend, BackendError, DeviceDriver, DeviceKind, DeviceProperties, Fault, FaultInjector,
};

use crate::device::OpenRegDevice;
use crate::settings::Settings;

pub(crate) struct OpenReg {
    devices: Vec<Simulated>,
    settings: Settings,
}

/// What there is of a device while it is not open.
struct Simulated {
    memory: usize,
    opened_before: AtomicBool,
}

impl OpenReg {
    pub(crate) fn new(settings: Settings) -> Self {
        let simulated = |&memory: &usize| Simulated { memory, opened_before: AtomicBool::new(false) };
        Self { devices: settings.memory.iter().map(simulated).collect(), settings }
    }
}

impl Backend for OpenReg {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(self.devices.len())
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        // The devices are alike, and what tells them apart is their memory.
        let memory = self.devices[ordinal].memory as u64;
        let driver = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));
        Ok(DeviceProperties::new("OpenReg simulated device")
            .with_kind(DeviceKind::Simulated)
            .with_driver(driver)
            .with_total_memory(memory))
    }

    fn open(&self, ordinal: usize) -> Result<Box<dyn DeviceDriver>, BackendError> {
        let simulated = &self.devices[ordinal];
        let device = OpenRegDevice::new(ordinal, simulated.memory)?;
        let opened_before = simulated.opened_before.swap(true, Ordering::Relaxed);
        for &fault in &self.settings.faults {
            // A device that was lost and is opened again is there to show that it works again.
            if !opened_before || matches!(fault, Fault::Slow { .. }) {
                device.injector().inject(fault)?;
            }
        }
        Ok(Box::new(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(faults: &[Fault]) -> OpenReg {
        OpenReg::new(Settings { memory: vec![4096, 8192], faults: faults.to_vec() })
    }

    #[test]
    fn every_device_that_is_counted_opens_with_all_its_memory_free() {
        let backend = backend(&[]);
        assert_eq!(backend.device_count().unwrap(), 2);
        for (ordinal, len) in [(0, 4096), (1, 8192)] {
            let memory = backend.open(ordinal).unwrap().memory_info().unwrap();
            assert_eq!((memory.total, memory.free), (Some(len), Some(len)));
        }
    }

    #[test]
    fn faults_of_the_environment_happen_to_each_device_but_not_again_once_it_is_reset() {
        let slow = std::time::Duration::from_millis(20);
        let backend = backend(&[Fault::FailAllocation { nth: 1 }, Fault::Slow { by: slow }]);
        let allocate = |ordinal| {
            let start = std::time::Instant::now();
            let options = device_registry::AllocateOptions::new(1);
            let result = backend.open(ordinal).unwrap().allocate(&options).map(drop);
            assert!(start.elapsed() >= slow, "it stays as slow as it is");
            result.is_ok()
        };
        assert_eq!([0, 1, 0, 1].map(allocate), [false, false, true, true]);
    }
}
