//! Memory on a device, with every check made once.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::open::{self, OpenDevice};
use crate::{
    AllocateOptions, BackendError, BackendErrorKind, Device, DeviceDriver, DeviceError, Memory, Span,
};

/// Bytes on their way through the host are copied in pieces of this size.
const CHUNK: usize = 1 << 20;

/// What a buffer is in a copy, as errors say it.
const SOURCE: &str = "source";
const DESTINATION: &str = "destination";

/// Memory on a device: a handle that is cheap to clone, and whose last clone frees it.
///
/// It is written and read by copies that block until they are done; they may be called from any thread. Two
/// copies at the same time that touch the same bytes, one of them writing, leave those bytes unspecified, and are
/// never undefined behaviour.
///
/// All offsets and lengths are in bytes. A range that lies outside is an error, and so is one whose end
/// overflows; an empty one is fine everywhere up to the end.
///
/// ```
/// use device_registry::device;
///
/// let buffer = device("cpu")?.allocate(4)?;
/// buffer.write(0, b"rust")?;
/// let copy = device("cpu")?.allocate(2)?;
/// copy.copy_from(0, &buffer, 1..3)?;
/// let mut bytes = [0; 2];
/// copy.read(0, &mut bytes)?;
/// assert_eq!(&bytes, b"us");
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Buffer(Arc<Allocation>);

struct Allocation {
    device: &'static OpenDevice,
    /// `None` if it has no bytes: zero lengths never reach a driver.
    memory: Option<Arc<dyn Memory>>,
    len: usize,
}

impl Device {
    /// Allocates `len` bytes of memory. Opens the device at the first use.
    ///
    /// The bytes hold anything, but are initialised. A length of zero is fine and allocates nothing.
    ///
    /// # Errors
    ///
    /// If the backend does not load, has no such device or cannot open it, or if there is not enough memory.
    pub fn allocate(self, len: usize) -> Result<Buffer, DeviceError> {
        let device = open::device(self)?;
        let allocate = |driver: &dyn DeviceDriver| {
            // As for every allocation in Rust; so an offset and a length can be added without a second thought.
            if len > isize::MAX as usize {
                return Err(BackendError::out_of_memory(len as u64, None));
            }
            driver.allocate(&AllocateOptions::new(len))
        };
        let memory = match len {
            0 => None,
            _ => Some(device.call("allocate", allocate)?),
        };
        Ok(Buffer(Arc::new(Allocation { device, memory, len })))
    }
}

impl Buffer {
    /// The device, with its index.
    #[must_use]
    pub fn device(&self) -> Device {
        self.0.device.device()
    }

    /// The length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The backend's own memory behind it, for kernels that know that backend; `None` if it has no bytes.
    #[must_use]
    pub fn memory(&self) -> Option<&Arc<dyn Memory>> {
        self.0.memory.as_ref()
    }

    /// Copies `source` from the host to the bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`], before anything is written, or what the backend reports.
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<(), DeviceError> {
        let Some(span) = self.span(DESTINATION, offset..offset.saturating_add(source.len()))? else {
            return Ok(());
        };
        self.0.device.call("write", |driver| driver.write(&span, source))
    }

    /// Copies the bytes from `offset` on to `destination` on the host.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`], before anything is read, or what the backend reports; `destination` then holds
    /// anything.
    pub fn read(&self, offset: usize, destination: &mut [u8]) -> Result<(), DeviceError> {
        let Some(span) = self.span(SOURCE, offset..offset.saturating_add(destination.len()))? else {
            return Ok(());
        };
        self.0.device.call("read", |driver| driver.read(&span, destination))
    }

    /// Copies the bytes of `range` in `source`, a buffer on any device, to the bytes from `offset` on.
    ///
    /// Within a device, and between two of a backend that can do so, it is one copy. Otherwise the bytes go through
    /// the host, in pieces.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfRange`] or [`DeviceError::Overlap`], before anything is copied, or what a backend
    /// reports; the bytes written to are then unspecified.
    pub fn copy_from(&self, offset: usize, source: &Buffer, range: Range<usize>) -> Result<(), DeviceError> {
        let len = range.len();
        let from = source.span(SOURCE, range.clone())?;
        let to = self.span(DESTINATION, offset..offset.saturating_add(len))?;
        let (Some(from), Some(to)) = (from, to) else {
            return Ok(());
        };
        if Arc::ptr_eq(from.memory(), to.memory()) && from.offset().abs_diff(to.offset()) < len {
            return Err(DeviceError::Overlap { source_offset: range.start, destination_offset: offset, len });
        }
        let (source_device, device) = (source.0.device, self.0.device);
        if std::ptr::eq(source_device, device) {
            return device.call("copy", |driver| driver.copy(&from, &to));
        }
        if source.device().backend() == self.device().backend() {
            match device.call("copy from a peer", |driver| driver.copy_from_peer(&from, &to)) {
                Err(DeviceError::Call { error, .. }) if error.kind() == BackendErrorKind::Unsupported => {}
                outcome => return outcome,
            }
        }
        self.copy_through_host(offset, source, range)
    }

    fn copy_through_host(
        &self,
        offset: usize,
        source: &Buffer,
        range: Range<usize>,
    ) -> Result<(), DeviceError> {
        let mut chunk = vec![0; range.len().min(CHUNK)];
        let mut done = 0;
        while done < range.len() {
            let bytes = range.len() - done;
            let piece = &mut chunk[..bytes.min(CHUNK)];
            source.read(range.start + done, piece)?;
            self.write(offset + done, piece)?;
            done += piece.len();
        }
        Ok(())
    }

