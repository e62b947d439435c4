//! Which devices are available: linked, enabled, loaded, counted by their backend, and there now.

use entry_points::{Entry, State};

use crate::backend::{Backend, backends};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::isolation::log_isolated;
use crate::runtime::{listing, probe};

/// Whether a device string names an available device. It does if the string is well formed, the backend is
/// linked, enabled and loads, it has a device with this index (without one, the current device), and that
/// device is [present](crate::Presence): neither absent nor lost.
///
/// It never fails and never panics, whatever the text. It loads the backend, which may block for a while at
/// the first use, and opens nothing; a later `open` may still fail. To learn *why* a device is not available,
/// use it: the error says so.
///
/// ```
/// use device_registry::is_available;
///
/// assert!(is_available("cpu"));
/// assert!(!is_available("cpu:1"));
/// assert!(!is_available("no such thing"));
/// ```
#[must_use]
pub fn is_available(text: &str) -> bool {
    Device::parse(text).and_then(listing::check_present).is_ok()
}

/// The number of devices of a backend. Loads it, and opens nothing.
///
/// It includes devices that are absent or lost, as they keep their indices. [`Device::presence`] says which
/// ones are.
///
/// ```
/// assert_eq!(device_registry::device_count("cpu")?, 1);
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// # Errors
///
/// [`DeviceError::UnknownBackend`] if no backend of the name is linked, [`DeviceError::Backend`] if it is
/// disabled or does not load, [`DeviceError::Call`] if it cannot count its devices.
pub fn device_count(backend: &str) -> Result<usize, DeviceError> {
    probe::count(backends().usable(backend)?)
}

/// The present devices of every backend that is not disabled, sorted by name and index.
///
/// The iterator loads each backend when it reaches it, and opens nothing. It returns an error for a backend
/// that cannot be used, and continues with the next one. Devices that are [absent or lost](crate::Presence)
/// are left out, with a line in the log; [`device_list`](crate::device_list) shows them with the reason.
///
/// ```
/// for (backend, devices) in device_registry::devices() {
///     match devices {
///         Ok(devices) => println!("{}: {devices:?}", backend.name()),
///         Err(error) => println!("{}: {error}", backend.name()),
///     }
/// }
/// ```
pub fn devices() -> impl Iterator<Item = (Entry<dyn Backend>, Result<Vec<Device>, DeviceError>)> {
    enabled_backends().map(|backend| (backend, present_devices(backend)))
}

pub(crate) fn enabled_backends() -> impl Iterator<Item = Entry<dyn Backend>> {
    backends().iter().filter(|backend| !matches!(backend.state(), State::Disabled { .. }))
}

