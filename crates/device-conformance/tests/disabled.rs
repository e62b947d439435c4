//! A backend that a switch turns off cannot be tested, which is no defect. A process has its switches once,
//! so that this test has one of its own.

use device_conformance::harness::{Unusable, open};
use device_registry::backend::{BackendDescriptor, LoadFailure};
use device_registry::backends;
use device_registry::registry::Switches;

static OFF: BackendDescriptor = BackendDescriptor::new("off", || Err(LoadFailure::new("it is never loaded")));

#[test]
fn a_disabled_backend_is_unavailable_and_not_broken() {
    let switches = Switches { disable: vec!["off".to_owned()], ..Switches::default() };
    backends().configure(switches).unwrap();
    backends().register(&OFF).unwrap();
    for name in ["off", "off:1"] {
        let found = open(name);
        let Err(Unusable::Unavailable(reason)) = &found else { panic!("{found:?}") };
        assert!(reason.contains("`off`") && reason.contains("is disabled by the program"), "{reason}");
    }
}
