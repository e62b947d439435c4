//! Devices that fail to order: what checks of errors have in common.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use device_registry::{BackendErrorKind, Buffer, Device, DeviceError, Fault, Stream};

use crate::context::all_devices;
use crate::failure::{Failure, ensure};

/// That a device can be told to fail, or that the check is unsupported.
pub(crate) fn are_offered(device: Device) -> Result<(), Failure> {
    match device.clear_faults() {
        Err(error) if kind(&error) == Some(BackendErrorKind::Unsupported) => {
            Err(Failure::unsupported("the device has no faults to order"))
        }
        other => Ok(other?),
    }
}

/// Has a fault from now on; one that the device cannot have makes the check unsupported.
#[track_caller]
pub(crate) fn inject(device: Device, fault: Fault) -> Result<(), Failure> {
    match device.inject(fault) {
        Err(error) if kind(&error) == Some(BackendErrorKind::Unsupported) => {
            Err(Failure::unsupported(format_args!("the device cannot have the fault {fault:?}")))
        }
        other => Ok(other?),
    }
}

/// The next write, read, copy or fill fails.
#[track_caller]
pub(crate) fn fail_next_copy(device: Device) -> Result<(), Failure> {
    inject(device, Fault::FailCopy { nth: 1 })
}

/// Undoes what a check has done to a device, and through it to others of the backend.
pub(crate) fn mend(device: Device) -> Result<(), Failure> {
    /// Streams that a check may leave behind, each with an error.
    const MOST: usize = 1000;
    match device.clear_faults() {
        Err(error) if kind(&error) != Some(BackendErrorKind::Unsupported) => return Err(error.into()),
        _ => {}
    }
    for device in all_devices(device)? {
        if is_lost_for_good(device) {
            continue;
        }
        let mut told = 0;
        while let Err(error) = device.synchronize() {
            if kind(&error) == Some(BackendErrorKind::Lost)
                && let Err(failure) = reset(device)
            {
                lost_for_good().insert(device);
                return Err(failure);
            }
            told += 1;
            ensure!(told < MOST, "`{device}` tells errors without end, the last of them: {error}");
        }
    }
    Ok(())
}

/// Whether a check has lost the device and it cannot be reset. Those that come later have nothing to test.
pub(crate) fn is_lost_for_good(device: Device) -> bool {
    lost_for_good().contains(&device.resolve())
}

fn lost_for_good() -> MutexGuard<'static, BTreeSet<Device>> {
    static DEVICES: Mutex<BTreeSet<Device>> = Mutex::new(BTreeSet::new());
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a lost device be opened afresh.
#[track_caller]
pub(crate) fn reset(device: Device) -> Result<(), Failure> {
    let failed = |error| {
        Failure::new(format_args!(
            "`{device}` was lost, and cannot be reset: {error}; what can be lost to order has to be resettable"
        ))
    };
    device.reset().map_err(failed)
}

/// Takes the device away, by a write that finds it lost; what was said then.
#[track_caller]
pub(crate) fn lose(device: Device) -> Result<DeviceError, Failure> {
    let buffer = device.allocate(16)?;
    inject(device, Fault::LoseDevice { nth: 1 })?;
    expect_lost(buffer.write(0, &[1; 16]), "a write that finds the device lost")
}

/// The kind of an error that comes from a backend.
pub(crate) fn kind(error: &DeviceError) -> Option<BackendErrorKind> {
    error.backend_error().map(|error| error.kind())
}

/// The error of what has to fail.
#[track_caller]
pub(crate) fn expect_error<T>(result: Result<T, DeviceError>, what: &str) -> Result<DeviceError, Failure> {
    match result {
        Ok(_) => Err(Failure::new(format_args!("{what}: expected an error, and it says that all is well"))),
        Err(error) => Ok(error),
    }
}

/// The error of what has to fail because the device is lost.
#[track_caller]
pub(crate) fn expect_lost<T>(result: Result<T, DeviceError>, what: &str) -> Result<DeviceError, Failure> {
    let error = expect_error(result, what)?;
    ensure!(
        kind(&error) == Some(BackendErrorKind::Lost),
        "{what}: expected that the device is lost, got: {error}"
    );
    Ok(error)
}

/// The error of a copy that was told to fail, on a device that goes on.
#[track_caller]
pub(crate) fn expect_failed<T>(result: Result<T, DeviceError>, what: &str) -> Result<DeviceError, Failure> {
    let error = expect_error(result, what)?;
    let Some(kind) = kind(&error) else {
        return Err(Failure::new(format_args!("{what}: expected an error of the backend, got: {error}")));
    };
    ensure!(kind != BackendErrorKind::Lost, "{what}: one copy was to fail, and the device is lost: {error}");
    Ok(error)
}

/// Puts a write in that fails when it is its turn. Where a driver's queue refuses at once what is to fail, there is
/// nothing to check.
#[track_caller]
pub(crate) fn failing_write(stream: &Stream, buffer: &Buffer, byte: u8) -> Result<(), Failure> {
    fail_next_copy(stream.device())?;
    accepted(stream.write(buffer, 0, vec![byte; buffer.len()]))
}

/// What was put in, or that the check is unsupported.
#[track_caller]
pub(crate) fn accepted<T>(put_in: Result<T, DeviceError>) -> Result<T, Failure> {
    put_in.map_err(|error| {
        Failure::unsupported(format_args!("the device refuses at once what is to fail: {error}"))
    })
}

/// Whether the stream's work is in a queue of the driver's own. Behind a failure, such work may be done or not.
pub(crate) fn is_a_drivers_queue(stream: &Stream) -> Result<bool, Failure> {
    // There a kernel is called in order to submit its work, at once where the stream is idle; elsewhere it does the
    // work itself, on the stream's thread.
    let (tell, told) = mpsc::channel();
    stream.synchronize()?;
    stream.launch(&[], move |_| {
        let _ = tell.send(thread::current().id());
        Ok(())
    })?;
    stream.synchronize()?;
    Ok(told.recv().is_ok_and(|id| id == thread::current().id()))
}

/// Asks until it is so, for as long as a check may take.
pub(crate) fn until(
    limit: Duration,
    mut is_so: impl FnMut() -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let end = Instant::now() + limit / 2;
    while !is_so()? {
        if Instant::now() > end {
            return Ok(false);
        }
        thread::sleep(Duration::from_micros(100));
    }
    Ok(true)
}
