//! Memory on a device, with every check made once.

use std::fmt;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Allocation, BackendError, FillPattern, HostBuffer, HostMemory, Progress, Span};
use crate::device::Device;
use crate::error::{BufferRole, DeviceError};
use crate::runtime::activity;
use crate::runtime::activity::Work;
use crate::runtime::deadline::Deadline;
use crate::runtime::isolation::drop_isolated;
use crate::runtime::open_device::{OpenDevice, StreamQueue};
use crate::runtime::operation::{copy_work, fill_work, place};
use crate::runtime::{chosen_stream, table, timed, transfer};

/// Memory on a device: a handle that is cheap to clone. Dropping the last clone frees the memory.
///
/// Its functions block until the bytes are copied, and may be called from any thread. A
/// [`Stream`](crate::Stream) copies asynchronously. A blocking call first waits for this thread's [current
/// stream](Device::current_stream) of the device, and returns its errors; it does not wait for other streams.
///
/// Two copies at the same time that touch the same bytes, one of them writing, leave those bytes unspecified.
/// They are never undefined behaviour.
///
/// All offsets and lengths are in bytes. A range outside the buffer is an error, even if its end overflows.
/// An empty range is valid anywhere up to the end. Copies and fills must be aligned as the
/// device's [properties](crate::DeviceProperties::copy_alignment) require; whole buffers of any length always
/// are.
///
/// ```
/// use device_registry::device;
///
/// let buffer = device("cpu")?.allocate(4)?;
/// buffer.write(0, b"rust")?;
/// let copy = device("cpu")?.allocate(2)?;
/// copy.copy_from(&buffer.slice(1..3)?)?;
/// let mut bytes = [0; 2];
/// copy.read(0, &mut bytes)?;
/// assert_eq!(&bytes, b"us");
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// # The order of arguments
///
/// The order is wgpu's: a buffer and then its place, the source before the destination, then the host's
/// bytes, and a time limit at the end. A blocking call takes the arguments of the [`Stream`](crate::Stream)
/// call, without the buffer that it is a method of.
///
/// ```
/// # use std::time::Duration;
/// # use device_registry::{HostBuffer, device};
/// # let stream = device("cpu")?.create_stream()?;
/// # let limit = Duration::from_secs(60);
/// # let a = device("cpu")?.allocate(8)?;
/// # let b = device("cpu")?.allocate(8)?;
/// # let mut bytes = *b"ABCD";
/// # let room = HostBuffer::from(vec![0; 4]);
/// stream.write(&a, 4, b"EFGH")?;
/// a.write(0, &bytes)?;
/// a.write_timeout(0, &bytes, limit)?;
///
/// let source = a.slice(4..8)?;
/// let destination = b.slice(2..6)?;
/// stream.copy(&source, &destination)?;
/// destination.copy_from(&source)?;
/// destination.copy_from_timeout(&source, limit)?;
///
/// stream.fill(&b, 0..2, b".")?;
/// b.fill(0..2, b".")?;
///
/// let read = stream.read(&b, 2..6)?;
/// let read_into = stream.read_into(&b, 2, room)?;
/// b.read(2, &mut bytes)?;
/// b.read_timeout(2, &mut bytes, limit)?;
/// # assert_eq!((&*read.wait()?, &*read_into.wait()?, &bytes), (&b"EFGH"[..], &b"EFGH"[..], b"EFGH"));
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Buffer {
    device: &'static OpenDevice,
    allocation: Arc<Allocation>,
    range: Range<usize>,
}

