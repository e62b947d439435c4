//! Copies and fills, in the current streams of their devices.

use device_registry::{Buffer, Stream};

use crate::failure::Failure;
use crate::memory::{self, Place};
use crate::streams;

/// Up to this many bytes are copied into a queue that is busy, so that the caller need not wait for it.
const SMALL: usize = 1 << 16;

/// Copies bytes of the host to a device.
pub(crate) fn write(destination: usize, source: &[u8]) -> Result<(), Failure> {
    let Place { device, buffer, offset } = memory::find(destination)?;
    let stream = streams::current(device)?;
    // The caller may change the bytes as soon as this returns.
    if !stream.query()? {
        if source.len() <= SMALL {
            return Ok(stream.write(&buffer, offset, source)?);
        }
        stream.synchronize()?;
    }
    Ok(buffer.write(offset, source)?)
}

/// Copies bytes of a device to the host, after all work of the current stream.
pub(crate) fn read(destination: &mut [u8], source: usize) -> Result<(), Failure> {
    let Place { device, buffer, offset } = memory::find(source)?;
    streams::current(device)?.synchronize()?;
    Ok(buffer.read(offset, destination)?)
}

/// Copies bytes within a device or between two, of any backends.
pub(crate) fn copy(destination: usize, source: usize, len: usize) -> Result<(), Failure> {
    let (from, to) = (memory::find(source)?, memory::find(destination)?);
    let range = from.offset..from.offset.saturating_add(len);
    let copy = |stream: &Stream, from: &Buffer| stream.copy(from, range.clone(), &to.buffer, to.offset);
    let stream = streams::current(to.device)?;
    if from.device == to.device {
        return Ok(copy(stream, &from.buffer)?);
    }
    // The copy is after what the source's stream does, and what that does next is after the copy.
    let other = streams::current(from.device)?;
    stream.wait_event(&other.record()?)?;
    copy(stream, &from.buffer)?;
    Ok(other.wait_event(&stream.record()?)?)
}
