//! A twin as a backend: counts, describes and opens its devices.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use device_registry::backend::{
    Backend, BackendError, DeviceKind, DeviceProperties, DeviceUuid, LossReporter, OpenedDevice, Presence,
};

use crate::defect::Defect::*;
use crate::device::TwinDevice;
use crate::faults::LOST;
use crate::pool::CAPACITY;
use crate::twin::{Queues, Twin};
use crate::wrong::wrong;

pub(crate) struct TwinBackend {
    twin: &'static Twin,
    /// How often the devices were counted.
    counted: AtomicUsize,
    opened: AtomicUsize,
    described: AtomicUsize,
    looked: AtomicUsize,
}

impl TwinBackend {
    pub(crate) fn new(twin: &'static Twin) -> Self {
        Self {
            twin,
            counted: AtomicUsize::new(0),
            opened: AtomicUsize::new(0),
            described: AtomicUsize::new(0),
            looked: AtomicUsize::new(0),
        }
    }

    fn uuid(&self, ordinal: usize) -> DeviceUuid {
        let mut bytes = [0; 16];
        match ordinal {
            _ if wrong(OneUuidForAll) => bytes[15] = 1,
            _ => {
                let name = self.twin.name.as_bytes();
                bytes[..name.len().min(15)].copy_from_slice(&name[..name.len().min(15)]);
                bytes[15] = ordinal as u8;
            }
        }
        DeviceUuid::from_bytes(bytes)
    }
}

impl Backend for TwinBackend {
    fn device_count(&self) -> Result<usize, BackendError> {
        let devices = self.twin.devices;
        let counted = self.counted.fetch_add(1, Ordering::Relaxed);
        assert!(!wrong(CountPanics) || counted < 4, "the backend lost count");
        Ok(if wrong(CountChanges) {
            devices + counted / 3 % 2
        } else if wrong(CountGrows) {
            devices + counted
        } else if wrong(CountsFreeDevices) {
            devices - self.opened.load(Ordering::Relaxed)
        } else if wrong(LostDevicesAreNotCounted) {
            devices - LOST.load(Ordering::Relaxed).min(devices)
        } else if wrong(CountsOneTooMany) {
            devices + 1
        } else if wrong(CountsInPlace) {
            static COUNT: AtomicUsize = AtomicUsize::new(0);
            COUNT.store(0, Ordering::Relaxed);
            for _ in 0..devices {
                thread::sleep(Duration::from_micros(20));
                COUNT.fetch_add(1, Ordering::Relaxed);
            }
            COUNT.load(Ordering::Relaxed)
        } else {
            devices
        })
    }

    fn presence(&self, _ordinal: usize) -> Result<Presence, BackendError> {
        static IS_ABSENT: AtomicBool = AtomicBool::new(false);

        let looked = self.looked.fetch_add(1, Ordering::Relaxed);
        assert!(!wrong(PresencePanics) || looked < 4, "the backend lost sight");
        if wrong(PresenceInPlace) {
            IS_ABSENT.store(true, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(20));
            IS_ABSENT.store(false, Ordering::Relaxed);
            thread::sleep(Duration::from_micros(20));
        }
        let absent = IS_ABSENT.load(Ordering::Relaxed)
            || (wrong(AbsentOnceOpened) && self.opened.load(Ordering::Relaxed) > 0)
            || (wrong(AbsentAfterALoss) && LOST.load(Ordering::Relaxed) > 0);
        Ok(if absent { Presence::absent("it does not answer") } else { Presence::Present })
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let described = self.described.fetch_add(1, Ordering::Relaxed);
        assert!(!wrong(PropertiesPanic) || described < 3, "the backend forgot what it is");
        let Twin { name, queues, alignment, all, .. } = *self.twin;
        let mut properties = DeviceProperties::new(name)
            .with_kind(DeviceKind::Simulated)
            .with_copy_alignment(alignment)
            .with_timed_events(queues != Queues::Lazy)
            .with_pinned_memory(all);
        if all {
            properties = properties
                .with_vendor("nobody")
                .with_driver("twin 1.0")
                .with_uuid(self.uuid(ordinal))
                .with_total_memory(CAPACITY as u64);
        }
        if !all && queues == Queues::Lazy {
            properties = properties.with_largest_allocation(1 << 40);
        }
        if wrong(PinnedMemoryIsNotDeclared) {
            properties.pinned_memory = false;
        } else if wrong(ResetChangesTheName) && LOST.load(Ordering::Relaxed) > 0 {
            properties.name += " (reset)";
        } else if wrong(NameIsPadded) {
            properties.name += "    ";
        } else if wrong(NoName) {
            properties.name.clear();
        } else if wrong(DriverEndsInAZero) {
            properties.driver = Some("twin 1.0\0".to_owned());
        } else if wrong(ZerosForAUuid) && ordinal == 0 {
            // Bypasses the builder, which treats this value as none.
            properties.uuid = Some(DeviceUuid::from_bytes([0; 16]));
        } else if wrong(VendorIsEmpty) {
            properties.vendor = Some(String::new());
        } else if wrong(PropertiesChange) {
            properties.driver = Some(format!("twin 1.{described}"));
        } else if wrong(LargestIsMoreThanAll) {
            properties.largest_allocation = Some(2 * CAPACITY as u64);
        } else if wrong(LargestIsTooSmall) {
            properties.largest_allocation = Some(1 << 20);
        } else if wrong(AlignmentIsDeclaredTooSmall) {
            properties.copy_alignment = 1;
        } else if wrong(DeclaresAnotherTotal) {
            properties.total_memory = Some(CAPACITY as u64 + 4096);
        }
        Ok(properties)
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        assert!(!wrong(OpenPanics), "the device is stuck");
        self.opened.fetch_add(1, Ordering::Relaxed);
        match ordinal {
            _ if wrong(LastDoesNotOpen) && ordinal + 1 == self.twin.devices => {
                Err(BackendError::other("the device does not answer"))
            }
            _ if ordinal >= self.twin.devices => {
                Err(BackendError::invalid(format_args!("there is no device {ordinal}")))
            }
            _ => {
                let (device, reporter) = (TwinDevice::open(self.twin)?, LossReporter::new());
                device.report_losses_with(reporter.clone());
                let opened = OpenedDevice::new(self, device).with_loss_reporter(reporter);
                if [DevicesHaveEveryHandle, MemoryHasEveryHandle, StreamsHaveEveryHandle]
                    .map(wrong)
                    .contains(&true)
                {
                    // SAFETY: a number that the checks do not use as a handle.
                    return Ok(unsafe { opened.with_native_handles() });
                }
                Ok(opened)
            }
        }
    }
}
