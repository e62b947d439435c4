//! Whether a backend can be tested here: its devices, or why there are none.

use device_registry::{BackendErrorKind, Device, DeviceError, LoadError, State, backends, device};

/// Whether a backend can be tested here.
#[derive(Debug)]
pub(crate) enum Standing {
    Devices(Vec<Device>),
    /// It has nothing to work with on this machine, or is not to be used: no fault of its own.
    Absent(String),
    Broken(String),
}

impl Standing {
    /// Loads the backend and counts its devices; opens none.
    pub(crate) fn of(backend: &str) -> Self {
        match backends().get(backend).map(|entry| entry.state()) {
            Some(State::Disabled { by, .. }) => return Self::Absent(format!("it is disabled by {by}")),
            None => {
                return Self::Broken(format!("it is not linked into this program\n{}", backends().report()));
            }
            Some(_) => {}
        }
        match devices(backend) {
            Ok(devices) if devices.is_empty() => Self::Absent("it has no devices here".to_owned()),
            Ok(devices) => Self::Devices(devices),
            Err(error) => Self::of_error(&error),
        }
    }

    fn of_error(error: &DeviceError) -> Self {
        match unavailable(error) {
            Some(reason) => Self::Absent(reason),
            None => Self::Broken(format!("{error:?}")),
        }
    }
}

fn devices(backend: &str) -> Result<Vec<Device>, DeviceError> {
    let count = device(backend)?.count()?;
    (0..count).map(|ordinal| device(&format!("{backend}:{ordinal}"))).collect()
}

/// Why there is no such device now, if that is all that is wrong.
pub(crate) fn unavailable(error: &DeviceError) -> Option<String> {
    let absent = match error {
        DeviceError::Backend(LoadError::Unavailable { .. }) => true,
        _ => error.backend_error().is_some_and(|error| error.kind() == BackendErrorKind::Unavailable),
    };
    absent.then(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use device_registry::{
        Backend, BackendDescriptor, BackendError, DeviceProperties, LoadFailure, OpenedDevice, backends,
    };

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
            Err(BackendError::other("nobody opens it"))
        }
    }

    fn counts(count: Result<usize, BackendError>) -> Result<Box<dyn Backend>, LoadFailure> {
        Ok(Box::new(Counts(count)))
    }

    static BACKENDS: [BackendDescriptor; 6] = [
        BackendDescriptor::new("has_two", || counts(Ok(2))),
        BackendDescriptor::new("has_none", || counts(Ok(0))),
        BackendDescriptor::new("no_driver", || Err(LoadFailure::unavailable("looked for libgpu.so.1"))),
        BackendDescriptor::new("fails_to_load", || Err(LoadFailure::new("libgpu.so.1 is damaged"))),
        BackendDescriptor::new("no_permission", || counts(Err(BackendError::unavailable("no /dev/gpu")))),
        BackendDescriptor::new("fails_to_count", || counts(Err(BackendError::other("error 999")))),
    ];

    fn standing(name: &str) -> Standing {
        BACKENDS.iter().for_each(|backend| backends().register(backend).unwrap());
        Standing::of(name)
    }

    #[test]
    fn a_backend_with_devices_is_tested() {
        let Standing::Devices(devices) = standing("has_two") else { panic!() };
        assert_eq!(devices.iter().map(Device::to_string).collect::<Vec<_>>(), ["has_two:0", "has_two:1"]);
        assert!(matches!(standing("cpu"), Standing::Devices(devices) if devices == [Device::cpu()]));
    }

    #[test]
    fn what_is_not_there_is_no_fault_and_what_is_broken_is_one() {
        for (name, reason) in [
            ("has_none", "no devices"),
            ("no_driver", "looked for libgpu.so.1"),
            ("no_permission", "no /dev/gpu"),
        ] {
            assert!(matches!(standing(name), Standing::Absent(why) if why.contains(reason)), "{name}");
        }
        for (name, reason) in [
            ("fails_to_load", "libgpu.so.1 is damaged"),
            ("fails_to_count", "error 999"),
            ("nobody_links_it", "it is not linked into this program"),
        ] {
            assert!(matches!(standing(name), Standing::Broken(why) if why.contains(reason)), "{name}");
        }
    }
}
