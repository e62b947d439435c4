//! The bytes of a device where it has no mapping: ordinary memory, allocated one by one.
//!
//! The public addresses are numbers outside every mapping. No 64-bit system maps memory there, so a host
//! access crashes too. With 32 bits, such as on wasm, there is no such promise.

use std::ops::Range;
use std::sync::Arc;

use device_registry::backend::{BackendError, HostMemory};
use parking_lot::Mutex;

/// A range of addresses without bytes, which it returns when it is dropped: with 32 bits there are few.
pub(crate) struct Mapping {
    start: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        TAKEN.lock().retain(|range| range.start != self.start);
    }
}

/// A process. It equals its children by `fork`, as they have a copy of the memory.
#[derive(Clone, Copy)]
pub(crate) struct Process;

impl Process {
    pub(crate) fn current() -> Result<Self, BackendError> {
        Ok(Self)
    }

    pub(crate) fn is_current(self) -> bool {
        true
    }
}

/// The addresses of all mappings, in order.
static TAKEN: Mutex<Vec<Range<usize>>> = Mutex::new(Vec::new());

/// Where the addresses begin. With 64 bits it is bit 55: no system maps memory there by default, and every
/// processor checks that bit. Some ignore the bits above.
const FIRST: usize = if usize::BITS == 64 { 1 << (usize::BITS - 9) } else { 1 << 16 };

impl Mapping {
    pub(crate) fn new(name: &str, len: usize) -> Result<Self, BackendError> {
        Self::in_a_gap(len).ok_or_else(|| {
            BackendError::unavailable(format!(
                "no addresses are left for {len} bytes, to be the memory of `{name}`"
            ))
        })
    }

    /// Takes the first gap between other mappings that is large enough.
    fn in_a_gap(len: usize) -> Option<Self> {
        // Two mappings never begin at one address.
        let len = len.max(1);
        let mut taken = TAKEN.lock();
        let mut start = FIRST;
        for (place, range) in taken.iter().enumerate() {
            if range.start - start >= len {
                taken.insert(place, start..start + len);
                return Some(Self { start });
            }
            start = range.end.checked_next_multiple_of(1 << 16)?;
        }
        let end = start.checked_add(len)?;
        taken.push(start..end);
        Some(Self { start })
    }

    /// The address of the first byte, where the host can neither read nor write.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The bytes of `range`.
    ///
    /// # Safety
    ///
    /// It is always sound. It is `unsafe` because `mapping::Mapping` has the same function, and needs it.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn bytes(self: &Arc<Self>, range: Range<usize>) -> Result<HostMemory, BackendError> {
        // The host's memory may run out before the device's does.
        HostMemory::zeroed(range.len())
    }

    /// Does nothing: memory that is dropped goes back at once.
    ///
    /// # Safety
    ///
    /// It is always sound. It is `unsafe` because `mapping::Mapping` has the same function, and needs it.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn discard(&self, _range: Range<usize>) {}

    /// A child of `fork` has the bytes too, as a copy.
    pub(crate) fn is_of_this_process(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;

    #[test]
    fn mappings_have_addresses_of_their_own_and_bytes_that_are_zero() {
        let lens = [1000, 1 << 30, 1];
        let mappings = lens.map(|len| Arc::new(Mapping::new("openreg:test", len).unwrap()));
        for (first, second) in [(0, 1), (1, 2), (0, 2)] {
            let [one, other] = [first, second].map(|index| mappings[index].start());
            assert!(one + lens[first] <= other || other + lens[second] <= one, "{one} and {other}");
        }
        // SAFETY: the function is always sound.
        let bytes = unsafe { mappings[0].bytes(10..13) }.unwrap();
        assert_eq!(*bytes.read(0..3).unwrap(), [0; 3]);
    }

    #[test]
    fn addresses_of_a_dropped_mapping_are_taken_again() {
        let first = Mapping::new("openreg:test", 1 << 29).unwrap();
        let second = Mapping::new("openreg:test", 1 << 29).unwrap();
        assert!(first.start().abs_diff(second.start()) >= 1 << 29);
        drop(first);
        // Eight of them exceed all addresses.
        let len = 1 << (usize::BITS - 3);
        (0..100).for_each(|_| drop(Mapping::new("openreg:test", len).unwrap()));
    }

    #[test]
    fn a_mapping_larger_than_the_addresses_left_is_an_error() {
        let error = Mapping::new("openreg:test", usize::MAX).err().unwrap().to_string();
        assert!(error.contains("no addresses are left"), "{error}");
    }
}
