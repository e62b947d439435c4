//! Errors of work in a stream: which call returns them, and that nothing else is harmed.
//!
//! Most checks inject faults. A host call that panics and a kernel that fails need no fault injection.

use device_registry::{BackendErrorKind, Buffer, Device, DeviceError, Stream};

use crate::check::Check;
use crate::context::{Context, bytes, expect_bytes};
use crate::failure::{Failure, ensure};
use crate::fault_injection::{expect_failed, is_a_drivers_queue};

/// A check that injects faults.
macro_rules! fault_check {
    ($check:ident, $proves:literal) => {
        $crate::checks::check!(errors::$check, $proves)
            .needs(&[$crate::check::Need::Faults])
            .leaves_failures()
    };
}

mod blocking_calls;
mod injection;
mod other_streams;
mod queued_work;
mod reporting;
mod stalls;

pub(super) static THEMES: &[&[Check]] = &[
    reporting::CHECKS,
    queued_work::CHECKS,
    other_streams::CHECKS,
    blocking_calls::CHECKS,
    injection::CHECKS,
    stalls::CHECKS,
];

const LEN: usize = 2000;

/// A stream, memory with known bytes, and whether the driver has queues of its own.
struct Scene {
    stream: Stream,
    buffer: Buffer,
    drivers_queue: bool,
}

/// Every byte of a scene's buffer, at first.
const BEFORE: u8 = 0xEE;

fn scene(context: &Context) -> Result<Scene, Failure> {
    let stream = context.stream()?;
    let buffer = context.filled(&[BEFORE; LEN])?;
    let drivers_queue = is_a_drivers_queue(&stream)?;
    Ok(Scene { stream, buffer, drivers_queue })
}

/// Expects an error of a call to this device.
fn is_about(error: &DeviceError, device: Device) -> Result<(), Failure> {
    match error {
        DeviceError::Call { device: of, .. } if *of == device => Ok(()),
        other => Err(Failure::new(format_args!("expected an error of a call to `{device}`, got: {other}"))),
    }
}

/// Expects the error that another call returned for the same failure.
fn is_the_same(error: &DeviceError, as_this: &DeviceError, what: &str) -> Result<(), Failure> {
    let error = error.to_string();
    let expected = as_this.to_string();
    ensure!(
        error == expected,
        "{what}: expected the error of the work that failed, `{expected}`, got: {error}"
    );
    Ok(())
}

/// Expects a stream to write, copy and read.
fn works(stream: &Stream, what: &str) -> Result<(), Failure> {
    let expected = bytes(0x55, LEN);
    let buffer = stream.device().allocate(LEN)?;
    let copy = stream.device().allocate(LEN)?;
    stream.write(&buffer, 0, expected.clone())?;
    stream.copy(&buffer, &copy)?;
    let read = stream.read(&copy, 0..LEN)?.wait()?;
    expect_bytes(&read, &expected, what)?;
    Ok(stream.synchronize()?)
}

/// Expects a stream and its device to have nothing left to report.
fn is_well(stream: &Stream, what: &str) -> Result<(), Failure> {
    let outcomes = [
        stream.synchronize(),
        stream.query().map(drop),
        stream.device().synchronize(),
        stream.device().open(),
    ];
    outcomes.into_iter().try_for_each(|outcome| {
        outcome
            .map_err(|error| Failure::new(format_args!("{what}: expected no error any more, got: {error}")))
    })
}

/// Expects an allocation to return an injected out-of-memory error.
fn refused(device: Device, len: usize, what: &str) -> Result<(), Failure> {
    let error = expect_failed(device.allocate(len), what)?;
    is_about(&error, device)?;
    match error.kind() {
        Some(BackendErrorKind::OutOfMemory { asked, .. }) => {
            ensure!(asked == len as u64, "expected an error about {len} bytes, found {asked}: {error}");
            Ok(())
        }
        _ => Err(Failure::new(format_args!("{what}: expected an out-of-memory error, got: {error}"))),
    }
}
