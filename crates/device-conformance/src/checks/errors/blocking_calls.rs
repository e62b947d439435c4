//! Blocking calls that fail: copies, fills and allocations.

use device_registry::{Buffer, DeviceError, Fault};

use super::{BEFORE, LEN, Scene, is_about, is_well, refused, scene};
use crate::busy::hold_back;
use crate::check::Check;
use crate::context::{Context, bytes, content, expect_bytes, expect_content};
use crate::failure::Failure;
use crate::fault_injection::{expect_failed, fail_next_copy, inject};

pub(super) const CHECKS: &[Check] = &[
    fault_check!(
        a_blocking_copy_that_fails,
        "a blocking call returns the error of its copy, and the next call works"
    ),
    fault_check!(
        a_failed_copy_touches_nothing_else,
        "a failed copy changes no bytes outside its destination"
    ),
    fault_check!(
        a_failed_allocation,
        "a failed allocation returns an out-of-memory error with the requested length, and the next one works"
    ),
    fault_check!(
        a_failed_allocation_harms_no_work,
        "streams do their work while an allocation fails, and no stream reports an error"
    ),
];

/// A blocking call that copies or fills.
type Blocking = fn(&Buffer, &Buffer) -> Result<(), DeviceError>;

const BLOCKING: [(&str, Blocking); 4] = [
    ("write", |buffer, _| buffer.write(0, &[1; LEN])),
    ("read", |buffer, _| buffer.read(0, &mut [0; LEN])),
    ("copy", |buffer, other| buffer.copy_from(other)),
    ("fill", |buffer, _| buffer.fill(0..LEN, &[2])),
];

fn a_blocking_copy_that_fails(context: &Context) -> Result<(), Failure> {
    let buffer = context.filled(&[BEFORE; LEN])?;
    let other = context.filled(&[1; LEN])?;
    for (kind, copy) in BLOCKING {
        for _ in 0..3 {
            fail_next_copy(context.device())?;
            let error = expect_failed(copy(&buffer, &other), kind)?;
            is_about(&error, context.device())?;
            copy(&buffer, &other)?;
        }
        let expected = if kind == "fill" { [2; LEN] } else { [1; LEN] };
        expect_content(&buffer, &expected, format_args!("after a {kind} behind one that failed"))?;
        // The call has returned the error. The device must not report it again.
        context.device().synchronize()?;
    }
    Ok(())
}

fn a_failed_copy_touches_nothing_else(context: &Context) -> Result<(), Failure> {
    let third = 40 * context.alignment();
    let before = bytes(1, 3 * third);
    let buffer = context.filled(&before)?;
    let other = context.filled(&before)?;
    let neighbour = context.filled(&before)?;
    type Part = fn(&Buffer, &Buffer, usize) -> Result<(), DeviceError>;
    let copies: [(&str, Part); 3] = [
        ("write", |buffer, _, third| buffer.write(third, &vec![1; third])),
        ("copy", |buffer, other, third| buffer.slice(third..2 * third)?.copy_from(&other.slice(..third)?)),
        ("fill", |buffer, _, third| buffer.fill(third..2 * third, &[1])),
    ];
    for (kind, copy) in copies {
        fail_next_copy(context.device())?;
        expect_failed(copy(&buffer, &other, third), kind)?;
        let now = content(&buffer)?;
        for part in [0..third, 2 * third..3 * third] {
            expect_bytes(&now[part.clone()], &before[part], format_args!("beside a {kind} that failed"))?;
        }
        expect_content(&other, &before, format_args!("the source of a {kind} that failed"))?;
        expect_content(&neighbour, &before, format_args!("other memory than that of a {kind} that failed"))?;
    }
    Ok(())
}

fn a_failed_allocation(context: &Context) -> Result<(), Failure> {
    for nth in [1, 2, 5] {
        inject(context.device(), Fault::FailAllocation { nth })?;
        let mut held = Vec::new();
        for number in 1..nth {
            held.push(context.filled(&[number as u8; 1000])?);
        }
        refused(context.device(), 1000, &format!("allocation {nth}, which was to fail"))?;
        held.push(context.filled(&[nth as u8; 1000])?);
        for (index, buffer) in held.iter().enumerate() {
            expect_content(buffer, &[index as u8 + 1; 1000], "memory beside an allocation that failed")?;
        }
    }
    Ok(())
}

fn a_failed_allocation_harms_no_work(context: &Context) -> Result<(), Failure> {
    let Scene { stream, buffer, .. } = scene(context)?;
    for round in 0..10 {
        let release = hold_back(&stream)?;
        stream.fill(&buffer, 0..LEN, &[round])?;
        let read = stream.read(&buffer, 0..LEN)?;
        inject(context.device(), Fault::FailAllocation { nth: 1 })?;
        refused(context.device(), 1000, "an allocation beside work")?;
        drop(release);
        expect_bytes(&read.wait()?, &[round; LEN], "work beside an allocation that failed")?;
        is_well(&stream, "beside an allocation that failed")?;
    }
    Ok(())
}
