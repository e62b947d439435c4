//! Native handles: Rust types, and numbers of a kind.

use std::any::{Any, type_name};
use std::fmt;
use std::sync::Arc;

use entry_points::isolate;

use crate::backend::{BackendError, DeviceDriver, Owner};
use crate::device::Device;

/// A driver's handle of a Rust type.
pub(crate) type Native = Option<Arc<dyn Any + Send + Sync>>;

/// The native handles of an open device, by their [kinds](DeviceDriver::native_handle).
///
/// A kernel gets it by [`Launch::native_device`](crate::backend::Launch::native_device), and a program by
/// [`Device::with_native`]. The device is not closed while the value exists.
#[derive(Clone, Copy)]
pub struct NativeDevice<'a> {
    owner: &'a dyn Owner,
    driver: &'a dyn DeviceDriver,
}

impl<'a> NativeDevice<'a> {
    pub(crate) fn new(owner: &'a dyn Owner, driver: &'a dyn DeviceDriver) -> Self {
        Self { owner, driver }
    }

    /// The device, resolved.
    #[must_use]
    pub fn device(&self) -> Device {
        self.owner.device()
    }

    /// A value that a kernel set keeps with the open device, such as compiled pipelines: there is one of each
    /// type. `make` makes it at the first call, and may call into the device's own interface. Two threads may
    /// then both call `make`; one of the values is kept, and both calls return it.
    ///
    /// The device drops its reference when it is closed, and when it is reset after a loss, before the driver
    /// ends the device. Code that holds another one may drop the value later, so the value keeps what its
    /// drop needs. A kernel whose queued work uses parts of it passes them to
    /// [`Launch::keep`](crate::backend::Launch::keep).
    ///
    /// ```
    /// use device_registry::Device;
    /// use device_registry::backend::{BackendError, NativeDevice};
    ///
    /// /// The pipelines of one device.
    /// struct Pipelines(Vec<String>);
    ///
    /// fn compile(device: NativeDevice<'_>) -> Result<Pipelines, BackendError> {
    ///     Ok(Pipelines(vec![format!("add for {}", device.device())]))
    /// }
    ///
    /// let first = Device::cpu().with_native(|native| {
    ///     let pipelines = native.value(|| compile(native))?;
    ///     Ok(pipelines.0[0].clone())
    /// })?;
    /// assert_eq!(first, "add for cpu");
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `make`. The next call tries again.
    pub fn value<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> Result<T, BackendError>,
    ) -> Result<Arc<T>, BackendError> {
        self.owner.values().get_or_make(make)
    }

    /// The device's handle of a kind, such as `opencl.cl_context`. It is borrowed: it is valid while the
    /// device is open, and so at least as long as `self`.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the device does not have a handle of this kind.
    pub fn handle(&self, kind: &str) -> Result<u64, BackendError> {
        handle(self.owner, "", kind, || self.driver.native_handle(kind))
    }
}

impl fmt::Debug for NativeDevice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeDevice").field("device", &self.device()).finish_non_exhaustive()
    }
}

/// The handle that the backend's code returns for a kind. `of` says to which part of the device it belongs,
/// such as `the memory of `.
///
/// It is isolated here, although a launch is isolated as a whole: a program gets spans outside of any launch
/// as well.
#[inline]
pub(crate) fn handle(
    owner: &dyn Owner,
    of: &str,
    kind: &str,
    query: impl FnOnce() -> Option<u64>,
) -> Result<u64, BackendError> {
    // A number that no crate has vouched for never reaches a kernel.
    if !owner.has_native_handles() {
        return Err(no_handles(owner.device(), of, kind));
    }
    match isolate(query) {
        Ok(Some(handle)) => Ok(handle),
        Ok(None) => Err(no_handle(owner.device(), of, kind)),
        Err(panic) => Err(BackendError::other(format_args!("the backend panicked: {}", panic.message()))),
    }
}

#[cold]
fn no_handles(device: Device, of: &str, kind: &str) -> BackendError {
    let backend = device.name();
    BackendError::unsupported(format_args!(
        "{of}`{device}` does not have a native handle of the kind `{kind}`; the backend `{backend}` does not declare native \
         handles that are numbers"
    ))
}

#[cold]
fn no_handle(device: Device, of: &str, kind: &str) -> BackendError {
    let backend = device.name();
    BackendError::unsupported(format_args!(
        "{of}`{device}` does not have a native handle of the kind `{kind}`; the documentation of the backend `{backend}` lists \
         the kinds that it has"
    ))
}

