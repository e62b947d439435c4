//! Dropping buffers, streams, events and reads of a lost device.

use device_registry::Pending;

use super::{LEN, Things, works};
use crate::check::Check;
use crate::checks::drops::orders;
use crate::checks::events::hold_back;
use crate::context::{Context, bytes, expect_content};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{lose, reset, until};

pub(super) const CHECKS: &[Check] = &[
    loss_check!(
        dropping_what_was_on_it,
        "buffers, streams, events and reads of a lost device can be dropped in every order"
    ),
    loss_check!(
        what_was_on_it_is_let_go,
        "what is dropped of a lost device is not counted as allocated any more"
    ),
    loss_check!(
        dropping_what_is_old,
        "what belonged to a device before a reset can be dropped after it, and nothing new is touched"
    ),
];

/// Drops a buffer, a stream, an event and a read, in some order.
fn drop_in_order(things: Things, read: Pending, order: &[usize]) {
    let Things { buffer, stream, event } = things;
    let (mut buffer, mut stream, mut event, mut read) = (Some(buffer), Some(stream), Some(event), Some(read));
    for which in order {
        match which {
            0 => drop(buffer.take()),
            1 => drop(stream.take()),
            2 => drop(event.take()),
            _ => drop(read.take()),
        }
    }
}

fn dropping_what_was_on_it(context: &Context) -> Result<(), Failure> {
    let mut all = Vec::new();
    for order in orders(4) {
        let things = Things::new(context.device())?;
        let release = hold_back(&things.stream)?;
        things.stream.fill(&things.buffer, 0..LEN, &[4])?;
        let read = things.stream.read(&things.buffer, 0..LEN)?;
        all.push((things, read, order, release));
    }
    lose(context.device())?;
    for (index, (things, read, order, release)) in all.into_iter().enumerate() {
        // Some while their work is still in the queue, some when it has failed.
        if index % 2 == 0 {
            drop_in_order(things, read, &order);
            drop(release);
        } else {
            drop(release);
            drop_in_order(things, read, &order);
        }
    }
    reset(context.device())?;
    works(context.device(), "after all was dropped")
}

fn what_was_on_it_is_let_go(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let before = device.memory_statistics()?.live;
    for index in 0..20 {
        let things = Things::new(device)?;
        things.stream.fill(&things.buffer, 0..LEN, &[index])?;
        drop(things.stream.read(&things.buffer, 0..LEN)?);
        if index == 10 {
            lose(device)?;
            break;
        }
    }
    let let_go = until(context.limit(), || Ok(device.memory_statistics()?.live <= before))?;
    let now = device.memory_statistics()?.live;
    ensure!(
        let_go,
        "{before} allocations were there before, and {now} after all was dropped on the lost device"
    );
    Ok(())
}

fn dropping_what_is_old(context: &Context) -> Result<(), Failure> {
    let mut all = Vec::new();
    for order in orders(4) {
        let things = Things::new(context.device())?;
        let read = things.stream.read(&things.buffer, 0..LEN)?;
        all.push((things, read, order));
    }
    lose(context.device())?;
    reset(context.device())?;
    let expected = bytes(7, LEN);
    let new = context.filled(&expected)?;
    for (things, read, order) in all {
        drop_in_order(things, read, &order);
        expect_content(&new, &expected, format_args!("when what is old was dropped in order {order:?}"))?;
    }
    let statistics = context.device().memory_statistics()?;
    ensure!(statistics.live == 1, "one buffer is held, and the new device counts {}", statistics.live);
    works(context.device(), "when all that is old was dropped")
}
