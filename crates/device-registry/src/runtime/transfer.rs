//! Copies and fills that block, by whatever way the devices have.

use crate::backend::{BackendErrorKind, FillPattern, Span};
use crate::error::DeviceError;
use crate::runtime::open_device::OpenDevice;

/// Bytes on their way through the host, or of a pattern that is repeated, are copied in pieces of this size. It is a
/// multiple of each alignment that a device can have.
pub(crate) const CHUNK: usize = 1 << 20;

/// Copies between two places of one length: within a device, between two of one backend if it can, or else through the
/// host.
pub(crate) fn copy(
    from: &'static OpenDevice,
    source: &Span,
    to: &'static OpenDevice,
    destination: &Span,
) -> Result<(), DeviceError> {
    if std::ptr::eq(from, to) {
        return to.call("copy", |driver| driver.copy(source, destination));
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
        from.call("read", |driver| driver.read(&source, piece))?;
        to.call("write", |driver| driver.write(&destination, piece))?;
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
    let write = |range, bytes: &[u8]| {
        let part = destination.part(range);
        device.call("fill", |driver| driver.write(&part, bytes))
    };
    write(0..first.len(), &first)?;
    let copied_to = destination.len() - tail.len();
    for (from, to) in doublings(first.len(), copied_to) {
        let (from, to) = (destination.part(from), destination.part(to));
        device.call("fill", |driver| driver.copy(&from, &to))?;
    }
    if tail.is_empty() { Ok(()) } else { write(copied_to..destination.len(), &tail) }
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
        // A pattern that is longer than the alignment leaves no tail, so that each tail begins with a whole pattern.
        let tail = if first.len() == len { 0 } else { len % alignment };
        Self { tail: first[..tail].to_vec(), first }
    }
}

/// The copies that fill `len` bytes of which the first `done` are: each from the start to what comes next.
pub(crate) fn doublings(
    mut done: usize,
    len: usize,
) -> impl Iterator<Item = (std::ops::Range<usize>, std::ops::Range<usize>)> {
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
