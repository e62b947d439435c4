//! Fault injection: making a device fail, for tests of how a program reacts.

use crate::backend::Fault;
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::table;

/// A handle to inject faults into a device. [`Device::faults`] returns it.
#[derive(Clone, Copy, Debug)]
pub struct Faults(Device);

impl Device {
    /// A handle to inject faults into the device, for a test of how a program reacts. Opens the device at the
    /// first use.
    ///
    /// ```
    /// use device_registry::backend::BackendErrorKind;
    /// use device_registry::device;
    ///
    /// // Most devices, such as the cpu, offer no fault injection.
    /// let error = device("cpu")?.faults().unwrap_err();
    /// assert_eq!(error.kind(), Some(BackendErrorKind::Unsupported));
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BackendErrorKind::Unsupported`](crate::backend::BackendErrorKind::Unsupported) if the device offers
    /// no fault injection, or why it cannot be opened.
    pub fn faults(self) -> Result<Faults, DeviceError> {
        let device = self.resolve();
        table::open(device)?.check_faults()?;
        Ok(Faults(device))
    }
}

impl Faults {
    /// The device, with its index.
    #[must_use]
    pub fn device(self) -> Device {
        self.0
    }

    /// Injects a fault. Faults of different kinds add up; of one kind, the last one counts.
    ///
    /// Until the faults are [cleared](Self::clear), each allocation of the program reaches the driver once:
    /// the core does not use freed memory again, and does not retry an allocation that fails. So the nth
    /// allocation of a fault is the program's nth.
    ///
    /// # Errors
    ///
    /// [`BackendErrorKind::Unsupported`](crate::backend::BackendErrorKind::Unsupported) for a fault that the
    /// device does not support, or why the device cannot be used.
    pub fn inject(self, fault: Fault) -> Result<(), DeviceError> {
        table::open(self.0)?.inject(fault)
    }

    /// Removes all faults; work that stalls continues. A device that is lost stays lost: see
    /// [`Device::reset`](crate::Device::reset).
    ///
    /// # Errors
    ///
    /// If the device cannot be used.
    pub fn clear(self) -> Result<(), DeviceError> {
        table::open(self.0)?.clear_faults()
    }
}
