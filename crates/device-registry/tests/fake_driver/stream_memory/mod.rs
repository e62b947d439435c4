//! Memory that is allocated for a stream: its own later work has it before it is free, and nothing else does.

mod random;

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use device_registry::backend::{BackendError, BackendErrorKind, MemoryReuse};
use device_registry::{Buffer, Device, DeviceError, Stream, StreamGuard};

use crate::fake::{Control, FakeMemory, Moment, Queue, create, properties};
use crate::{LONG, SHORT, begin, outcome, statistics, still_waits};

/// An odd length, so that the core derives fills from writes and copies.
const LEN: usize = 5001;

/// The native memory of a buffer and the offset in it. The launch looks at them and is refused, so it does
/// not count as a use of the buffer.
fn place(stream: &Stream, buffer: &Buffer) -> (usize, usize) {
    let caller = thread::current().id();
    loop {
        let (sender, place) = mpsc::channel();
        let refused = stream.launch(&[buffer], move |launch| {
            // The stream's thread does it while it still ends other work: an error would be the stream's.
            if thread::current().id() != caller {
                return Ok(());
            }
            let span = launch.spans()[0].as_ref().unwrap();
            sender.send((std::ptr::from_ref(span.memory()).addr(), span.offset())).unwrap();
            Err(BackendError::invalid("only a look"))
        });
        if let Ok(place) = place.recv() {
            assert!(refused.unwrap_err().to_string().contains("only a look"));
            return place;
        }
    }
}

/// A buffer for the stream, whose gate is closed, in memory that work in the queue writes 7 to.
fn promised(stream: &Stream) -> Buffer {
    let first = stream.allocate(LEN).unwrap();
    stream.write(&first, 0, vec![7; LEN]).unwrap();
    let before = place(stream, &first);
    drop(first);
    allocate_at(stream, before)
}

/// A buffer for the stream in this place, which is the last one that there is: memory that nothing uses comes
/// first.
#[track_caller]
fn allocate_at(stream: &Stream, wanted: (usize, usize)) -> Buffer {
    let mut others = Vec::new();
    loop {
        let buffer = stream.allocate(LEN).unwrap();
        if place(stream, &buffer) == wanted {
            return buffer;
        }
        others.push(buffer);
        assert!(others.len() < 10_000, "the stream does not get it");
    }
}

#[track_caller]
fn has_only(buffer: &Buffer, byte: u8) {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes).unwrap();
    let wrong = bytes.iter().position(|&found| found != byte);
    assert_eq!(wrong.map(|at| (at, bytes[at])), None, "expected {byte} everywhere");
}

