//! Host memory as a device's memory. Its bytes are reached through [windows](open_windows).

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use crate::backend::range_lock::RangeLock;
use crate::backend::zeroed_bytes::ZeroedBytes;
use crate::backend::{BackendError, Memory, Window, WindowMut, open_windows};

/// Bytes of the host that serve as the memory of a device.
///
/// It is for backends whose memory is ordinary memory, and for kernels that run on the host. Its bytes are reached
/// only through windows, each of which locks a range for the length of one operation. So two operations that race for
/// the same bytes leave either the one's or the other's, and never undefined behaviour. No alignment is promised.
///
/// Windows nest: while a thread has some open it may open more, as a kernel does that calls another one. It does not wait
/// for those, since two threads could then wait for each other: if somebody is in the way it gets an error. In a program
/// whose operations are ordered nobody ever is, but the thread itself, which may read the same bytes twice and not write
/// to them meanwhile. A thread that has windows open may not wait for one that opens windows on the same bytes. A window
/// that is forgotten ([`mem::forget`](std::mem::forget)) is never closed.
///
/// ```
/// use device_registry::backend::{HostMemory, open_windows};
///
/// let memory = HostMemory::zeroed(8)?;
/// memory.write(0..4)?.copy_from_slice(b"abcd");
///
/// // Several windows are opened together, also those of one memory.
/// let ([source], [mut destination]) = open_windows([(&memory, 0..4)], [(&memory, 4..8)])?;
/// destination.copy_from_slice(&source);
/// drop((source, destination));
///
/// assert_eq!(*memory.read(2..6)?, *b"cdab");
/// # Ok::<(), device_registry::backend::BackendError>(())
/// ```
pub struct HostMemory {
    pub(super) start: NonNull<u8>,
    len: usize,
    pub(super) windows: RangeLock,
    /// Frees the bytes when it is dropped.
    #[expect(dead_code, reason = "it is only ever dropped")]
    owner: Owner,
}

#[expect(dead_code, reason = "it is only ever dropped")]
enum Owner {
    Own(ZeroedBytes),
    Other(Box<dyn Send>),
}

// SAFETY: the bytes belong to this value alone, and until it is dropped they are touched through windows only. An open
// window that writes overlaps no other open one, whatever the thread: `RangeLock` sees to that. The owner is
// `Send`, and nothing reaches it but the drop.
unsafe impl Send for HostMemory {}
// SAFETY: through a shared reference the bytes are touched through windows only, of which no two that are open at once
// overlap where one writes; the owner is not reached at all.
unsafe impl Sync for HostMemory {}

impl Memory for HostMemory {}

impl HostMemory {
    /// Memory of `len` bytes, all of them zero. Pages that are never used may take no room.
    ///
    /// # Errors
    ///
    /// [`BackendError::out_of_memory`] if the host refuses that much, where `vec![0; len]` would end the process.
    pub fn zeroed(len: usize) -> Result<Self, BackendError> {
        let bytes = ZeroedBytes::new(len)?;
        Ok(Self::new(bytes.start(), len, Owner::Own(bytes)))
    }

    /// Memory of bytes that somebody else allocated, such as a part of a mapping or what a vendor's library shares
    /// with the host. `owner` is dropped with the memory, on any thread, and frees the bytes or lets go of them.
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// use device_registry::backend::HostMemory;
    ///
    /// let mut bytes = vec![1_u8, 2, 3];
    /// let start = NonNull::new(bytes.as_mut_ptr()).expect("no pointer of a vector is null");
    /// // SAFETY: the vector owns three initialised bytes, and nobody looks into it before it is dropped.
    /// let memory = unsafe { HostMemory::from_raw_parts(start, 3, bytes) };
    /// assert_eq!(*memory.read(1..3)?, [2, 3]);
    /// # Ok::<(), device_registry::backend::BackendError>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped:
    ///
    /// - the `len` bytes from `start` on are one allocation of at most `isize::MAX` bytes, valid for reads and writes;
    /// - they are initialised;
    /// - nothing but the windows of this memory reads or writes them, in this process or out of it. They belong to no
    ///   other `HostMemory`. (A `Box` of them is no owner: moving it claims them for it alone. A `Vec` may be moved.)
    #[must_use]
    pub unsafe fn from_raw_parts(start: NonNull<u8>, len: usize, owner: impl Send + 'static) -> Self {
        Self::new(start, len, Owner::Other(Box::new(owner)))
    }

    fn new(start: NonNull<u8>, len: usize, owner: Owner) -> Self {
        Self { start, len, windows: RangeLock::default(), owner }
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many windows are open or wait to be, at the moment of asking.
    #[must_use]
    pub fn window_count(&self) -> usize {
        self.windows.count()
    }

    /// A window to read from. Blocks while another one writes there, or has been waiting to.
    ///
    /// # Errors
    ///
    /// As [`open_windows`].
    pub fn read(&self, range: Range<usize>) -> Result<Window<'_>, BackendError> {
        open_windows([(self, range)], []).map(|([window], [])| window)
    }

    /// A window to write to. Blocks while another one is open there, or has been waiting to be.
    ///
    /// # Errors
    ///
    /// As [`open_windows`].
    pub fn write(&self, range: Range<usize>) -> Result<WindowMut<'_>, BackendError> {
        open_windows([], [(self, range)]).map(|([], [window])| window)
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::backend::BackendErrorKind;

    #[test]
    fn new_memory_is_zero_and_of_the_length_asked_for() {
        let memory = HostMemory::zeroed(3).unwrap();
        assert_eq!((memory.len(), &*memory.read(0..3).unwrap()), (3, &[0; 3][..]));
        assert!(HostMemory::zeroed(0).unwrap().read(0..0).unwrap().is_empty());
        for len in [usize::MAX, isize::MAX as usize + 1] {
            let error = HostMemory::zeroed(len).unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::OutOfMemory { asked: len as u64, free: None });
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    fn memory_that_is_dropped_is_free() {
        // Together more than can be addressed.
        (0..66_000).for_each(|_| drop(HostMemory::zeroed(2 << 30).unwrap()));
    }

    #[test]
    fn bytes_of_an_owner_are_reached_by_windows_and_freed_with_the_memory() {
        struct Owner(Arc<AtomicUsize>, Vec<u8>);
        impl Drop for Owner {
            fn drop(&mut self) {
                assert_eq!(self.1, b"aXc");
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut owner = Owner(Arc::clone(&dropped), b"abc".to_vec());
        let start = NonNull::new(owner.1.as_mut_ptr()).unwrap();
        // SAFETY: the vector owns three initialised bytes, and is not looked into before the memory is dropped.
        let memory = unsafe { HostMemory::from_raw_parts(start, 3, owner) };
        memory.write(1..2).unwrap().fill(b'X');
        assert_eq!(*memory.read(0..3).unwrap(), *b"aXc");
        assert!(memory.read(0..4).is_err());
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        // On another thread, as a framework's last handle may be.
        std::thread::spawn(move || drop(memory)).join().unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}
