//! Tests of this backend alone: what it submits, and when.

use device_myfence::MyFenceDevice;
use device_registry::{Device, Stream, device};

device_registry::autoload!();

fn submissions(device: Device) -> usize {
    device.with_driver(|native: &MyFenceDevice| Ok(native.submissions())).expect("it is open")
}

/// Work whose submissions are counted alone: each test has a device of its own.
fn counted(name: &str, work: impl FnOnce(&Stream)) -> usize {
    let device = device(name).expect("it is linked");
    let stream = device.create_stream().expect("a thread starts");
    let before = submissions(device);
    work(&stream);
    stream.synchronize().unwrap();
    submissions(device) - before
}

#[test]
fn a_thousand_copies_with_an_event_each_are_few_submissions() {
    let device = device("myfence:0").unwrap();
    let [from, to] = [(); 2].map(|()| device.allocate(4).unwrap());
    from.write(0, b"done").unwrap();
    let submitted = counted("myfence:0", |stream| {
        let mut events = Vec::new();
        for _ in 0..1000 {
            stream.copy(&from, &to).unwrap();
            events.push(stream.record().unwrap());
        }
        events.iter().for_each(|event| event.synchronize().unwrap());
    });
    assert!(submitted < 50, "{submitted} submissions");
    let mut bytes = [0; 4];
    to.read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"done");
}

#[test]
fn a_hundred_reads_before_a_wait_are_few_submissions() {
    let device = device("myfence:1").unwrap();
    let buffer = device.allocate(4).unwrap();
    buffer.write(0, b"read").unwrap();
    let submitted = counted("myfence:1", |stream| {
        let reads: Vec<_> = (0..100).map(|_| stream.read(&buffer, ..).unwrap()).collect();
        reads.into_iter().for_each(|read| assert_eq!(*read.wait().unwrap(), *b"read"));
    });
    assert!(submitted < 10, "{submitted} submissions");
}