    /// The bytes of a range, checked; `None` if there are none. The only place where a [`Span`] is made.
    ///
    /// An end that was cut at `usize::MAX` is outside: no buffer is longer than `isize::MAX`.
    fn span(&self, role: &'static str, range: Range<usize>) -> Result<Option<Span>, DeviceError> {
        if range.start > range.end || range.end > self.len() {
            let (device, buffer_len) = (self.device(), self.len());
            return Err(DeviceError::OutOfRange { role, device, range, buffer_len });
        }
        let memory = self.memory().filter(|_| !range.is_empty());
        Ok(memory.map(|memory| Span::new(Arc::clone(memory), range)))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("device", &self.device())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        open::drop_isolated(self.device.device(), self.memory.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
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
        let other = fake(None).allocate(8).unwrap();
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        for range in [0..9, 8..9, 5..4, 1..usize::MAX] {
            assert!(
                matches!(other.copy_from(0, &buffer, range.clone()), Err(DeviceError::OutOfRange { .. })),
                "{range:?}"
            );
        }
        assert!(matches!(other.copy_from(1, &buffer, 0..8), Err(DeviceError::OutOfRange { .. })));
    }

    #[test]
    fn a_range_outside_is_told_with_the_buffer_that_it_is_outside_of() {
        let (small, large) = (fake(Some(1)).allocate(8).unwrap(), Device::cpu().allocate(16).unwrap());
        let told = |result: Result<(), DeviceError>| result.unwrap_err().to_string();
        assert_eq!(
            told(large.copy_from(0, &small, 4..12)),
            "bytes 4..12 are not inside of the source, a buffer of 8 bytes on `fake:1`"
        );
        assert_eq!(
            told(small.copy_from(4, &large, 0..8)),
            "bytes 4..12 are not inside of the destination, a buffer of 8 bytes on `fake:1`"
        );
        assert_eq!(
            told(large.write(usize::MAX, b"ab")),
            "bytes from 18446744073709551615 on, more than can be addressed, are not inside of the destination, a \
             buffer of 16 bytes on `cpu`"
        );
        #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        let reversed = large.copy_from(0, &small, 5..2);
        assert!(told(reversed).starts_with("bytes 5..2, which end before they start, are not"));
    }

    #[test]
    fn zero_lengths_work_and_never_reach_the_driver() {
        // Its driver answers every call with a panic.
        let device = device_of("panics_in_allocate");
        let empty = device.allocate(0).unwrap();
        assert!(empty.is_empty() && empty.memory().is_none());
        empty.write(0, &[]).unwrap();
        empty.read(0, &mut []).unwrap();
        empty.copy_from(0, &filled(Device::cpu(), b"x"), 1..1).unwrap();
        let buffer = filled(fake(None), b"x");
        buffer.write(1, &[]).unwrap();
        buffer.copy_from(1, &empty, 0..0).unwrap();
    }

    #[test]
    fn copies_work_between_all_kinds_of_places() {
        let places = [Device::cpu(), fake(Some(0)), fake(Some(1)), device_of("other")];
        for from in places {
            for to in places {
                let source = filled(from, b"0123456789");
                let destination = filled(to, b"..........");
                destination.copy_from(1, &source, 3..6).unwrap();
                assert_eq!(content(&destination), b".345......", "{from} to {to}");
            }
        }
    }

    #[test]
    fn a_backend_that_can_copy_by_itself_is_asked_to() {
        let first = device_of("copies_by_itself");
        let second = Device::parse("copies_by_itself:1").unwrap();
        let source = filled(first, b"ab");
        filled(first, b"..").copy_from(0, &source, 0..2).unwrap();
        let copies = || (COPIES.load(Ordering::SeqCst), PEER_COPIES.load(Ordering::SeqCst));
        assert_eq!(copies(), (1, 0), "within a device");
        let destination = filled(second, b"..");
        destination.copy_from(0, &source, 0..2).unwrap();
        assert_eq!(copies(), (1, 1), "between two devices");
        assert_eq!(content(&destination), b"ab");
    }

    #[test]
    fn a_copy_from_a_peer_that_fails_is_not_tried_through_the_host() {
        let source = filled(device_of("peers_fail"), b"ab");
        let destination = filled(Device::parse("peers_fail:1").unwrap(), b"..");
        let error = destination.copy_from(0, &source, 0..2).unwrap_err();
        assert_eq!(error.to_string(), "`peers_fail:1`: copy from a peer: device lost: the link is down");
        assert_eq!(content(&destination), b"..");
    }

    #[test]
    fn a_copy_through_the_host_may_be_longer_than_one_piece() {
        let bytes: Vec<u8> = (0..CHUNK * 2 + 17).map(|i| (i % 251) as u8).collect();
        let source = filled(Device::cpu(), &bytes);
        let destination = fake(None).allocate(bytes.len()).unwrap();
        destination.copy_from(0, &source, 0..bytes.len()).unwrap();
        assert!(content(&destination) == bytes);
    }

    #[test]
    fn parts_of_one_buffer_can_be_copied_unless_they_overlap() {
        for device in [Device::cpu(), fake(None)] {
            let buffer = filled(device, b"abcdef");
            buffer.copy_from(3, &buffer.clone(), 0..3).unwrap();
            assert_eq!(content(&buffer), b"abcabc");
            for (offset, range) in [(0, 0..1), (1, 0..2), (0, 1..6)] {
                let result = buffer.copy_from(offset, &buffer, range);
                assert!(matches!(result, Err(DeviceError::Overlap { .. })), "{offset}");
            }
        }
    }

    #[test]
    fn the_memory_of_a_size_that_no_machine_has_is_an_error() {
        for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 4096] {
            let error = Device::cpu().allocate(len).unwrap_err();
            let kind = error.backend_error().unwrap().kind();
            assert!(
                matches!(kind, BackendErrorKind::OutOfMemory { asked, .. } if asked == len as u64),
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