impl Device {
    /// Allocates `len` bytes of memory. Opens the device at the first use.
    ///
    /// The content is unspecified, but initialised. A length of zero is valid, and allocates nothing.
    ///
    /// While a [`StreamGuard`](crate::StreamGuard) chooses a stream of the device on this thread, the memory
    /// is that stream's: see [`Stream::allocate`](crate::Stream::allocate).
    ///
    /// It may block: if the device is full, and queued work is the last user of some memory, the call waits
    /// for that work, unless it is behind a host call or a wait for an event. A failure of the work is not an
    /// error of this call: the stream reports it.
    ///
    /// # Errors
    ///
    /// If the backend does not load, does not have the device or cannot open it, or if there is not enough
    /// memory.
    pub fn allocate(self, len: usize) -> Result<Buffer, DeviceError> {
        let device = table::open(self)?;
        device.check("allocate")?;
        let stream = chosen_stream::for_memory(device, len);
        Buffer::new(device, len, stream.as_ref().and_then(|stream| stream.queue().progress()))
    }

    /// Allocates `len` bytes of host memory that the device reaches faster than other memory of the host
    /// ("pinned"). Opens the device at the first use.
    ///
    /// # Errors
    ///
    /// If the device cannot be opened, or the host does not have enough memory. A device without pinned
    /// memory returns an error of kind [`Unsupported`](crate::BackendErrorKind::Unsupported);
    /// [`HostBuffer::zeroed`] works for every device.
    pub fn allocate_host(self, len: usize) -> Result<HostBuffer, DeviceError> {
        const CALL: &str = "allocate pinned host memory";
        let device = table::open(self)?;
        device.check(CALL)?;
        let fail = |error| DeviceError::Call { device: device.device(), call: CALL, error };
        let limit = isize::MAX as usize;
        match len {
            0 => HostBuffer::zeroed(0).map_err(fail),
            _ if len > limit => Err(fail(BackendError::out_of_memory(len as u64, None))),
            _ => {
                let memory = device.call(CALL, |driver| driver.allocate_host(len))?;
                if memory.len() != len {
                    let is = memory.len();
                    drop_isolated(device.device(), memory);
                    return Err(fail(BackendError::other(format_args!(
                        "the backend returned {is} bytes of host memory: expected {len}"
                    ))));
                }
                Ok(memory.pinned_by(device))
            }
        }
    }
}

impl Buffer {
    /// A buffer of the device `cpu` that has the bytes of `memory`, without a copy: bytes that another
    /// library owns ([`HostMemory::from_raw_parts`]), or the bytes of a [`HostBuffer`] or vector. Opens the
    /// device at the first use.
    ///
    /// Dropping the last handle, or the last queued work that uses the bytes, drops the memory and its owner,
    /// on any thread that may use devices. The bytes are never reused for another allocation. They
    /// count as allocated in [`memory_statistics`](Device::memory_statistics). In a child of a fork the owner
    /// is not dropped.
    ///
    /// ```
    /// use device_registry::{Buffer, Device, HostBuffer};
    ///
    /// let buffer = Buffer::from_host_memory(HostBuffer::from(vec![1, 2, 3]).into())?;
    /// assert_eq!(buffer.device(), Device::cpu());
    /// let mut bytes = [0; 2];
    /// buffer.read(1, &mut bytes)?;
    /// assert_eq!(bytes, [2, 3]);
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// [`Span::on_host`] returns the memory again, which has [the address](HostMemory::as_ptr). It is valid
    /// for as long as the span.
    ///
    /// # Errors
    ///
    /// If the device `cpu` cannot be opened: it is switched off, or this process is a child of the one that
    /// opened it. The memory is dropped.
    pub fn from_host_memory(memory: HostMemory) -> Result<Self, DeviceError> {
        let device = table::open(Device::cpu())?;
        device.check("import host memory")?;
        let len = memory.len();
        let allocation = if len > 0 {
            device.import(memory)
        } else {
            drop_isolated(device.device(), memory);
            Allocation::empty(device)
        };
        Ok(Self { device, allocation: Arc::new(allocation), range: 0..len })
    }

