//! The choices of a thread: the current device of each backend, and the default device.
//!
//! Both belong to the thread, as in PyTorch and in CUDA. **They do not follow an async task**: a task that
//! moves to another thread between two polls sees that thread's choices. In async code, hold a resolved
//! [`Device`] instead.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::backend::backends;
use crate::device::{Device, current_index};
use crate::error::DeviceError;
use crate::runtime::probe;

thread_local! {
    static DEFAULT: Cell<Option<Device>> = const { Cell::new(None) };
}

/// The current device of a backend on this thread, with its index. The backend's name alone means this
/// device.
///
/// Runs no backend code, so the device need not exist.
///
/// ```
/// assert_eq!(device_registry::current_device("cpu")?, device_registry::Device::cpu());
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// # Errors
///
/// [`DeviceError::UnknownBackend`] if no backend of the name is linked, [`DeviceError::Backend`] if it is
/// disabled or offered by two packages.
pub fn current_device(backend: &str) -> Result<Device, DeviceError> {
    Ok(Device::of_backend(backends().usable(backend)?, None).resolve())
}

/// Makes `device` the current device of its backend on this thread. The backend's name alone then means this
/// device.
///
/// It is like `torch.cuda.set_device`. Loads the backend, and opens nothing. A device without an index
/// already is the current one. For a choice that ends with a scope, use [`DeviceGuard`].
///
/// The choice belongs to the thread and does not follow an async task that moves to another one: in async
/// code, hold a resolved [`Device`] instead.
///
/// # Errors
///
/// If the backend does not load or does not have this device.
pub fn set_current_device(device: Device) -> Result<(), DeviceError> {
    let device = device.resolve();
    probe::check_exists(device)?;
    if let Some(index) = device.index() {
        current_index::set(device.backend(), index);
    }
    Ok(())
}

/// Makes a device the current one of its backend on this thread, until the guard is dropped.
///
/// Bind it to a name such as `_guard`: bound to `_`, it is dropped at once. Dropping it restores the previous
/// choice, also on unwinding. Drop guards in the opposite order of their creation, as scopes do.
///
/// ```
/// use device_registry::{DeviceGuard, device};
///
/// # fn example() -> Result<(), device_registry::DeviceError> {
/// let _guard = DeviceGuard::new(device("cuda:1")?)?;
/// let buffer = device("cuda")?.allocate(1024)?; // on cuda:1
/// # Ok(())
/// # }
/// ```
///
/// The choice belongs to the thread: it does not follow an async task that moves (hold a resolved [`Device`]
/// there), and the guard cannot be sent to another thread.
///
/// ```compile_fail,E0277
/// # use device_registry::{Device, DeviceError, DeviceGuard};
/// fn sent() -> Result<impl Send, DeviceError> {
///     DeviceGuard::new(Device::cpu())
/// }
/// ```
#[derive(Debug)]
#[must_use = "the choice ends when the guard is dropped"]
pub struct DeviceGuard {
    previous: Device,
    _not_send: PhantomData<*const ()>,
}

impl DeviceGuard {
    /// Makes `device` the current device of its backend.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`set_current_device`].
    pub fn new(device: Device) -> Result<Self, DeviceError> {
        let previous = Device::of_backend(device.backend(), None).resolve();
        set_current_device(device)?;
        Ok(Self { previous, _not_send: PhantomData })
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        if let Some(index) = self.previous.index() {
            current_index::set(self.previous.backend(), index);
        }
    }
}

/// The device that this thread uses by default: the cpu, until [`set_default_device`] changes it. Frameworks
/// use it where a call names no device.
///
/// The choice belongs to the thread and does not follow an async task that moves to another one: in async
/// code, hold a resolved [`Device`] instead.
///
/// ```
/// assert_eq!(device_registry::default_device(), device_registry::Device::cpu());
/// ```
#[must_use]
pub fn default_device() -> Device {
    DEFAULT.get().unwrap_or_else(Device::cpu)
}

/// Sets this thread's default device. Other threads keep theirs, and so do threads that this one starts
/// later.
///
/// It loads no backend and uses no device, so the device need not exist.
pub fn set_default_device(device: Device) {
    DEFAULT.set(Some(device));
}

/// Sets this thread's default device until the guard is dropped.
///
/// Bind it to a name such as `_guard`: bound to `_`, it is dropped at once. Dropping it restores the previous
/// choice, also on unwinding. The choice belongs to the thread: it does not follow an async task, and the
/// guard cannot be sent to another thread.
///
/// ```
/// use device_registry::{DefaultDeviceGuard, Device, default_device, device};
///
/// let other = device("cpu:1")?; // it need not exist
/// {
///     let _guard = DefaultDeviceGuard::new(other);
///     assert_eq!(default_device(), other);
/// }
/// assert_eq!(default_device(), Device::cpu());
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[derive(Debug)]
#[must_use = "the choice ends when the guard is dropped"]
pub struct DefaultDeviceGuard {
    previous: Option<Device>,
    _not_send: PhantomData<*const ()>,
}

impl DefaultDeviceGuard {
    /// Sets the default device.
    pub fn new(device: Device) -> Self {
        Self { previous: DEFAULT.replace(Some(device)), _not_send: PhantomData }
    }
}

impl Drop for DefaultDeviceGuard {
    fn drop(&mut self) {
        DEFAULT.set(self.previous);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fake;

    // Each test runs on its own thread, so no test sees another one's choices.

    #[test]
    fn a_guard_sets_the_current_device_and_restores_it() {
        {
            let _outer = DeviceGuard::new(fake(Some(1))).unwrap();
            assert_eq!(fake(None).resolve(), fake(Some(1)));
            {
                let _inner = DeviceGuard::new(fake(Some(0))).unwrap();
                assert_eq!(fake(None).allocate(1).unwrap().device(), fake(Some(0)));
            }
            assert_eq!(fake(None).allocate(1).unwrap().device(), fake(Some(1)));
        }
        assert_eq!(fake(None).resolve(), fake(Some(0)));
    }

    #[test]
    fn a_guard_restores_the_previous_choice_on_unwinding() {
        let result = std::panic::catch_unwind(|| {
            let _guard = DeviceGuard::new(fake(Some(1))).unwrap();
            let _default = DefaultDeviceGuard::new(fake(None));
            panic!("on purpose");
        });
        assert!(result.is_err());
        assert_eq!(fake(None).resolve(), fake(Some(0)));
        assert_eq!(default_device(), Device::cpu());
    }

    #[test]
    fn a_device_that_does_not_exist_cannot_become_current() {
        assert!(matches!(DeviceGuard::new(fake(Some(2))), Err(DeviceError::NoSuchDevice { count: 2, .. })));
        assert!(set_current_device(crate::device("cpu:1").unwrap()).is_err());
        assert_eq!(fake(None).resolve(), fake(Some(0)));
    }

    #[test]
    fn the_choices_belong_to_the_thread() {
        set_current_device(fake(Some(1))).unwrap();
        set_default_device(fake(None));
        assert_eq!(default_device().resolve(), fake(Some(1)));
        let elsewhere = std::thread::spawn(|| (default_device(), fake(None).resolve())).join().unwrap();
        assert_eq!(elsewhere, (Device::cpu(), fake(Some(0))));
    }

    #[test]
    fn an_explicit_index_overrides_the_current_one() {
        let _guard = DeviceGuard::new(fake(Some(1))).unwrap();
        assert_eq!(fake(Some(0)).resolve(), fake(Some(0)));
    }
}
