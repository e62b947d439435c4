//! A device for a backend's own tests, which are skipped as the suite's are.

use std::collections::BTreeSet;
use std::env;
use std::io::{Write, stderr};

use device_registry::Device;

use crate::standing::{Standing, unavailable};
use crate::suite::{REQUIRE, names};

/// A device for a test of the backend's own: its first one, open. `None` if there is none on this machine, which is
/// written to the standard error whatever the test harness captures, so that nobody takes it for a pass.
///
/// ```
/// # device_registry::autoload!();
/// // In a test; elsewhere than here it says `acme`, or whatever the crate is about.
/// let Some(device) = device_conformance::device_or_skip("cpu") else { return };
/// assert!(device.allocate(16).is_ok());
/// ```
///
/// # Panics
///
/// If the backend is broken, or not linked, or `DEVICE_CONFORMANCE_REQUIRE` lists it and it is not there.
#[must_use]
pub fn device_or_skip(backend: &str) -> Option<Device> {
    first_device(backend, &names(&env::var(REQUIRE).unwrap_or_default()))
}

fn first_device(backend: &str, required: &BTreeSet<String>) -> Option<Device> {
    let reason = match Standing::of(backend) {
        Standing::Devices(devices) => match devices[0].open() {
            Ok(()) => return Some(devices[0]),
            Err(error) => unavailable(&error).unwrap_or_else(|| panic!("{error:?}")),
        },
        Standing::Absent(reason) => reason,
        Standing::Broken(reason) => panic!("{backend}: {reason}"),
    };
    assert!(!required.contains(backend), "{REQUIRE} lists `{backend}`, and {reason}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not `eprintln!`, which is shown of failed tests only. Nothing can be done if it fails.
    let _ = writeln!(stderr(), "skipped {test}: {backend}: {reason}");
    None
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use device_registry::{Backend, BackendDescriptor, LoadFailure, backends};

    use super::*;

    fn not_here() -> Result<Box<dyn Backend>, LoadFailure> {
        Err(LoadFailure::unavailable("looked for libgone.so"))
    }

    static NOT_HERE: BackendDescriptor = BackendDescriptor::new("present_not_here", not_here);

    #[test]
    fn a_device_that_is_there_is_tested() {
        assert_eq!(device_or_skip("cpu"), Some(Device::cpu()));
    }

    #[test]
    fn what_is_not_here_is_skipped_unless_it_has_to_be() {
        backends().register(&NOT_HERE).unwrap();
        assert_eq!(first_device("present_not_here", &BTreeSet::new()), None);
        let required = names("cpu, present_not_here");
        let panic = catch_unwind(|| first_device("present_not_here", &required)).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.contains("looked for libgone.so"), "{message}");
    }

    #[test]
    fn what_nobody_links_is_no_skip() {
        assert!(catch_unwind(|| first_device("nobody_links_it", &BTreeSet::new())).is_err());
    }
}
