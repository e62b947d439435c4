//! Closing all devices at the end of a program. A separate test binary, as it closes the devices of all
//! threads.

use device_registry::{Buffer, Device, DeviceError, HostBuffer, close_all};

#[test]
fn all_open_devices_are_closed_after_their_work_is_done() {
    let cpu = Device::cpu();
    assert!(close_all().is_empty(), "none is open");
    let buffer = cpu.allocate(1).unwrap();
    let imported = Buffer::from_host_memory(HostBuffer::from([1; 100_000]).into()).unwrap();
    let statistics = cpu.memory_statistics().unwrap();
    assert_eq!((statistics.live, statistics.allocated, statistics.reserved), (2, 100_001, 100_001));
    drop(imported.clone());
    let stream = cpu.default_stream().unwrap();
    stream.write(&buffer, 0, b"x").unwrap();
    let read = stream.read(&buffer, 0..1).unwrap();
    let closed = close_all();
    assert!(matches!(&closed[..], [(device, Ok(()))] if *device == cpu), "{closed:?}");
    assert_eq!(*read.wait().unwrap(), *b"x");
    assert!(matches!(buffer.write(0, b"y"), Err(DeviceError::Closed { .. })));
    assert!(matches!(imported.read(0, &mut [0]), Err(DeviceError::Closed { .. })));
    drop(imported);
    assert!(close_all().is_empty(), "it is not open any more");
    cpu.allocate(1).unwrap().write(0, b"y").unwrap();
    drop(Buffer::from_host_memory(HostBuffer::from([1; 100_000]).into()).unwrap());
    let statistics = cpu.memory_statistics().unwrap();
    assert_eq!((statistics.live, statistics.reserved, statistics.cached), (0, 0, 0));
    assert_ne!(cpu.default_stream().unwrap(), stream);
}
