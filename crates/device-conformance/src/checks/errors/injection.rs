//! Injected faults: when they happen, and when they do not.

use std::time::{Duration, Instant};

use device_registry::{BackendErrorKind, Fault};

use super::{BEFORE, LEN, is_well, refused, works};
use crate::check::Check;
use crate::context::{Context, bytes, expect_bytes, expect_content};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_failed, inject};

pub(super) const CHECKS: &[Check] = &[
    fault_check!(the_nth_copy_fails, "a fault happens at the operation that it was injected for, and once"),
    fault_check!(the_last_of_a_kind_counts, "of two injected faults of one kind, the last one counts"),
    fault_check!(
        a_slow_device_is_right,
        "a slow device holds the same bytes, and each operation takes the injected time longer"
    ),
    fault_check!(cleared_faults_do_not_happen, "cleared faults do not happen"),
];

fn the_nth_copy_fails(context: &Context) -> Result<(), Failure> {
    let buffer = context.filled(&[BEFORE; LEN])?;
    for nth in [1, 2, 3, 7] {
        inject(context.device(), Fault::FailCopy { nth })?;
        for number in 1..=2 * nth {
            let outcome = buffer.write(0, &[number as u8; LEN]);
            // An allocation does not count as a copy.
            drop(context.allocate(16)?);
            match (number == nth, outcome) {
                (true, outcome) => {
                    drop(expect_failed(outcome, &format!("write {number}, with an injected failure"))?)
                }
                (false, Ok(())) => {}
                (false, Err(error)) => {
                    return Err(Failure::new(format_args!(
                        "expected write {nth} to fail, and write {number} failed: {error}"
                    )));
                }
            }
        }
        expect_content(&buffer, &[2 * nth as u8; LEN], "after the fault")?;
    }
    Ok(())
}

fn the_last_of_a_kind_counts(context: &Context) -> Result<(), Failure> {
    let buffer = context.filled(&[BEFORE; LEN])?;
    inject(context.device(), Fault::FailCopy { nth: 1 })?;
    inject(context.device(), Fault::FailAllocation { nth: 2 })?;
    inject(context.device(), Fault::FailCopy { nth: 3 })?;
    buffer.write(0, &[1; LEN])?;
    buffer.write(0, &[2; LEN])?;
    expect_failed(buffer.write(0, &[3; LEN]), "the third write")?;
    buffer.write(0, &[4; LEN])?;
    drop(context.allocate(16)?);
    refused(context.device(), 16, "the second allocation, with a fault of each kind")?;
    expect_content(&buffer, &[4; LEN], "after the fault")
}

fn a_slow_device_is_right(context: &Context) -> Result<(), Failure> {
    const BY: Duration = Duration::from_millis(10);
    let first = context.stream()?;
    let second = context.stream()?;
    let buffer = context.filled(&[BEFORE; LEN])?;
    let copy = context.filled(&[BEFORE; LEN])?;
    inject(context.device(), Fault::Slow { by: BY })?;
    let begun = Instant::now();
    for round in 0..4 {
        let expected = bytes(round, LEN);
        first.write(&buffer, 0, expected.clone())?;
        second.wait_event(&first.record()?)?;
        second.copy(&buffer, &copy)?;
        first.wait_event(&second.record()?)?;
        let read = second.read(&copy, 0..LEN)?;
        expect_bytes(&read.wait()?, &expected, "read from a slow device")?;
    }
    let took = begun.elapsed();
    // Each round is a write, a copy and a read, one after the other.
    ensure!(took >= 12 * BY, "12 operations that each take {BY:?} longer took {took:?} together");
    expect_content(&copy, &bytes(3, LEN), "on a slow device, by blocking calls")?;
    context.device().faults().and_then(|faults| faults.clear())?;
    works(&first, "when the device is not slow any more")
}

fn cleared_faults_do_not_happen(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let all = [
        Fault::FailAllocation { nth: 1 },
        Fault::FailCopy { nth: 1 },
        Fault::LoseDevice { nth: 1 },
        Fault::Stall { nth: 1 },
        Fault::Slow { by: Duration::from_secs(3600) },
    ];
    for faults in [&all[..], &all[..1], &all[1..2], &all[2..3], &all[3..4], &all[4..]] {
        for &fault in faults {
            match context.device().faults().and_then(|faults| faults.inject(fault)) {
                Err(error) if error.kind() == Some(BackendErrorKind::Unsupported) => {}
                other => other?,
            }
        }
        context.device().faults().and_then(|faults| faults.clear())?;
        works(&stream, "after faults that were cleared")?;
        is_well(&stream, "after faults that were cleared")?;
    }
    // Clearing without faults is not an error.
    context.device().faults().and_then(|faults| faults.clear())?;
    Ok(())
}
