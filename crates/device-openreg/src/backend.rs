//! The backend: how many devices there are, and how one is opened.

use std::sync::atomic::{AtomicBool, Ordering};

use device_registry::backend::{
    Backend, BackendError, DeviceKind, DeviceProperties, DeviceUuid, Fault, FaultInjector, OpenedDevice,
    PciAddress,
};

use crate::device::OpenRegDevice;
use crate::settings::Settings;

pub(crate) struct OpenReg {
    devices: Vec<Simulated>,
    settings: Settings,
}

/// A device, whether or not it is open.
struct Simulated {
    memory: usize,
    opened_before: AtomicBool,
}

impl OpenReg {
    pub(crate) fn new(settings: Settings) -> Self {
        let simulated = |&memory: &usize| Simulated { memory, opened_before: AtomicBool::new(false) };
        Self { devices: settings.memory.iter().map(simulated).collect(), settings }
    }

    fn simulated(&self, ordinal: usize) -> Result<&Simulated, BackendError> {
        let count = self.devices.len();
        self.devices.get(ordinal).ok_or_else(|| {
            BackendError::invalid(format_args!(
                "no device has the ordinal {ordinal}: there are {count} devices"
            ))
        })
    }

    fn device(&self, ordinal: usize) -> Result<OpenRegDevice, BackendError> {
        let simulated = self.simulated(ordinal)?;
        let device = OpenRegDevice::new(ordinal, simulated.memory)?;
        let opened_before = simulated.opened_before.swap(true, Ordering::Relaxed);
        for &fault in &self.settings.faults {
            // A device that is opened again after a loss has to show that it recovers.
            if !opened_before || matches!(fault, Fault::Slow { .. }) {
                device.injector().inject(fault)?;
            }
        }
        Ok(device)
    }
}

impl Backend for OpenReg {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(self.devices.len())
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let memory = self.simulated(ordinal)?.memory as u64;
        let driver = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));
        Ok(DeviceProperties::new("OpenReg")
            .with_kind(DeviceKind::Simulated)
            .with_driver(driver)
            .with_driver_version(env!("CARGO_PKG_VERSION"))
            .with_attribute("guarded_memory", cfg!(all(target_os = "linux", target_pointer_width = "64")))
            .with_total_memory(memory)
            .with_largest_allocation(memory)
            .with_uuid(uuid(ordinal))
            .with_pci(pci(ordinal)?))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let device = self.device(ordinal)?;
        let reporter = device.loss_reporter();
        Ok(with_handles(OpenedDevice::new(self, device).with_loss_reporter(reporter)))
    }
}

#[allow(unsafe_code)]
fn with_handles(opened: OpenedDevice) -> OpenedDevice {
    // SAFETY: `docs/plugins/names.md` lists the kinds. Each is of memory, and an address at which that memory
    // lies until it is dropped.
    unsafe { opened.with_native_handles() }
}

/// The ordinal and the backend's name, as a UUID of version 8, which RFC 9562 leaves to the implementation.
/// The ordinal comes first, so that four digits choose a device.
fn uuid(ordinal: usize) -> DeviceUuid {
    let [.., high, low] = ordinal.to_be_bytes();
    let [o, p, e, n, r, e2, g] = *b"openreg";
    DeviceUuid::from_bytes([high, low, o, p, e, n, 0x80, r, 0x80, e2, g, 0, 0, 0, 0, 0])
}

/// A place in a domain that no machine has.
fn pci(ordinal: usize) -> Result<PciAddress, BackendError> {
    let [bus, device_and_function] = (ordinal as u16).to_be_bytes();
    PciAddress::new(u32::MAX, bus, device_and_function >> 3, device_and_function & 7)
        .ok_or_else(|| BackendError::other("an ordinal has too many bits"))
}

#[cfg(test)]
mod tests {
    use device_registry::backend::DeviceDriver;

    use super::*;

    fn backend(faults: &[Fault]) -> OpenReg {
        OpenReg::new(Settings { memory: vec![4096, 8192], faults: faults.to_vec() })
    }

    #[test]
    fn every_device_that_is_counted_opens_with_all_its_memory_free() {
        let backend = backend(&[]);
        assert_eq!(backend.device_count().unwrap(), 2);
        for (ordinal, len) in [(0, 4096), (1, 8192)] {
            let memory = backend.device(ordinal).unwrap().memory_info().unwrap();
            assert_eq!((memory.total, memory.free), (Some(len), Some(len)));
        }
    }

    #[test]
    fn faults_of_the_environment_happen_to_each_device_but_not_again_once_it_is_reset() {
        let slow = std::time::Duration::from_millis(20);
        let backend = backend(&[Fault::FailAllocation { nth: 1 }, Fault::Slow { by: slow }]);
        let allocate = |ordinal| {
            let start = std::time::Instant::now();
            let options = device_registry::backend::AllocateOptions::new(1);
            let result = backend.device(ordinal).unwrap().allocate(&options).map(drop);
            assert!(start.elapsed() >= slow, "a reset does not make it faster");
            result.is_ok()
        };
        assert_eq!([0, 1, 0, 1].map(allocate), [false, false, true, true]);
    }
}
