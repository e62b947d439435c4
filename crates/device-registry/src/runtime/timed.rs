//! Copies with a time limit: each goes through a stream of its own, which continues after the limit.

use std::sync::Arc;

use crate::backend::{HostBuffer, Span, StreamOptions};
use crate::error::DeviceError;
use crate::runtime::deadline::Deadline;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::operation::{Operation, QueuedRead};
use crate::runtime::outcome::Outcome;
use crate::runtime::queue::QueueHandle;

/// Copies from the host. Both have one length.
pub(crate) fn write(
    device: &'static OpenDevice,
    destination: &Span,
    source: &[u8],
    deadline: &Deadline,
) -> Result<(), DeviceError> {
    let (source, destination) = (Arc::new(HostBuffer::from(source)), destination.clone());
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
    let fail = |error| DeviceError::Call { device: device.device(), call: deadline.call(), error };
    let bytes = HostBuffer::zeroed(destination.len()).map_err(fail)?;
    let outcome = Outcome::of_work(device, stream.queue(), "read", bytes.len());
    let read = QueuedRead::new(&outcome);
    stream.queue().accept(Operation::Read { source: source.clone(), destination: bytes, read })?;
    let known = deadline.left().and_then(|left| outcome.wait_timeout(left));
    let Some(result) = known else {
        return Err(deadline.timed_out(device, "`read` is under way"));
    };
    // A failure is the stream's too, which would report it a second time.
    let settled = stream.queue().synchronize_until(deadline);
    destination.copy_from_slice(&result?);
    settled
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
    stream.queue().accept(operation)?;
    stream.queue().synchronize_until(deadline)
}