/// A native handle as the type `T`. `instead` is the function that returns handles by kind.
pub(crate) fn downcast<'a, T: Any>(
    native: &'a Native,
    device: Device,
    of: &str,
    instead: &str,
) -> Result<&'a T, BackendError> {
    native.as_deref().and_then(|native| native.downcast_ref()).ok_or_else(|| {
        let name = type_name::<T>();
        let hint = Hint { device, instead };
        BackendError::unsupported(format_args!("native work: the {of} has no handle of type `{name}`{hint}"))
    })
}

/// Why a Rust type was not found if the backend is in a file: the file has its own types, even from the same
/// crate.
pub(crate) struct Hint<'a> {
    pub(crate) device: Device,
    pub(crate) instead: &'a str,
}

impl fmt::Display for Hint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = self.device.backend();
        let Some(file) = backend.file() else { return Ok(()) };
        let name = backend.name();
        let file = file.display();
        let instead = self.instead;
        write!(f, "; `{name}` is installed from {file}, whose types are its own: use `{instead}`")
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use entry_points::Installed;

    use super::*;
    use crate::backend::{
        AllocateOptions, Backend, BackendErrorKind, DeviceProperties, HostMemory, LoadFailure, Memory,
        MemoryInfo, OpenedDevice, Span, backends,
    };
    use crate::error::DeviceError;
    use crate::parse::device;

    struct Numbered;

    impl Backend for Numbered {
        fn device_count(&self) -> Result<usize, BackendError> {
            Ok(1)
        }

        fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
            Ok(DeviceProperties::new("numbered"))
        }

        fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
            let opened = OpenedDevice::new(self, NumberedDevice);
            // SAFETY: a handle of a kind `numbered.…` is the number that the kind ends with.
            Ok(unsafe { opened.with_native_handles() })
        }
    }

    /// A handle of the kind `numbered.…`, for the last part of its name.
    fn number(kind: &str) -> Option<u64> {
        assert_ne!(kind, "numbered.panic", "on purpose");
        kind.strip_prefix("numbered.")?.parse().ok()
    }

    struct NumberedDevice;

    struct NumberedMemory;

    impl Memory for NumberedMemory {
        fn native_handle(&self, kind: &str) -> Option<u64> {
            number(kind).map(|number| 1000 + number)
        }

        fn on_host(&self) -> Option<&HostMemory> {
            assert!(!PANICS.get(), "on purpose");
            None
        }
    }

    thread_local! {
        /// Whether [`NumberedMemory::on_host`] panics on this thread.
        static PANICS: Cell<bool> = const { Cell::new(false) };
    }

    impl DeviceDriver for NumberedDevice {
        fn native_handle(&self, kind: &str) -> Option<u64> {
            number(kind)
        }

        fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
            Ok(MemoryInfo::unknown())
        }

        fn allocate(&self, _options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
            Ok(Arc::new(NumberedMemory))
        }
    }

    /// A device of a backend in a file, whose name no other test uses.
    fn installed(name: &'static str) -> Device {
        let load = |_: &_| Ok::<Box<dyn Backend>, LoadFailure>(Box::new(Numbered));
        let file = format!("/somewhere/lib{name}.so");
        backends().install(Installed::new(name, file, load).package("device-numbered", "0.1.0")).unwrap();
        device(name).unwrap().resolve()
    }

    /// The error of a kernel with one span.
    fn error_in_launch(
        device: Device,
        kernel: impl FnOnce(&crate::backend::Launch<'_>, &Span) -> BackendError + Send + 'static,
    ) -> String {
        let buffer = device.allocate(4).unwrap();
        let stream = device.create_stream().unwrap();
        let launched = stream.launch(&[&buffer], move |launch| {
            Err(kernel(launch, launch.spans()[0].as_ref().expect("the buffer has bytes")))
        });
        let error = launched.and_then(|()| stream.synchronize()).unwrap_err();
        error.to_string()
    }

    #[test]
    fn handles_are_found_by_kind_in_a_launch_and_outside_of_it() {
        let device = installed("numbered_found");
        assert_eq!(device.native_handle("numbered.7").unwrap(), 7);
        let both = device.with_native(|native| {
            assert_eq!(native.device(), device);
            Ok((native.handle("numbered.8")?, native.handle("numbered.9")?))
        });
        assert_eq!(both.unwrap(), (8, 9));
        let buffer = device.allocate(4).unwrap();
        let stream = device.create_stream().unwrap();
        let launched = stream.launch(&[&buffer], |launch| {
            let span = launch.spans()[0].as_ref().expect("the buffer has bytes");
            assert_eq!(span.native_handle("numbered.1")?, 1001);
            assert_eq!(launch.native_device().handle("numbered.2")?, 2);
            Ok(())
        });
        launched.and_then(|()| stream.synchronize()).unwrap();
    }

    #[test]
    fn memory_that_is_not_the_hosts_is_an_error_that_says_what_to_do() {
        let device = installed("numbered_elsewhere");
        let span = device.allocate(4).unwrap().span().expect("the buffer has bytes");
        let error = span.on_host().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Unsupported);
        let expected = "the memory of `numbered_elsewhere:0` is not the host's: copy its bytes, by `Buffer::read` or \
                        `Stream::read`";
        assert_eq!(error.message(), expected);
        assert!(span.mapped().unwrap().is_none());
        PANICS.set(true);
        assert_eq!(span.on_host().unwrap_err().message(), "the backend panicked: on purpose");
        assert_eq!(span.mapped().unwrap_err().message(), "the backend panicked: on purpose");
    }

    #[test]
    fn a_span_of_a_device_that_was_closed_has_no_handle() {
        let device = installed("numbered_closed");
        let span = device.allocate(4).unwrap().span().expect("the buffer has bytes");
        assert_eq!(span.native_handle("numbered.1").unwrap(), 1001);
        device.close().unwrap();
        let error = span.native_handle("numbered.1").unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Invalid);
        assert!(error.to_string().contains("closed"), "{error}");
    }

    #[test]
    fn a_kind_that_is_missing_is_an_error_that_names_it_and_the_device() {
        let device = installed("numbered_missing");
        let error = device.native_handle("other.thing").unwrap_err();
        assert_eq!(error.kind(), Some(BackendErrorKind::Unsupported));
        let text = error.to_string();
        let expected = "`numbered_missing:0` (device-numbered 0.1.0): native handle: not supported: `numbered_missing:0` does \
                        not have a native handle of the kind `other.thing`; the documentation of the backend \
                        `numbered_missing` lists the kinds that it has";
        assert_eq!(text, expected);
        let text = error_in_launch(device, |_, span| span.native_handle("other.thing").unwrap_err());
        assert!(
            text.contains(
                "launch: not supported: the memory of `numbered_missing:0` does not have a native handle of the kind"
            ),
            "{text}"
        );
        let text = error_in_launch(device, |launch, _| launch.native_stream("other.thing").unwrap_err());
        assert!(
            text.contains(
                "launch: not supported: the stream of `numbered_missing:0` is not a queue of the driver"
            ),
            "{text}"
        );
        // The cpu has no handles of any kind.
        let error = Device::cpu().native_handle("numbered.1").unwrap_err();
        assert_eq!(error.kind(), Some(BackendErrorKind::Unsupported), "{error}");
    }

    #[test]
    fn a_panic_of_the_backend_is_an_error_in_a_launch_and_outside_of_it() {
        let device = installed("numbered_panics");
        let panicked = |text: &str| text.contains("the backend panicked: ") && text.contains("on purpose");
        let error = device.native_handle("numbered.panic").unwrap_err();
        assert!(panicked(&error.to_string()), "{error}");
        let text = error_in_launch(device, |_, span| span.native_handle("numbered.panic").unwrap_err());
        assert!(panicked(&text), "{text}");
        let text =
            error_in_launch(device, |launch, _| launch.native_device().handle("numbered.panic").unwrap_err());
        assert!(panicked(&text), "{text}");
        assert_eq!(device.native_handle("numbered.1").unwrap(), 1);
    }

    #[test]
    fn code_with_native_handles_may_not_use_devices() {
        let device = installed("numbered_nested");
        let nested = device.with_native(|_| {
            assert!(matches!(device.memory_info(), Err(DeviceError::InHostCall { .. })));
            Ok(())
        });
        nested.unwrap();
    }

    #[test]
    fn a_type_that_is_not_found_on_a_backend_in_a_file_names_the_file_and_the_way_by_kind() {
        let device = installed("numbered_typed");
        let hint = |instead: &str| {
            format!(
                "; `numbered_typed` is installed from /somewhere/libnumbered_typed.so, whose types are its own: use \
                 `{instead}`"
            )
        };
        let error = device.with_driver(|_: &u8| Ok(())).unwrap_err().to_string();
        assert!(error.ends_with(&hint("Device::with_native")), "{error}");
        let text = error_in_launch(device, |_, span| span.memory_as::<HostMemory>().unwrap_err());
        assert!(text.ends_with(&hint("Span::native_handle")), "{text}");
        let text = error_in_launch(device, |launch, _| launch.driver_as::<u8>().unwrap_err());
        assert!(text.ends_with(&hint("Launch::native_device")), "{text}");
        let text = error_in_launch(device, |launch, _| launch.stream_as::<u8>().unwrap_err());
        assert!(text.ends_with(&hint("Launch::native_stream")), "{text}");

        // A linked backend has the type that its crate exports, so another type is a mistake of the program.
        let error = Device::cpu().with_driver(|_: &u8| Ok(())).unwrap_err().to_string();
        assert!(error.ends_with("no handle of type `u8`"), "{error}");
    }
}
