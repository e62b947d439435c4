//! Many threads that call a driver at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::check;
use crate::check::Check;
use crate::context::{Context, bytes, content, expect_bytes, expect_content, in_threads};
use crate::failure::Failure;

pub(super) const CHECKS: &[Check] = &[
    check!(
        threads::each_with_buffers_of_its_own,
        "threads that work on buffers of their own do not disturb each other"
    ),
    check!(
        threads::each_in_a_part_of_one_buffer,
        "threads that write to adjacent ranges of one buffer do not change each other's"
    ),
    check!(threads::many_readers, "threads that read one buffer at the same time all get its bytes"),
    check!(
        threads::one_source_for_many_copies,
        "threads that copy from one buffer at the same time all get its bytes"
    ),
    check!(
        threads::copies_in_opposite_directions,
        "copies between two buffers in both directions at once do not deadlock"
    ),
    check!(threads::copies_in_a_ring, "copies around a ring of three buffers at once do not deadlock"),
    check!(
        threads::copies_within_one_buffer,
        "copies within one buffer by several threads at once do not deadlock, and are correct"
    ),
    check!(
        threads::races_leave_one_or_the_other,
        "after racing writes to the same bytes, each byte is from one of them"
    ),
    check!(
        threads::allocating_and_dropping,
        "threads that allocate and drop at the same time all get memory of their own"
    ),
    check!(
        threads::dropping_what_others_made,
        "memory may be dropped on another thread than the one that allocated it"
    ),
    check!(
        threads::many_short_lived_ones,
        "five hundred threads, one after the other, each get their bytes back"
    ),
    check!(
        threads::work_while_memory_is_told,
        "copies are correct while another thread queries the memory and the properties"
    ),
];

/// More than a driver with room for a fixed number of threads would have, and enough to use most cores.
const THREADS: usize = 12;

fn each_with_buffers_of_its_own(context: &Context) -> Result<(), Failure> {
    in_threads(THREADS, |index| {
        for round in 0..30 {
            let len = 1000 + 37 * index;
            let expected = bytes((index * 16 + round) as u8, len);
            let buffer = context.filled(&expected)?;
            let copy = context.allocate(len)?;
            copy.copy_from(&buffer)?;
            expect_content(&buffer, &expected, "what this thread wrote")?;
            expect_content(&copy, &expected, "what this thread copied")?;
        }
        Ok(())
    })
}

fn each_in_a_part_of_one_buffer(context: &Context) -> Result<(), Failure> {
    // Parts are as small as the device allows, so that threads share words, cache lines and pages.
    for part in [1, 3, 64].map(|units| units * context.alignment()) {
        let buffer = context.filled(&vec![0; THREADS * part])?;
        let written = |index: usize, round: usize| bytes((index * 16 + round) as u8, part);
        for last in 12..20 {
            in_threads(THREADS, |index| {
                for round in 0..=last {
                    buffer.write(index * part, &written(index, round))?;
                }
                let expected = written(index, last);
                let mut got = vec![0; part];
                buffer.read(index * part, &mut got)?;
                expect_bytes(
                    &got,
                    &expected,
                    format_args!("part {index} of {part} bytes, which one thread writes"),
                )
            })?;
            let expected: Vec<u8> = (0..THREADS).flat_map(|index| written(index, last)).collect();
            expect_content(&buffer, &expected, format_args!("parts of {part} bytes, each of a thread"))?;
        }
    }
    Ok(())
}

fn many_readers(context: &Context) -> Result<(), Failure> {
    let expected = bytes(1, 20_000);
    let buffer = context.filled(&expected)?;
    in_threads(THREADS, |_| (0..30).try_for_each(|_| expect_content(&buffer, &expected, "read by many")))
}

fn one_source_for_many_copies(context: &Context) -> Result<(), Failure> {
    let expected = bytes(2, 20_000);
    let buffer = context.filled(&expected)?;
    in_threads(THREADS, |_| {
        let copy = context.allocate(expected.len())?;
        for _ in 0..30 {
            copy.copy_from(&buffer)?;
        }
        expect_content(&copy, &expected, "copied by many")
    })
}

/// Long enough for copies to overlap almost every time, even on few cores.
const LONG: usize = 1 << 16;

fn copies_in_opposite_directions(context: &Context) -> Result<(), Failure> {
    let pair = [context.filled(&[1; LONG])?, context.filled(&[1; LONG])?];
    in_threads(4, |index| {
        let from = &pair[index % 2];
        let to = &pair[(index + 1) % 2];
        (0..250).try_for_each(|_| Ok(to.copy_from(from)?))
    })?;
    pair.iter().try_for_each(|buffer| expect_content(buffer, &[1; LONG], "all bytes are one"))
}