/// Runs a test on a device of each kind that uses memory again and has queues.
fn on_all(test: impl Fn(Device, &'static Control)) {
    for reuse in [MemoryReuse::Rounded, MemoryReuse::Exact, MemoryReuse::Divided { alignment: 256 }] {
        run_on(reuse, true, &test);
    }
}

fn run_on(reuse: MemoryReuse, has_queues: bool, test: impl Fn(Device, &'static Control)) {
    let (device, control) = create(has_queues, properties().with_memory_reuse(reuse));
    // The core derives the other fills from writes and copies.
    control.fills_multiples_of.store(2, Ordering::SeqCst);
    test(device, control);
    control.has_kept_the_rules();
}

#[test]
fn a_stream_has_its_memory_again_while_its_work_uses_it() {
    on_all(|device, control| {
        let (stream, gate) = control.stream(device);
        gate.close();
        let kept = stream.allocate(LEN).unwrap();
        // Where memory is divided, nothing uses the rest.
        let mut rest = Vec::new();
        for byte in 0..100 {
            let temporary = stream.allocate(LEN).unwrap();
            stream.fill(&temporary, .., &[byte]).unwrap();
            let at = byte as usize * 16;
            stream.copy(&temporary.slice(at..at + 16).unwrap(), &kept.slice(at..at + 16).unwrap()).unwrap();
            let used = place(&stream, &temporary);
            drop(temporary);
            let (calls, reused) = (control.calls(), statistics(device).reused);
            if byte == 0 {
                while control.calls() == calls && statistics(device).reused < 600 {
                    let buffer = stream.allocate(LEN).unwrap();
                    if place(&stream, &buffer) == used {
                        break;
                    }
                    rest.push(buffer);
                }
            } else {
                assert_eq!(place(&stream, &stream.allocate(LEN).unwrap()), used);
                assert_eq!((control.calls(), statistics(device).reused), (calls, reused + 1));
            }
        }
        assert_eq!((control.calls().1, gate.waits()), (0, 0));
        gate.open();
        stream.synchronize().unwrap();
        let mut bytes = vec![0; 1600];
        kept.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().enumerate().all(|(at, &byte)| at / 16 == usize::from(byte)));
    });
}

#[test]
fn nothing_else_has_memory_that_a_streams_work_uses() {
    on_all(|device, control| {
        let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
        gate.close();
        let buffer = promised(&stream);
        stream.write(&buffer, 0, vec![8; LEN]).unwrap();
        let used = place(&stream, &buffer);
        drop(buffer);
        let mut taken = Vec::new();
        // More than one segment has.
        for _ in 0..300 {
            for buffer in [other.allocate(LEN).unwrap(), device.allocate(LEN).unwrap()] {
                assert_ne!(place(&other, &buffer), used);
                taken.push(buffer);
            }
        }
        gate.open();
        stream.synchronize().unwrap();
        // Now it is free.
        let free: Vec<_> = (0..600).map(|_| device.allocate(LEN).unwrap()).collect();
        assert!(free.iter().any(|buffer| place(&other, buffer) == used));
    });
}

#[test]
fn memory_of_work_that_the_streams_thread_does_is_not_given_out() {
    on_all(|device, control| {
        let (stream, gate) = control.stream(device);
        let (release, released) = mpsc::channel::<()>();
        let buffer = stream.allocate(LEN).unwrap();
        let used = place(&stream, &buffer);
        stream.host_call(move || released.recv().unwrap_or(())).unwrap();
        stream.write(&buffer, 0, vec![7; LEN]).unwrap();
        let kept = stream.allocate(LEN).unwrap();
        stream.copy(&buffer, &kept).unwrap();
        drop(buffer);
        // The queue has not got the work yet, so that later work of another thread could come before it.
        let others: Vec<_> = (0..600).map(|_| stream.allocate(LEN).unwrap()).collect();
        gate.close();
        drop(release);
        while statistics(device).live > 601 {
            thread::yield_now();
        }
        // The thread has submitted it. In the memory of the others, nothing else is used.
        let again = allocate_at(&stream, used);
        assert!(others.iter().all(|buffer| place(&stream, buffer) != used));
        stream.fill(&again, .., &[8]).unwrap();
        gate.open();
        stream.synchronize().unwrap();
        has_only(&kept, 7);
        has_only(&again, 8);
    });
}

type Use = fn(&Stream, &Buffer) -> Result<(), DeviceError>;

/// Everything that writes to a buffer, but the calls with a time limit. Each writes 9 everywhere.
const WRITES: [(&str, Use); 8] = [
    ("stream write", |stream, buffer| stream.write(buffer, 0, vec![9; LEN])),
    ("stream fill", |stream, buffer| stream.fill(buffer, .., &[9])),
    ("stream copy", |stream, buffer| stream.copy(&nines(stream), buffer)),
    ("launch", |stream, buffer| {
        stream.launch(&[buffer], |launch| {
            let span = launch.spans()[0].as_ref().unwrap();
            launch.stream_as::<Queue>()?.submit_fill(span, 9)
        })
    }),
    ("write", |_, buffer| buffer.write(0, &[9; LEN])),
    ("fill", |_, buffer| buffer.fill(.., &[9])),
    ("copy", |stream, buffer| buffer.copy_from(&nines(stream))),
    ("span", |_, buffer| {
        let span = buffer.span().unwrap();
        span.memory_as::<FakeMemory>().unwrap().write(span.range(), 9);
        Ok(())
    }),
];

fn nines(stream: &Stream) -> Buffer {
    let buffer = stream.device().allocate(LEN).unwrap();
    buffer.write(0, &[9; LEN]).unwrap();
    buffer
}

#[test]
fn the_first_write_by_anything_else_waits_for_the_streams_earlier_work() {
    on_all(|device, control| {
        for (name, write) in WRITES {
            let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
            gate.close();
            let buffer = promised(&stream);
            let writes = {
                let (other, buffer) = (other.clone(), buffer.clone());
                begin(move || write(&other, &buffer))
            };
            gate.await_waits(1);
            still_waits(&writes);
            gate.open();
            outcome(writes).unwrap_or_else(|error| panic!("{name}: {error}"));
            other.synchronize().unwrap();
            stream.synchronize().unwrap();
            has_only(&buffer, 9);
        }
    });
}

#[test]
fn calls_with_a_time_limit_time_out_while_the_earlier_work_lasts() {
    on_all(|device, control| {
        let (stream, gate) = control.stream(device);
        let source = nines(&stream);
        gate.close();
        let buffer = promised(&stream);
        let times_out = |result: Result<(), DeviceError>, call: &str| {
            let error = result.unwrap_err();
            assert!(matches!(error, DeviceError::TimedOut { .. }), "{error}");
            let text = format!(
                "`{device}`: {call}: not done after 20ms, and the work goes on: work in another stream uses the memory"
            );
            assert_eq!(error.to_string(), text);
        };
        times_out(buffer.write_timeout(0, &[1; LEN], SHORT), "write");
        times_out(buffer.copy_from_timeout(&source, SHORT), "copy");
        gate.open();
        stream.synchronize().unwrap();
        has_only(&buffer, 7);
        gate.close();
        let other = promised(&stream);
        let writes = {
            let (other, source) = (other.clone(), source.clone());
            begin(move || {
                other.copy_from_timeout(&source, LONG)?;
                other.write_timeout(0, &[9; 16], LONG)
            })
        };
        still_waits(&writes);
        gate.open();
        outcome(writes).unwrap();
        has_only(&other, 9);
    });
}

#[test]
fn a_use_behind_one_of_the_stream_itself_does_not_wait() {
    on_all(|device, control| {
        for (name, write) in &WRITES[..4] {
            let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
            let copied_from = nines(&stream);
            gate.close();
            let buffer = promised(&stream);
            stream.copy(&copied_from, &buffer).unwrap();
            stream.fill(&buffer, .., &[8]).unwrap();
            let used = stream.record().unwrap();
            other.wait_event(&used).unwrap();
            {
                let (write, other, buffer) = (*write, other.clone(), buffer.clone());
                outcome(begin(move || write(&other, &buffer))).unwrap();
            }
            assert_eq!(gate.waits(), 0, "{name}");
            gate.open();
            other.synchronize().unwrap();
            has_only(&buffer, 9);
        }
    });
}

#[test]
fn a_part_that_the_stream_has_not_used_is_waited_for() {
    on_all(|device, control| {
        // Nothing orders writes of two streams to different bytes, and nothing has to.
        for (own, foreign) in [(0..2000, 2000..LEN), (2000..LEN, 0..2000), (0..2000, 1999..2001)] {
            let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
            gate.close();
            let buffer = promised(&stream);
            stream.write(&buffer, own.start, vec![8; own.len()]).unwrap();
            let writes = {
                let (other, part) = (other.clone(), buffer.slice(foreign).unwrap());
                begin(move || other.fill(&part, .., &[9]).map(|()| part))
            };
            gate.await_waits(1);
            still_waits(&writes);
            gate.open();
            let part = outcome(writes).unwrap();
            other.synchronize().unwrap();
            stream.synchronize().unwrap();
            if part.len() > 2 {
                has_only(&buffer.slice(own).unwrap(), 8);
                has_only(&part, 9);
            }
        }
        // Parts that touch are one.
        let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
        gate.close();
        let buffer = promised(&stream);
        stream.write(&buffer, 100, vec![8; 100]).unwrap();
        stream.write(&buffer, 0, vec![8; 100]).unwrap();
        stream.write(&buffer, 200, vec![8; 100]).unwrap();
        other.wait_event(&stream.record().unwrap()).unwrap();
        {
            let (other, buffer) = (other.clone(), buffer.clone());
            outcome(begin(move || other.write(&buffer, 50, vec![9; 200]))).unwrap();
        }
        assert_eq!(gate.waits(), 0);
        gate.open();
        other.synchronize().unwrap();
        has_only(&buffer.slice(50..250).unwrap(), 9);
    });
}

#[test]
fn work_that_the_driver_refuses_is_no_use() {
    on_all(|device, control| {
        let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
        gate.close();
        let buffer = promised(&stream);
        (0..2).for_each(|_| control.fail_at(Moment::Submit, BackendError::other("the queue takes no work")));
        assert!(stream.write(&buffer, 0, vec![8; LEN]).is_err() && stream.fill(&buffer, .., &[8]).is_err());
        let writes = {
            let (other, buffer) = (other.clone(), buffer.clone());
            begin(move || other.write(&buffer, 0, vec![9; LEN]))
        };
        gate.await_waits(1);
        still_waits(&writes);
        gate.open();
        outcome(writes).unwrap();
        other.synchronize().unwrap();
        has_only(&buffer, 9);
    });
}

#[test]
fn while_a_guard_chooses_a_stream_the_memory_is_that_streams() {
    on_all(|device, control| {
        let (stream, gate) = control.stream(device);
        gate.close();
        let guard = StreamGuard::new(&stream);
        let first = device.allocate(LEN).unwrap();
        stream.write(&first, 0, vec![7; LEN]).unwrap();
        let used = place(&stream, &first);
        drop(first);
        let taken: Vec<_> = (0..600).map(|_| device.allocate(LEN).unwrap()).collect();
        let second = taken.into_iter().find(|buffer| place(&stream, buffer) == used).unwrap();
        stream.write(&second, 0, vec![8; LEN]).unwrap();
        drop(second);
        drop(guard);
        let taken: Vec<_> = (0..600).map(|_| device.allocate(LEN).unwrap()).collect();
        assert!(taken.iter().all(|buffer| place(&stream, buffer) != used), "no stream is chosen");
        gate.open();
        stream.synchronize().unwrap();
    });
}

#[test]
fn a_buffer_outlives_its_stream_and_its_work_is_waited_for() {
    on_all(|device, control| {
        let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
        gate.close();
        let (buffer, used) = (promised(&stream), stream.allocate(LEN).unwrap());
        stream.write(&used, 0, vec![7; LEN]).unwrap();
        drop(used);
        drop(stream);
        let writes = {
            let (other, buffer) = (other.clone(), buffer.clone());
            begin(move || other.write(&buffer, 0, vec![9; LEN]))
        };
        gate.await_waits(1);
        still_waits(&writes);
        gate.open();
        outcome(writes).unwrap();
        other.synchronize().unwrap();
        has_only(&buffer, 9);
        drop(buffer);
        device.synchronize().unwrap();
        device.empty_cache().unwrap();
        let (allocated, freed) = control.calls();
        assert_eq!((allocated - freed, statistics(device).reserved), (0, 0));
    });
}

#[test]
fn memory_that_another_stream_uses_last_is_free_after_both() {
    on_all(|device, control| {
        let [(stream, gate), (other, second)] = [(); 2].map(|()| control.stream(device));
        gate.close();
        second.close();
        let buffer = stream.allocate(LEN).unwrap();
        let used = place(&stream, &buffer);
        stream.write(&buffer, 0, vec![7; LEN]).unwrap();
        other.wait_event(&stream.record().unwrap()).unwrap();
        let read = other.read(&buffer, ..).unwrap();
        drop(buffer);
        // The stream itself must not have it either: the other one reads it.
        for _ in 0..600 {
            let next = stream.allocate(LEN).unwrap();
            assert_ne!(place(&stream, &next), used);
            stream.write(&next, 0, vec![8; LEN]).unwrap();
        }
        gate.open();
        second.open();
        assert!(read.wait().unwrap().iter().all(|&byte| byte == 7));
        other.synchronize().unwrap();
        stream.synchronize().unwrap();
        allocate_at(&stream, used);
    });
}

#[test]
fn a_failure_of_the_work_stays_the_streams_and_ends_the_wait() {
    on_all(|device, control| {
        let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
        gate.close();
        let buffer = promised(&stream);
        let writes = {
            let (other, buffer) = (other.clone(), buffer.clone());
            begin(move || other.write(&buffer, 0, vec![9; LEN]))
        };
        gate.await_waits(1);
        gate.fail(BackendError::other("a bit flipped"));
        outcome(writes).unwrap();
        other.synchronize().unwrap();
        has_only(&buffer, 9);
        let error = stream.synchronize().unwrap_err();
        assert!(error.to_string().ends_with("a bit flipped"), "{error}");
        stream.synchronize().unwrap();
        drop(buffer);
        assert_eq!(statistics(device).allocated, 0);
    });
}

/// Everything that the driver has allocated is freed, once.
#[track_caller]
fn has_nothing(control: &Control) {
    let (allocated, freed) = control.calls();
    assert!(allocated > 0);
    assert_eq!(allocated, freed);
}

#[test]
fn a_close_gives_everything_back() {
    on_all(|device, control| {
        let (stream, gate) = control.stream(device);
        gate.close();
        let (kept, used) = (promised(&stream), stream.allocate(3 * LEN).unwrap());
        stream.write(&used, 0, vec![7; LEN]).unwrap();
        drop(used);
        let closes = begin(move || device.close());
        gate.await_waits(1);
        still_waits(&closes);
        gate.open();
        outcome(closes).unwrap();
        drop(kept);
        has_nothing(control);
        drop(stream);
    });
}

#[test]
fn a_loss_gives_everything_back_and_ends_waits() {
    on_all(|device, control| {
        let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
        gate.close();
        let (kept, used) = (promised(&stream), stream.allocate(3 * LEN).unwrap());
        stream.write(&used, 0, vec![7; LEN]).unwrap();
        drop(used);
        let writes = {
            let buffer = kept.clone();
            begin(move || other.write(&buffer, 0, vec![9; LEN]))
        };
        gate.await_waits(1);
        control.report(BackendError::lost("unplugged"));
        // A driver's wait ends with an error when its device is lost.
        gate.fail(BackendError::lost("unplugged"));
        assert_eq!(outcome(writes).unwrap_err().kind(), Some(BackendErrorKind::Lost));
        let error = kept.write(0, &[9]).unwrap_err();
        assert_eq!(error.kind(), Some(BackendErrorKind::Lost));
        let error = kept.write_timeout(0, &[9], LONG).unwrap_err();
        assert_eq!(error.kind(), Some(BackendErrorKind::Lost));
        drop((kept, stream));
        device.reset().unwrap();
        has_nothing(control);
    });
}

#[test]
fn a_full_device_waits_for_memory_that_the_streams_work_uses() {
    on_all(|device, control| {
        const MIB: usize = 1 << 20;
        control.capacity.store(4 * MIB, Ordering::SeqCst);
        let (stream, gate) = control.stream(device);
        gate.close();
        let used = stream.allocate(3 * MIB).unwrap();
        stream.write(&used, 0, vec![7; LEN]).unwrap();
        drop(used);
        let allocates = begin(move || device.allocate(2 * MIB));
        gate.await_waits(1);
        still_waits(&allocates);
        gate.open();
        assert_eq!(outcome(allocates).unwrap().len(), 2 * MIB);
        // One with a handle is not waited for.
        let waits = gate.waits();
        let kept = stream.allocate(3 * MIB).unwrap();
        gate.close();
        stream.write(&kept, 0, vec![7; LEN]).unwrap();
        let error = outcome(begin(move || device.allocate(2 * MIB))).unwrap_err();
        assert!(matches!(error.kind(), Some(BackendErrorKind::OutOfMemory { .. })), "{error}");
        assert_eq!(gate.waits(), waits);
        gate.open();
    });
}

#[test]
fn other_devices_never_wait() {
    let test = |device: Device, control: &'static Control| {
        for (name, write) in WRITES {
            let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
            let source = nines(&stream);
            gate.close();
            let first = stream.allocate(LEN).unwrap();
            stream.copy(&source, &first).unwrap();
            drop(first);
            let second = stream.allocate(LEN).unwrap();
            // Without queues there is no native one for the launch, whose failure is the stream's.
            let _ = write(&other, &second);
            assert_eq!(gate.waits(), 0, "{name}");
            gate.open();
            stream.synchronize().unwrap();
            let _ = other.synchronize();
        }
    };
    run_on(MemoryReuse::Never, true, test);
    run_on(MemoryReuse::Rounded, false, test);
}

