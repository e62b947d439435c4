//! Host memory as a device's memory. Only [windows](open_windows) access its bytes.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use crate::backend::host_windows::{open_window, open_window_mut};
#[cfg(doc)]
use crate::backend::open_windows;
use crate::backend::range_lock::RangeLock;
use crate::backend::zeroed_bytes::ZeroedBytes;
use crate::backend::{BackendError, HostBuffer, Memory, Window, WindowMut};

/// Host bytes that serve as a device's memory.
///
/// It is for backends that use ordinary memory, and for kernels that run on the host. Only windows
/// access its bytes, and each window locks a range for one operation. So two operations that race for the
/// same bytes leave the result of one of them, and never cause undefined behaviour. The type promises no
/// alignment.
///
/// Windows nest: a thread that has windows open may open more, as a kernel that calls another one does.
/// Opening them does not block, since two threads could then wait for each other; a conflicting window is an
/// error instead. In a program with ordered operations, only the thread's own windows can conflict: it may
/// read the same bytes twice, and may not write to them at the same time. A thread that has windows open must
/// not wait for a thread that opens windows on the same bytes. A window that is forgotten
/// ([`mem::forget`](std::mem::forget)) never closes.
///
/// # Access by pointers
///
/// Other code may have a pointer to the bytes, from their [owner](Self::from_raw_parts) or from
/// [`as_ptr`](Self::as_ptr), for interfaces such as DLPack. Windows do not lock such code out. It must do
/// what windows do, as a data race is undefined behaviour in Rust:
///
/// - While a window to read is open, such code may at most read the same bytes.
/// - While a window to write is open, such code does not use the same bytes.
///
/// Windows are open during each copy, fill and kernel that uses the bytes. So a program waits for its streams
/// before such code uses the bytes, and enqueues work after it. It may also hold its own window, to read
/// or to write, while the code runs.
///
/// ```
/// use device_registry::backend::{HostMemory, open_windows};
///
/// let memory = HostMemory::zeroed(8)?;
/// memory.write(0..4)?.copy_from_slice(b"abcd");
///
/// // Several windows are opened together, even in one memory.
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
    /// Frees the bytes on drop.
    #[expect(dead_code, reason = "it is only ever dropped")]
    owner: Owner,
}

#[expect(dead_code, reason = "it is only ever dropped")]
enum Owner {
    Own(ZeroedBytes),
    Other(Box<dyn Send>),
}

// SAFETY: through this value only windows access the bytes. `RangeLock` ensures that an open window that
// writes overlaps no other open window, on any thread. Other code with a pointer to them keeps clear of open
// windows, as the caller of `from_raw_parts` promised and unsafe code that uses `as_ptr` has to. The owner is
// `Send`, and only the drop accesses it.
unsafe impl Send for HostMemory {}
// SAFETY: through a shared reference only windows access the bytes, and no two open windows overlap where one
// writes. A shared reference does not access the owner.
unsafe impl Sync for HostMemory {}

impl Memory for HostMemory {
    fn on_host(&self) -> Option<&HostMemory> {
        Some(self)
    }
}

impl HostMemory {
    /// Memory of `len` zero bytes. Pages that are never used may take no physical memory.
    ///
    /// # Errors
    ///
    /// [`BackendError::out_of_memory`] if the host refuses that much, where `vec![0; len]` would end the
    /// process.
    pub fn zeroed(len: usize) -> Result<Self, BackendError> {
        let bytes = ZeroedBytes::new(len)?;
        Ok(Self::new(bytes.start(), len, Owner::Own(bytes)))
    }

    /// Memory made of bytes that another allocator owns, such as a part of a mapping or memory that a
    /// vendor's library shares with the host. The drop of the memory drops `owner`, on any thread, and
    /// `owner` frees or releases the bytes.
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// use device_registry::backend::HostMemory;
    ///
    /// let mut bytes = vec![1_u8, 2, 3];
    /// let start = NonNull::new(bytes.as_mut_ptr()).expect("no pointer of a vector is null");
    /// // SAFETY: the vector owns three initialised bytes, and nothing accesses it before its drop.
    /// let memory = unsafe { HostMemory::from_raw_parts(start, 3, bytes) };
    /// assert_eq!(*memory.read(1..3)?, [2, 3]);
    /// # Ok::<(), device_registry::backend::BackendError>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped:
    ///
    /// - the `len` bytes from `start` on are one allocation of at most `isize::MAX` bytes, valid for reads
    ///   and writes;
    /// - they are initialised;
    /// - other code, in this process or out of it, uses them only as [*Access by
    ///   pointers*](Self#access-by-pointers) says. Windows of another `HostMemory` of the same bytes are
    ///   such code, too. (A `Box` of them is not a valid owner: moving it claims exclusive access. A `Vec` is
    ///   valid.)
    #[must_use]
    pub unsafe fn from_raw_parts(start: NonNull<u8>, len: usize, owner: impl Send + 'static) -> Self {
        Self::new(start, len, Owner::Other(Box::new(owner)))
    }

    fn new(start: NonNull<u8>, len: usize, owner: Owner) -> Self {
        Self { start, len, windows: RangeLock::default(), owner }
    }

    /// The address of the first byte, for interfaces that take pointers. It is valid as long as the memory
    /// is. Code that uses the bytes there keeps to [*Access by pointers*](Self#access-by-pointers).
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.start
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

    /// The number of windows that are open or that threads wait for, at the time of the call.
    #[must_use]
    pub fn window_count(&self) -> usize {
        self.windows.count()
    }

    /// Opens a window to read from. Blocks while another window writes there, or an earlier request to write
    /// waits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`open_windows`].
    pub fn read(&self, range: Range<usize>) -> Result<Window<'_>, BackendError> {
        open_window(self, range)
    }

    /// Opens a window to write to. Blocks while another window is open there, or an earlier request waits.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`open_windows`].
    pub fn write(&self, range: Range<usize>) -> Result<WindowMut<'_>, BackendError> {
        open_window_mut(self, range)
    }
}

/// Memory made of a buffer's bytes in place. Only a buffer that other code may read is copied.
impl From<HostBuffer> for HostMemory {
    fn from(mut buffer: HostBuffer) -> Self {
        let start = NonNull::from(&mut *buffer).cast();
        let len = buffer.len();
        // SAFETY: the buffer owns `len` initialised bytes from `start` on, at most `isize::MAX`. They stay in
        // place when it moves, no variant of it claims exclusive access by a move, and after this only its
        // drop accesses them.
        unsafe { Self::from_raw_parts(start, len, buffer) }
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
    fn new_memory_is_zero_and_of_the_requested_length() {
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
        // If the drop leaked, these allocations would exceed the address space.
        (0..66_000).for_each(|_| drop(HostMemory::zeroed(2 << 30).unwrap()));
    }

    #[test]
    fn windows_access_the_bytes_of_an_owner_and_the_drop_frees_them() {
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
        // SAFETY: the vector owns three initialised bytes, and nothing accesses it before the drop of the
        // memory.
        let memory = unsafe { HostMemory::from_raw_parts(start, 3, owner) };
        memory.write(1..2).unwrap().fill(b'X');
        assert_eq!(*memory.read(0..3).unwrap(), *b"aXc");
        assert!(memory.read(0..4).is_err());
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        // A framework may drop its last handle on another thread.
        std::thread::spawn(move || drop(memory)).join().unwrap();
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}
