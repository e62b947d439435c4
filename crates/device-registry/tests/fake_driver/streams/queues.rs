//! Queues of a driver: how the core submits work to them, and refusals.

use std::sync::atomic::Ordering;
use std::thread;

use device_registry::backend::BackendError;
use device_registry::{Buffer, Device, DeviceError, Stream};

use crate::fake::{Moment, queued};
use crate::{ends, error_text, filled};

#[test]
fn a_call_that_a_queue_refuses_is_returned_and_leaves_no_failure() {
    ends(|| {
        let (device, control) = queued();
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
        type Enqueue = fn(&Stream, &Buffer) -> Result<(), DeviceError>;
        let refusals: [Enqueue; 5] = [
            |stream, buffer| stream.write(buffer, 0, b"x"),
            |stream, buffer| stream.read(buffer, 0..1).map(drop),
            |stream, buffer| stream.copy(&buffer.slice(..1)?, &buffer.slice(1..2)?),
            |stream, buffer| stream.fill(buffer, 0..1, b"x"),
            |stream, _| stream.record().map(drop),
        ];
        for refused in refusals {
            control.fail_at(Moment::Submit, BackendError::invalid("not this"));
            assert!(error_text(refused(&stream, &buffer)).ends_with(": not this"));
            stream.synchronize().unwrap();
            refused(&stream, &buffer).unwrap();
        }
    });
}

#[test]
fn one_thread_at_a_time_submits_to_a_queue_and_parts_of_work_do_not_mix() {
    const LEN: usize = 4 << 20;
    ends(|| {
        let (device, control) = queued();
        control.fills_multiples_of.store(usize::MAX, Ordering::SeqCst);
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(LEN).unwrap());
        for _ in 0..10 {
            thread::scope(|scope| {
                scope.spawn(|| stream.fill(&buffer, 0..LEN, b"x").unwrap());
                scope.spawn(|| (0..8).for_each(|_| stream.write(&buffer, 0, b"y").unwrap()));
                scope.spawn(|| (0..8).for_each(|_| drop(stream.record().unwrap())));
            });
            let bytes = stream.read(&buffer, 0..LEN).unwrap().wait().unwrap();
            assert!(!bytes[1..].contains(&b'y'), "the first byte was copied on after it was written to");
        }
        assert_eq!(control.most_submitting.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn a_copy_from_another_device_runs_in_order_by_the_best_available_path() {
    ends(|| {
        let ((device, control), (peer, _)) = (queued(), queued());
        let (stream, destination) = (device.create_stream().unwrap(), filled(device, b"...."));
        for (source, way) in [
            (filled(peer, b"abcd"), &["queue copy", "queue fill", "queue read"][..]),
            (filled(Device::cpu(), b"abcd"), &["queue flush", "write"]),
        ] {
            control.log();
            stream.copy(&source.slice(1..3).unwrap(), &destination.slice(1..3).unwrap()).unwrap();
            stream.fill(&destination, 0..1, b"x").unwrap();
            assert_eq!(*stream.read(&destination, 0..4).unwrap().wait().unwrap(), *b"xbc.");
            assert_eq!(control.log()[..way.len()], *way);
            stream.fill(&destination, 0..4, b".").unwrap();
        }
    });
}