    /// Allocates memory, for a queue of the driver or for any use.
    #[inline]
    pub(crate) fn new(
        device: &'static OpenDevice,
        len: usize,
        queue: Option<&Arc<Progress>>,
    ) -> Result<Self, DeviceError> {
        let allocation = match len {
            0 => Allocation::empty(device),
            _ => match device.allocate(len, queue) {
                Ok(allocation) => allocation,
                Err(error) => {
                    device.record_failure(len, &error);
                    return Err(error);
                }
            },
        };
        Ok(Self { device, allocation: Arc::new(allocation), range: 0..len })
    }

    /// The device, with its index.
    #[must_use]
    pub fn device(&self) -> Device {
        self.open_device().device()
    }

    pub(crate) fn open_device(&self) -> &'static OpenDevice {
        self.device
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The bytes of `range` as its own buffer, which shares the memory and keeps all of it alive.
    ///
    /// ```
    /// use device_registry::device;
    ///
    /// let buffer = device("cpu")?.allocate(8)?;
    /// buffer.fill(0..8, b"-")?;
    /// buffer.slice(2..6)?.write(1, b"ab")?;
    /// let mut bytes = [0; 8];
    /// buffer.read(0, &mut bytes)?;
    /// assert_eq!(&bytes, b"---ab---");
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, DeviceError> {
        let range = self.in_range(BufferRole::Original, self.range_of(range))?;
        Ok(Self { device: self.device, allocation: Arc::clone(&self.allocation), range })
    }

    /// Where the buffer begins in the memory that was allocated: 0, except for a [slice](Self::slice).
    #[must_use]
    pub fn offset(&self) -> usize {
        self.range.start
    }

