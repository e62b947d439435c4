//! A device offers what it declares, and returns an error of kind `Unsupported` for everything else.

use std::sync::mpsc;
use std::time::Duration;

use device_registry::{BackendErrorKind, DeviceError, EventOptions, Fault};

use super::check;
use super::messages::reads_as_others;
use crate::check::Check;
use crate::context::{Context, bytes, expect_bytes, expect_content};
use crate::failure::{Failure, ensure, ensure_supported};
use crate::fault_injection::expect_error;

pub(super) const CHECKS: &[Check] = &[
    check!(
        unsupported::pinned_memory_is_as_declared,
        "pinned host memory is available if the device declares it, and unsupported if not"
    ),
    check!(
        unsupported::pinned_memory_is_memory,
        "pinned host memory has the requested length and bytes of its own"
    ),
    check!(
        unsupported::timed_events_are_as_declared,
        "timed events are available if the device declares them, and unsupported if not"
    ),
    check!(
        unsupported::faults_are_there_or_not,
        "each fault can be injected or is unsupported, and so is clearing if all faults are"
    )
    .leaves_failures(),
    check!(
        unsupported::it_says_what,
        "errors of kind `Unsupported` name the missing feature, in the common style"
    )
    .leaves_failures(),
    check!(
        unsupported::unknown_native_handles,
        "a device, its memory and its streams have no native handle of an unknown kind"
    ),
    check!(
        unsupported::asking_harms_nothing,
        "a device still works after an unsupported call, and returns the same error again"
    )
    .leaves_failures(),
];

const FAULTS: [Fault; 5] = [
    Fault::FailAllocation { nth: 1000 },
    Fault::FailCopy { nth: 1000 },
    Fault::LoseDevice { nth: 1_000_000 },
    Fault::Slow { by: Duration::from_nanos(1) },
    Fault::Stall { nth: 1_000_000 },
];

/// Expects an error of kind `Unsupported`.
fn unsupported<T>(outcome: Result<T, DeviceError>, what: &str) -> Result<DeviceError, Failure> {
    let error = expect_error(outcome, what)?;
    ensure!(
        error.kind() == Some(BackendErrorKind::Unsupported),
        "{what}: expected an error of kind `Unsupported`, got: {error}"
    );
    Ok(error)
}

fn pinned_memory_is_as_declared(context: &Context) -> Result<(), Failure> {
    for len in [1, 4096] {
        let outcome = context.device().allocate_host(len);
        if context.properties().pinned_memory {
            ensure!(
                outcome?.is_pinned(),
                "the device declares pinned memory, and the allocated memory is not pinned"
            )
        } else {
            drop(unsupported(outcome, "undeclared pinned memory")?)
        }
    }
    Ok(())
}

fn pinned_memory_is_memory(context: &Context) -> Result<(), Failure> {
    ensure_supported!(context.properties().pinned_memory, "the device does not declare pinned host memory");
    let mut held = Vec::new();
    for len in [1, 7, 64, 4095, 4097, 1 << 20] {
        let mut host = context.device().allocate_host(len)?;
        ensure!(host.len() == len, "expected {len} bytes, got {}", host.len());
        host.copy_from_slice(&bytes(len as u8, len));
        held.push(host);
    }
    for host in &held {
        expect_bytes(host, &bytes(host.len() as u8, host.len()), "pinned memory beside other pinned memory")?;
    }
    Ok(())
}

fn unknown_native_handles(context: &Context) -> Result<(), Failure> {
    let buffer = context.allocate(64)?;
    let stream = context.stream()?;
    for kind in ["", ".", "conformance", "conformance.nothing", "opencl.cl_mem ", "CUDA.CUdeviceptr"] {
        unsupported(
            context.device().native_handle(kind),
            &format!("a device's handle of the kind {kind:?}"),
        )?;
        let of_memory = buffer.span().map(|span| span.native_handle(kind));
        if let Some(Ok(handle)) = of_memory {
            return Err(Failure::new(format_args!("memory has the handle {handle} of the kind {kind:?}")));
        }
        let (sender, found) = mpsc::channel();
        stream.launch(&[], move |launch| {
            let _ = sender.send(launch.native_stream(kind));
            Ok(())
        })?;
        stream.synchronize()?;
        if let Ok(Ok(handle)) = found.recv() {
            return Err(Failure::new(format_args!("a stream has the handle {handle} of the kind {kind:?}")));
        }
    }
    Ok(())
}

