//! How a device describes itself.

use std::collections::BTreeMap;

use device_registry::{DeviceError, DeviceProperties};

use super::check;
use crate::check::{Check, Need};
use crate::context::{Context, in_threads};
use crate::devices::present_devices;
use crate::failure::{Failure, ensure};

pub(super) const CHECKS: &[Check] = &[
    check!(properties::the_name_is_text, "the name of the device is not empty, and is printable"),
    check!(
        properties::the_driver_is_text,
        "the driver, its version and its interface are either unset or printable"
    ),
    check!(properties::the_vendor_is_text, "the vendor is either unset or printable"),
    check!(properties::they_stay, "the properties of a device are the same on every call, open or not"),
    check!(
        properties::devices_are_told_apart,
        "the devices of a backend have different UUIDs, and none is all zeros"
    ),
    check!(
        properties::sizes_go_together,
        "the declared memory sizes do not contradict each other or the reported ones"
    ),
    check!(properties::free_memory_is_at_most_all, "the free memory is at most the total"),
    check!(properties::total_memory_stays, "the total memory does not change while some is in use"),
    check!(
        properties::free_memory_falls_while_some_is_held,
        "allocated memory is not reported as free, and dropped memory is again"
    )
    .needs(&[Need::FreeMemory])
    .exclusive(),
    check!(
        properties::memory_is_told_on_all_threads,
        "threads that query the memory at the same time all get plausible sizes"
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
    let properties = context.properties();
    let api = properties.api.as_ref().map(|api| &*api.name);
    let all = [
        ("driver", properties.driver.as_deref()),
        ("driver version", properties.driver_version.as_deref()),
        ("interface", api),
    ];
    all.into_iter().try_for_each(|(what, text)| text.map_or(Ok(()), |text| is_text(what, text)))
}

/// The properties from the backend itself, because the core may cache them.
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
    ensure!(
        own.is_none_or(|uuid| *uuid.as_bytes() != [0; 16]),
        "the UUID is all zeros\nhelp: leave an unknown UUID unset"
    );
    let mut others = BTreeMap::new();
    for other in present_devices(context.device())? {
        if let Some(uuid) = other.properties()?.uuid
            && let Some(same) = others.insert(uuid, other)
        {
            return Err(Failure::new(format_args!("`{same}` and `{other}` have the same UUID, {uuid}")));
        }
    }
    Ok(())
}

fn sizes_go_together(context: &Context) -> Result<(), Failure> {
    let properties = context.properties();
    let total = properties.total_memory;
    let largest = properties.largest_allocation;
    ensure!(total != Some(0), "the device has memory, and its declared total is 0 bytes");
    ensure!(largest != Some(0), "the device has memory, and its declared largest allocation is 0 bytes");
    if let (Some(total), Some(largest)) = (total, largest) {
        ensure!(
            largest <= total,
            "the declared largest allocation is {largest} bytes, more than the declared total of {total}"
        );
    }
    let reported = context.device().memory_info()?.total;
    if let (Some(declared), Some(reported)) = (total, reported) {
        ensure!(
            declared == reported,
            "the declared total memory is {declared} bytes, and `memory_info` reports {reported}"
        );
    }
    Ok(())
}

fn free_memory_is_at_most_all(context: &Context) -> Result<(), Failure> {
    let memory = context.device().memory_info()?;
    ensure!(memory.total != Some(0), "the device has memory, and `memory_info` reports a total of 0 bytes");
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
    /// Other programs allocate and free memory at any time.
    const TRIES: usize = 5;
    let mut reported = String::new();
    for _ in 0..TRIES {
        let before = context.free_memory()?;
        // More than a driver may cache for its next allocations, and not so much that it disturbs other
        // programs.
        let len = (before / 4).min(256 << 20).next_multiple_of(context.alignment() as u64);
        let held = context.allocate(len as usize)?;
        held.write(0, &vec![1; context.alignment()])?;
        let during = context.free_memory()?;
        drop(held);
        let after = context.free_memory()?;
        if during + len / 2 <= before && after >= during + len / 2 {
            return Ok(());
        }
        reported = format!("{before} bytes before, {during} while {len} were held, {after} after");
    }
    Err(Failure::new(format_args!("the reported free memory does not follow the allocations: {reported}")))
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