fn copies_in_a_ring(context: &Context) -> Result<(), Failure> {
    let ring = [context.filled(&[2; LONG])?, context.filled(&[2; LONG])?, context.filled(&[2; LONG])?];
    in_threads(6, |index| {
        let from = &ring[index % 3];
        let to = &ring[(index + 1) % 3];
        (0..150).try_for_each(|_| Ok(to.copy_from(from)?))
    })?;
    ring.iter().try_for_each(|buffer| expect_content(buffer, &[2; LONG], "all bytes are two"))
}

fn copies_within_one_buffer(context: &Context) -> Result<(), Failure> {
    // Each thread copies back and forth between the halves of its own range.
    let unit = context.alignment();
    let part = 512 * context.alignment();
    let expected: Vec<u8> = (0..8).flat_map(|index| bytes(index, part / 2).repeat(2)).collect();
    let buffer = context.filled(&expected)?;
    in_threads(8, |index| {
        let low = index * part;
        let half = part / 2;
        let first = buffer.slice(low..low + half)?;
        let second = buffer.slice(low + half..low + part)?;
        for round in 0..100 {
            match round % 2 {
                0 => second.copy_from(&first)?,
                _ => first.copy_from(&second)?,
            }
            first.slice(..unit)?.copy_from(&second.slice(..unit)?)?;
        }
        Ok(())
    })?;
    expect_content(&buffer, &expected, "halves that were copied onto each other")
}

fn races_leave_one_or_the_other(context: &Context) -> Result<(), Failure> {
    const LEN: usize = 10_000;
    let buffer = context.filled(&[1; LEN])?;
    let writing = AtomicUsize::new(2);
    let write = |value: u8| (0..100).try_for_each(|_| Ok(buffer.write(0, &[value; LEN])?));
    in_threads(4, |index| {
        if index < 2 {
            let outcome = write(1 + index as u8);
            writing.fetch_sub(1, Ordering::Relaxed);
            return outcome;
        }
        // Until the writes end.
        while writing.load(Ordering::Relaxed) > 0 {
            let got = content(&buffer)?;
            let neither = got.iter().position(|byte| !matches!(byte, 1 | 2));
            if let Some(at) = neither {
                return Err(Failure::new(format_args!(
                    "expected bytes of two writes, 0x01 or 0x02, got {:#04x} at offset {at}",
                    got[at]
                )));
            }
        }
        Ok(())
    })
}

fn allocating_and_dropping(context: &Context) -> Result<(), Failure> {
    in_threads(THREADS, |index| {
        for round in 0..20 {
            let mut held = Vec::new();
            for place in 0..10 {
                let expected = [index as u8, round, place].repeat(20);
                held.push((context.filled(&expected)?, expected));
            }
            // Not in the order of their allocation.
            while !held.is_empty() {
                let (buffer, expected) = held.swap_remove(held.len() / 2);
                expect_content(&buffer, &expected, "memory of this thread")?;
            }
        }
        Ok(())
    })
}

fn dropping_what_others_made(context: &Context) -> Result<(), Failure> {
    let kept = bytes(3, 500);
    let stays = context.filled(&kept)?;
    for _ in 0..20 {
        let made: Vec<_> = (0..8).map(|_| context.filled(&[0xEE; 500])).collect::<Result<_, _>>()?;
        thread::scope(|scope| made.into_iter().for_each(|buffer| drop(scope.spawn(move || drop(buffer)))));
        let again = bytes(4, 500);
        expect_content(&context.filled(&again)?, &again, "allocated after others were dropped elsewhere")?;
    }
    expect_content(&stays, &kept, "memory that was not dropped")
}

fn many_short_lived_ones(context: &Context) -> Result<(), Failure> {
    for index in 0..500 {
        in_threads(1, |_| {
            let expected = bytes(index as u8, 100);
            expect_content(&context.filled(&expected)?, &expected, format_args!("thread {index} of 500"))
        })?;
    }
    Ok(())
}

fn work_while_memory_is_told(context: &Context) -> Result<(), Failure> {
    let done = AtomicBool::new(false);
    let work = |index: usize| {
        for round in 0..100 {
            let expected = bytes((index * 100 + round) as u8, 2000);
            expect_content(
                &context.filled(&expected)?,
                &expected,
                "while another thread queries the memory and the properties",
            )?;
        }
        Ok(())
    };
    in_threads(4, |index| {
        if index > 0 {
            let outcome = work(index);
            done.store(true, Ordering::Relaxed);
            return outcome;
        }
        while !done.load(Ordering::Relaxed) {
            context.device().memory_info()?;
            context.device().properties()?;
        }
        Ok(())
    })
}
