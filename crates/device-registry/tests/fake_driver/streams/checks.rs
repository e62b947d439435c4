//! The checks before any driver is called: ranges, alignment, patterns and devices.

use std::sync::atomic::Ordering;

use device_registry::{Device, DeviceError, HostBuffer};

use crate::fake::{in_words, plain, queued};
use crate::{content, error_text, filled, on_both};

#[test]
fn buffers_and_streams_of_different_devices_do_not_mix() {
    let ((device, _), (other, _)) = (plain(), queued());
    let (stream, buffer, foreign) =
        (device.create_stream().unwrap(), filled(device, b"abcd"), filled(other, b"abcd"));
    for (at, result) in [
        stream.write(&foreign, 0, b"x"),
        stream.read(&foreign, 0..1).map(drop),
        stream.fill(&foreign, 0..1, b"x"),
        stream.copy(&buffer, &foreign),
        stream.launch(&[&buffer, &foreign], |_| Ok(())),
    ]
    .into_iter()
    .enumerate()
    {
        let error = result.unwrap_err();
        assert!(matches!(error, DeviceError::OtherDevice { .. }), "{at}: {error}");
        let message =
            format!("is a buffer on `{other}`: expected one on `{device}`, the device of the stream");
        assert!(error.to_string().contains(&message), "{error}");
    }
    stream.copy(&foreign.slice(1..3).unwrap(), &buffer.slice(..2).unwrap()).unwrap();
    assert_eq!(*stream.read(&buffer, 0..4).unwrap().wait().unwrap(), *b"bccd");
}

#[test]
fn ranges_outside_overlaps_and_bad_patterns_are_refused_before_they_are_queued() {
    on_both(|device, control| {
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(16).unwrap());
        control.log();
        for result in [
            stream.write(&buffer, 15, b"ab"),
            stream.write(&buffer, usize::MAX, b"ab"),
            stream.read(&buffer, 0..17).map(drop),
            stream.read(&buffer, 0..usize::MAX).map(drop),
            stream.read_into(&buffer, 9, HostBuffer::zeroed(8).unwrap()).map(drop),
            stream.fill(&buffer, 16..17, b"x"),
        ] {
            assert!(matches!(result, Err(DeviceError::OutOfRange { .. })), "{result:?}");
        }
        let part = |range| buffer.slice(range).unwrap();
        assert!(matches!(stream.copy(&part(0..8), &part(4..12)), Err(DeviceError::Overlap { .. })));
        assert!(matches!(stream.copy(&part(0..8), &part(8..15)), Err(DeviceError::LengthMismatch { .. })));
        for pattern in [&b""[..], b"abc", &[0; 32]] {
            assert!(
                error_text(stream.fill(&buffer, 0..16, pattern))
                    .starts_with("invalid fill pattern: expected 1, 2, 4")
            );
        }
        for range in [0..3, 1..3] {
            assert!(
                error_text(stream.fill(&buffer, range, b"ab"))
                    .contains("expected a start and an end at multiples")
            );
        }
        assert_eq!(control.log(), [""; 0], "none reached the driver");
        stream.synchronize().unwrap();
    });
}

#[test]
fn ranges_may_be_of_any_form() {
    on_both(|device, _| {
        let (stream, buffer) = (device.create_stream().unwrap(), filled(device, b"0123456789"));
        assert_eq!(content(&buffer.slice(2..=4).unwrap()), b"234");
        assert_eq!(content(&buffer.slice(7..).unwrap()), b"789");
        stream.fill(&buffer, ..2, [b'x'].as_ref()).unwrap();
        assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), *b"xx23456789");
        for outside in [error_text(buffer.slice(..=usize::MAX)), error_text(stream.read(&buffer, 11..))] {
            assert!(outside.contains("are not inside of the"), "{outside}");
        }
    });
}

#[test]
fn a_part_of_a_buffer_shares_its_memory() {
    on_both(|device, control| {
        let buffer = filled(device, b"0123456789");
        let part = buffer.slice(2..8).unwrap().slice(1..5).unwrap();
        assert_eq!((part.len(), content(&part)), (4, b"3456".to_vec()));
        part.write(1, b"xy").unwrap();
        let stream = device.create_stream().unwrap();
        stream.fill(&part, 3..4, b"z").unwrap();
        stream.copy(&part.slice(1..3).unwrap(), &buffer.slice(..2).unwrap()).unwrap();
        assert!(matches!(part.copy_from(&buffer.slice(2..6).unwrap()), Err(DeviceError::Overlap { .. })));
        stream.synchronize().unwrap();
        assert_eq!(content(&buffer), b"xy23xyz789");
        assert!(
            error_text(part.slice(2..5))
                .contains("bytes 2..5 are not inside of the original, a buffer of 4 bytes")
        );
        drop(buffer);
        assert_eq!(content(&part), b"3xyz");
        assert!(part.slice(4..4).unwrap().is_empty());
        drop(part);
        assert_eq!(control.live(), 0);
    });
}

