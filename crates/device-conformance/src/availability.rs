//! Whether a backend can be tested on this machine.

use std::time::Duration;

use device_registry::registry::LoadError;
use device_registry::{BackendErrorKind, Device, DeviceError, backends, device, device_count};

use crate::watchdog::{Unfinished, within};

/// Whether a backend can be tested on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Availability<D = Device> {
    /// Its devices. There may be none.
    Available(Vec<D>),
    /// It found no driver or no hardware, or a switch disables it. That is no defect.
    Unavailable(String),
    /// It has a defect.
    Broken(String),
}

impl Availability {
    /// Like [`of`](Self::of), with the names of the devices. A backend that takes longer than `limit` is
    /// broken; the thread that loads it keeps running.
    pub(crate) fn within(limit: Duration, backend: &str) -> Availability<String> {
        let name = backend.to_owned();
        let load = move || match Self::of(&name) {
            Self::Available(devices) => {
                Availability::Available(devices.iter().map(Device::to_string).collect())
            }
            Self::Unavailable(reason) => Availability::Unavailable(reason),
            Self::Broken(message) => Availability::Broken(message),
        };
        within(limit, &format!("{backend} loads"), load).unwrap_or_else(|unfinished| {
            Availability::Broken(match unfinished {
                Unfinished::NoThread(error) => format!("cannot start a thread that loads it: {error}"),
                Unfinished::Exceeded(..) | Unfinished::Panicked(_) => {
                    format!("loading it and counting its devices exceeded the time limit of {limit:?}")
                }
            })
        })
    }

    /// Loads the backend and counts its devices. Opens none.
    pub(crate) fn of(backend: &str) -> Self {
        if backends().get(backend).is_none() {
            return Self::Broken(format!("it is not linked into this program\n{}", backends().report()));
        }
        match devices(backend).map_err(Unusable::of) {
            Ok(devices) => Self::Available(devices),
            Err(Unusable::Unavailable(reason)) => Self::Unavailable(reason),
            Err(Unusable::Broken(message)) => Self::Broken(message),
        }
    }
}

/// Why a device cannot be tested on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// Its backend found no driver or no hardware, or a switch disables it. That is no defect.
    Unavailable(String),
    /// It has a defect.
    Broken(String),
}

impl Unusable {
    fn of(error: DeviceError) -> Self {
        match unavailable_reason(&error) {
            Some(reason) => Self::Unavailable(reason),
            None => Self::Broken(format!("{error:?}")),
        }
    }
}

/// Opens the device of this name, such as `acme:1`, or says why there is none to test.
///
/// # Errors
///
/// If it cannot be tested.
pub fn open(name: &str) -> Result<Device, Unusable> {
    let device = device(name).map_err(Unusable::of)?;
    if device_count(device.name()).map_err(Unusable::of)? == 0 {
        return Err(Unusable::Unavailable("it has no devices here".to_owned()));
    }
    device.open().map_err(Unusable::of)?;
    Ok(device.resolve())
}

fn devices(backend: &str) -> Result<Vec<Device>, DeviceError> {
    let count = device_count(backend)?;
    (0..count).map(|ordinal| device(&format!("{backend}:{ordinal}"))).collect()
}

/// Why the device is unavailable, if the error says that it is.
pub(crate) fn unavailable_reason(error: &DeviceError) -> Option<String> {
    let unavailable = match error {
        DeviceError::Backend(LoadError::Unavailable { .. } | LoadError::Disabled { .. }) => true,
        _ => error.backend_error().is_some_and(|error| error.kind() == BackendErrorKind::Unavailable),
    };
    unavailable.then(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use device_registry::backend::{
        Backend, BackendDescriptor, BackendError, DeviceProperties, LoadFailure, OpenedDevice,
    };
    use device_registry::backends;

    use super::*;

    struct Counts(Result<usize, BackendError>);

    impl Backend for Counts {
        fn device_count(&self) -> Result<usize, BackendError> {
            self.0.clone()
        }

        fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
            Ok(DeviceProperties::new("counts"))
        }

        fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
            Err(BackendError::other("it is never opened"))
        }
    }

    fn counts(count: Result<usize, BackendError>) -> Result<Box<dyn Backend>, LoadFailure> {
        Ok(Box::new(Counts(count)))
    }

    #[test]
    fn a_load_that_hangs_ends_at_the_limit() {
        // Other tests load it too, and need it to end.
        static END: AtomicBool = AtomicBool::new(false);
        static HANGS: BackendDescriptor = BackendDescriptor::new("load_hangs", || {
            while !END.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            Err(LoadFailure::unavailable("the test has ended"))
        });
        backends().register(&HANGS).unwrap();
        let found = Availability::within(Duration::from_millis(50), "load_hangs");
        END.store(true, Ordering::Relaxed);
        let Availability::Broken(message) = found else { panic!("{found:?}") };
        assert_eq!(message, "loading it and counting its devices exceeded the time limit of 50ms");
    }

    static BACKENDS: [BackendDescriptor; 6] = [
        BackendDescriptor::new("has_two", || counts(Ok(2))),
        BackendDescriptor::new("has_none", || counts(Ok(0))),
        BackendDescriptor::new("no_driver", || Err(LoadFailure::unavailable("looked for libgpu.so.1"))),
        BackendDescriptor::new("fails_to_load", || Err(LoadFailure::new("libgpu.so.1 is damaged"))),
        BackendDescriptor::new("no_permission", || counts(Err(BackendError::unavailable("no /dev/gpu")))),
        BackendDescriptor::new("fails_to_count", || counts(Err(BackendError::other("error 999")))),
    ];

    fn availability(name: &str) -> Availability {
        BACKENDS.iter().for_each(|backend| backends().register(backend).unwrap());
        Availability::of(name)
    }

    #[test]
    fn a_backend_with_devices_is_tested() {
        let Availability::Available(devices) = availability("has_two") else { panic!() };
        assert_eq!(devices.iter().map(Device::to_string).collect::<Vec<_>>(), ["has_two:0", "has_two:1"]);
        assert!(matches!(availability("has_none"), Availability::Available(devices) if devices.is_empty()));
        assert!(
            matches!(availability("cpu"), Availability::Available(devices) if devices == [Device::cpu()])
        );
    }

    #[test]
    fn a_device_is_opened_by_its_name_or_there_is_a_reason() {
        BACKENDS.iter().for_each(|backend| backends().register(backend).unwrap());
        assert_eq!(open("cpu"), Ok(Device::cpu()));
        let unavailable =
            |name, reason| matches!(open(name), Err(Unusable::Unavailable(why)) if why.contains(reason));
        assert!(unavailable("has_none", "it has no devices here"));
        assert!(unavailable("no_driver", "looked for libgpu.so.1"));
        for (name, reason) in [("has_two", "it is never opened"), ("not_linked", "not_linked")] {
            assert!(matches!(open(name), Err(Unusable::Broken(why)) if why.contains(reason)), "{name}");
        }
    }

    #[test]
    fn a_missing_driver_is_unavailable_and_a_defect_is_broken() {
        for (name, reason) in [("no_driver", "looked for libgpu.so.1"), ("no_permission", "no /dev/gpu")] {
            assert!(
                matches!(availability(name), Availability::Unavailable(why) if why.contains(reason)),
                "{name}"
            );
        }
        for (name, reason) in [
            ("fails_to_load", "libgpu.so.1 is damaged"),
            ("fails_to_count", "error 999"),
            ("not_linked", "it is not linked into this program"),
        ] {
            assert!(
                matches!(availability(name), Availability::Broken(why) if why.contains(reason)),
                "{name}"
            );
        }
    }
}
