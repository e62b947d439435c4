//! Copies and fills, in the current streams of their devices.

use std::ptr::NonNull;

use device_registry::HostBuffer;
use device_registry::backend::{HostMemory, Span, open_all_windows};
use smallvec::SmallVec;

use crate::devices;
use crate::failure::Failure;
use crate::memory::{self, Place};
use crate::streams;

/// Up to this many bytes are copied into a queue that is busy, so that the caller need not wait for it.
const SMALL: usize = 1 << 16;

/// Copies a buffer of the host to a device, which reads it later.
pub(crate) fn enqueue(destination: usize, source: HostBuffer) -> Result<(), Failure> {
    let Place { device, buffer, offset } = memory::find(destination)?;
    Ok(streams::current(device)?.write(&buffer, offset, source)?)
}

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
    let from = memory::find(source)?;
    let to = memory::find(destination)?;
    let part = |place: &Place| place.buffer.slice(place.offset..place.offset.saturating_add(len));
    let source = part(&from)?;
    let destination = part(&to)?;
    let stream = streams::current(to.device)?;
    if from.device == to.device {
        return Ok(stream.copy(&source, &destination)?);
    }
    // The copy is after what the source's stream does, and what that does next is after the copy.
    let other = streams::current(from.device)?;
    stream.wait_event(&other.record()?)?;
    stream.copy(&source, &destination)?;
    Ok(other.wait_event(&stream.record()?)?)
}

/// Bytes of a device that code of the host uses where they are. They stay there until this is dropped.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) host: NonNull<u8>,
    #[expect(dead_code, reason = "it keeps the memory")]
    span: Span,
}

/// Waits for all work of the device, and shares bytes with the host. `None` if the host reaches them only by
/// copies, or there are none.
pub(crate) fn share(address: usize, len: usize) -> Result<Option<Shared>, Failure> {
    let place = memory::find(address)?;
    memory::registered(place.device)?.synchronize()?;
    let end = place.offset.saturating_add(len);
    let Some(span) = place.buffer.slice(place.offset..end)?.span() else { return Ok(None) };
    let in_device = |error| Failure::of_device(devices::all()[place.device], error);
    let Some((memory, range)) = span.mapped().map_err(in_device)? else { return Ok(None) };
    let host = NonNull::new(memory.as_ptr().as_ptr().wrapping_add(range.start));
    Ok(host.map(|host| Shared { host, span }))
}

/// Bytes for the CPU to compute with.
pub(crate) struct Mapped {
    pub(crate) address: usize,
    pub(crate) len: usize,
    pub(crate) is_written: bool,
}

/// Waits for the current stream, and calls `compute` with where each range is on the host. `false`, without a
/// call, if the host reaches one of them only by copies.
pub(crate) fn with_mapped(ranges: &[Mapped], compute: impl FnOnce(&[*mut u8])) -> Result<bool, Failure> {
    let mut spans: SmallVec<[Span; 4]> = SmallVec::new();
    let mut device = None;
    for range in ranges {
        let place = memory::find(range.address)?;
        let end = place.offset.saturating_add(range.len);
        let Some(span) = place.buffer.slice(place.offset..end)?.span() else { return Ok(false) };
        device = Some(place.device);
        spans.push(span);
    }
    let Some(device) = device else { return Ok(false) };
    let in_device = |error| Failure::of_device(devices::all()[device], error);
    let mut mapped: SmallVec<[(&HostMemory, std::ops::Range<usize>); 4]> = SmallVec::new();
    for span in &spans {
        let Some(bytes) = span.mapped().map_err(in_device)? else { return Ok(false) };
        mapped.push(bytes);
    }
    streams::current(device)?.synchronize()?;
    let of_kind = |is_written: bool| {
        let chosen = ranges.iter().zip(&mapped).filter(move |(range, _)| range.is_written == is_written);
        chosen.map(|(_, bytes)| bytes.clone())
    };
    let (reads, mut writes) = open_all_windows(of_kind(false), of_kind(true)).map_err(in_device)?;
    let mut reads = reads.iter();
    let mut writes = writes.iter_mut();
    let pointers = ranges.iter().map(|range| match range.is_written {
        true => writes.next().map_or(std::ptr::null_mut(), |window| window.as_mut_ptr()),
        false => reads.next().map_or(std::ptr::null_mut(), |window| window.as_ptr().cast_mut()),
    });
    let pointers: SmallVec<[*mut u8; 4]> = pointers.collect();
    streams::while_unused(|| compute(&pointers));
    Ok(true)
}
