//! Dropping handles while others are in use, in every order.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use device_registry::Buffer;

use super::check;
use super::memory::expect_no_leak;
use crate::busy::hold_back;
use crate::check::{Check, Need};
use crate::context::{Context, bytes, expect_content, in_threads};
use crate::failure::{Failure, ensure};

pub(super) const CHECKS: &[Check] = &[
    check!(
        drops::in_every_order,
        "when four buffers are dropped, in any order, the remaining ones keep their bytes"
    ),
    check!(drops::the_source_of_a_copy, "a copy is complete when its source is dropped right after it"),
    check!(
        drops::the_destination_of_a_copy,
        "a source keeps its bytes when its copy is dropped right after the copy"
    ),
    check!(drops::the_place_is_taken_at_once, "memory that reuses dropped memory holds its own bytes"),
    check!(
        drops::with_work_in_every_order,
        "a buffer, a stream, an event and a read can be dropped in every order before the work is done, and the work is done"
    ),
    check!(drops::while_others_copy, "memory may be dropped while other threads copy"),
    check!(
        drops::while_a_panic_unwinds,
        "memory that is dropped while a panic unwinds does not harm other memory"
    ),
    check!(
        drops::on_another_thread_it_is_freed_too,
        "memory that is dropped on another thread than the one that allocated it is free again"
    )
    .needs(&[Need::FreeMemory])
    .exclusive(),
];

/// All orders of the numbers below `count`.
pub(super) fn orders(count: usize) -> Vec<Vec<usize>> {
    match count {
        0 => vec![Vec::new()],
        _ => {
            let shorter = orders(count - 1).into_iter();
            let with = |order: Vec<usize>, at: usize| {
                let mut order = order;
                order.insert(at, count - 1);
                order
            };
            shorter.flat_map(|order| (0..count).map(move |at| with(order.clone(), at))).collect()
        }
    }
}

fn in_every_order(context: &Context) -> Result<(), Failure> {
    for order in orders(4) {
        let mut held: Vec<Option<(Buffer, Vec<u8>)>> = Vec::new();
        for index in 0..4 {
            let expected = bytes(index, 300 + usize::from(index));
            held.push(Some((context.filled(&expected)?, expected)));
        }
        for &dropped in &order {
            held[dropped] = None;
            for (index, kept) in held.iter().enumerate() {
                let Some((buffer, expected)) = kept else { continue };
                expect_content(
                    buffer,
                    expected,
                    format_args!("buffer {index}, dropping in order {order:?}"),
                )?;
            }
        }
    }
    Ok(())
}

fn the_source_of_a_copy(context: &Context) -> Result<(), Failure> {
    for round in 0..50 {
        let expected = bytes(round, 5000);
        let source = context.filled(&expected)?;
        let copy = context.allocate(5000)?;
        copy.copy_from(&source)?;
        drop(source);
        let _in_its_place = context.filled(&[0xEE; 5000])?;
        expect_content(&copy, &expected, "a copy whose source is dropped")?;
    }
    Ok(())
}

fn the_destination_of_a_copy(context: &Context) -> Result<(), Failure> {
    let expected = bytes(1, 5000);
    let source = context.filled(&expected)?;
    for _ in 0..50 {
        context.allocate(5000)?.copy_from(&source)?;
        let _in_its_place = context.filled(&[0xEE; 5000])?;
        expect_content(&source, &expected, "the source of copies that are dropped")?;
    }
    Ok(())
}

fn the_place_is_taken_at_once(context: &Context) -> Result<(), Failure> {
    for round in 0..=255 {
        drop(context.filled(&[0xEE; 1000])?);
        let expected = bytes(round, 1000);
        let taken = context.filled(&expected)?;
        drop(context.filled(&[0xDD; 1000])?);
        expect_content(&taken, &expected, "memory between two that are dropped")?;
    }
    Ok(())
}

fn with_work_in_every_order(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 3000;
    for order in orders(4) {
        let stream = context.stream()?;
        let expected = bytes(order[0] as u8, LEN);
        let buffer = context.filled(&expected)?;
        let copy = context.filled(&[0xEE; LEN])?;
        let release = hold_back(&stream)?;
        stream.copy(&buffer, &copy)?;
        let read = stream.read(&copy, 0..LEN)?;
        let event = stream.record()?;
        let last = stream.record()?;
        let mut buffer = Some(buffer);
        let mut stream = Some(stream);
        let mut event = Some(event);
        let mut read = Some(read);
        for (step, which) in order.iter().enumerate() {
            match which {
                0 => drop(buffer.take()),
                1 => drop(stream.take()),
                2 => drop(event.take()),
                _ => drop(read.take()),
            }
            let _in_its_place = context.filled(&[step as u8; LEN])?;
        }
        drop(release);
        last.synchronize()?;
        expect_content(&copy, &expected, format_args!("a copy of a buffer, dropped in order {order:?}"))?;
    }
    Ok(())
}

fn while_others_copy(context: &Context) -> Result<(), Failure> {
    let expected = bytes(2, 3000);
    let source = context.filled(&expected)?;
    in_threads(8, |index| {
        for _ in 0..50 {
            let copy = context.allocate(3000)?;
            copy.copy_from(&source)?;
            if index % 2 == 0 {
                expect_content(&copy, &expected, "a copy while others are dropped")?;
            }
        }
        Ok(())
    })?;
    expect_content(&source, &expected, "the source of all copies")
}

fn while_a_panic_unwinds(context: &Context) -> Result<(), Failure> {
    let expected = bytes(3, 2000);
    let stays = context.filled(&expected)?;
    for _ in 0..5 {
        let dropped = context.filled(&[0xEE; 2000])?;
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _dropped = dropped;
            // Unlike `panic!`, it prints no message that could be mistaken for a defect.
            std::panic::resume_unwind(Box::new("a panic of the check's own"));
        }));
        ensure!(unwound.is_err(), "a panic was lost");
        expect_content(&stays, &expected, "memory that stays")?;
        let again = bytes(4, 2000);
        expect_content(&context.filled(&again)?, &again, "memory allocated after a panic")?;
    }
    Ok(())
}

fn on_another_thread_it_is_freed_too(context: &Context) -> Result<(), Failure> {
    expect_no_leak(context, 4 << 20, || {
        for _ in 0..100 {
            let made: Vec<_> = (0..10).map(|_| context.allocate(40_000)).collect::<Result<_, _>>()?;
            thread::scope(|scope| drop(scope.spawn(move || drop(made))));
        }
        Ok(())
    })
}
