//! Copies and fills that block, by whatever way the devices have.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::{BackendErrorKind, FillPattern, HostBuffer, Span};
use crate::error::DeviceError;
use crate::runtime::device_use;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::operation::{Operation, QueuedRead};
use crate::runtime::outcome::Outcome;
use crate::runtime::queue::Queue;

/// Bytes on their way through the host, or of a pattern that is repeated, are copied in pieces of this size.
/// It is a multiple of each alignment that a device can have.
pub(crate) const CHUNK: usize = 1 << 20;

/// Where a blocking call goes through a queue of the driver's, it does so in pieces of this size, a multiple
/// of [`CHUNK`].
const QUEUED: usize = 16 << 20;

/// Copies from the host. Both have one length.
pub(crate) fn write(
    device: &'static OpenDevice,
    destination: &Span,
    source: &[u8],
) -> Result<(), DeviceError> {
    write_for(device, "write", destination, source)
}

/// Copies from the host, as a part of `call`.
fn write_for(
    device: &'static OpenDevice,
    call: &'static str,
    destination: &Span,
    source: &[u8],
) -> Result<(), DeviceError> {
    let direct = device.call(call, |driver| driver.write(destination, source));
    if !is_unsupported(&direct) {
        return direct;
    }
    by_queue(device, call, direct, |queue| {
        for (range, piece) in pieces(source.len()).zip(source.chunks(QUEUED)) {
            let (source, destination) = (Arc::new(HostBuffer::from(piece)), destination.part(range));
            queue.accept(Operation::Write { source, destination })?;
            queue.synchronize()?;
        }
        Ok(())
    })
}

/// Copies to the host. Both have one length.
pub(crate) fn read(
    device: &'static OpenDevice,
    source: &Span,
    destination: &mut [u8],
) -> Result<(), DeviceError> {
    let direct = device.call("read", |driver| driver.read(source, destination));
    if !is_unsupported(&direct) {
        return direct;
    }
    by_queue(device, "read", direct, |queue| {
        for (range, piece) in pieces(source.len()).zip(destination.chunks_mut(QUEUED)) {
            let outcome = Outcome::of_work(device, queue, "read", piece.len());
            let fail = |error| DeviceError::Call { device: device.device(), call: "read", error };
            let (destination, read) =
                (HostBuffer::zeroed(piece.len()).map_err(fail)?, QueuedRead::new(&outcome));
            queue.accept(Operation::Read { source: source.part(range), destination, read })?;
            piece.copy_from_slice(&outcome.wait()?);
        }
        Ok(())
    })
}

/// Copies within a device, as a part of `call`.
fn copy_within(
    device: &'static OpenDevice,
    call: &'static str,
    source: &Span,
    destination: &Span,
) -> Result<(), DeviceError> {
    let direct = device.call(call, |driver| driver.copy(source, destination));
    if !is_unsupported(&direct) {
        return direct;
    }
    by_queue(device, call, direct, |queue| {
        let (source, destination) = (source.clone(), destination.clone());
        queue.accept(Operation::Copy { from: device, source, destination })
    })
}

fn pieces(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(QUEUED).map(move |start| start..len.min(start + QUEUED))
}

/// Does the work of a blocking `call` in a queue of the driver's, which leaves the call to the core; the
/// error that says so if it has no queues.
#[cold]
fn by_queue(
    device: &'static OpenDevice,
    call: &'static str,
    unsupported: Result<(), DeviceError>,
    enqueue: impl FnOnce(&Arc<Queue>) -> Result<(), DeviceError>,
) -> Result<(), DeviceError> {
    let Some(handle) = device.take_idle_queue()? else { return unsupported };
    let queue = handle.queue();
    let Err(error) = enqueue(queue).and_then(|()| queue.synchronize()) else {
        device.keep_idle_queue(handle);
        return Ok(());
    };
    // What failed may be kept until the queue is known to be done, and its failure is returned here.
    queue.settle();
    let _ = queue.take_failure();
    drop(handle);
    // The `drop` of a driver's memory could wait for the stream whose thread this is.
    if !device_use::is_stream_thread() {
        device.collect();
    }
    Err(match error {
        // Not the call that has waited for the work.
        DeviceError::Call { device, error, .. } => DeviceError::Call { device, call, error },
        other => other,
    })
}

