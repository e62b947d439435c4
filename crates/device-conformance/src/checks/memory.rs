//! Allocations: their lengths, their contents, and running out of memory.

use device_registry::backend::{BackendError, BackendErrorKind};
use device_registry::{Buffer, Device, DeviceError};

use super::check;
use crate::check::{Check, Need};
use crate::context::{Context, bytes, content, expect_bytes, expect_content};
use crate::failure::{Failure, ensure};

pub(super) const CHECKS: &[Check] = &[
    check!(
        memory::round_trip,
        "a read returns the written bytes, in buffers with lengths around powers of two"
    ),
    check!(memory::every_small_length, "buffers of each length from 1 to 260 hold all of their bytes"),
    check!(memory::large, "a buffer of 16 MiB and a few bytes holds all of them"),
    check!(memory::new_memory_can_be_read, "memory can be read before anything is written to it"),
    check!(memory::new_memory_can_be_copied, "memory can be copied before anything is written to it"),
    check!(memory::it_keeps_what_it_holds, "bytes stay while other memory is allocated, written and dropped"),
    check!(memory::no_two_share_bytes, "buffers of all small lengths do not touch each other's bytes"),
    check!(memory::large_ones_do_not_share_bytes, "buffers of several MiB do not touch each other's bytes"),
    check!(
        memory::what_is_freed_is_no_other,
        "dropping buffers and allocating again does not touch those that stay"
    ),
    check!(memory::many_at_once, "two thousand buffers can be held at once, each with its own bytes"),
    check!(memory::many_in_turn, "memory that is allocated and dropped 20000 times does not run out"),
    check!(
        memory::more_than_any_device_has,
        "an allocation too large for any machine is an out-of-memory error"
    ),
    check!(
        memory::it_goes_on_after_out_of_memory,
        "the device still works after an allocation that did not fit"
    ),
    check!(
        memory::out_of_memory_touches_nothing,
        "buffers keep their bytes when another allocation does not fit"
    ),
    check!(
        memory::all_of_it_can_be_used_up,
        "a device whose memory is all in use returns an out-of-memory error"
    )
    .needs(&[Need::FreeMemory])
    .exclusive(),
    check!(
        memory::what_is_dropped_can_be_had_again,
        "when all memory was in use and is dropped, it can be allocated again, many times"
    )
    .needs(&[Need::FreeMemory])
    .exclusive(),
    check!(memory::small_ones_do_not_leak, "as much memory is free after 10000 small allocations as before")
        .needs(&[Need::FreeMemory])
        .exclusive(),
    check!(
        memory::failed_allocations_do_not_leak,
        "as much memory is free after 1000 allocations that did not fit as before"
    )
    .needs(&[Need::FreeMemory])
    .exclusive(),
    check!(
        memory::a_read_stays_in_its_destination,
        "a read writes to its destination on the host, and not beside it"
    ),
];

/// Lengths around all powers of two up to a limit, and a few others.
fn lens(most: usize) -> impl Iterator<Item = usize> {
    let powers = (0..).map(|power| 1usize << power).take_while(move |&power| power <= most);
    powers
        .flat_map(|power| [power - 1, power, power + 1])
        .chain([1000, 12_345, 100_003])
        .filter(|&len| len > 0)
}

fn round_trip(context: &Context) -> Result<(), Failure> {
    for len in lens(1 << 20) {
        let expected = bytes(1, len);
        expect_content(&context.filled(&expected)?, &expected, format_args!("a buffer of {len} bytes"))?;
    }
    Ok(())
}

fn every_small_length(context: &Context) -> Result<(), Failure> {
    for len in 1..=260 {
        let expected = bytes(len as u8, len);
        expect_content(&context.filled(&expected)?, &expected, format_args!("a buffer of {len} bytes"))?;
    }
    Ok(())
}

fn large(context: &Context) -> Result<(), Failure> {
    let expected = bytes(2, (16 << 20) + 13);
    expect_content(&context.filled(&expected)?, &expected, "a large buffer")
}

fn new_memory_can_be_read(context: &Context) -> Result<(), Failure> {
    for len in lens(1 << 16) {
        let buffer = context.allocate(len)?;
        let first = content(&buffer)?;
        // The bytes are unspecified, but a second read returns the same.
        expect_content(&buffer, &first, format_args!("{len} bytes of new memory, read again"))?;
    }
    Ok(())
}