fn present_devices(backend: Entry<dyn Backend>) -> Result<Vec<Device>, DeviceError> {
    let mut devices = probe::devices_of(backend)?;
    devices.retain(|&device| match listing::check_present_of_counted(device) {
        Ok(()) => true,
        Err(cause) => {
            log_isolated(|| log::info!("`{device}` is left out: {cause}"));
            false
        }
    });
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::first_available;
    use crate::testing::{device_of, fake};

    #[test]
    fn is_available_never_fails() {
        fake(None);
        for name in ["panics_in_load", "panics_in_count", "fails_to_load", "has_no_devices"] {
            device_of(name);
            assert!(!is_available(name), "{name}");
        }
        for (text, available) in [
            ("cpu", true),
            ("cpu:0", true),
            ("cpu:1", false),
            ("fake", true),
            ("fake:1", true),
            ("fake:2", false),
            ("", false),
            ("CPU", false),
            ("auto", false),
            ("not_linked", false),
        ] {
            assert_eq!(is_available(text), available, "{text}");
        }
    }

    #[test]
    fn first_available_returns_the_first_available_device() {
        fake(None);
        device_of("fails_to_load");
        device_of("has_no_devices");
        let found = first_available("not_linked,fails_to_load,has_no_devices,fake:9,fake:1,cpu").unwrap();
        assert_eq!(found.device, fake(Some(1)));
        let passed_over: Vec<_> = found.passed_over.iter().map(|(text, _)| &**text).collect();
        assert_eq!(passed_over, ["not_linked", "fails_to_load", "has_no_devices", "fake:9"]);
        assert!(matches!(found.passed_over[3].1, DeviceError::NoSuchDevice { count: 2, .. }));
    }

    #[test]
    fn an_absent_device_keeps_its_index_and_is_passed_over() {
        let first = device_of("second_is_absent").resolve();
        assert_eq!(device_count("second_is_absent").unwrap(), 2);
        assert!(is_available("second_is_absent:0") && !is_available("second_is_absent:1"));
        let found = first_available("second_is_absent:1,second_is_absent:0").unwrap();
        assert_eq!(found.device, first);
        let [(_, DeviceError::Absent { device, reason })] = &*found.passed_over else {
            panic!("{:?}", found.passed_over)
        };
        assert_eq!((device.index(), reason.message()), (Some(1), "no server at 127.0.0.1:9"));
        let (_, devices) = devices().find(|(backend, _)| backend.name() == "second_is_absent").unwrap();
        assert_eq!(devices.unwrap(), [first]);
    }

    #[test]
    fn a_lost_device_is_not_available_until_its_reset_and_is_counted_and_described() {
        let device = device_of("is_lost_at_a_write").resolve();
        let name = device.to_string();
        assert!(is_available(&name));
        device.allocate(1).unwrap().write(0, b"x").unwrap_err();
        let lost = device.presence().unwrap();
        assert_eq!(lost.to_string(), "lost: it fell off the bus");
        assert!(!is_available(&name));
        assert_eq!(device_count("is_lost_at_a_write").unwrap(), 2);
        assert_eq!(device.properties().unwrap().name, "fake");
        let found = first_available(&format!("{name},cpu")).unwrap();
        assert_eq!(found.device, Device::cpu());
        assert!(found.passed_over[0].1.to_string().contains("device lost: it fell off the bus"));
        let (_, left) = devices().find(|(backend, _)| backend.name() == "is_lost_at_a_write").unwrap();
        assert_eq!(left.unwrap().iter().map(|device| device.index()).collect::<Vec<_>>(), [Some(1)]);
    }

    #[test]
    fn bad_syntax_is_an_error_even_after_an_available_device() {
        for list in ["", "cpu,", "cpu,CUDA", "cpu, cpu", "cpu,default"] {
            assert!(matches!(first_available(list), Err(DeviceError::Syntax(_))), "{list:?}");
        }
    }

    #[test]
    fn the_error_lists_every_cause_if_no_device_is_available() {
        fake(None);
        device_of("fails_to_load");
        let error = first_available("not_linked:1,fails_to_load,fake:9").unwrap_err();
        let DeviceError::NoneAvailable(none) = &error else { panic!("{error}") };
        let tried: Vec<_> = none.causes().iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(tried, ["not_linked:1", "fails_to_load", "fake:9"]);
        let message = error.to_string();
        for part in [
            "  not_linked:1: no backend called `not_linked` is linked",
            "on purpose",
            "  fake:9: unknown device index 9: `fake` has 2 devices",
            "device.backends: ",
        ] {
            assert!(message.contains(part), "{part:?} in {message}");
        }
    }

    #[test]
    fn the_list_of_devices_continues_after_a_bad_backend() {
        fake(None);
        device_of("fails_to_load");
        device_of("panics_in_count");
        let devices: Vec<_> = devices().collect();
        let of = |name| &devices.iter().find(|(backend, _)| backend.name() == name).unwrap().1;
        assert_eq!(of("cpu").as_ref().unwrap(), &[Device::cpu()]);
        assert_eq!(of("fake").as_ref().unwrap(), &[fake(Some(0)), fake(Some(1))]);
        assert!(of("fails_to_load").is_err() && of("panics_in_count").is_err());
    }
}
