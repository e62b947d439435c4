//! `device_or_skip`: a device for a backend's own tests, which are skipped under the same conditions as the
//! suite.

use std::collections::BTreeSet;
use std::io::{Write, stderr};

use device_registry::Device;

use crate::availability::{Availability, unavailable_reason};
use crate::environment::{self, REQUIRE};

/// Opens the backend's first device, for a test of the backend's own.
///
/// Returns `None` if the backend is unavailable on this machine. The reason then goes to the standard error,
/// past the test harness's capture, so that a skipped test does not look like one that passed.
///
/// ```
/// # device_registry::autoload!();
/// // A test of the backend `acme` passes "acme".
/// let Some(device) = device_conformance::device_or_skip("cpu") else { return };
/// assert!(device.allocate(16).is_ok());
/// ```
///
/// # Panics
///
/// If the backend is broken or not linked, or if it is unavailable and `DEVICE_CONFORMANCE_REQUIRE` lists it.
#[must_use]
pub fn device_or_skip(backend: &str) -> Option<Device> {
    first_device(backend, &environment::required())
}

fn first_device(backend: &str, required: &BTreeSet<String>) -> Option<Device> {
    let reason = match Availability::of(backend) {
        Availability::Available(devices) => match devices.first().map(|device| (device, device.open())) {
            Some((&device, Ok(()))) => return Some(device),
            Some((_, Err(error))) => unavailable_reason(&error).unwrap_or_else(|| panic!("{error:?}")),
            None => "it has no devices here".to_owned(),
        },
        Availability::Unavailable(reason) => reason,
        Availability::Broken(reason) => panic!("{backend}: {reason}"),
    };
    assert!(!required.contains(backend), "{REQUIRE} lists `{backend}`, and {reason}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // The harness shows `eprintln!` of failed tests only. An error here leaves nothing else to do.
    let _ = writeln!(stderr(), "skipped {test}: {backend}: {reason}");
    None
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use device_registry::backend::{Backend, BackendDescriptor, LoadFailure};
    use device_registry::backends;

    use super::*;

    fn missing() -> Result<Box<dyn Backend>, LoadFailure> {
        Err(LoadFailure::unavailable("looked for libmissing.so"))
    }

    static MISSING: BackendDescriptor = BackendDescriptor::new("device_or_skip_missing", missing);

    #[test]
    fn an_available_device_is_returned() {
        assert_eq!(device_or_skip("cpu"), Some(Device::cpu()));
    }

    #[test]
    fn an_unavailable_backend_is_skipped_unless_it_is_required() {
        backends().register(&MISSING).unwrap();
        assert_eq!(first_device("device_or_skip_missing", &BTreeSet::new()), None);
        let required = environment::names("cpu, device_or_skip_missing");
        let panic = catch_unwind(|| first_device("device_or_skip_missing", &required)).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.contains("looked for libmissing.so"), "{message}");
    }

    #[test]
    fn a_backend_that_is_not_linked_panics() {
        assert!(catch_unwind(|| first_device("not_linked", &BTreeSet::new())).is_err());
    }
}
