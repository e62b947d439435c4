//! What a program asks of a device: what it is, whether it is open, and its end.

use std::any::Any;

use crate::backend::{BackendError, DeviceProperties, MemoryInfo, downcast};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::statistics::MemoryStatistics;
use crate::runtime::{device_use, listing, table};

impl Device {
    /// What the device is. Loads the backend, and opens nothing.
    ///
    /// # Errors
    ///
    /// If the backend does not load, has no such device or cannot say.
    pub fn properties(self) -> Result<DeviceProperties, DeviceError> {
        listing::properties(self)
    }

    /// Opens the device, unless it is open: what every use of it does by itself, for those who want to fail early. It
    /// may block for as long as the device takes.
    ///
    /// # Errors
    ///
    /// If the backend does not load, has no such device or cannot open it, or if the device is lost.
    pub fn open(self) -> Result<(), DeviceError> {
        table::open(self)?.check("open")
    }

    /// Whether the device was found lost: its driver reported so, and it was not [reset](Self::reset) since. Calls no driver
    /// and opens nothing; a fork of the process that opened the device gets `false`.
    #[must_use]
    pub fn is_lost(self) -> bool {
        table::find(self).is_ok_and(|open| open.is_some_and(OpenDevice::is_lost))
    }

    /// Lets the next use open the device afresh, after it was lost. What belonged to it before — buffers, streams,
    /// events — goes on saying that it is lost. A device that is not open needs no reset.
    ///
    /// # Errors
    ///
    /// [`BackendErrorKind::Unsupported`](crate::BackendErrorKind::Unsupported) where only a new process has the device
    /// again; [`BackendErrorKind::Invalid`](crate::BackendErrorKind::Invalid) if it is not lost.
    pub fn reset(self) -> Result<(), DeviceError> {
        table::reset(self)
    }

    /// Gives the device back, after waiting for the work of its streams: its context, its threads. What belongs to it —
    /// buffers, streams, events — says from now on that it is closed; the next use opens it afresh. A device that is
    /// not open is closed already. Blocks.
    ///
    /// At the end of a program it is needed only where a driver's library asks for it: see
    /// [`close_all`](crate::close_all).
    ///
    /// # Errors
    ///
    /// What work had failed of which nobody was told, or what the driver reports. The device is closed all the same,
    /// unless it is lost.
    pub fn close(self) -> Result<(), DeviceError> {
        table::close(self)
    }

    /// What is allocated on the device through this crate. Opens nothing.
    ///
    /// # Errors
    ///
    /// If this process is a fork of the one that uses the device.
    pub fn memory_statistics(self) -> Result<MemoryStatistics, DeviceError> {
        let statistics = |device: &'static OpenDevice| {
            device.collect();
            device.statistics().now()
        };
        Ok(table::find(self)?.map(statistics).unwrap_or_default())
    }

    /// How much memory the device has now. Opens it at the first use.
    ///
    /// # Errors
    ///
    /// As [`properties`](Self::properties), or if the device cannot say.
    pub fn memory_info(self) -> Result<MemoryInfo, DeviceError> {
        table::open(self)?.call("memory info", |driver| driver.memory_info())
    }

    /// Calls native code with the backend's handle of the device, outside of any stream: to compile kernels, say. Opens
    /// the device at the first use, and returns what the code returns.
    ///
    /// It runs on this thread, beside whatever the device's streams do. What is to happen in the order of a stream is
    /// [launched](crate::Stream::launch) there. As a kernel it may not use devices: a call of this crate's in it is an
    /// error, for one that closes the device would wait for itself.
    ///
    /// ```no_run
    /// # struct AcmeDevice;
    /// # struct Program;
    /// # impl AcmeDevice {
    /// #     fn compile(&self, text: &str) -> Result<Program, device_registry::backend::BackendError> { Ok(Program) }
    /// # }
    /// let device = device_registry::device("acme")?;
    /// let program = device.with_driver(|driver: &AcmeDevice| driver.compile("…"))?;
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// That of the code, or that it panicked; [`BackendErrorKind::Unsupported`](crate::BackendErrorKind::Unsupported) if the
    /// backend has no handle of this type; or why the device cannot be used.
    pub fn with_driver<D: Any, T>(
        self,
        code: impl FnOnce(&D) -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        table::open(self)?.call("native code", |driver| {
            let native = driver.native();
            let device = downcast(&native, "device")?;
            device_use::forbid(|| code(device))
        })
    }
}

/// [Closes](Device::close) all devices that are open: for the end of a program, where the library of a driver crashes
/// when it is still in use then. Nothing is closed otherwise, as the system takes everything back.
///
/// ```
/// device_registry::device("cpu")?.open()?;
/// for (device, outcome) in device_registry::close_all() {
///     println!("{device}: {outcome:?}");
/// }
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
pub fn close_all() -> Vec<(Device, Result<(), DeviceError>)> {
    table::all().into_iter().map(|device| (device, device.close())).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::fake;

    #[test]
    fn an_index_without_a_device_parses_and_fails_on_use_with_the_count() {
        let error = fake(Some(7)).properties().unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no device `fake:7`: `fake` has 2 devices, `fake:0` to `fake:1`"
        );
    }
}
