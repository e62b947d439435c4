//! Zeroed bytes from the allocator. Too few of them are an error, and do not end the process.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::num::NonZero;
use std::ptr::NonNull;

use crate::backend::BackendError;

/// The alignment of every block, enough for any number. With a larger one, std's allocator on unix writes the
/// zeros itself, which takes pages that may never be used.
const ALIGNMENT: NonZero<usize> = NonZero::new(16).expect("it is not zero");

/// A block of zeroed bytes of the host. It owns them.
///
/// `Vec::try_reserve` would leave the zeros to be written, which takes pages that may never be used and,
/// where memory is overcommitted, may end the process.
pub(crate) struct ZeroedBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its bytes, and gives access to them by the rules of references.
unsafe impl Send for ZeroedBytes {}
// SAFETY: a shared reference gives shared access to the bytes, and nothing else.
unsafe impl Sync for ZeroedBytes {}

impl ZeroedBytes {
    pub(crate) fn new(len: usize) -> Result<Self, BackendError> {
        let start = match layout(len) {
            // An empty block takes no memory: any aligned address is valid.
            Some(layout) if layout.size() == 0 => Some(NonNull::without_provenance(ALIGNMENT)),
            // SAFETY: the layout's size is not zero.
            Some(layout) => NonNull::new(unsafe { alloc_zeroed(layout) }),
            None => None,
        };
        let start = start.ok_or_else(|| BackendError::out_of_memory(len as u64, None))?;
        Ok(Self { start, len })
    }

    /// The address of the bytes, for an owner that accesses them by pointer and never by references to this
    /// value.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the bytes are initialised, belong to this value and are borrowed with it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are initialised, belong to this value and are borrowed with it, exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// The layout of a block; `None` if no machine can address that many bytes.
fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len, ALIGNMENT.get()).ok()
}

impl Drop for ZeroedBytes {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.len).filter(|layout| layout.size() > 0) {
            // SAFETY: `new` allocated the bytes with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::BackendErrorKind;

    #[test]
    fn a_block_is_zero_aligned_and_of_the_requested_length() {
        for len in [0, 1, 63, 4097] {
            let mut block = ZeroedBytes::new(len).unwrap();
            assert_eq!(block.as_slice(), vec![0; len]);
            assert_eq!(block.as_slice().as_ptr().addr() % ALIGNMENT.get(), 0);
            block.as_mut_slice().fill(7);
            assert_eq!(block.as_slice(), vec![7; len]);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends where the allocator says no")]
    fn more_than_can_be_addressed_is_out_of_memory() {
        // A process of 32 bits may well have half of its addresses.
        let half: &[_] = if cfg!(target_pointer_width = "64") { &[isize::MAX as usize - 4096] } else { &[] };
        for &len in [usize::MAX, isize::MAX as usize].iter().chain(half) {
            let error = ZeroedBytes::new(len).err().unwrap();
            assert_eq!(error.kind(), BackendErrorKind::OutOfMemory { asked: len as u64, free: None });
        }
    }
}
