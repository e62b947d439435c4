//! What a device says about itself.

use std::collections::BTreeMap;

use device_registry::{DeviceError, DeviceProperties, device};

use super::check;
use crate::check::{Check, Need};
use crate::context::{Context, in_threads};
use crate::failure::{Failure, ensure};

pub(super) const CHECKS: &[Check] = &[
    check!(properties::the_name_is_text, "the device's name is not empty and can be printed as it is"),
    check!(
        properties::the_driver_is_text,
        "the driver is left out where there is none, and can be printed as it is"
    ),
    check!(
        properties::the_vendor_is_text,
        "the vendor is left out where it is unknown, and can be printed as it is"
    ),
    check!(properties::they_stay, "the backend says the same of a device whenever it is asked, open or not"),
    check!(
        properties::devices_are_told_apart,
        "no two devices of a backend have one UUID, and none has zeros for one"
    ),
    check!(
        properties::sizes_go_together,
        "the declared sizes of memory do not contradict each other, or what is told"
    ),
    check!(properties::free_memory_is_at_most_all, "no more memory is free than there is"),
    check!(properties::total_memory_stays, "the total of memory does not change while some is in use"),
    check!(
        properties::free_memory_falls_while_some_is_held,
        "memory that is allocated is not told as free any more, and is again when it is dropped"
    )
    .needs(&[Need::FreeMemory])
    .exclusive(),
    check!(
        properties::memory_is_told_on_all_threads,
        "threads that ask how much memory there is at the same time all get an answer that can be"
    ),
];

/// Names come from C, with its mistakes: an empty string, padding, the zero at the end.
fn is_text(what: &str, text: &str) -> Result<(), Failure> {
    ensure!(!text.is_empty(), "the {what} is empty");
    ensure!(text.trim() == text, "the {what} has spaces around it: {text:?}");
    ensure!(!text.contains(char::is_control), "the {what} has control characters: {text:?}");
    ensure!(!text.contains(char::REPLACEMENT_CHARACTER), "the {what} was not decoded: {text:?}");
    Ok(())
}

fn the_name_is_text(context: &Context) -> Result<(), Failure> {
    is_text("name", &context.properties().name)
}

fn the_driver_is_text(context: &Context) -> Result<(), Failure> {
    context.properties().driver.as_deref().map_or(Ok(()), |driver| is_text("driver", driver))
}

/// What the backend itself says, where the core would remember it.
fn asked_again(context: &Context) -> Result<DeviceProperties, Failure> {
    let device = context.device();
    let backend = device.backend().load().map_err(DeviceError::from)?;
    backend.properties(device.index().unwrap_or(0).into()).map_err(Failure::new)
}

fn they_stay(context: &Context) -> Result<(), Failure> {
    let properties = context.properties();
    for _ in 0..10 {
        let again = asked_again(context)?;
        ensure!(again == *properties, "expected {properties:?} as before, got {again:?}");
        let _in_use = context.filled(&[1; 64])?;
        let again = asked_again(context)?;
        ensure!(again == *properties, "expected {properties:?} as before, got {again:?} with it in use");
    }
    Ok(())
}

fn the_vendor_is_text(context: &Context) -> Result<(), Failure> {
    context.properties().vendor.as_deref().map_or(Ok(()), |vendor| is_text("vendor", vendor))
}

fn devices_are_told_apart(context: &Context) -> Result<(), Failure> {
    let own = context.properties().uuid;
    ensure!(own.is_none_or(|uuid| *uuid.as_bytes() != [0; 16]), "the UUID is all zeros: leave it out");
    let mut others = BTreeMap::new();
    for ordinal in 0..context.device().count()? {
        let other = device(&format!("{}:{ordinal}", context.device().name()))?;
        if let Some(uuid) = other.properties()?.uuid
            && let Some(same) = others.insert(uuid, other)
        {
            return Err(Failure::new(format_args!("`{same}` and `{other}` have one UUID, {uuid}")));
        }
    }
    Ok(())
}

fn sizes_go_together(context: &Context) -> Result<(), Failure> {
    let properties = context.properties();
    let (total, largest) = (properties.total_memory, properties.largest_allocation);
    ensure!(total != Some(0), "the device has memory, and declares a total of 0 bytes");
    ensure!(
        largest != Some(0),
        "the device has memory, and declares that no allocation can be longer than 0"
    );
    if let (Some(total), Some(largest)) = (total, largest) {
        ensure!(largest <= total, "one allocation can have {largest} bytes, of {total} in all");
    }
    let told = context.device().memory_info()?.total;
    if let (Some(declared), Some(told)) = (total, told) {
        ensure!(declared == told, "{declared} bytes of memory are declared, and {told} are told when asked");
    }
    Ok(())
}

fn free_memory_is_at_most_all(context: &Context) -> Result<(), Failure> {
    let memory = context.device().memory_info()?;
    ensure!(memory.total != Some(0), "the device has memory, and tells a total of 0 bytes");
    if let (Some(free), Some(total)) = (memory.free, memory.total) {
        ensure!(free <= total, "{free} bytes are free of {total}");
    }
    Ok(())
}

fn total_memory_stays(context: &Context) -> Result<(), Failure> {
    let total = context.device().memory_info()?.total;
    let _in_use = context.filled(&[1; 1 << 20])?;
    let again = context.device().memory_info()?.total;
    ensure!(again == total, "expected a total of {total:?} bytes as before, got {again:?} with some in use");
    Ok(())
}

fn free_memory_falls_while_some_is_held(context: &Context) -> Result<(), Failure> {
    /// Other programs take and return memory at any time.
    const TRIES: usize = 5;
    let mut told = String::new();
    for _ in 0..TRIES {
        let before = context.free_memory()?;
        // More than a driver may have kept for its next allocations, and not so much that it harms others.
        let len = (before / 4).min(256 << 20).next_multiple_of(context.alignment() as u64);
        let held = context.allocate(len as usize)?;
        held.write(0, &vec![1; context.alignment()])?;
        let during = context.free_memory()?;
        drop(held);
        let after = context.free_memory()?;
        if during + len / 2 <= before && after >= during + len / 2 {
            return Ok(());
        }
        told = format!("{before} bytes before, {during} while {len} were held, {after} after");
    }
    Err(Failure::new(format_args!("what is told as free does not follow what is held: {told}")))
}

fn memory_is_told_on_all_threads(context: &Context) -> Result<(), Failure> {
    let total = context.device().memory_info()?.total;
    in_threads(8, |_| {
        for _ in 0..20 {
            let held = context.allocate(4096)?;
            let memory = context.device().memory_info()?;
            ensure!(memory.total == total, "expected a total of {total:?} bytes, got {:?}", memory.total);
            if let (Some(free), Some(total)) = (memory.free, memory.total) {
                ensure!(free <= total, "{free} bytes are free of {total}");
            }
            drop(held);
        }
        Ok(())
    })
}
