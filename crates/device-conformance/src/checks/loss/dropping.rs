//! Dropping buffers, streams, events and reads of a lost device.

use device_registry::Pending;

use super::{Handles, LEN, works};
use crate::busy::hold_back;
use crate::check::Check;
use crate::checks::drops::orders;
use crate::context::{Context, bytes, expect_content};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{lose, reset, until};

pub(super) const CHECKS: &[Check] = &[
    loss_check!(
        dropping_what_was_on_it,
        "buffers, streams, events and reads of a lost device can be dropped in every order"
    ),
    loss_check!(what_was_on_it_is_let_go, "dropped buffers of a lost device do not count as allocated"),
    loss_check!(
        dropping_what_is_old,
        "handles from before a reset can be dropped after it, without effect on new memory"
    ),
];

/// Drops a buffer, a stream, an event and a read, in some order.
fn drop_in_order(handles: Handles, read: Pending, order: &[usize]) {
    let Handles { buffer, stream, event } = handles;
    let mut buffer = Some(buffer);
    let mut stream = Some(stream);
    let mut event = Some(event);
    let mut read = Some(read);
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
        let handles = Handles::new(context.device())?;
        let release = hold_back(&handles.stream)?;
        handles.stream.fill(&handles.buffer, 0..LEN, &[4])?;
        let read = handles.stream.read(&handles.buffer, 0..LEN)?;
        all.push((handles, read, order, release));
    }
    lose(context.device())?;
    for (index, (handles, read, order, release)) in all.into_iter().enumerate() {
        // Half of them while their work is in the queue, half of them when it has failed.
        if index % 2 == 0 {
            drop_in_order(handles, read, &order);
            drop(release);
        } else {
            drop(release);
            drop_in_order(handles, read, &order);
        }
    }
    reset(context.device())?;
    works(context.device(), "when all handles were dropped")
}

fn what_was_on_it_is_let_go(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let before = device.memory_statistics()?.live;
    for index in 0..20 {
        let handles = Handles::new(device)?;
        handles.stream.fill(&handles.buffer, 0..LEN, &[index])?;
        drop(handles.stream.read(&handles.buffer, 0..LEN)?);
        if index == 10 {
            lose(device)?;
            break;
        }
    }
    let freed = until(context.limit(), || Ok(device.memory_statistics()?.live <= before))?;
    let now = device.memory_statistics()?.live;
    ensure!(
        freed,
        "expected at most {before} live allocations when all buffers of the lost device are dropped, got {now}"
    );
    Ok(())
}

fn dropping_what_is_old(context: &Context) -> Result<(), Failure> {
    let mut all = Vec::new();
    for order in orders(4) {
        let handles = Handles::new(context.device())?;
        let read = handles.stream.read(&handles.buffer, 0..LEN)?;
        all.push((handles, read, order));
    }
    lose(context.device())?;
    reset(context.device())?;
    let expected = bytes(7, LEN);
    // As many buffers as before, so that one of them replaces each old one if memory is reused.
    let new = all.iter().map(|_| context.filled(&expected)).collect::<Result<Vec<_>, _>>()?;
    for (handles, read, order) in all {
        drop_in_order(handles, read, &order);
        for new in &new {
            expect_content(new, &expected, format_args!("when old handles were dropped in order {order:?}"))?;
        }
    }
    let live = context.device().memory_statistics()?.live;
    let expected = new.len() as u64;
    ensure!(live == expected, "expected {expected} live allocations on the new device, got {live}");
    works(context.device(), "when all old handles were dropped")
}
