//! Opening a device, and using it from other threads.

use std::thread;

use device_registry::device;

use super::check;
use crate::check::{Check, Need};
use crate::context::{Context, bytes, expect_content, filled, in_threads};
use crate::devices::present_devices;
use crate::failure::Failure;

pub(super) const CHECKS: &[Check] = &[
    check!(opening::it_opens, "the device opens, and has memory that can be written and read"),
    check!(
        opening::every_thread_may_use_it,
        "allocating, writing, reading and dropping memory work each on another thread, even if earlier threads have ended"
    ),
    check!(
        opening::the_threads_that_come_first_all_get_it,
        "threads that use the device for the first time at the same time all find it open"
    ),
    check!(opening::it_stays_open, "opening a device again does not touch memory in use"),
    check!(
        opening::others_may_be_open_too,
        "the device keeps its memory and still works when all other devices of the backend are in use"
    )
    .needs(&[Need::Peer]),
];

fn it_opens(context: &Context) -> Result<(), Failure> {
    let expected = bytes(1, 64);
    expect_content(&context.filled(&expected)?, &expected, "the first bytes on the device")
}

fn every_thread_may_use_it(context: &Context) -> Result<(), Failure> {
    let expected = bytes(2, 256);
    for _ in 0..20 {
        // Each thread ends before the next one begins, and with it all thread-local state of the driver.
        let buffer = ends(|| context.allocate(expected.len()))?;
        ends(|| Ok(buffer.write(0, &expected)?))?;
        ends(|| expect_content(&buffer, &expected, "on a third thread"))?;
        let copy = ends(|| context.allocate(expected.len()))?;
        ends(|| Ok(copy.copy_from(&buffer)?))?;
        ends(move || {
            drop(buffer);
            Ok(())
        })?;
        ends(|| expect_content(&copy, &expected, "the copy"))?;
    }
    Ok(())
}

/// Runs a function on its own thread, and waits for the thread to end.
fn ends<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(_) => Err(Failure::new("a thread panicked")),
    })
}

fn the_threads_that_come_first_all_get_it(context: &Context) -> Result<(), Failure> {
    in_threads(16, |index| {
        let expected = bytes(index as u8, 64);
        expect_content(&context.filled(&expected)?, &expected, "the first bytes of the thread")
    })
}

fn it_stays_open(context: &Context) -> Result<(), Failure> {
    let expected = bytes(3, 1000);
    let buffer = context.filled(&expected)?;
    for _ in 0..10 {
        let again = device(&context.device().to_string())?;
        again.properties()?;
        again.allocate(1000)?.write(0, &[0xEE; 1000])?;
        expect_content(&buffer, &expected, "after the device was opened again")?;
    }
    Ok(())
}

fn others_may_be_open_too(context: &Context) -> Result<(), Failure> {
    let expected = bytes(4, 1000);
    let buffer = context.filled(&expected)?;
    let mut others = Vec::new();
    for (place, other) in present_devices(context.device())?.into_iter().enumerate() {
        let expected = bytes(10 + place as u8, 1000);
        others.push((filled(other, &expected)?, expected));
    }
    expect_content(&buffer, &expected, "with all devices in use")?;
    for (other, expected) in &others {
        expect_content(other, expected, format_args!("{} with all devices in use", other.device()))?;
    }
    let more = bytes(5, 1000);
    expect_content(&context.filled(&more)?, &more, "memory allocated after the others")
}
