//! How many devices there are.

use device_registry::{DeviceError, device};

use super::check;
use crate::check::Check;
use crate::context::{Context, in_threads};
use crate::devices::present_devices;
use crate::failure::{Failure, ensure};
use crate::subprocess;

pub(super) const CHECKS: &[Check] = &[
    check!(enumeration::the_count_stays, "the number of devices is the same on every call"),
    check!(
        enumeration::the_count_stays_while_devices_are_used,
        "the number of devices does not change when one is opened and has memory in use"
    ),
    check!(
        enumeration::the_count_is_the_same_on_all_threads,
        "threads that count the devices at the same time all get the same number"
    ),
    check!(
        enumeration::every_ordinal_opens,
        "each ordinal below the count is a device that opens, unless it is absent"
    ),
    check!(
        enumeration::it_is_present_after_it_was_used,
        "a device is present after it was used and closed, to threads that look at the same time"
    ),
    check!(enumeration::no_device_is_beyond_the_count, "the first ordinal beyond the count is an error"),
];

fn the_count_stays(context: &Context) -> Result<(), Failure> {
    let count = context.device_count()?;
    for _ in 0..100 {
        let again = context.device_count()?;
        ensure!(again == count, "expected {count} devices as before, got {again}");
    }
    Ok(())
}

fn the_count_stays_while_devices_are_used(context: &Context) -> Result<(), Failure> {
    let count = context.device_count()?;
    let _in_use = context.filled(&[1; 4096])?;
    let again = context.device_count()?;
    ensure!(again == count, "expected {count} devices as before, got {again} with one in use");
    Ok(())
}

fn the_count_is_the_same_on_all_threads(context: &Context) -> Result<(), Failure> {
    let count = context.device_count()?;
    in_threads(8, |_| {
        for _ in 0..20 {
            let again = context.device_count()?;
            ensure!(again == count, "expected {count} devices as on the other threads, got {again}");
        }
        Ok(())
    })
}

fn every_ordinal_opens(context: &Context) -> Result<(), Failure> {
    for device in present_devices(context.device())? {
        device.allocate(1)?;
    }
    Ok(())
}

const PRESENT: &str = "enumeration::it_is_present_after_it_was_used";

/// In its own process, since no other check may have the device open: the core asks a backend for closed
/// devices only.
fn it_is_present_after_it_was_used(context: &Context) -> Result<(), Failure> {
    subprocess::run(context, PRESENT, || {
        let device = context.device();
        for round in 1..=3 {
            context.filled(&[1; 4096])?;
            device.close()?;
            in_threads(8, |_| {
                for _ in 0..20 {
                    let presence = device.presence()?;
                    ensure!(
                        presence.is_present(),
                        "expected the device to be present after use {round}, got: {presence}"
                    );
                }
                Ok(())
            })?;
        }
        Ok(())
    })
}

fn no_device_is_beyond_the_count(context: &Context) -> Result<(), Failure> {
    let count = context.device_count()?;
    match device(&format!("{}:{count}", context.device().name()))?.allocate(1) {
        Err(DeviceError::NoSuchDevice { count: reported, .. }) if reported == count => Ok(()),
        Err(error) => {
            Err(Failure::new(format_args!("expected an error with the count {count}, got: {error}")))
        }
        Ok(buffer) => Err(Failure::new(format_args!(
            "the count is {count}, and memory could be allocated on {}",
            buffer.device()
        ))),
    }
}