#[test]
fn a_host_call_gets_its_ordinary_error_and_does_not_wait() {
    on_all(|device, control| {
        let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
        gate.close();
        let buffer = promised(&stream);
        let (sender, errors) = mpsc::channel();
        let (stays, calling) = (buffer.clone(), other.clone());
        other
            .host_call(move || {
                let results = [
                    calling.write(&buffer, 0, vec![9; LEN]),
                    calling.fill(&buffer, .., &[9]),
                    buffer.write(0, &[9; LEN]),
                    buffer.write_timeout(0, &[9; LEN], LONG),
                    calling.allocate(LEN).map(drop),
                    calling.launch(&[&buffer], |_| Ok(())),
                ];
                sender.send(results).unwrap();
            })
            .unwrap();
        for result in outcome(errors) {
            let error = result.unwrap_err();
            assert!(matches!(error, DeviceError::InHostCall { .. }), "{error}");
        }
        assert_eq!(gate.waits(), 0);
        gate.open();
        stream.synchronize().unwrap();
        has_only(&stays, 7);
    });
}

#[test]
fn copies_between_two_devices_use_the_memory_of_their_streams() {
    on_all(|device, control| {
        let (peer, _) = create(true, device.properties().unwrap().clone());
        let (stream, gate) = control.stream(device);
        let far = peer.create_stream().unwrap();
        gate.close();
        let source = far.allocate(LEN).unwrap();
        far.write(&source, 0, vec![9; LEN]).unwrap();
        far.synchronize().unwrap();
        let used = place(&far, &source);
        let buffer = promised(&stream);
        stream.copy(&source, &buffer).unwrap();
        drop(source);
        // The other device's stream must not have what this one copies from.
        let next = far.allocate(LEN).unwrap();
        assert_ne!(place(&far, &next), used);
        far.write(&next, 0, vec![1; LEN]).unwrap();
        far.synchronize().unwrap();
        gate.open();
        stream.synchronize().unwrap();
        has_only(&buffer, 9);
        allocate_at(&far, used);
    });
}

