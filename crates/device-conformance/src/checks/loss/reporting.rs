//! Every call on a lost device returns an error of kind `Lost`.

use device_registry::{Buffer, DeviceError, Fault, Presence, first_available, is_available};

use super::{Handles, LEN, works};
use crate::busy::hold_back;
use crate::check::Check;
use crate::context::Context;
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_lost, inject, lose, reset};

pub(super) const CHECKS: &[Check] = &[
    loss_check!(
        the_call_that_finds_it_says_so,
        "an operation of each kind that finds the device lost returns an error of that kind"
    ),
    loss_check!(work_in_a_queue_finds_it, "a stream returns that its work found the device lost"),
    loss_check!(
        the_nth_operation_finds_it,
        "the device is lost at the operation that the loss was injected for"
    ),
    loss_check!(
        every_later_call_says_so,
        "every call on a lost device and its handles returns that the device is lost"
    ),
    loss_check!(it_is_still_counted, "a lost device still counts, and still describes itself"),
    loss_check!(it_is_passed_over, "a lost device is not available, and is available again after a reset"),
    loss_check!(
        clearing_the_faults_brings_nothing_back,
        "a lost device stays lost when the faults are cleared"
    ),
];

fn the_call_that_finds_it_says_so(context: &Context) -> Result<(), Failure> {
    type Call = fn(&Buffer, &Buffer) -> Result<(), DeviceError>;
    let calls: [(&str, Call); 5] = [
        ("allocate", |buffer, _| buffer.device().allocate(16).map(drop)),
        ("write", |buffer, _| buffer.write(0, &[1; LEN])),
        ("read", |buffer, _| buffer.read(0, &mut [0; LEN])),
        ("copy", |buffer, other| buffer.copy_from(other)),
        ("fill", |buffer, _| buffer.fill(0..LEN, &[1])),
    ];
    for (name, call) in calls {
        let buffer = context.filled(&[1; LEN])?;
        let other = context.filled(&[2; LEN])?;
        inject(context.device(), Fault::LoseDevice { nth: 1 })?;
        expect_lost(call(&buffer, &other), name)?;
        expect_lost(call(&buffer, &other), name)?;
        reset(context.device())?;
    }
    works(context.device(), "after the last reset")
}

fn work_in_a_queue_finds_it(context: &Context) -> Result<(), Failure> {
    for round in 0..5 {
        let stream = context.stream()?;
        let buffer = context.filled(&[1; LEN])?;
        let release = hold_back(&stream)?;
        inject(context.device(), Fault::LoseDevice { nth: 2 })?;
        stream.fill(&buffer, 0..LEN, &[2])?;
        // A driver's own queue may refuse work on a lost device.
        let enqueued = stream.write(&buffer, 0, vec![3; LEN]);
        drop(release);
        expect_lost(enqueued.and_then(|()| stream.synchronize()), "work in a stream")?;
        expect_lost(context.device().allocate(16), "an allocation behind it")?;
        expect_lost(stream.query(), &format!("the stream, queried again in round {round}"))?;
        reset(context.device())?;
    }
    works(context.device(), "after the last reset")
}

fn the_nth_operation_finds_it(context: &Context) -> Result<(), Failure> {
    for nth in [1, 2, 5] {
        let buffer = context.filled(&[0; LEN])?;
        inject(context.device(), Fault::LoseDevice { nth })?;
        for number in 1..nth {
            buffer.write(0, &[number as u8; LEN]).map_err(|error| {
                Failure::new(format_args!(
                    "expected operation {nth} to find the device lost, and operation {number} did: {error}"
                ))
            })?;
        }
        expect_lost(buffer.write(0, &[0; LEN]), &format!("operation {nth}"))?;
        reset(context.device())?;
    }
    Ok(())
}

fn every_later_call_says_so(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let handles = Handles::new(device)?;
    let first = lose(device)?;
    let Some(first) = first.backend_error() else {
        return Err(Failure::new("expected an error of the backend"));
    };
    for round in 0..3 {
        let mut calls = handles.call_all();
        calls.extend([
            ("opening", device.open()),
            ("allocating", device.allocate(16).map(drop)),
            ("creating a stream", device.create_stream().map(drop)),
            ("memory info", device.memory_info().map(drop)),
            ("synchronizing the device", device.synchronize()),
            (
                "injecting a fault",
                device.faults().and_then(|faults| faults.inject(Fault::FailCopy { nth: 1 })),
            ),
        ]);
        for (name, outcome) in calls {
            let error = expect_lost(outcome, &format!("{name}, in round {round}"))?;
            // Every call gives the same reason.
            let said = error.to_string();
            ensure!(said.contains(first.message()), "{name}: expected the reason `{first}`, got: {said}");
            ensure!(
                said.contains(&format!("`{device}`")),
                "{name}: expected the name of the lost device, `{device}`, got: {said}"
            );
        }
    }
    Ok(())
}

fn it_is_still_counted(context: &Context) -> Result<(), Failure> {
    let count = context.device_count()?;
    lose(context.device())?;
    let again = context.device_count()?;
    ensure!(again == count, "expected {count} devices as before the loss, got {again}");
    let properties = context.device().properties()?;
    ensure!(
        properties == *context.properties(),
        "a lost device has other properties than before: {properties:?}"
    );
    reset(context.device())?;
    let properties = context.device().properties()?;
    ensure!(
        properties == *context.properties(),
        "a device has other properties after a reset: {properties:?}"
    );
    Ok(())
}

fn it_is_passed_over(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let name = device.to_string();
    for round in 1..=2 {
        lose(device)?;
        let presence = device.presence()?;
        ensure!(
            matches!(presence, Presence::Lost(_)),
            "expected the lost device to say so, got, in round {round}: {presence}"
        );
        ensure!(!is_available(&name), "a lost device counts as available");
        ensure!(first_available(&name).is_err(), "the lost device was chosen as the first available one");
        reset(device)?;
        let presence = device.presence()?;
        ensure!(presence.is_present(), "expected the device to be present after a reset, got: {presence}");
        ensure!(is_available(&name), "the device is not available after a reset");
    }
    Ok(())
}

fn clearing_the_faults_brings_nothing_back(context: &Context) -> Result<(), Failure> {
    let handles = Handles::new(context.device())?;
    lose(context.device())?;
    for _ in 0..2 {
        context.device().faults().and_then(|faults| faults.clear())?;
        handles
            .call_all()
            .into_iter()
            .try_for_each(|(name, outcome)| expect_lost(outcome, name).map(drop))?;
        expect_lost(context.device().open(), "opening")?;
    }
    Ok(())
}
