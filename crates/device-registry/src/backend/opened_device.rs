//! An opened device: the result of [`Backend::open`](crate::backend::Backend::open).

use std::any::{Any, TypeId};
use std::fmt;
use std::ptr;

use crate::backend::{Backend, BackendError, DeviceDriver, LossReporter};

/// A device that a backend has opened: its driver, which only the core can call.
///
/// A driver's functions are safe, but a driver for hardware contains unsafe code: it passes lengths and
/// addresses to an interface in C. That code is sound because of the checks that the core makes before each
/// call and of the memory that it keeps alive after it (see [the
/// contract](DeviceDriver#the-contract-of-memory)). So nothing else may call a driver.
///
/// This type gives no access to the driver inside. A program that calls
/// [`Backend::open`](crate::backend::Backend::open) cannot reach it, nor can another backend. Programs and
/// kernels use the driver's [native handle](DeviceDriver::native).
///
/// ```compile_fail,E0624
/// # use device_registry::backend::{Backend, BackendError, DeviceDriver};
/// fn close_behind_the_cores_back(backend: &dyn Backend) -> Result<(), BackendError> {
///     backend.open(0)?.into_parts(backend)?.driver.close()
/// }
/// ```
pub struct OpenedDevice {
    maker: Maker,
    parts: Parts,
}

/// What the core takes out of an [`OpenedDevice`].
pub(crate) struct Parts {
    pub(crate) driver: Box<dyn DeviceDriver>,
    pub(crate) loss_reporter: Option<LossReporter>,
    pub(crate) has_native_handles: bool,
}

/// The backend that made an opened device. Backends without fields have one address, so the type counts as
/// well.
#[derive(PartialEq, Eq)]
struct Maker {
    type_id: TypeId,
    address: usize,
}

impl Maker {
    fn of(backend: &dyn Backend) -> Self {
        let any: &dyn Any = backend;
        Self { type_id: any.type_id(), address: ptr::from_ref(backend).addr() }
    }
}

impl OpenedDevice {
    /// Wraps a driver, for the core to call. `backend` is the one that [opens](Backend::open) the device,
    /// `self` there.
    ///
    /// The core calls [`Backend::open`] of one backend, and refuses a device that another backend has opened:
    /// its properties and peers would be wrong.
    #[must_use]
    pub fn new(backend: &dyn Backend, driver: impl DeviceDriver + 'static) -> Self {
        let parts = Parts { driver: Box::new(driver), loss_reporter: None, has_native_handles: false };
        Self { maker: Maker::of(backend), parts }
    }

    /// Adds a reporter, whose clones report at any time that the device is lost.
    #[must_use]
    pub fn with_loss_reporter(mut self, reporter: LossReporter) -> Self {
        self.parts.loss_reporter = Some(reporter);
        self
    }

    /// Declares that the device has native handles that are numbers of a [kind](DeviceDriver::native_handle).
    /// Without this call the core never calls `native_handle` of the driver, of its memory or of its streams,
    /// and reports that the device has no such handles. So a backend that implements one of the three must
    /// make this call: neither the compiler nor a check of the conformance suite finds a missing one.
    ///
    /// ```
    /// # use device_registry::backend::{Backend, DeviceDriver, OpenedDevice};
    /// fn opened(backend: &dyn Backend, driver: impl DeviceDriver + 'static) -> OpenedDevice {
    ///     let opened = OpenedDevice::new(backend, driver);
    ///     // SAFETY: the only kind is `example.address`. It is the address of the memory itself, which keeps it
    ///     // until it is dropped.
    ///     unsafe { opened.with_native_handles() }
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// Kernels pass these numbers to interfaces in C. So each number that `native_handle` of the driver, of
    /// its memory and of its streams returns is what the owner of the kind documents, for that very object,
    /// and valid for as long as [`DeviceDriver::native_handle`],
    /// [`Memory::native_handle`](crate::backend::Memory::native_handle) and
    /// [`StreamDriver::native_handle`](crate::backend::StreamDriver::native_handle) say.
    #[must_use]
    pub unsafe fn with_native_handles(mut self) -> Self {
        self.parts.has_native_handles = true;
        self
    }

    /// Takes it apart, for the backend that was asked to open it.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if another backend has made it.
    pub(crate) fn into_parts(self, asked: &dyn Backend) -> Result<Parts, BackendError> {
        if self.maker == Maker::of(asked) {
            return Ok(self.parts);
        }
        Err(BackendError::invalid(
            "the backend returned a device that another backend has opened; expected one of its own, made with \
             `OpenedDevice::new(self, …)`",
        ))
    }
}