    /// Whether both buffers share one allocation: clones or slices. Their [offsets](Self::offset) show
    /// whether they overlap.
    #[must_use]
    pub fn shares_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.allocation, &other.allocation)
    }

    /// The backend's own memory and the range in it, for native code that knows the backend; `None` if the
    /// buffer has no bytes.
    ///
    /// Blocks while another stream, for which the memory was [allocated](crate::Stream::allocate), still uses
    /// it. Kernels get spans by [`Stream::launch`](crate::Stream::launch), in the order of the stream.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        // The core does not know how native code uses the memory. If the wait fails, so does every use of the
        // memory.
        let span = self.span_of_launch()?;
        let _ = self.device.wait_for_memory(&span, None, "wait for memory");
        Some(span)
    }

    /// The span for a kernel in a stream, whose use of the memory is in order.
    pub(crate) fn span_of_launch(&self) -> Option<Span> {
        Span::new(&self.allocation, self.range.clone())
    }

    /// Copies `source` from the host to the bytes from `offset` on. Blocks.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`] or [`DeviceError::Misaligned`], before anything is written, or the error
    /// that the backend returns.
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError> {
        let range = offset..offset.saturating_add(source.len());
        let Some(span) = self.checked(BufferRole::Destination, range)? else {
            return Ok(());
        };
        chosen_stream::settle(self.open_device())?;
        self.device.wait_for_memory(&span, None, "write")?;
        let write = || (self.device(), Work::Write { bytes: source.len(), to: place(&span) });
        activity::call(write, || transfer::write(self.device, &span, source))
    }

    /// Copies the bytes from `offset` on to `destination` on the host. Blocks.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`] or [`DeviceError::Misaligned`], before anything is read, or the error that
    /// the backend returns; the bytes of `destination` are then unspecified.
    pub fn read(&self, offset: usize, destination: &mut [u8]) -> Result<(), DeviceError> {
        let range = offset..offset.saturating_add(destination.len());
        let Some(span) = self.checked(BufferRole::Source, range)? else {
            return Ok(());
        };
        chosen_stream::settle(self.open_device())?;
        let read = || (self.device(), Work::Read { bytes: span.len(), from: place(&span) });
        activity::call(read, || transfer::read(self.device, &span, destination))
    }

    /// Copies all bytes of `source`, a buffer of the same length on any device, to this one. Blocks. A
    /// [slice](Self::slice) of either is a part of it.
    ///
    /// Within a device it is one copy, and between two devices of one backend if the backend can copy
    /// directly. Otherwise the bytes go through the host, in pieces.
    ///
    /// # Errors
    ///
    /// [`DeviceError::LengthMismatch`], [`DeviceError::Misaligned`] or [`DeviceError::Overlap`], before
    /// anything is copied, or the error that a backend returns; the bytes written to are then unspecified.
    pub fn copy_from(&self, source: &Buffer) -> Result<(), DeviceError> {
        let Some((from, to)) = checked_copy(source, self)? else {
            return Ok(());
        };
        chosen_stream::settle(source.device)?;
        if !std::ptr::eq(source.device, self.device) {
            chosen_stream::settle(self.device)?;
        }
        self.device.wait_for_memory(&to, None, "copy")?;
        let copy = || transfer::copy(source.device, &from, self.device, &to);
        activity::call(|| (self.device(), copy_work(&from, &to)), copy)
    }

    /// Like [`write`](Self::write), but waits no longer than `timeout`. It copies `source` first, and the
    /// work goes through its own stream, which on a device without queues is a new thread.
    ///
    /// # Errors
    ///
    /// [`DeviceError::TimedOut`] if the current stream or the copy is not done by then. The copy continues:
    /// the bytes of the buffer are unspecified, and the device reports a later failure as it does for a
    /// dropped stream. Otherwise the errors of [`write`](Self::write).
    pub fn write_timeout(&self, offset: usize, source: &[u8], timeout: Duration) -> Result<(), DeviceError> {
        let range = offset..offset.saturating_add(source.len());
        let Some(span) = self.checked(BufferRole::Destination, range)? else {
            return Ok(());
        };
        let deadline = Deadline::new("write", timeout);
        chosen_stream::settle_until(self.device, &deadline)?;
        self.device.wait_for_memory_until(&span, &deadline)?;
        let write = || (self.device(), Work::Write { bytes: source.len(), to: place(&span) });
        activity::call(write, || timed::write(self.device, &span, source, &deadline))
    }

    /// Like [`read`](Self::read), but waits no longer than `timeout`. The work goes through a stream of its
    /// own, which on a device without queues is a new thread.
    ///
    /// # Errors
    ///
    /// [`DeviceError::TimedOut`] if the current stream or the copy is not done by then: `destination` stays
    /// as it was. Otherwise the errors of [`read`](Self::read).
    pub fn read_timeout(
        &self,
        offset: usize,
        destination: &mut [u8],
        timeout: Duration,
    ) -> Result<(), DeviceError> {
        let range = offset..offset.saturating_add(destination.len());
        let Some(span) = self.checked(BufferRole::Source, range)? else {
            return Ok(());
        };
        let deadline = Deadline::new("read", timeout);
        chosen_stream::settle_until(self.device, &deadline)?;
        let read = || (self.device(), Work::Read { bytes: span.len(), from: place(&span) });
        activity::call(read, || timed::read(self.device, &span, destination, &deadline))
    }

    /// Like [`copy_from`](Self::copy_from), but waits no longer than `timeout`. The work goes through a
    /// stream of its own, which on a device without queues is a new thread.
    ///
    /// # Errors
    ///
    /// [`DeviceError::TimedOut`] if a current stream or the copy is not done by then. The copy continues: the
    /// bytes of this buffer are unspecified, and the device reports a later failure as it does for a dropped
    /// stream. Otherwise the errors of [`copy_from`](Self::copy_from).
    pub fn copy_from_timeout(&self, source: &Buffer, timeout: Duration) -> Result<(), DeviceError> {
        let Some((from, to)) = checked_copy(source, self)? else {
            return Ok(());
        };
        let deadline = Deadline::new("copy", timeout);
        chosen_stream::settle_until(source.device, &deadline)?;
        if !std::ptr::eq(source.device, self.device) {
            chosen_stream::settle_until(self.device, &deadline)?;
        }
        self.device.wait_for_memory_until(&to, &deadline)?;
        let work = || (self.device(), copy_work(&from, &to));
        let copy = || timed::copy(source.device, from.clone(), self.device, to.clone(), &deadline);
        activity::call(work, copy)
    }

    /// Fills the bytes of `range` with `pattern`, repeated. The pattern has 1, 2, 4, 8 or 16 bytes. Blocks.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Pattern`] if the pattern has another length or the range does not begin and end at
    /// multiples of it, [`DeviceError::OutOfRange`] or [`DeviceError::Misaligned`], before anything is
    /// written, or the error that the backend returns.
    pub fn fill(&self, range: impl RangeBounds<usize>, pattern: &[u8]) -> Result<(), DeviceError> {
        let Some((destination, pattern)) = checked_fill(self, range, pattern)? else {
            return Ok(());
        };
        chosen_stream::settle(self.open_device())?;
        self.device.wait_for_memory(&destination, None, "fill")?;
        let fill = || transfer::fill(self.device, &destination, &pattern);
        activity::call(|| (self.device(), fill_work(&destination)), fill)
    }

    /// The two ends of a range such as `..` or `2..=3`. An end that overflows lies outside of every buffer.
    pub(crate) fn range_of(&self, range: impl RangeBounds<usize>) -> Range<usize> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len(),
        };
        start..end
    }

    /// The bytes of a range, checked for an operation that has no other range on a device; `None` if there
    /// are none.
    pub(crate) fn checked(&self, role: BufferRole, range: Range<usize>) -> Result<Option<Span>, DeviceError> {
        let range = self.in_range(role, range)?;
        self.aligned(role, &range)?;
        Ok(Span::new(&self.allocation, range))
    }

    /// A range as it lies in the memory.
    ///
    /// An end that was capped at `usize::MAX` is outside: no buffer is longer than `isize::MAX`.
    fn in_range(&self, role: BufferRole, range: Range<usize>) -> Result<Range<usize>, DeviceError> {
        if range.start > range.end || range.end > self.len() {
            let device = self.device();
            let buffer_len = self.len();
            return Err(DeviceError::OutOfRange { role, device, range, buffer_len });
        }
        Ok(self.range.start + range.start..self.range.start + range.end)
    }

    /// Checks what the device requires of a range in the memory: it begins at a multiple of the alignment,
    /// and ends at one or with the memory.
    fn aligned(&self, role: BufferRole, range: &Range<usize>) -> Result<(), DeviceError> {
        let alignment = self.open_device().properties().copy_alignment;
        let to_the_end = range.end == self.allocation.len;
        if range.is_empty()
            || (range.start.is_multiple_of(alignment)
                && (to_the_end || range.len().is_multiple_of(alignment)))
        {
            return Ok(());
        }
        Err(DeviceError::Misaligned { role, device: self.device(), range: range.clone(), alignment })
    }
}