#[test]
fn the_declared_alignment_is_checked_and_whole_buffers_always_work() {
    for (device, _) in in_words() {
        let stream = device.create_stream().unwrap();
        let (odd, even) = (filled(device, b"abcdefg"), filled(device, b"........"));
        assert_eq!(content(&odd), b"abcdefg");
        let twin = device.allocate(7).unwrap();
        twin.copy_from(&odd).unwrap();
        twin.slice(4..).unwrap().copy_from(&odd.slice(4..).unwrap()).unwrap();
        stream.fill(&twin, 0..7, b"x").unwrap();
        assert_eq!(*stream.read(&twin, 4..7).unwrap().wait().unwrap(), *b"xxx");
        even.slice(4..).unwrap().copy_from(&odd.slice(..4).unwrap()).unwrap();
        assert_eq!(content(&even), b"....abcd");
        for result in [
            odd.write(2, b"xx"),
            odd.write(0, b"xx"),
            odd.read(1, &mut [0; 4]),
            even.slice(..3).unwrap().copy_from(&odd.slice(4..).unwrap()),
            odd.slice(4..).unwrap().copy_from(&even.slice(..3).unwrap()),
            even.fill(0..2, b"xx"),
            even.slice(2..8).unwrap().write(0, b"xxxx"),
            even.slice(0..6).unwrap().write(0, b"xxxxxx"),
            stream.write(&even, 4, b"xx"),
            stream.copy(&odd.slice(4..).unwrap(), &even.slice(..3).unwrap()),
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, DeviceError::Misaligned { alignment: 4, .. }), "{error}");
            assert!(error.to_string().contains("expected a start at a multiple of 4 bytes"), "{error}");
        }
        even.slice(2..8).unwrap().write(2, b"xxxx").unwrap();
        // A copy through the host checks each side by the alignment of its own device.
        let cpu = filled(Device::cpu(), b"0123456789");
        even.slice(..4).unwrap().copy_from(&cpu.slice(3..7).unwrap()).unwrap();
        assert_eq!(content(&even), b"3456xxxx");
    }
}

#[test]
fn zero_lengths_are_fine_and_never_reach_the_driver() {
    on_both(|device, control| {
        let (stream, buffer, empty) =
            (device.create_stream().unwrap(), device.allocate(4).unwrap(), device.allocate(0).unwrap());
        control.log();
        stream.write(&buffer, 4, b"").unwrap();
        stream.write(&empty, 0, b"").unwrap();
        assert!(stream.read(&buffer, 2..2).unwrap().wait().unwrap().is_empty());
        stream.copy(&buffer.slice(1..1).unwrap(), &buffer.slice(1..1).unwrap()).unwrap();
        stream.copy(&empty, &buffer.slice(4..).unwrap()).unwrap();
        stream.fill(&buffer, 3..3, b"x").unwrap();
        buffer.fill(0..0, b"x").unwrap();
        assert_eq!(control.log(), [""; 0]);
        assert_eq!(device.allocate_host(0).unwrap().len(), 0);
    });
}

#[test]
fn fills_with_every_pattern_work_where_the_driver_has_no_fill() {
    on_both(|device, _| {
        let stream = device.create_stream().unwrap();
        for pattern in [&b"x"[..], b"ab", b"abcd", b"abcdefgh", b"abcdefghijklmnop"] {
            for times in [1, 3, 200_000] {
                let len = pattern.len() * times;
                let buffer = device.allocate(len + 32).unwrap();
                buffer.fill(0..len + 32 - (len + 32) % pattern.len(), &[9]).unwrap();
                buffer.fill(16..16 + len, pattern).unwrap();
                let bytes = content(&buffer);
                assert!(
                    bytes[16..16 + len] == pattern.repeat(times) && bytes[15] == 9,
                    "{pattern:?} {times}"
                );
                stream.fill(&buffer, 0..len, pattern).unwrap();
                let read = stream.read(&buffer, 0..len).unwrap().wait().unwrap();
                assert!(read[..] == pattern.repeat(times), "{pattern:?} {times}");
            }
        }
    });
}

#[test]
fn fills_by_copies_are_aligned_to_their_last_bytes() {
    for (device, control) in in_words() {
        control.fills_multiples_of.store(usize::MAX, Ordering::SeqCst);
        let len = (1 << 20) + 3;
        let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(len).unwrap());
        buffer.fill(0..len, b"x").unwrap();
        assert!(content(&buffer).iter().all(|&byte| byte == b'x'));
        stream.fill(&buffer, 0..len, b"y").unwrap();
        assert!(stream.read(&buffer, 0..len).unwrap().wait().unwrap().iter().all(|&byte| byte == b'y'));
    }
}
