//! The life of a device: its properties, opening, loss, reset and close.

use std::any::Any;

use crate::backend::{BackendError, DeviceProperties, MemoryInfo, NativeDevice, Presence, downcast};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::statistics::MemoryStatistics;
use crate::runtime::{device_use, listing, table};

impl Device {
    /// The device's properties, such as its name and its memory. Loads the backend, and opens nothing.
    ///
    /// A device that is open keeps the properties that it had when it was opened, also after a loss. Some
    /// backends know the properties of an absent device, and others do not.
    ///
    /// # Errors
    ///
    /// If the backend does not load, does not have this device, or cannot read its properties.
    pub fn properties(self) -> Result<DeviceProperties, DeviceError> {
        listing::properties(self)
    }

    /// Whether the device is there now. Loads the backend, and opens nothing. May block for a while, where
    /// the backend has to look.
    ///
    /// A device that is open is present, until its driver reports it as lost.
    /// [`properties`](Self::properties) still describes a lost device, and
    /// [`device_count`](crate::device_count) counts it.
    ///
    /// # Errors
    ///
    /// If the backend does not load, does not have this device, or cannot look.
    pub fn presence(self) -> Result<Presence, DeviceError> {
        listing::presence(self)
    }

    /// Opens the device, unless it is open. Every use opens it by itself; this call is for a program that
    /// wants to fail early. Blocks while the device opens.
    ///
    /// # Errors
    ///
    /// If the backend does not load, does not have this device or cannot open it, or if the device is absent
    /// or lost.
    pub fn open(self) -> Result<(), DeviceError> {
        table::open(self)?.check("open")
    }

    /// Whether the driver has reported the device as lost and it was not [reset](Self::reset) since. Calls no
    /// driver and opens nothing. Returns `false` in a fork of the process that opened the device.
    #[must_use]
    pub fn is_lost(self) -> bool {
        table::find(self).is_ok_and(|open| open.is_some_and(OpenDevice::is_lost))
    }

    /// Resets a lost device, so that the next use opens it again. Its old buffers, streams and events keep
    /// returning the error of the loss. For a device that is not open, the call does nothing.
    ///
    /// # Errors
    ///
    /// [`BackendErrorKind::Unsupported`](crate::BackendErrorKind::Unsupported) where only a new process can
    /// use the device again; [`BackendErrorKind::Invalid`](crate::BackendErrorKind::Invalid) if it is not
    /// lost.
    pub fn reset(self) -> Result<(), DeviceError> {
        table::reset(self)
    }

    /// Closes the device: waits for the work of its streams, then releases its context and its threads.
    /// Blocks.
    ///
    /// Its old buffers, streams and events return [`DeviceError::Closed`] from then on. The next use opens
    /// the device again. For a device that is not open, the call does nothing. A program needs it at its end
    /// only where a driver's library requires it: see [`close_all`](crate::close_all).
    ///
    /// # Errors
    ///
    /// The first failure of queued work that was not reported, or the driver's error. The device is closed
    /// nevertheless, unless it is lost.
    pub fn close(self) -> Result<(), DeviceError> {
        table::close(self)
    }

    /// Statistics of the memory that is allocated on the device through this crate. Opens nothing.
    ///
    /// # Errors
    ///
    /// If this process is a fork of the one that uses the device.
    pub fn memory_statistics(self) -> Result<MemoryStatistics, DeviceError> {
        Ok(table::find(self)?.map(OpenDevice::memory_statistics).unwrap_or_default())
    }

    /// Gives the memory in the device's cache back to the driver, so that other programs and libraries can
    /// use it. Opens nothing.
    ///
    /// Where allocating is slow, the core keeps freed memory and gives it out again: see
    /// [`DeviceProperties::memory_reuse`]. Such memory contains bytes that this program wrote before. The
    /// core holds at most an eighth more memory than was ever in use at once, or 16 MiB. It may hold more
    /// where small buffers use parts of large blocks. It keeps only
    /// [large](crate::backend::MemoryReuse::Large) blocks of the host's own memory, at most 256 MiB of them,
    /// and holds at most twice what was ever in use at once. An allocation that finds the device full empties
    /// the cache, as do a close and a loss.
    ///
    /// # Errors
    ///
    /// Why the device cannot be used.
    pub fn empty_cache(self) -> Result<(), DeviceError> {
        table::find(self)?.map_or(Ok(()), OpenDevice::empty_cache)
    }

    /// Sets the most bytes that the device's [cache](Self::empty_cache) keeps. 0 turns the cache off. Opens
    /// the device at the first use; a close and a reset forget the limit.
    ///
    /// # Errors
    ///
    /// Why the device cannot be used.
    pub fn set_cache_limit(self, bytes: u64) -> Result<(), DeviceError> {
        table::open(self)?.set_cache_limit(bytes)
    }

