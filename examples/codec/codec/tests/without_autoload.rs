//! A program without `autoload!`, whose dependencies may not be linked.

#![allow(missing_docs)]

use codec::decode;
use device_registry::backend::{BackendDescriptor, LoadFailure};
use device_registry::{backends, device};

#[test]
fn the_error_in_a_program_without_autoload_says_to_add_the_line() {
    static ACME: BackendDescriptor =
        BackendDescriptor::new("acme", || Err(LoadFailure::unavailable("no driver")));
    backends().register(&ACME).unwrap();
    let picture = include_bytes!("../../sample.png");
    let message = format!("{:?}", decode(picture, device("acme").unwrap()).unwrap_err());
    assert!(message.contains("`device_registry::autoload!();`"), "{message}");
}
