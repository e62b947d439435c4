//! Copies with a time limit: each goes through its own stream, which continues after the limit.
//!
//! Until the limit, only the call reports a failure of that stream. Otherwise a thread in
//! `Device::synchronize` could get the failure, and this call would succeed, or both would return it.

use std::sync::Arc;

use crate::backend::{HostBuffer, Span, StreamOptions};
use crate::error::DeviceError;
use crate::runtime::deadline::Deadline;
use crate::runtime::open_device::{OpenDevice, StreamQueue};
use crate::runtime::operation::{Operation, QueuedRead};
use crate::runtime::outcome::Outcome;
use crate::runtime::queue::{Queue, QueueHandle};

/// Copies from the host. Both have one length.
pub(crate) fn write(
    device: &'static OpenDevice,
    destination: &Span,
    source: &[u8],
    deadline: &Deadline,
) -> Result<(), DeviceError> {
    let source = Arc::new(HostBuffer::from(source));
    let destination = destination.clone();
    run(device, Operation::Write { source, destination }, deadline)
}

/// Copies to the host. Both have one length.
pub(crate) fn read(
    device: &'static OpenDevice,
    source: &Span,
    destination: &mut [u8],
    deadline: &Deadline,
) -> Result<(), DeviceError> {
    let stream = QueueHandle::create(device, &StreamOptions::new())?;
    let queue = stream.queue();
    let fail = |error| DeviceError::Call { device: device.device(), call: deadline.call(), error };
    let bytes = HostBuffer::zeroed(destination.len()).map_err(fail)?;
    let outcome = Outcome::of_work(device, queue.as_origin(), "read", bytes.len());
    let read = QueuedRead::new(&outcome);
    queue.hold_failures();
    queue.accept(Operation::Read { source: source.clone(), destination: bytes, read })?;
    let Some(result) = outcome.wait_until(deadline) else {
        queue.release_failures();
        return Err(deadline.timed_out(device.device(), "`read` is under way"));
    };
    // A failure becomes the stream's too, perhaps later, and stays held back: this call returns it.
    destination.copy_from_slice(&result?);
    match finish(device, queue, deadline) {
        // The bytes have arrived. Only the end of the stream is left.
        Err(DeviceError::TimedOut { .. }) => Ok(()),
        finished => finished,
    }
}

/// Copies between two ranges of one length.
pub(crate) fn copy(
    from: &'static OpenDevice,
    source: Span,
    to: &'static OpenDevice,
    destination: Span,
    deadline: &Deadline,
) -> Result<(), DeviceError> {
    run(to, Operation::Copy { from, source, destination }, deadline)
}

fn run(device: &'static OpenDevice, operation: Operation, deadline: &Deadline) -> Result<(), DeviceError> {
    let stream = QueueHandle::create(device, &StreamOptions::new())?;
    let queue = stream.queue();
    queue.hold_failures();
    queue.accept(operation)?;
    finish(device, queue, deadline)
}

/// Waits for the stream, and returns its failure. After the deadline, other calls report it.
fn finish(device: &OpenDevice, queue: &Queue, deadline: &Deadline) -> Result<(), DeviceError> {
    if let Err(error) = queue.settle_until(deadline) {
        queue.release_failures();
        return Err(error);
    }
    queue.take_held_failure()?;
    device.check(deadline.call())
}