    /// The total and the free memory of the device. Opens it at the first use.
    ///
    /// # Errors
    ///
    /// Why the device cannot be opened, or the driver's error.
    pub fn memory_info(self) -> Result<MemoryInfo, DeviceError> {
        table::open(self)?.call("memory info", |driver| driver.memory_info())
    }

    /// Calls native code with the backend's handle of the device, outside of any stream: to compile kernels,
    /// for example. Opens the device at the first use, and returns the result of the code.
    ///
    /// The code runs on this thread, at the same time as the work of the device's streams. For native work in
    /// the order of a stream, use [`Stream::launch`](crate::Stream::launch). The code may not use devices
    /// through this crate: such a call returns [`DeviceError::InHostCall`], since closing the device there
    /// would wait for the code itself.
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
    /// The error of the code; [`BackendErrorKind::Other`](crate::BackendErrorKind::Other) if it panics;
    /// [`BackendErrorKind::Unsupported`](crate::BackendErrorKind::Unsupported) if the backend has no handle
    /// of this type; or why the device cannot be used. A backend from a file has its own types, which no type
    /// of the program matches; use [`with_native`](Self::with_native) for it.
    pub fn with_driver<D: Any, T>(
        self,
        code: impl FnOnce(&D) -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        let open = table::open(self)?;
        open.call("native code", |driver| {
            let native = driver.native();
            let native = downcast(&native, open.device(), "device", "Device::with_native")?;
            device_use::forbid(|| code(native))
        })
    }

    /// Calls native code with the device's handles by their
    /// [kinds](crate::backend::DeviceDriver::native_handle), outside of any stream. It works alike for a
    /// backend that is linked and for one from a file. Opens the device at the first use, and returns the
    /// result of the code.
    ///
    /// The device is not closed while the code runs, so the handles are valid there. The other rules are the
    /// same as for [`with_driver`](Self::with_driver).
    ///
    /// ```no_run
    /// # fn retain(context: u64) -> u64 { context }
    /// let device = device_registry::device("opencl")?;
    /// let context = device.with_native(|native| Ok(retain(native.handle("opencl.cl_context")?)))?;
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of the code; [`BackendErrorKind::Other`](crate::BackendErrorKind::Other) if it panics; or
    /// why the device cannot be used.
    pub fn with_native<T>(
        self,
        code: impl FnOnce(NativeDevice<'_>) -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        let open = table::open(self)?;
        open.call("native code", |driver| device_use::forbid(|| code(NativeDevice::new(open, driver))))
    }

    /// The device's handle of a [kind](crate::backend::DeviceDriver::native_handle), such as
    /// `cuda.CUcontext`. Opens the device at the first use.
    ///
    /// The handle is borrowed: it is valid while the device is open. Where another thread may close or reset
    /// the device, use it inside [`with_native`](Self::with_native).
    ///
    /// # Errors
    ///
    /// [`BackendErrorKind::Unsupported`](crate::BackendErrorKind::Unsupported) if the device does not have a
    /// handle of this kind, or why the device cannot be used.
    pub fn native_handle(self, kind: &str) -> Result<u64, DeviceError> {
        let open = table::open(self)?;
        open.call("native handle", |driver| NativeDevice::new(open, driver).handle(kind))
    }
}

/// [Closes](Device::close) all open devices, and returns each with its outcome. Blocks.
///
/// It is for the end of a program whose driver library crashes if it is still in use at exit. Other programs
/// need not call it: without it nothing is closed, and the system releases everything.
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
    use std::sync::atomic::Ordering;

    use crate::available::is_available;
    use crate::backend::BackendErrorKind;
    use crate::runtime::table;
    use crate::testing::{HAS_COME, device_of, fake};

    #[test]
    fn an_absent_device_is_looked_for_at_each_use() {
        let device = device_of("comes_later").resolve();
        assert_eq!(device.presence().unwrap().to_string(), "absent: no server at 127.0.0.1:9");
        let error = device.allocate(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`comes_later:0` is absent: no server at 127.0.0.1:9; the next use looks again"
        );
        assert_eq!(error.kind(), Some(BackendErrorKind::Unavailable));
        assert!(!is_available("comes_later:0") && table::find(device).unwrap().is_none());
        HAS_COME.store(true, Ordering::SeqCst);
        assert!(is_available("comes_later:0"));
        device.allocate(1).unwrap();
        // An open device is present until its driver reports a loss.
        HAS_COME.store(false, Ordering::SeqCst);
        assert!(device.presence().unwrap().is_present());
        device.close().unwrap();
        assert!(!device.presence().unwrap().is_present());
    }

    #[test]
    fn an_index_without_a_device_parses_and_fails_on_use_with_the_count() {
        let error = fake(Some(7)).properties().unwrap_err();
        assert_eq!(error.to_string(), "unknown device index 7: `fake` has 2 devices (`fake:0` to `fake:1`)");
    }
}
