//! Fault injection: what the checks of errors and of lost devices have in common.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use device_registry::{BackendErrorKind, Buffer, Device, DeviceError, Fault, Stream};

use crate::busy::hold_back;
use crate::devices::{all_devices, is_lost_permanently, lost_permanently};
use crate::failure::{Failure, ensure};

/// Makes the check unsupported unless the device offers fault injection.
pub(crate) fn require(device: Device) -> Result<(), Failure> {
    match device.faults().and_then(|faults| faults.clear()) {
        Err(error) if error.kind() == Some(BackendErrorKind::Unsupported) => {
            Err(Failure::unsupported("the device does not offer fault injection"))
        }
        other => Ok(other?),
    }
}

/// Injects a fault. A fault that the device does not offer makes the check unsupported.
#[track_caller]
pub(crate) fn inject(device: Device, fault: Fault) -> Result<(), Failure> {
    match device.faults().and_then(|faults| faults.inject(fault)) {
        Err(error) if error.kind() == Some(BackendErrorKind::Unsupported) => {
            let message = format_args!("the device does not offer the fault {fault:?}: {error}");
            Err(Failure::unsupported(message))
        }
        other => Ok(other?),
    }
}

/// Makes the next write, read, copy or fill fail.
#[track_caller]
pub(crate) fn fail_next_copy(device: Device) -> Result<(), Failure> {
    inject(device, Fault::FailCopy { nth: 1 })
}

/// Undoes what a check did to a device: clears its faults, takes the unreported errors of all devices of the
/// backend, and resets lost ones.
pub(crate) fn clean_up(device: Device) -> Result<(), Failure> {
    /// The most errors that a check may leave unreported, one for each stream.
    const MOST: usize = 1000;
    match device.faults().and_then(|faults| faults.clear()) {
        Err(error) if error.kind() != Some(BackendErrorKind::Unsupported) => return Err(error.into()),
        _ => {}
    }
    for device in all_devices(device)? {
        if is_lost_permanently(device) {
            continue;
        }
        let mut errors = 0;
        while let Err(error) = device.synchronize() {
            if error.kind() == Some(BackendErrorKind::Lost)
                && let Err(failure) = reset(device)
            {
                lost_permanently().insert(device);
                return Err(failure);
            }
            errors += 1;
            ensure!(errors < MOST, "`{device}` returns errors endlessly, the last of them: {error}");
        }
    }
    Ok(())
}

/// Resets a lost device, so that the next call opens it afresh.
#[track_caller]
pub(crate) fn reset(device: Device) -> Result<(), Failure> {
    let failed = |error| {
        Failure::new(format_args!(
            "`{device}` is lost, and a reset failed: {error}\nhelp: a device that offers `Fault::LoseDevice` has to support `reset`"
        ))
    };
    device.reset().map_err(failed)
}

/// Injects the loss of the device, and returns the error of the write that finds it lost.
#[track_caller]
pub(crate) fn lose(device: Device) -> Result<DeviceError, Failure> {
    let buffer = device.allocate(16)?;
    inject(device, Fault::LoseDevice { nth: 1 })?;
    expect_lost(buffer.write(0, &[1; 16]), "a write that finds the device lost")
}

/// The error of a call that has to fail.
#[track_caller]
pub(crate) fn expect_error<T>(result: Result<T, DeviceError>, what: &str) -> Result<DeviceError, Failure> {
    match result {
        Ok(_) => Err(Failure::new(format_args!("{what}: expected an error, got success"))),
        Err(error) => Ok(error),
    }
}

/// The error of a call that has to fail because the device is lost.
#[track_caller]
pub(crate) fn expect_lost<T>(result: Result<T, DeviceError>, what: &str) -> Result<DeviceError, Failure> {
    let error = expect_error(result, what)?;
    ensure!(
        error.kind() == Some(BackendErrorKind::Lost),
        "{what}: expected an error of kind `Lost`, got: {error}"
    );
    Ok(error)
}

/// The error of a copy that was injected with a failure, on a device that is not lost.
#[track_caller]
pub(crate) fn expect_failed<T>(result: Result<T, DeviceError>, what: &str) -> Result<DeviceError, Failure> {
    let error = expect_error(result, what)?;
    let Some(kind) = error.kind() else {
        return Err(Failure::new(format_args!("{what}: expected an error of the backend, got: {error}")));
    };
    ensure!(
        kind != BackendErrorKind::Lost,
        "{what}: expected that one copy fails, and the device is lost: {error}"
    );
    Ok(error)
}

/// Enqueues a write that fails when the stream executes it.
#[track_caller]
pub(crate) fn failing_write(stream: &Stream, buffer: &Buffer, byte: u8) -> Result<(), Failure> {
    enqueue_failing(stream, || stream.write(buffer, 0, vec![byte; buffer.len()]))
}

/// Enqueues work that fails when the stream executes it.
///
/// A driver may refuse to submit the work in place of that. Then the stream's thread submits it, behind a
/// host call, and the refusal is a failure of the stream.
#[track_caller]
pub(crate) fn enqueue_failing(
    stream: &Stream,
    enqueue: impl Fn() -> Result<(), DeviceError>,
) -> Result<(), Failure> {
    fail_next_copy(stream.device())?;
    if enqueue().is_ok() {
        return Ok(());
    }
    let release = hold_back(stream)?;
    fail_next_copy(stream.device())?;
    accepted(enqueue())?;
    let event = stream.record()?;
    drop(release);
    // Otherwise work enqueued elsewhere could get the failure. The stream reports it later.
    let _ = event.synchronize();
    Ok(())
}

/// Makes the check unsupported if the driver refused to enqueue the work.
#[track_caller]
pub(crate) fn accepted<T>(enqueued: Result<T, DeviceError>) -> Result<T, Failure> {
    enqueued.map_err(|error| {
        Failure::unsupported(format_args!("the driver refuses on submission what has to fail: {error}"))
    })
}

/// Whether the driver has its own queue for the stream. Such a queue may execute work behind a failure,
/// or not.
pub(crate) fn is_a_drivers_queue(stream: &Stream) -> Result<bool, Failure> {
    // With a driver's queue, an idle stream calls a kernel at once, on this thread, to submit its work.
    // Otherwise the kernel runs on the stream's thread.
    let (sender, called_on) = mpsc::channel();
    stream.synchronize()?;
    stream.launch(&[], move |_| {
        let _ = sender.send(thread::current().id());
        Ok(())
    })?;
    stream.synchronize()?;
    Ok(called_on.recv().is_ok_and(|id| id == thread::current().id()))
}

/// Polls until a condition holds, for at most half of the time limit. Returns whether it holds.
pub(crate) fn until(
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let end = Instant::now() + limit / 2;
    let mut pause = Duration::from_micros(100);
    while !condition()? {
        if Instant::now() > end {
            return Ok(false);
        }
        thread::sleep(pause);
        // What takes long needs no processor for itself meanwhile.
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    Ok(true)
}