/// Both ends of a copy, checked; `None` if there are no bytes to copy.
pub(crate) fn checked_copy(
    source: &Buffer,
    destination: &Buffer,
) -> Result<Option<(Span, Span)>, DeviceError> {
    let len = source.len();
    if destination.len() != len {
        return Err(DeviceError::LengthMismatch {
            source: source.device(),
            source_len: len,
            destination: destination.device(),
            destination_len: destination.len(),
        });
    }
    source.aligned(BufferRole::Source, &source.range)?;
    destination.aligned(BufferRole::Destination, &destination.range)?;
    let source_offset = source.offset();
    let destination_offset = destination.offset();
    if len > 0 && source.shares_memory(destination) && source_offset.abs_diff(destination_offset) < len {
        return Err(DeviceError::Overlap { source_offset, destination_offset, len });
    }
    Ok(source.span_of_launch().zip(destination.span_of_launch()))
}

/// The bytes of a fill and what they are filled with, checked; `None` if there are none.
pub(crate) fn checked_fill(
    destination: &Buffer,
    range: impl RangeBounds<usize>,
    pattern: &[u8],
) -> Result<Option<(Span, FillPattern)>, DeviceError> {
    let range = destination.range_of(range);
    let given = range.clone();
    let refused = |in_memory| DeviceError::Pattern {
        device: destination.device(),
        pattern_len: pattern.len(),
        range: in_memory,
    };
    let short = FillPattern::new(pattern).ok_or_else(|| refused(given))?;
    let range = destination.in_range(BufferRole::Destination, range)?;
    destination.aligned(BufferRole::Destination, &range)?;
    // Checked with the length that the program gave: whether a fill is valid must not depend on the bytes of
    // the pattern.
    let fits = [range.start, range.len()].iter().all(|place| place.is_multiple_of(pattern.len()));
    if !(range.is_empty() || fits) {
        return Err(refused(range));
    }
    Ok(Span::new(&destination.allocation, range).map(|span| (span, short)))
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("device", &self.device())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::runtime::transfer::CHUNK;
    use crate::testing::{COPIES, PEER_COPIES, device_of, fake};

    fn filled(device: Device, bytes: &[u8]) -> Buffer {
        let buffer = device.allocate(bytes.len()).unwrap();
        buffer.write(0, bytes).unwrap();
        buffer
    }

    fn content(buffer: &Buffer) -> Vec<u8> {
        let mut bytes = vec![0; buffer.len()];
        buffer.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_buffer_reports_a_resolved_device() {
        assert_eq!(fake(None).allocate(1).unwrap().device(), fake(Some(0)));
        assert_eq!(Device::cpu().allocate(1).unwrap().device(), Device::cpu());
    }

    #[test]
    fn ranges_outside_and_sizes_that_overflow_are_errors() {
        let buffer = fake(None).allocate(8).unwrap();
        for (offset, len) in [(0, 9), (8, 1), (9, 0), (usize::MAX, 1), (usize::MAX, 16), (7, 2)] {
            let refused = |result| matches!(result, Err(DeviceError::OutOfRange { buffer_len: 8, .. }));
            assert!(refused(buffer.write(offset, &vec![0; len])), "{offset} {len}");
            assert!(refused(buffer.read(offset, &mut vec![0; len])), "{offset} {len}");
        }
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        for range in [0..9, 8..9, 5..4, 1..usize::MAX] {
            assert!(matches!(buffer.slice(range.clone()), Err(DeviceError::OutOfRange { .. })), "{range:?}");
        }
    }

    #[test]
    fn a_range_outside_is_told_with_the_buffer_that_it_is_outside_of() {
        let small = fake(Some(1)).allocate(8).unwrap();
        let large = Device::cpu().allocate(16).unwrap();
        let error_text = |result: Result<(), DeviceError>| result.unwrap_err().to_string();
        assert_eq!(
            error_text(small.slice(4..12).map(drop)),
            "bytes 4..12 are not inside of the original, a buffer of 8 bytes on `fake:1`"
        );
        assert_eq!(
            error_text(small.read(4, &mut [0; 8])),
            "bytes 4..12 are not inside of the source, a buffer of 8 bytes on `fake:1`"
        );
        assert_eq!(
            error_text(large.write(usize::MAX, b"ab")),
            format!(
                "bytes from {} on, more than can be addressed, are not inside of the destination, a buffer of 16 bytes \
                 on `cpu`",
                usize::MAX
            )
        );
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        let reversed = large.slice(5..2).map(drop);
        assert!(error_text(reversed).starts_with("bytes 5..2, which end before they start, are not"));
    }

    #[test]
    fn a_copy_between_two_lengths_is_an_error_that_says_both() {
        let small = filled(fake(Some(1)), b"........");
        let error = small.copy_from(&filled(Device::cpu(), &[7; 16])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a copy of 16 bytes on `cpu` to 8 bytes on `fake:1`: expected one length; copy a `slice` of the longer \
             buffer"
        );
        assert_eq!(content(&small), b"........");
    }

    #[test]
    fn zero_lengths_work_and_never_reach_the_driver() {
        // Its driver answers every call with a panic.
        let device = device_of("panics_in_allocate");
        let empty = device.allocate(0).unwrap();
        assert!(empty.is_empty() && empty.span().is_none());
        empty.write(0, &[]).unwrap();
        empty.read(0, &mut []).unwrap();
        empty.copy_from(&filled(Device::cpu(), b"x").slice(1..).unwrap()).unwrap();
        let buffer = filled(fake(None), b"x");
        buffer.write(1, &[]).unwrap();
        buffer.slice(1..).unwrap().copy_from(&empty).unwrap();
    }

    #[test]
    fn copies_work_between_all_kinds_of_places() {
        let places = [Device::cpu(), fake(Some(0)), fake(Some(1)), device_of("other")];
        for from in places {
            for to in places {
                let source = filled(from, b"0123456789");
                let destination = filled(to, b"..........");
                destination.slice(1..4).unwrap().copy_from(&source.slice(3..6).unwrap()).unwrap();
                assert_eq!(content(&destination), b".345......", "{from} to {to}");
            }
        }
    }

    #[test]
    fn a_backend_that_can_copy_by_itself_is_asked_to() {
        let first = device_of("copies_by_itself");
        let second = Device::parse("copies_by_itself:1").unwrap();
        let source = filled(first, b"ab");
        filled(first, b"..").copy_from(&source).unwrap();
        let copies = || (COPIES.load(Ordering::SeqCst), PEER_COPIES.load(Ordering::SeqCst));
        assert_eq!(copies(), (1, 0), "within a device");
        let destination = filled(second, b"..");
        destination.copy_from(&source).unwrap();
        assert_eq!(copies(), (1, 1), "between two devices");
        assert_eq!(content(&destination), b"ab");
    }

    #[test]
    fn a_copy_from_a_peer_that_fails_is_not_tried_through_the_host() {
        let source = filled(device_of("peers_fail"), b"ab");
        let destination = filled(Device::parse("peers_fail:1").unwrap(), b"..");
        let error = destination.copy_from(&source).unwrap_err();
        assert_eq!(error.to_string(), "`peers_fail:1`: copy from a peer: the link is down");
        assert_eq!(content(&destination), b"..");
    }

    #[test]
    fn a_copy_through_the_host_may_be_longer_than_one_piece() {
        let bytes: Vec<u8> = (0..CHUNK * 2 + 17).map(|i| (i % 251) as u8).collect();
        let source = filled(Device::cpu(), &bytes);
        let destination = fake(None).allocate(bytes.len()).unwrap();
        destination.copy_from(&source).unwrap();
        assert!(content(&destination) == bytes);
    }

    #[test]
    fn parts_of_one_buffer_can_be_copied_unless_they_overlap() {
        for device in [Device::cpu(), fake(None)] {
            let buffer = filled(device, b"abcdef");
            let part = |range| buffer.slice(range).unwrap();
            part(3..6).copy_from(&part(0..3)).unwrap();
            assert_eq!(content(&buffer), b"abcabc");
            for (source, destination) in [(0..1, 0..1), (0..2, 1..3), (1..6, 0..5)] {
                let result = part(destination).copy_from(&part(source.clone()));
                assert!(matches!(result, Err(DeviceError::Overlap { .. })), "{source:?}");
            }
        }
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn the_memory_of_a_size_that_no_machine_has_is_an_error() {
        for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 4096] {
            let error = Device::cpu().allocate(len).unwrap_err();
            let kind = error.backend_error().unwrap().kind();
            assert!(
                matches!(kind, crate::backend::BackendErrorKind::OutOfMemory { asked, .. } if asked == len as u64),
                "{error}"
            );
        }
    }

    #[test]
    fn a_clone_is_the_same_memory() {
        let buffer = filled(fake(None), b"x");
        buffer.clone().write(0, b"y").unwrap();
        assert_eq!(content(&buffer), b"y");
    }
}