fn new_memory_can_be_copied(context: &Context) -> Result<(), Failure> {
    for len in lens(1 << 16) {
        let new = context.allocate(len)?;
        let copy = context.allocate(len)?;
        copy.copy_from(&new)?;
        expect_content(&copy, &content(&new)?, format_args!("a copy of {len} bytes of new memory"))?;
    }
    Ok(())
}

fn it_keeps_what_it_holds(context: &Context) -> Result<(), Failure> {
    let expected = bytes(3, 10_001);
    let buffer = context.filled(&expected)?;
    for round in 0..50 {
        let other = context.filled(&bytes(round, 10_001))?;
        context.allocate(10_001)?.copy_from(&other)?;
    }
    expect_content(&buffer, &expected, "after work on other memory")
}

/// Writes different bytes to buffers of these lengths, and compares all of them at the end.
fn expect_apart(context: &Context, lens: impl Iterator<Item = usize>) -> Result<(), Failure> {
    let mut held: Vec<(Buffer, Vec<u8>)> = Vec::new();
    for (index, len) in lens.enumerate() {
        let expected = bytes(index as u8, len);
        held.push((context.filled(&expected)?, expected));
    }
    for (index, (buffer, expected)) in held.iter().enumerate() {
        expect_content(buffer, expected, format_args!("buffer {index} of {}", held.len()))?;
    }
    Ok(())
}

fn no_two_share_bytes(context: &Context) -> Result<(), Failure> {
    expect_apart(context, 1..=200)
}

fn large_ones_do_not_share_bytes(context: &Context) -> Result<(), Failure> {
    expect_apart(context, [3 << 20, (2 << 20) + 1, (1 << 20) - 1, 2 << 20].into_iter())
}

fn what_is_freed_is_no_other(context: &Context) -> Result<(), Failure> {
    let fill = |index: usize| -> Result<_, Failure> {
        let expected = bytes(index as u8, 100 + index * 7);
        Ok((context.filled(&expected)?, expected))
    };
    let mut held = (0..100).map(fill).collect::<Result<Vec<_>, _>>()?;
    for step in [2, 3, 5] {
        for index in (0..held.len()).step_by(step) {
            // Drops the old buffer first, so that the driver may reuse its memory.
            held.swap_remove(index);
            held.push(fill(index + step)?);
        }
        for (buffer, expected) in &held {
            expect_content(
                buffer,
                expected,
                format_args!("a buffer of {} bytes that stayed", expected.len()),
            )?;
        }
    }
    Ok(())
}

fn many_at_once(context: &Context) -> Result<(), Failure> {
    expect_apart(context, (0..2000).map(|index| 16 + index % 7))
}

fn many_in_turn(context: &Context) -> Result<(), Failure> {
    for _ in 0..20_000 {
        context.allocate(1000)?;
    }
    Ok(())
}

/// More bytes than any device has. The core leaves this error to the driver. With 32 bits a length below the
/// sign bit can fit, so these are above it.
pub(super) const TOO_MUCH: usize = if usize::BITS == 64 { 1 << 60 } else { 1 << (usize::BITS - 1) };

/// The longest of them.
pub(super) const MOST: usize = if usize::BITS == 64 { isize::MAX as usize } else { usize::MAX };

const LENGTHS: [usize; 4] = [TOO_MUCH, TOO_MUCH + 1, MOST - 4096, MOST];

/// Expects an out-of-memory error from an allocation that does not fit.
pub(super) fn out_of_memory(device: Device, len: usize) -> Result<BackendError, Failure> {
    let error = match device.allocate(len) {
        Ok(_) => {
            return Err(Failure::new(format_args!(
                "{len} bytes: expected an out-of-memory error, got a buffer"
            )));
        }
        Err(error) => error,
    };
    match &error {
        DeviceError::Call { error: of_backend, .. }
            if matches!(of_backend.kind(), BackendErrorKind::OutOfMemory { .. }) =>
        {
            Ok(of_backend.clone())
        }
        _ => Err(Failure::new(format_args!("{len} bytes: expected an out-of-memory error, got: {error}"))),
    }
}

fn more_than_any_device_has(context: &Context) -> Result<(), Failure> {
    for len in LENGTHS {
        out_of_memory(context.device(), len)?;
    }
    Ok(())
}

