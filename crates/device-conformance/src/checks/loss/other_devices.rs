//! The other devices still work when one is lost.

use device_registry::{Device, Fault};

use super::{LEN, works};
use crate::busy::hold_back;
use crate::check::{Check, Need};
use crate::context::{Context, bytes, expect_bytes, expect_content, filled};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_error, expect_lost, inject, lose, reset};

pub(super) const CHECKS: &[Check] = &[
    loss_check!(other_devices_go_on, "a peer keeps its memory and does its work when a device is lost")
        .needs(&[Need::Faults, Need::Peer]),
    loss_check!(
        copies_with_it_harm_no_peer,
        "copies between a lost device and a peer are errors, and the peer still works"
    )
    .needs(&[Need::Faults, Need::Peer]),
    loss_check!(
        a_source_that_is_reset,
        "a loss and a reset of a device while a peer copies from it end the peer's work, and both still work"
    )
    .needs(&[Need::Faults, Need::Peer]),
    loss_check!(
        who_waits_for_it_is_told,
        "a peer's stream that waits for an event of a lost device returns the error, and continues"
    )
    .needs(&[Need::Faults, Need::Peer]),
    loss_check!(
        whose_queue_waits_for_it_is_not_lost,
        "a peer whose queue waits for an event of a device that is lost meanwhile is not lost, and continues"
    )
    .needs(&[Need::Faults, Need::Peer]),
    loss_check!(
        the_cpu_goes_on,
        "the cpu still works when a device is lost, even while it waits for it or copies from it"
    )
    .uses_cpu(),
];

fn other_devices_go_on(context: &Context) -> Result<(), Failure> {
    let peer = context.peer()?;
    let expected = bytes(3, LEN);
    let there = filled(peer, &expected)?;
    let stream = peer.create_stream()?;
    for what in ["with a peer lost", "after the peer was lost again"] {
        lose(context.device())?;
        expect_content(&there, &expected, what)?;
        expect_bytes(&stream.read(&there, 0..LEN)?.wait()?, &expected, what)?;
        works(peer, what)?;
        peer.synchronize()?;
        peer.memory_info()?;
        reset(context.device())?;
        works(peer, "after the peer was reset")?;
    }
    Ok(())
}

fn copies_with_it_harm_no_peer(context: &Context) -> Result<(), Failure> {
    let peer = context.peer()?;
    let expected = bytes(4, LEN);
    let here = context.filled(&[1; LEN])?;
    let there = filled(peer, &expected)?;
    let stream = peer.create_stream()?;
    let spare = peer.allocate(LEN)?;
    lose(context.device())?;
    for _ in 0..2 {
        expect_error(spare.copy_from(&here), "a copy from a lost device to a peer")?;
        expect_lost(here.copy_from(&there), "a copy from a peer to a lost device")?;
        let copied = stream.copy(&here, &spare).and_then(|()| stream.synchronize());
        expect_error(copied, "a copy from a lost device by a stream of a peer")?;
        expect_content(&there, &expected, "on a peer that copies with a lost device")?;
        works(peer, "on a peer that copies with a lost device")?;
        stream.synchronize()?;
    }
    reset(context.device())?;
    // Memory of the old device stays lost.
    expect_error(spare.copy_from(&here), "a copy to a peer from memory that was allocated before a reset")?;
    works(peer, "on a peer that copied from memory that was allocated before a reset")?;
    works(context.device(), "after the reset")
}

fn a_source_that_is_reset(context: &Context) -> Result<(), Failure> {
    const LONG: usize = 2 << 20;
    let peer = context.peer()?;
    let expected = bytes(4, LEN);
    let kept = filled(peer, &expected)?;
    for _ in 0..3 {
        let source = context.filled(&vec![1; LONG])?;
        let stream = peer.create_stream()?;
        let copies: Vec<_> = (0..12).map(|_| peer.allocate(LONG)).collect::<Result<_, _>>()?;
        for copy in &copies {
            stream.copy(&source, copy)?;
        }
        lose(context.device())?;
        reset(context.device())?;
        drop(source);
        // The copies that had begun may be done, and the others are errors.
        let _ = stream.synchronize();
        stream.synchronize()?;
        expect_content(&kept, &expected, "on a peer that copied from a lost device")?;
        works(peer, "on a peer that copied from a lost device")?;
        works(context.device(), "after a reset while a peer copied")?;
    }
    Ok(())
}