impl fmt::Debug for OpenedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedDevice").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{
        AllocateOptions, BackendDescriptor, BackendErrorKind, DeviceProperties, Memory, MemoryInfo, backends,
    };
    use crate::device::Device;
    use crate::parse::device;
    use std::sync::Arc;

    /// A backend without fields: all of them have the same address.
    struct Honest;

    /// Returns a device of another backend as its own.
    struct PassesOn(fn() -> &'static dyn Backend);

    /// The second returns the device of the first.
    struct Twin(Option<&'static Twin>);

    struct Driver;

    struct Numbered;

    impl Memory for Numbered {
        fn native_handle(&self, _kind: &str) -> Option<u64> {
            Some(0x4141_4141)
        }
    }

    impl DeviceDriver for Driver {
        fn native_handle(&self, _kind: &str) -> Option<u64> {
            Some(0x4141_4141)
        }

        fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
            Ok(MemoryInfo::unknown())
        }

        fn allocate(&self, _options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
            Ok(Arc::new(Numbered))
        }
    }

    macro_rules! one_device {
        ($backend:ty, |$this:ident| $open:expr) => {
            impl Backend for $backend {
                fn device_count(&self) -> Result<usize, BackendError> {
                    Ok(1)
                }

                fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
                    Ok(DeviceProperties::new("one"))
                }

                fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
                    let $this = self;
                    $open
                }
            }
        };
    }

    one_device!(Honest, |this| Ok(OpenedDevice::new(this, Driver)));
    one_device!(PassesOn, |this| (this.0)().open(0));
    one_device!(Twin, |this| Ok(OpenedDevice::new(this.0.unwrap_or(this), Driver)));

    static HONEST: BackendDescriptor = BackendDescriptor::new("honest", || Ok(Box::new(Honest)));
    static PASSES_ON: BackendDescriptor =
        BackendDescriptor::new("passes_on", || Ok(Box::new(PassesOn(|| backends().load("honest").unwrap()))));
    static SECOND_TWIN: BackendDescriptor = BackendDescriptor::new("second_twin", || {
        static FIRST: Twin = Twin(None);
        Ok(Box::new(Twin(Some(&FIRST))))
    });

    fn registered(descriptor: &'static BackendDescriptor) -> Device {
        backends().register(descriptor).unwrap();
        device(descriptor.name()).unwrap().resolve()
    }

    #[test]
    fn a_device_that_another_backend_has_opened_is_refused_and_that_backend_still_works() {
        let honest = registered(&HONEST);
        honest.open().unwrap();
        for passing_on in [&PASSES_ON, &SECOND_TWIN].map(registered) {
            let error = passing_on.open().unwrap_err();
            assert_eq!(error.kind(), Some(BackendErrorKind::Invalid));
            let expected = "open: the backend returned a device that another backend has opened; expected \
                            one of its own, made with `OpenedDevice::new(self, …)`";
            assert!(error.to_string().ends_with(expected), "{error}");
        }
        assert!(honest.allocate(4).is_ok());
    }

    #[test]
    fn backends_without_fields_differ_by_their_types() {
        struct Other;
        one_device!(Other, |this| Ok(OpenedDevice::new(this, Driver)));
        let honest: Box<dyn Backend> = Box::new(Honest);
        let other: Box<dyn Backend> = Box::new(Other);
        assert_eq!(ptr::from_ref(&*honest).addr(), ptr::from_ref(&*other).addr());
        assert!(other.open(0).unwrap().into_parts(&*honest).is_err());
        assert!(honest.open(0).unwrap().into_parts(&*honest).is_ok());
    }

    #[test]
    fn numbers_of_a_backend_that_declares_no_native_handles_reach_no_kernel() {
        let device = registered(&HONEST);
        let buffer = device.allocate(4).unwrap();
        let span = buffer.span().expect("the buffer has bytes");
        let of_device = device.native_handle("opencl.cl_context").unwrap_err().to_string();
        let expected = "`honest:0` does not have a native handle of the kind `opencl.cl_context`; the backend `honest` does \
                        not declare native handles that are numbers";
        assert!(of_device.ends_with(expected), "{of_device}");
        assert!(device.with_native(|native| native.handle("opencl.cl_context")).is_err());
        assert_eq!(span.native_handle("opencl.cl_mem").unwrap_err().kind(), BackendErrorKind::Unsupported);
        let stream = device.create_stream().unwrap();
        stream
            .launch(&[&buffer], |launch| {
                assert!(launch.native_device().handle("opencl.cl_context").is_err());
                assert!(launch.spans()[0].as_ref().unwrap().native_handle("opencl.cl_mem").is_err());
                Ok(())
            })
            .unwrap();
        stream.synchronize().unwrap();
    }
}
