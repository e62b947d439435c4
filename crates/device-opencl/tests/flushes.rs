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
    let mut of_bursts = Vec::new();
    for _ in 0..20 {
        let (mut event, mut read) = (None, None);
        assert_eq!(
            flushes(|| {
                (0..100).for_each(|_| launch(&stream));
                event = Some(stream.record().unwrap());
                read = Some(stream.read(&buffer, ..).unwrap());
            }),
            0,
            "no thread looks at them"
        );
        of_bursts.push(flushes(|| {
            event.take().unwrap().synchronize().unwrap();
            assert_eq!(read.take().unwrap().wait().unwrap()[..], [0; 4]);
            stream.synchronize().unwrap();
        }));
    }
    expect_one(&of_bursts);
    // Each look at later work has a flush before it.
    launch(&stream);
    assert_eq!(flushes(|| stream.synchronize().unwrap()), 1);
    assert_eq!(flushes(|| stream.synchronize().unwrap()), 0, "all was submitted");
    let read = || drop(stream.read(&buffer, ..).unwrap().wait().unwrap());
    expect_one(&[(); 20].map(|()| flushes(read)));
}

/// Expects one flush for each look. The stand-in does work at once: where it tells the end of a read before
/// a thread looks, that needs none.
fn expect_one(flushes: &[usize]) {
    assert!(flushes.iter().all(|count| *count <= 1) && flushes.contains(&1), "{flushes:?}");
}