/// A stream of another device waits for an event of this device, which is then lost.
fn waits_and_gets_the_error(context: &Context, other: Device) -> Result<(), Failure> {
    let stream = context.stream()?;
    let buffer = context.filled(&[1; LEN])?;
    let waiting = other.create_stream()?;
    let there = filled(other, &[3; LEN])?;
    let release = hold_back(&stream)?;
    stream.fill(&buffer, 0..LEN, &[2])?;
    waiting.wait_event(&stream.record()?)?;
    waiting.write(&there, 0, vec![4; LEN])?;
    let read = waiting.read(&there, ..)?;
    let behind = waiting.record()?;
    lose(context.device())?;
    drop(release);
    expect_lost(waiting.synchronize(), "a stream that waits for an event of a lost device")?;
    expect_error(read.wait(), "a read behind a wait for an event of a lost device")?;
    expect_error(behind.synchronize(), "an event behind a wait for an event of a lost device")?;
    waiting.synchronize()?;
    expect_content(&there, &[3; LEN], "behind an event of a lost device")?;
    waiting.write(&there, 0, vec![5; LEN])?;
    waiting.synchronize()?;
    expect_content(&there, &[5; LEN], "by the stream that waited")?;
    works(other, "on a device that waited for a lost one")
}

fn who_waits_for_it_is_told(context: &Context) -> Result<(), Failure> {
    waits_and_gets_the_error(context, context.peer()?)
}

/// The work before the event stalls in its queue, so that the peer's queue waits, and not the host.
fn whose_queue_waits_for_it_is_not_lost(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let peer = context.peer()?;
    let stream = context.stream()?;
    let buffer = context.filled(&[1; LEN])?;
    let waiting = peer.create_stream()?;
    let there = filled(peer, &[3; LEN])?;
    inject(device, Fault::Stall { nth: 1 })?;
    // Not a fill, which a driver may refuse.
    stream.write(&buffer, 0, vec![2; LEN])?;
    waiting.wait_event(&stream.record()?)?;
    waiting.write(&there, 0, vec![4; LEN])?;
    let read = waiting.read(&there, ..)?;
    let behind = waiting.record()?;
    inject(device, Fault::Unplug)?;
    expect_error(waiting.synchronize(), "a stream whose queue waits for an event of a lost device")?;
    expect_error(read.wait(), "a read behind the wait of a queue for an event of a lost device")?;
    expect_error(behind.synchronize(), "an event behind the wait of a queue for an event of a lost device")?;
    waiting.synchronize()?;
    ensure!(!peer.is_lost(), "expected the peer not to be lost with the device that its queue waits for");
    waiting.write(&there, 0, vec![5; LEN])?;
    waiting.synchronize()?;
    expect_content(&there, &[5; LEN], "by the stream that waited")?;
    works(peer, "on a device whose queue waited for a lost one")?;
    reset(device)?;
    works(device, "after the reset")
}

fn the_cpu_goes_on(context: &Context) -> Result<(), Failure> {
    let cpu = Device::cpu();
    let here = context.filled(&[1; LEN])?;
    let kept = filled(cpu, &bytes(5, LEN))?;
    waits_and_gets_the_error(context, cpu)?;
    expect_lost(cpu.allocate(LEN)?.copy_from(&here), "a copy from a lost device to the cpu")?;
    expect_lost(here.copy_from(&kept), "a copy from the cpu to a lost device")?;
    expect_content(&kept, &bytes(5, LEN), "on the cpu")?;
    works(cpu, "on the cpu, with a device lost")?;
    Ok(cpu.synchronize()?)
}
