//! The transfers of a device, by blocking calls and in queues.

use device_registry::backend::{BackendError, FillPattern, open_windows};

use crate::defect::Defect::*;
use crate::mistransfer as wrongly;
use crate::pool::Place;

/// Copies from the host.
pub(crate) fn write(to: &Place, source: &[u8]) -> Result<(), BackendError> {
    let to = wrongly::placed(to, WritesIgnoreOffsets);
    if wrongly::written(&to, source)? {
        return Ok(());
    }
    let done = wrongly::cut(&to, source.len(), [ShortWrites, WritesStopAtPages, LargeWritesAreCut]);
    let mut bytes = to.pool.bytes.write(to.range)?;
    bytes[..done].copy_from_slice(&source[..done]);
    // The rest of the last word is unspecified.
    bytes[source.len()..].fill(0);
    Ok(())
}

/// Copies to the host.
pub(crate) fn read(from: &Place, destination: &mut [u8]) -> Result<(), BackendError> {
    let from = wrongly::placed(from, ReadsIgnoreOffsets);
    if wrongly::read(&from, destination)? {
        return Ok(());
    }
    let done = wrongly::cut(&from, destination.len(), [ShortReads, ReadsStopAtPages, LargeReadsAreCut]);
    destination[..done].copy_from_slice(&from.pool.bytes.read(from.range)?[..done]);
    Ok(())
}

/// Copies from one place to another, on this device or from a peer.
pub(crate) fn copy(from: &Place, to: &Place) -> Result<(), BackendError> {
    let (from, to) = wrongly::swapped(from, to);
    let (from, to) =
        (wrongly::placed(from, CopiesIgnoreSourceOffsets), wrongly::placed(to, CopiesIgnoreOffsets));
    let _locks = wrongly::locked(&from, &to);
    if wrongly::copied(&from, &to)? {
        return Ok(());
    }
    let done = wrongly::cut(&to, to.range.len(), [ShortCopies, CopiesStopAtPages, LargeCopiesAreCut]);
    let ([source], [mut destination]) =
        open_windows([(&from.pool.bytes, from.range)], [(&to.pool.bytes, to.range)])?;
    destination[..done].copy_from_slice(&source[..done]);
    Ok(())
}

/// Copies from another device. Both lie in one address space.
pub(crate) fn copy_from_peer(from: &Place, to: &Place) -> Result<(), BackendError> {
    copy(&wrongly::of_a_peer(from, to), to)
}

/// Repeats a pattern to the end.
pub(crate) fn fill(to: &Place, pattern: &FillPattern) -> Result<(), BackendError> {
    let to = wrongly::placed(to, FillsIgnoreOffsets);
    if wrongly::filled(&to, pattern)? {
        return Ok(());
    }
    pattern.fill(&mut to.pool.bytes.write(to.range)?);
    Ok(())
}
