//! Blocking copies and fills, each by the first way that the devices support: a driver's call, a driver's
//! queue that the call waits for, or the host.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::{
    BackendError, BackendErrorKind, Completion, DeviceDriver, FillPattern, HostBuffer, Span, StreamDriver,
};
use crate::error::DeviceError;
use crate::runtime::isolation::drop_isolated;
use crate::runtime::open_device::{OpenDevice, is_unsupported};
use crate::runtime::outcome::Outcome;

/// Bytes that go through the host, and repeated patterns, are copied in pieces of this size.
/// It is a multiple of each alignment that a device can have.
pub(crate) const CHUNK: usize = 1 << 20;

/// A blocking call goes through a driver's queue in pieces of this size, a multiple of [`CHUNK`].
const QUEUED: usize = 16 << 20;

/// How the two places of a copy are related, which decides how the copy can be done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Between {
    /// One device.
    OneDevice,
    /// Two devices of one backend, which may be able to copy directly.
    Peers,
    /// Devices of two backends: the bytes go through the host.
    Backends,
}

impl Between {
    pub(crate) fn new(from: &OpenDevice, to: &OpenDevice) -> Self {
        if std::ptr::eq(from, to) {
            Self::OneDevice
        } else if from.device().backend() == to.device().backend() {
            Self::Peers
        } else {
            Self::Backends
        }
    }
}

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
    device.call(call, |driver| match driver.write(destination, source) {
        Err(error) if error.kind() == BackendErrorKind::Unsupported => {
            by_stream(device, driver, error, |stream, keep| {
                for (range, piece) in pieces(source.len()).zip(source.chunks(QUEUED)) {
                    let piece = keep.insert(Arc::new(HostBuffer::from(piece)));
                    stream.write(&destination.part(range), piece)?;
                    finish(stream)?;
                }
                Ok(())
            })
        }
        written => written,
    })
}

/// Copies to the host. Both have one length.
pub(crate) fn read(
    device: &'static OpenDevice,
    source: &Span,
    destination: &mut [u8],
) -> Result<(), DeviceError> {
    device.call("read", |driver| match driver.read(source, destination) {
        Err(error) if error.kind() == BackendErrorKind::Unsupported => {
            by_stream(device, driver, error, |stream, _| {
                for (range, piece) in pieces(source.len()).zip(destination.chunks_mut(QUEUED)) {
                    read_piece(device, stream, &source.part(range), piece)?;
                }
                finish(stream)
            })
        }
        read => read,
    })
}

fn read_piece(
    device: &'static OpenDevice,
    stream: &dyn StreamDriver,
    source: &Span,
    destination: &mut [u8],
) -> Result<(), BackendError> {
    let outcome = Outcome::of_call(device, "read", destination.len());
    device.add_open_read(outcome.awaited());
    stream.read(source, HostBuffer::zeroed(destination.len())?, Completion::new(outcome.clone()))?;
    outcome.accept(0, None).map_err(error_of_driver)?;
    stream.flush()?;
    destination.copy_from_slice(&outcome.wait().map_err(error_of_driver)?);
    Ok(())
}

fn error_of_driver(error: DeviceError) -> BackendError {
    match error {
        DeviceError::Call { error, .. } => error,
        other => BackendError::other(other),
    }
}

/// Copies within a device, as a part of `call`.
fn copy_within(
    device: &'static OpenDevice,
    call: &'static str,
    source: &Span,
    destination: &Span,
) -> Result<(), DeviceError> {
    device.call(call, |driver| match driver.copy(source, destination) {
        Err(error) if error.kind() == BackendErrorKind::Unsupported => {
            by_stream(device, driver, error, |stream, _| {
                stream.copy(source, destination)?;
                finish(stream)
            })
        }
        copied => copied,
    })
}

fn pieces(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(QUEUED).map(move |start| start..len.min(start + QUEUED))
}

/// Waits for a driver's queue. Flushes it first: otherwise its work might never begin.
fn finish(stream: &dyn StreamDriver) -> Result<(), BackendError> {
    stream.flush()?;
    stream.synchronize()
}

/// Does the work of a blocking call in a queue of a driver that leaves the call to the core; the error
/// `unsupported` if it has no queues. The work waits for its own end, and on failure leaves in the `Option`
/// what the queue may still use. It runs within one call into the driver, so that a close of the device waits
/// for it.
#[cold]
fn by_stream(
    device: &OpenDevice,
    driver: &dyn DeviceDriver,
    unsupported: BackendError,
    work: impl FnOnce(&dyn StreamDriver, &mut Option<Arc<HostBuffer>>) -> Result<(), BackendError>,
) -> Result<(), BackendError> {
    let stream = match device.take_idle_stream(driver) {
        Err(error) if error.kind() == BackendErrorKind::Unsupported => return Err(unsupported),
        stream => stream?,
    };
    let mut kept = None;
    let done = work(&*stream, &mut kept);
    if done.is_ok() {
        device.keep_idle_stream(stream);
        return Ok(());
    }
    // A driver reports a failure, and then says that all is done.
    let ended = (0..3).any(|_| finish(&*stream).is_ok());
    // This makes the driver end the work that uses the values.
    drop_isolated(device.device(), stream);
    if !ended {
        // The device may still access it, and cannot report when it has finished.
        std::mem::forget(kept);
    }
    done
}

/// Copies between two places of one length.
pub(crate) fn copy(
    from: &'static OpenDevice,
    source: &Span,
    to: &'static OpenDevice,
    destination: &Span,
) -> Result<(), DeviceError> {
    let between = Between::new(from, to);
    if between == Between::OneDevice {
        return copy_within(to, "copy", source, destination);
    }
    from.check("copy")?;
    if between == Between::Peers {
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
        let source = source.part(range.clone());
        let destination = destination.part(range);
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
        let from = destination.part(from);
        let to = destination.part(to);
        copy_within(device, "fill", &from, &to)?;
    }
    if tail.is_empty() {
        return Ok(());
    }
    write_for(device, "fill", &destination.part(copied_to..destination.len()), &tail)
}

/// What a fill without the driver's help writes from the host. Everything between is copied.
pub(crate) struct FillPlan {
    /// The bytes that the range begins with.
    pub(crate) first: Vec<u8>,
    /// The bytes at its end for which no copy within the device could be aligned.
    pub(crate) tail: Vec<u8>,
}

impl FillPlan {
    pub(crate) fn new(device: &OpenDevice, destination: &Span, pattern: &FillPattern) -> Self {
        let len = destination.len();
        let alignment = device.properties().copy_alignment;
        let mut first = vec![0; len.min(CHUNK)];
        pattern.fill(&mut first);
        // A pattern that is longer than the alignment leaves no tail, so that each tail begins with a whole
        // pattern.
        let tail = if first.len() == len { 0 } else { len % alignment };
        Self { tail: first[..tail].to_vec(), first }
    }
}

/// The copies that fill `len` bytes if the first `done` are filled: each from the start to the next bytes.
pub(crate) fn doublings(mut done: usize, len: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    std::iter::from_fn(move || {
        let next = done.min(len - done);
        let copy = (0..next, done..done + next);
        done += next;
        (next > 0).then_some(copy)
    })
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