fn timed_events_are_as_declared(context: &Context) -> Result<(), Failure> {
    let stream = context.stream()?;
    let timed = EventOptions::new().timed();
    for _ in 0..3 {
        let event = stream.record_with(&timed);
        if context.properties().timed_events {
            let event = event?;
            ensure!(event.is_timed(), "expected a timed event, got one without a timestamp");
            event.elapsed_since(&event)?;
        } else {
            unsupported(event, "an undeclared timed event")?;
        }
        // Events without timestamps are always available, and say that they have none.
        let plain = stream.record()?;
        plain.synchronize()?;
        ensure!(!plain.is_timed(), "expected an event without a timestamp, got a timed one");
        let error = expect_error(plain.elapsed_since(&plain), "the time of an event without a timestamp")?;
        ensure!(
            error.kind() == Some(BackendErrorKind::Invalid),
            "expected an error of kind `Invalid`, got: {error}"
        );
    }
    Ok(stream.synchronize()?)
}

fn faults_are_there_or_not(context: &Context) -> Result<(), Failure> {
    let device = context.device();
    let mut offered = 0;
    for fault in FAULTS {
        match device.faults().and_then(|faults| faults.inject(fault)) {
            Ok(()) => offered += 1,
            outcome => drop(unsupported(outcome, &format!("the fault {fault:?}"))?),
        }
    }
    match offered {
        0 => drop(unsupported(
            device.faults().and_then(|faults| faults.clear()),
            "clearing faults that cannot be injected",
        )?),
        _ => device.faults().and_then(|faults| faults.clear())?,
    }
    let expected = bytes(1, 1000);
    expect_content(&context.filled(&expected)?, &expected, "after the faults were cleared")
}

/// Calls each feature that a device may lack.
fn unsupported_calls(context: &Context) -> Result<Vec<DeviceError>, Failure> {
    let device = context.device();
    let timed = context.stream()?.record_with(&EventOptions::new().timed()).map(drop);
    let mut outcomes = vec![device.allocate_host(64).map(drop), timed];
    outcomes.extend(FAULTS.map(|fault| device.faults().and_then(|faults| faults.inject(fault))));
    outcomes.push(device.faults().and_then(|faults| faults.clear()));
    Ok(outcomes.into_iter().filter_map(Result::err).collect())
}

fn it_says_what(context: &Context) -> Result<(), Failure> {
    for error in unsupported_calls(context)? {
        let Some(of_backend) = error.backend_error() else {
            return Err(Failure::new(format_args!("expected an error of the backend, got: {error}")));
        };
        reads_as_others(of_backend.message())?;
        let device = format!("`{}`", context.device());
        ensure!(
            error.to_string().contains(&device),
            "expected an error that names the device, {device}, got: {error}"
        );
    }
    Ok(())
}

fn asking_harms_nothing(context: &Context) -> Result<(), Failure> {
    let said = |errors: Vec<DeviceError>| errors.iter().map(DeviceError::to_string).collect::<Vec<_>>();
    let expected = bytes(2, 2000);
    let stream = context.stream()?;
    let buffer = context.filled(&expected)?;
    let first = said(unsupported_calls(context)?);
    for _ in 0..5 {
        let again = said(unsupported_calls(context)?);
        ensure!(again == first, "expected the same error as before, {first:?}, got {again:?}");
        expect_content(&buffer, &expected, "after an unsupported call")?;
        expect_bytes(
            &stream.read(&buffer, 0..2000)?.wait()?,
            &expected,
            "by a stream, after an unsupported call",
        )?;
    }
    Ok(())
}
