//! What serves as the bytes of a device where there is no mapping of them: ordinary memory, allocation by allocation.
//!
//! The public addresses are numbers that no mapping has. On 64-bit systems no system maps anything there, so
//! that whoever follows one on the host dies of it there too; elsewhere, such as on wasm, nobody promises that.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_registry::backend::{BackendError, HostMemory};

/// Addresses that go to no bytes.
pub(crate) struct Mapping {
    start: usize,
}

/// A process. A child of it by `fork` has the memory as well, as a copy, so that there is no need to tell them apart.
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

/// Where the next device's addresses begin. In 64 bits it is bit 55: no system maps anything there unless it is asked
/// to, and all processors look at that bit (at those above, not all do).
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

    /// The address of the first byte, at which nobody can read or write.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The bytes of `range`.
    ///
    /// # Safety
    ///
    /// None is needed here. It is the mapping's, whose place this takes.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn bytes(self: &Arc<Self>, range: Range<usize>) -> Result<HostMemory, BackendError> {
        // The host's memory may run out before the device's does.
        HostMemory::zeroed(range.len())
    }

    /// Does nothing: memory that is dropped goes back at once.
    ///
    /// # Safety
    ///
    /// None is needed here. It is the mapping's, whose place this takes.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn discard(&self, _range: Range<usize>) {}

    /// A child of the process has the bytes too, as a copy.
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
        // SAFETY: none is needed.
        let bytes = unsafe { mappings[0].bytes(10..13) }.unwrap();
        assert_eq!(*bytes.read(0..3).unwrap(), [0; 3]);
    }

    #[test]
    fn when_no_addresses_are_left_it_is_an_error() {
        let error = Mapping::new("openreg:test", usize::MAX).err().unwrap().to_string();
        assert!(error.contains("no addresses are left"), "{error}");
    }
}