fn it_goes_on_after_out_of_memory(context: &Context) -> Result<(), Failure> {
    for len in LENGTHS {
        out_of_memory(context.device(), len)?;
        let expected = bytes(4, 1000);
        expect_content(&context.filled(&expected)?, &expected, "after an allocation that did not fit")?;
    }
    Ok(())
}

fn out_of_memory_touches_nothing(context: &Context) -> Result<(), Failure> {
    let expected = bytes(5, 10_000);
    let buffer = context.filled(&expected)?;
    for len in LENGTHS {
        out_of_memory(context.device(), len)?;
    }
    expect_content(&buffer, &expected, "after allocations that did not fit")
}

/// Allocates until the device is out of memory, in pieces of about an eighth of the free memory.
fn use_up(context: &Context) -> Result<Vec<Buffer>, Failure> {
    let free = context.free_memory()?;
    let piece = usize::try_from(free / 8).unwrap_or(usize::MAX).max(1);
    let mut held = Vec::new();
    // Twice as many as fit. Other programs may free memory, but not that much.
    for _ in 0..16 {
        match context.device().allocate(piece) {
            Ok(buffer) => held.push(buffer),
            Err(error) => {
                let kind = error.backend_error().map(BackendError::kind);
                let out_of_memory = matches!(kind, Some(BackendErrorKind::OutOfMemory { .. }));
                ensure!(out_of_memory, "{piece} bytes: expected an out-of-memory error, got: {error}");
                return Ok(held);
            }
        }
    }
    Err(Failure::new(format_args!(
        "{} pieces of {piece} bytes were allocated, with only {free} bytes reported as free",
        held.len()
    )))
}

fn all_of_it_can_be_used_up(context: &Context) -> Result<(), Failure> {
    let held = use_up(context)?;
    // Allows for fragmentation, and for memory that the driver keeps.
    ensure!(
        held.len() >= 4,
        "expected to allocate at least 4 eighths of the memory that is reported as free, got {}",
        held.len()
    );
    Ok(())
}

fn what_is_dropped_can_be_had_again(context: &Context) -> Result<(), Failure> {
    let first = use_up(context)?.len();
    for round in 1..=4 {
        let again = use_up(context)?.len();
        ensure!(
            again + 1 >= first,
            "expected to allocate about {first} eighths of the free memory as at first, got {again} in round {round}"
        );
    }
    Ok(())
}

/// Runs work that drops all its memory, and compares the free memory before and after, up to `slack` bytes.
pub(super) fn expect_no_leak(
    context: &Context,
    slack: u64,
    work: impl Fn() -> Result<(), Failure>,
) -> Result<(), Failure> {
    /// Memory that a driver caches at its first allocations is not a leak, and other programs allocate memory
    /// as well.
    const TRIES: usize = 3;
    let mut free = (0, 0);
    for _ in 0..TRIES {
        let before = context.free_memory()?;
        work()?;
        let after = context.free_memory()?;
        if after + slack >= before {
            return Ok(());
        }
        free = (before, after);
    }
    let (before, after) = free;
    Err(Failure::new(format_args!(
        "expected about {before} free bytes as before, got {after} when all buffers were dropped"
    )))
}

fn small_ones_do_not_leak(context: &Context) -> Result<(), Failure> {
    // 40 MB in total.
    expect_no_leak(context, 4 << 20, || {
        (0..10_000).try_for_each(|index| context.allocate(4000 + index % 10).map(drop))
    })
}

fn failed_allocations_do_not_leak(context: &Context) -> Result<(), Failure> {
    expect_no_leak(context, 1 << 20, || {
        (0..1000).try_for_each(|_| out_of_memory(context.device(), TOO_MUCH).map(drop))
    })
}

fn a_read_stays_in_its_destination(context: &Context) -> Result<(), Failure> {
    const MARGIN: usize = 64;
    for len in [1, 7, 64, 1000, 4096, 65_537] {
        let expected = bytes(3, len);
        let buffer = context.filled(&expected)?;
        let mut host = vec![0xC5; MARGIN + len + MARGIN];
        buffer.read(0, &mut host[MARGIN..MARGIN + len])?;
        expect_bytes(&host[MARGIN..MARGIN + len], &expected, "bytes that were read")?;
        expect_bytes(&host[..MARGIN], &[0xC5; MARGIN], "the host's bytes before those that were read")?;
        expect_bytes(&host[MARGIN + len..], &[0xC5; MARGIN], "the host's bytes behind those that were read")?;
    }
    Ok(())
}
