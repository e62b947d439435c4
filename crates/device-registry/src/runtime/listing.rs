//! What a backend says of its devices without opening any: how many there are, and their properties.

use std::cell::RefCell;

use entry_points::Entry;

use crate::backend::{Backend, BackendError, DeviceProperties};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::isolation::isolated;
use crate::runtime::transfer::CHUNK;
use crate::runtime::{device_use, fork, table};

/// How many devices a backend has. Loads it.
pub(crate) fn count(backend: Entry<dyn Backend>) -> Result<usize, DeviceError> {
    /// Device 0 to device 65535: an index has no more.
    const MOST: usize = u16::MAX as usize + 1;

    let device = Device::of_backend(backend, None);
    let loaded = load(device, "device count")?;
    match ask(device, "device count", || loaded.device_count())? {
        count if count > MOST => {
            let error = BackendError::invalid(format_args!(
                "the backend counts {count} devices, and {MOST} can be named"
            ));
            Err(DeviceError::Call { device, call: "device count", error })
        }
        count => Ok(count),
    }
}

/// The devices of a backend, each with its index. Loads the backend.
pub(crate) fn devices_of(backend: Entry<dyn Backend>) -> Result<Vec<Device>, DeviceError> {
    let count = count(backend)?;
    // What is beyond the largest index cannot be named.
    let indices = (0..=u16::MAX).take(count);
    Ok(indices.map(|index| Device::of_backend(backend, Some(index))).collect())
}

/// Asks a backend what it answers at once. As it waits for nobody, only a thread that asks in circles has to be stopped:
/// by an error, where the stack would overflow.
fn ask<T>(
    device: Device,
    call: &'static str,
    run: impl FnOnce() -> Result<T, BackendError>,
) -> Result<T, DeviceError> {
    thread_local! {
        /// What this thread is asking, outermost first.
        static ASKED: RefCell<Vec<(Device, &'static str)>> = const { RefCell::new(Vec::new()) };
    }

    // While a thread ends the list is gone, and a backend is asked without it.
    if ASKED.try_with(|asked| asked.borrow().contains(&(device, call))).unwrap_or(false) {
        let error =
            BackendError::other(format_args!("the backend asks for its own {call} in order to answer"));
        return Err(DeviceError::Call { device, call, error });
    }
    let _ = ASKED.try_with(|asked| asked.borrow_mut().push((device, call)));
    let answer = isolated(device, call, run);
    let _ = ASKED.try_with(|asked| asked.borrow_mut().pop());
    answer
}

/// The backend of a device, if it may be used from here. Loads it.
pub(super) fn load(device: Device, call: &'static str) -> Result<&'static dyn Backend, DeviceError> {
    if device_use::is_forbidden() {
        return Err(DeviceError::InHostCall { device, call });
    }
    fork::check(device.backend())?;
    Ok(device.backend().load()?)
}

/// What a device is. Loads its backend, and opens nothing.
pub(crate) fn properties(device: Device) -> Result<DeviceProperties, DeviceError> {
    check_exists(device)?;
    properties_of_counted(device)
}

/// The same for a device that is known to be there.
pub(crate) fn properties_of_counted(device: Device) -> Result<DeviceProperties, DeviceError> {
    let device = device.resolve();
    match table::find(device)? {
        Some(open) => Ok(open.properties().clone()),
        None => ask_properties(device, load(device, "properties")?),
    }
}

pub(super) fn ask_properties(device: Device, backend: &dyn Backend) -> Result<DeviceProperties, DeviceError> {
    let properties = ask(device, "properties", || backend.properties(device.ordinal()))?;
    match properties.copy_alignment {
        // The core takes so much host memory for a copy or a fill that goes through the host.
        alignment if alignment.is_power_of_two() && alignment <= CHUNK => Ok(properties),
        alignment => {
            let error = BackendError::invalid(format_args!(
                "the backend declares a copy alignment of {alignment} bytes: expected a power of two, at most {CHUNK}"
            ));
            Err(DeviceError::Call { device, call: "properties", error })
        }
    }
}

/// Whether the device is there: its backend loads and has one of this index. Opens nothing.
pub(crate) fn check_exists(device: Device) -> Result<(), DeviceError> {
    let device = device.resolve();
    let count = count(device.backend())?;
    if device.ordinal() < count { Ok(()) } else { Err(DeviceError::NoSuchDevice { device, count }) }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::available::is_available;
    use crate::testing::device_of;

    #[test]
    fn a_thread_that_ends_may_still_ask() {
        struct Asks;
        impl Drop for Asks {
            fn drop(&mut self) {
                assert!(is_available("cpu"));
            }
        }
        thread_local! {
            static ASKS: Asks = const { Asks };
        }
        let ending = thread::spawn(|| {
            // Made before the list is, it is dropped after it.
            ASKS.with(|_| assert!(is_available("cpu")));
        });
        ending.join().unwrap();
    }

    #[test]
    fn a_count_that_cannot_be_is_an_error() {
        let error = device_of("counts_too_many").allocate(1).unwrap_err().to_string();
        assert!(error.contains("counts 18446744073709551615 devices, and 65536 can be named"), "{error}");
    }

    #[test]
    fn a_backend_that_counts_by_counting_gets_an_error() {
        let error = device_of("counts_itself").allocate(1).unwrap_err().to_string();
        assert!(error.contains("asks for its own device count in order to answer"), "{error}");
        assert!(!is_available("counts_itself"));
    }

    #[test]
    fn a_backend_that_says_what_a_device_is_by_asking_what_it_is_gets_an_error() {
        let error = device_of("describes_itself").properties().unwrap_err().to_string();
        assert!(error.contains("asks for its own properties in order to answer"), "{error}");
    }

    #[test]
    fn an_alignment_that_no_device_can_have_is_an_error_of_the_backend() {
        for (name, alignment) in
            [("declares_odd_alignment", 3), ("declares_huge_alignment", 1_usize << (usize::BITS - 1))]
        {
            let device = device_of(name);
            for error in [device.properties().unwrap_err(), device.open().unwrap_err()] {
                let expected = format!(
                    "a copy alignment of {alignment} bytes: expected a power of two, at most 1048576"
                );
                assert!(error.to_string().contains(&expected), "{error}");
            }
        }
    }
}