/// Copies between two places of one length: within a device, between two of one backend if it can, or else
/// through the host.
pub(crate) fn copy(
    from: &'static OpenDevice,
    source: &Span,
    to: &'static OpenDevice,
    destination: &Span,
) -> Result<(), DeviceError> {
    if std::ptr::eq(from, to) {
        return copy_within(to, "copy", source, destination);
    }
    from.check("copy")?;
    if from.device().backend() == to.device().backend() {
        let direct = to.call("copy from a peer", |driver| driver.copy_from_peer(source, destination));
        if !is_unsupported(&direct) {
            return direct;
        }
    }
    copy_through_host(from, source, to, destination)
}

fn copy_through_host(
    from: &'static OpenDevice,
    source: &Span,
    to: &'static OpenDevice,
    destination: &Span,
) -> Result<(), DeviceError> {
    let mut chunk = vec![0; source.len().min(CHUNK)];
    for start in (0..source.len()).step_by(CHUNK) {
        let range = start..source.len().min(start + CHUNK);
        let piece = &mut chunk[..range.len()];
        let (source, destination) = (source.part(range.clone()), destination.part(range));
        read(from, &source, piece)?;
        write(to, &destination, piece)?;
    }
    Ok(())
}

/// Fills, by the driver or else by a part that is written and doubled by copies.
pub(crate) fn fill(
    device: &'static OpenDevice,
    destination: &Span,
    pattern: &FillPattern,
) -> Result<(), DeviceError> {
    let direct = device.call("fill", |driver| driver.fill(destination, pattern));
    if !is_unsupported(&direct) {
        return direct;
    }
    let FillPlan { first, tail } = FillPlan::new(device, destination, pattern);
    write_for(device, "fill", &destination.part(0..first.len()), &first)?;
    let copied_to = destination.len() - tail.len();
    for (from, to) in doublings(first.len(), copied_to) {
        let (from, to) = (destination.part(from), destination.part(to));
        copy_within(device, "fill", &from, &to)?;
    }
    if tail.is_empty() {
        return Ok(());
    }
    write_for(device, "fill", &destination.part(copied_to..destination.len()), &tail)
}

/// What a fill without the driver's help writes from the host. All between is copied.
pub(crate) struct FillPlan {
    /// The bytes that the range begins with.
    pub(crate) first: Vec<u8>,
    /// Those at its end that no copy within the device could be aligned for.
    pub(crate) tail: Vec<u8>,
}

impl FillPlan {
    pub(crate) fn new(device: &OpenDevice, destination: &Span, pattern: &FillPattern) -> Self {
        let (len, alignment) = (destination.len(), device.properties().copy_alignment);
        let mut first = vec![0; len.min(CHUNK)];
        pattern.fill(&mut first);
        // A pattern that is longer than the alignment leaves no tail, so that each tail begins with a whole
        // pattern.
        let tail = if first.len() == len { 0 } else { len % alignment };
        Self { tail: first[..tail].to_vec(), first }
    }
}

/// The copies that fill `len` bytes of which the first `done` are: each from the start to what comes next.
pub(crate) fn doublings(mut done: usize, len: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    std::iter::from_fn(move || {
        let next = done.min(len - done);
        let copy = (0..next, done..done + next);
        done += next;
        (next > 0).then_some(copy)
    })
}

pub(crate) fn is_unsupported<T>(result: &Result<T, DeviceError>) -> bool {
    matches!(result, Err(DeviceError::Call { error, .. }) if error.kind() == BackendErrorKind::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doublings_reach_the_end_and_never_overlap() {
        assert_eq!(doublings(4, 4).count(), 0);
        assert_eq!(doublings(4, 15).collect::<Vec<_>>(), [(0..4, 4..8), (0..7, 8..15)]);
        assert_eq!(doublings(1, 4).collect::<Vec<_>>(), [(0..1, 1..2), (0..2, 2..4)]);
    }
}