#[test]
fn one_piece_of_work_keeps_memory_and_a_buffer_without_a_use_changes_nothing() {
    on_all(|device, control| {
        let [(stream, gate), (other, _)] = [(); 2].map(|()| control.stream(device));
        let buffer = stream.allocate(LEN).unwrap();
        let used = place(&stream, &buffer);
        stream.synchronize().unwrap();
        gate.close();
        // The queue keeps nothing else for it: a write also keeps its source.
        stream.fill(&buffer, ..LEN - 1, &[7]).unwrap();
        drop(buffer);
        for _ in 0..2 {
            let taken: Vec<_> = (0..600).map(|_| device.allocate(LEN).unwrap()).collect();
            assert!(taken.iter().all(|buffer| place(&other, buffer) != used));
            drop(taken);
            // The stream gets it too, once nothing else is free.
            let unused: Vec<_> = (0..1200).map(|_| stream.allocate(LEN).unwrap()).collect();
            drop(unused);
        }
        gate.open();
        stream.synchronize().unwrap();
    });
}

#[test]
fn after_a_loss_the_drop_of_the_stream_gives_memory_back_and_nothing_before_it() {
    on_all(|device, control| {
        for waits in [true, false] {
            let (stream, gate) = control.stream(device);
            gate.close();
            let used = stream.allocate(LEN).unwrap();
            stream.write(&used, 0, vec![7; LEN]).unwrap();
            drop(used);
            if waits {
                let synchronizes = {
                    let stream = stream.clone();
                    begin(move || stream.synchronize())
                };
                gate.await_waits(1);
                control.report(BackendError::lost("unplugged"));
                gate.fail(BackendError::lost("unplugged"));
                outcome(synchronizes).unwrap_err();
                device.reset().unwrap();
                // The driver may still use it, until it has ended its queue.
                let (allocated, freed) = control.calls();
                assert!(freed < allocated);
                drop(stream);
                has_nothing(control);
            } else {
                control.report(BackendError::lost("unplugged"));
                drop(stream);
                device.reset().unwrap();
                has_nothing(control);
                gate.open();
            }
        }
    });
}
