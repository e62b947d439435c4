//! How often a queue is flushed, which may be a submission to the device each time.

mod child;
#[allow(dead_code, reason = "not every test program needs all of it")]
mod standin;

use device_registry::{Stream, device};

device_registry::autoload!();

/// How many flushes there are while this runs.
fn flushes(what: impl FnOnce()) -> usize {
    let before = standin::flushes();
    what();
    standin::flushes() - before
}

#[test]
fn a_burst_of_kernels_with_an_event_and_a_read_is_one_flush() {
    if !standin::is_here("a_burst_of_kernels_with_an_event_and_a_read_is_one_flush") {
        return;
    }
    let device = device("opencl").unwrap();
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let launch = |stream: &Stream| stream.launch(&[], |_| Ok(())).unwrap();
    let (mut event, mut read) = (None, None);
    assert_eq!(
        flushes(|| {
            (0..100).for_each(|_| launch(&stream));
            event = Some(stream.record().unwrap());
            read = Some(stream.read(&buffer, ..).unwrap());
        }),
        0,
        "nobody looks at them"
    );
    assert_eq!(
        flushes(|| {
            event.take().unwrap().synchronize().unwrap();
            assert_eq!(read.take().unwrap().wait().unwrap()[..], [0; 4]);
            stream.synchronize().unwrap();
        }),
        1
    );
    // Each look at later work has a flush before it.
    launch(&stream);
    assert_eq!(flushes(|| stream.synchronize().unwrap()), 1);
    assert_eq!(flushes(|| stream.synchronize().unwrap()), 0, "all was submitted");
    assert_eq!(flushes(|| drop(stream.read(&buffer, ..).unwrap().wait().unwrap())), 1);
}
