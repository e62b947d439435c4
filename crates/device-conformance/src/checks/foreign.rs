//! Copies from and to other devices: the cpu, and the other devices of the backend.

use device_registry::Device;

use super::check;
use crate::check::{Check, Need};
use crate::context::{Context, bytes, expect_bytes, expect_content, filled, in_threads};
use crate::devices::present_devices;
use crate::failure::{Failure, ensure};

pub(super) const CHECKS: &[Check] = &[
    check!(foreign::to_the_cpu_and_back, "bytes survive the way to the cpu and back, even in several pieces")
        .uses_cpu(),
    check!(
        foreign::at_every_place_with_the_cpu,
        "copies between any offsets of this device and the cpu change their destination and nothing else"
    )
    .uses_cpu(),
    check!(
        foreign::with_the_cpu_on_many_threads,
        "threads that copy to and from the cpu at once do not disturb each other"
    )
    .uses_cpu(),
    check!(
        foreign::to_every_peer_and_back,
        "bytes survive the way to each other device of the backend and back"
    )
    .needs(&[Need::Peer]),
    check!(
        foreign::at_every_place_with_a_peer,
        "copies between any offsets of this device and a peer change their destination and nothing else"
    )
    .needs(&[Need::Peer]),
    check!(foreign::the_source_on_a_peer_stays, "a copy from a peer does not change its source")
        .needs(&[Need::Peer]),
    check!(foreign::peers_have_memory_of_their_own, "two devices do not share memory").needs(&[Need::Peer]),
    check!(foreign::devices_in_turn, "one thread may use two devices in turn, call by call")
        .needs(&[Need::Peer]),
    check!(
        foreign::peers_in_opposite_directions,
        "copies between two devices in both directions at once do not deadlock"
    )
    .needs(&[Need::Peer]),
    check!(foreign::threads_on_both_devices, "threads on two devices at once do not disturb each other")
        .needs(&[Need::Peer]),
    check!(
        foreign::a_stream_refuses_them,
        "a stream refuses work on buffers of a peer with an error that names both devices, and continues"
    )
    .needs(&[Need::Peer]),
    check!(
        foreign::a_source_that_is_closed,
        "a close of a device while a peer copies from it changes no bytes that the peer gets, and both still work"
    )
    .needs(&[Need::Peer])
    .leaves_failures(),
    check!(foreign::dropping_for_a_peer, "memory is freed on its own device, whichever device was used last")
        .needs(&[Need::Peer]),
];

/// Copies bytes from here to the other device and back.
fn there_and_back(context: &Context, other: Device) -> Result<(), Failure> {
    // The last is more than one piece of a copy through the host.
    for len in [1, 67, 4097, (2 << 20) + 13] {
        let expected = bytes(1, len);
        let here = context.filled(&expected)?;
        let there = other.allocate(len)?;
        let back = context.allocate(len)?;
        there.copy_from(&here)?;
        expect_content(&there, &expected, format_args!("{len} bytes on {other}"))?;
        back.copy_from(&there)?;
        expect_content(&back, &expected, format_args!("{len} bytes back from {other}"))?;
    }
    Ok(())
}

/// Copies between many offsets of this device and another one, both ways, and compares both whole buffers.
fn at_every_place(context: &Context, other: Device) -> Result<(), Failure> {
    let unit = context.alignment();
    let len = 24 * unit;
    let mut near = bytes(1, len);
    let mut far = bytes(2, len);
    let here = context.filled(&near)?;
    let there = filled(other, &far)?;
    for (from, to) in (0..12).flat_map(|from| [0, 1, 2, 3, 5, 8, 11].map(move |to| (from * unit, to * unit)))
    {
        for part in [1, 2, 3, 4, 7, 12].map(|units| units * unit) {
            let of_here = here.slice(from..from + part)?;
            let of_there = there.slice(to..to + part)?;
            of_there.copy_from(&of_here)?;
            far[to..to + part].copy_from_slice(&near[from..from + part]);
            expect_content(
                &there,
                &far,
                format_args!("{part} bytes from offset {from} to offset {to} on {other}"),
            )?;
            // Different bytes each time, so that a missing copy is noticed.
            far[from] = far[from].wrapping_add(1);
            there.write(from, &far[from..from + unit])?;
            of_here.copy_from(&of_there)?;
            near[from..from + part].copy_from_slice(&far[to..to + part]);
            expect_content(
                &here,
                &near,
                format_args!("{part} bytes from offset {to} on {other} to offset {from}"),
            )?;
        }
    }
    Ok(())
}

