//! Tests of this backend alone.

use device_registry::{Device, DeviceError, device, device_count};

// Links this package's own library, as it links a program's backends.
device_registry::autoload!();

fn first() -> Device {
    device("mycpu").expect("it is linked")
}

#[test]
fn it_has_one_device() {
    assert_eq!(device_count("mycpu").unwrap(), 1);
    assert_eq!(first().properties().unwrap().name, "memory of the host");
    assert!(matches!(device("mycpu:1").unwrap().allocate(1), Err(DeviceError::NoSuchDevice { .. })));
}
