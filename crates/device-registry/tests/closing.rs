//! Closing all devices at the end of a program. A separate test binary, as it closes the devices of all
//! threads.

use device_registry::{Device, DeviceError, close_all};

#[test]
fn all_open_devices_are_closed_after_their_work_is_done() {
    let cpu = Device::cpu();
    assert!(close_all().is_empty(), "none is open");
    let buffer = cpu.allocate(1).unwrap();
    let stream = cpu.default_stream().unwrap();
    stream.write(&buffer, 0, b"x").unwrap();
    let read = stream.read(&buffer, 0..1).unwrap();
    let closed = close_all();
    assert!(matches!(&closed[..], [(device, Ok(()))] if *device == cpu), "{closed:?}");
    assert_eq!(*read.wait().unwrap(), *b"x");
    assert!(matches!(buffer.write(0, b"y"), Err(DeviceError::Closed { .. })));
    assert!(close_all().is_empty(), "it is not open any more");
    cpu.allocate(1).unwrap().write(0, b"y").unwrap();
    assert_ne!(cpu.default_stream().unwrap(), stream);
}