fn to_the_cpu_and_back(context: &Context) -> Result<(), Failure> {
    there_and_back(context, Device::cpu())
}

fn at_every_place_with_the_cpu(context: &Context) -> Result<(), Failure> {
    at_every_place(context, Device::cpu())
}

fn with_the_cpu_on_many_threads(context: &Context) -> Result<(), Failure> {
    in_threads(8, |index| {
        for round in 0..20 {
            let expected = bytes((index * 20 + round) as u8, 3000);
            let there = filled(Device::cpu(), &expected)?;
            let here = context.allocate(3000)?;
            let back = Device::cpu().allocate(3000)?;
            here.copy_from(&there)?;
            back.copy_from(&here)?;
            expect_content(&back, &expected, "back on the cpu")?;
        }
        Ok(())
    })
}

fn to_every_peer_and_back(context: &Context) -> Result<(), Failure> {
    for peer in present_devices(context.device())? {
        if peer != context.device() {
            there_and_back(context, peer)?;
        }
    }
    Ok(())
}

fn at_every_place_with_a_peer(context: &Context) -> Result<(), Failure> {
    at_every_place(context, context.peer()?)
}

fn the_source_on_a_peer_stays(context: &Context) -> Result<(), Failure> {
    for len in [1, 64, 4097] {
        let expected = bytes(3, len);
        let there = filled(context.peer()?, &expected)?;
        let here = context.filled(&bytes(4, len))?;
        here.copy_from(&there)?;
        expect_content(&there, &expected, format_args!("the source of a copy of {len} bytes"))?;
        here.write(0, &vec![0xEE; len])?;
        expect_content(&there, &expected, "the source of a copy that was written over")?;
    }
    Ok(())
}

fn peers_have_memory_of_their_own(context: &Context) -> Result<(), Failure> {
    let peer = context.peer()?;
    let mut held = Vec::new();
    // The same lengths in the same order make equal addresses likely.
    for (index, len) in [64, 1000, 4096, 64, 100_000].into_iter().enumerate() {
        for (device, seed) in [(context.device(), 0), (peer, 0x40)] {
            let expected = bytes(seed + index as u8, len);
            held.push((filled(device, &expected)?, expected));
        }
    }
    for (buffer, expected) in &held {
        expect_content(buffer, expected, format_args!("memory on {}", buffer.device()))?;
    }
    Ok(())
}

fn devices_in_turn(context: &Context) -> Result<(), Failure> {
    let devices = [context.device(), context.peer()?];
    for round in 0..50 {
        let expected = [bytes(round, 500), bytes(round ^ 0x80, 500)];
        // Alternates the devices. A driver that wrongly keeps its last device would use the wrong one.
        let first = [devices[0].allocate(500)?, devices[1].allocate(500)?];
        let second = [devices[1].allocate(500)?, devices[0].allocate(500)?];
        first[0].write(0, &expected[0])?;
        first[1].write(0, &expected[1])?;
        second[1].copy_from(&first[0])?;
        second[0].copy_from(&first[1])?;
        for ordinal in [1, 0] {
            let name = devices[ordinal];
            expect_content(&first[ordinal], &expected[ordinal], format_args!("written on {name}"))?;
            expect_content(&second[1 - ordinal], &expected[ordinal], format_args!("copied on {name}"))?;
        }
    }
    Ok(())
}

