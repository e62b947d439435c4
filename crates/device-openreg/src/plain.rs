//! The bytes of a device where it has no mapping: ordinary memory, allocated one by one.
//!
//! The public addresses are numbers outside every mapping. No 64-bit system maps memory there, so a host access
//! crashes too. With 32 bits, such as on wasm, there is no such promise.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_registry::backend::{BackendError, HostMemory};

/// A range of addresses without bytes.
pub(crate) struct Mapping {
    start: usize,
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

/// Where the next device's addresses begin. With 64 bits it is bit 55: no system maps memory there by default, and every
/// processor checks that bit. Some ignore the bits above.
static NEXT: AtomicUsize = AtomicUsize::new(if usize::BITS == 64 { 1 << (usize::BITS - 9) } else { 1 << 16 });

impl Mapping {
    pub(crate) fn new(name: &str, len: usize) -> Result<Self, BackendError> {
        let after = |start: usize| start.checked_next_multiple_of(1 << 16)?.checked_add(len);
        match NEXT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after) {
            Ok(start) => Ok(Self { start: start.next_multiple_of(1 << 16) }),
            Err(_) => Err(BackendError::unavailable(format!(
                "no addresses are left for {len} bytes, to be the memory of `{name}`"
            ))),
        }
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
        let mappings = [1000, 1 << 30, 1].map(|len| Arc::new(Mapping::new("openreg:test", len).unwrap()));
        assert!(mappings[1].start() >= mappings[0].start() + 1000);
        assert!(mappings[2].start() >= mappings[1].start() + (1 << 30));
        // SAFETY: the function is always sound.
        let bytes = unsafe { mappings[0].bytes(10..13) }.unwrap();
        assert_eq!(*bytes.read(0..3).unwrap(), [0; 3]);
    }

    #[test]
    fn a_mapping_larger_than_the_addresses_left_is_an_error() {
        let error = Mapping::new("openreg:test", usize::MAX).err().unwrap().to_string();
        assert!(error.contains("no addresses are left"), "{error}");
    }
}
