//! A program that says no `autoload!`, so that what stands in its Cargo.toml may not be linked.

#![allow(missing_docs)]

use codec::decode;
use device_registry::backend::{BackendDescriptor, LoadFailure};
use device_registry::{backends, device};

#[test]
fn a_program_without_the_line_is_told_to_write_it_as_it_is_written_for_devices() {
    static ACME: BackendDescriptor =
        BackendDescriptor::new("acme", || Err(LoadFailure::unavailable("no driver")));
    backends().register(&ACME).unwrap();
    let picture = include_bytes!("../../sample.png");
    let told = format!("{:?}", decode(picture, device("acme").unwrap()).unwrap_err());
    assert!(told.contains("`device_registry::autoload!();`"), "{told}");
}