fn peers_in_opposite_directions(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 1 << 16;
    let pair = [context.filled(&[1; LEN])?, filled(context.peer()?, &[1; LEN])?];
    in_threads(4, |index| {
        let from = &pair[index % 2];
        let to = &pair[(index + 1) % 2];
        (0..150).try_for_each(|_| Ok(to.copy_from(from)?))
    })?;
    pair.iter().try_for_each(|buffer| expect_content(buffer, &[1; LEN], "all bytes are one"))
}

fn threads_on_both_devices(context: &Context) -> Result<(), Failure> {
    let devices = [context.device(), context.peer()?];
    in_threads(8, |index| {
        for round in 0..30 {
            let expected = bytes((index * 30 + round) as u8, 2000);
            let buffer = filled(devices[index % 2], &expected)?;
            let copy = devices[index % 2].allocate(2000)?;
            copy.copy_from(&buffer)?;
            expect_content(&copy, &expected, format_args!("a copy on {}", copy.device()))?;
        }
        Ok(())
    })
}

fn dropping_for_a_peer(context: &Context) -> Result<(), Failure> {
    let peer = context.peer()?;
    let kept_here = bytes(5, 700);
    let kept_there = bytes(6, 700);
    let here = context.filled(&kept_here)?;
    let there = filled(peer, &kept_there)?;
    for _ in 0..50 {
        let one = context.filled(&[0xEE; 700])?;
        let other = filled(peer, &[0xDD; 700])?;
        // The last call was to the peer.
        drop(one);
        context.allocate(1)?;
        drop(other);
        let expected = bytes(7, 700);
        expect_content(&context.filled(&expected)?, &expected, "allocated after drops")?;
        expect_content(&filled(peer, &expected)?, &expected, "allocated on the peer after drops")?;
    }
    expect_content(&here, &kept_here, "memory that stays")?;
    expect_content(&there, &kept_there, "memory on the peer that stays")
}

fn a_stream_refuses_them(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 500;
    let peer = context.peer()?;
    let stream = context.stream()?;
    let here = context.filled(&bytes(1, LEN))?;
    let there = filled(peer, &bytes(2, LEN))?;
    for (what, outcome) in [
        ("a write", stream.write(&there, 0, vec![0; LEN])),
        ("a read", stream.read(&there, 0..LEN).map(drop)),
        ("a copy there", stream.copy(&here, &there)),
        ("a fill", stream.fill(&there, 0..LEN, &[0])),
        ("a kernel", stream.launch(&[&here, &there], |_| Ok(()))),
    ] {
        let Err(error) = outcome else {
            return Err(Failure::new(format_args!(
                "{what} on a peer's buffer: expected an error, got success"
            )));
        };
        let said = error.to_string();
        let both = [context.device(), peer].map(|device| said.contains(&format!("`{device}`")));
        ensure!(both == [true; 2], "{what}: expected both devices in the error, got: {said}");
    }
    stream.synchronize()?;
    expect_content(&there, &bytes(2, LEN), "a peer's buffer that a stream of this device refused")?;
    let read = stream.read(&here, 0..LEN)?.wait()?;
    expect_bytes(&read, &bytes(1, LEN), "by a stream that refused buffers of a peer")
}

fn a_source_that_is_closed(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 2 << 20;
    let peer = context.peer()?;
    let expected = bytes(9, LEN);
    for _ in 0..3 {
        let source = context.filled(&expected)?;
        let stream = peer.create_stream()?;
        let copies: Vec<_> = (0..12).map(|_| peer.allocate(LEN)).collect::<Result<_, _>>()?;
        for copy in &copies {
            stream.copy(&source, copy)?;
        }
        context.device().close()?;
        // Copies that had not begun may be errors.
        if stream.synchronize().is_ok() {
            for copy in &copies {
                expect_content(copy, &expected, "copied from a device that was closed meanwhile")?;
            }
        }
        let there = filled(peer, &expected)?;
        expect_content(&there, &expected, "on a peer of a device that was closed")?;
    }
    expect_content(&context.filled(&expected)?, &expected, "on a device that was closed")
}
