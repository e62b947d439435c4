//! Host memory that queued work can own.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use crate::backend::guarded_bytes::{self, GuardedBytes};
use crate::backend::zeroed_bytes::ZeroedBytes;
use crate::backend::{BackendError, Owner};

/// Host bytes that a stream writes from or reads into. Queued work owns them until it is done.
///
/// It dereferences to a slice of bytes. It is made from a `Vec<u8>` without copying, by
/// [`zeroed`](Self::zeroed), which aligns it to 16 bytes, or [pinned](crate::Device::allocate_host) for a
/// device that copies pinned memory faster.
///
/// ```
/// use device_registry::HostBuffer;
///
/// let mut bytes = HostBuffer::zeroed(4)?;
/// bytes[1] = 7;
/// assert_eq!(*bytes, [0, 7, 0, 0]);
/// assert_eq!(HostBuffer::from(vec![1, 2]).into_vec(), [1, 2]);
/// # Ok::<(), device_registry::backend::BackendError>(())
/// ```
pub struct HostBuffer(Bytes);

enum Bytes {
    Zeroed(ZeroedBytes),
    /// Used by the validating layer.
    Guarded(GuardedBytes),
    Vec(Vec<u8>),
    Raw(RawParts),
    /// Other code may read them too.
    Shared(RawParts),
}

/// Bytes that something else owns, such as memory that a driver has pinned.
struct RawParts {
    start: NonNull<u8>,
    len: usize,
    /// `None` during the drop.
    owner: Option<Box<dyn Any + Send + Sync>>,
    /// The device that made it, or that works on it. It drops the owner on a thread that may use the device.
    device: Option<&'static dyn Owner>,
    pinned: bool,
    /// The length of the validating layer's guard behind the bytes.
    guard: u8,
}

// SAFETY: only references to this value reach the bytes, as the caller of `from_raw_parts` promises, or all
// code only reads them, as the caller of `from_shared_parts` promises. The owner is `Send`.
unsafe impl Send for RawParts {}
// SAFETY: a shared reference gives shared access to bytes and to nothing else; the owner is `Sync`.
unsafe impl Sync for RawParts {}

// A panic can leave any values in the bytes, and all are valid. The owner is a driver's, whose calls are
// isolated.
impl std::panic::UnwindSafe for RawParts {}
impl std::panic::RefUnwindSafe for RawParts {}

impl RawParts {
    fn new(start: NonNull<u8>, len: usize, owner: impl Any + Send + Sync) -> Self {
        Self { start, len, owner: Some(Box::new(owner)), device: None, pinned: false, guard: 0 }
    }
}

impl Drop for RawParts {
    fn drop(&mut self) {
        if let (Some(device), Some(owner)) = (self.device, self.owner.take()) {
            device.drop_value(owner);
        }
    }
}

impl HostBuffer {
    /// A buffer of `len` zero bytes, aligned to 16 bytes.
    ///
    /// # Errors
    ///
    /// [`BackendError::out_of_memory`] if the host does not have that many, where `vec![0; len]` would end
    /// the process.
    pub fn zeroed(len: usize) -> Result<Self, BackendError> {
        Ok(Self(Bytes::Zeroed(ZeroedBytes::new(len)?)))
    }

    /// A buffer of bytes that `owner` owns, such as memory that a driver has pinned. Dropping the buffer
    /// drops the owner, which frees them.
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// use device_registry::HostBuffer;
    ///
    /// let mut owner = vec![1, 2, 3];
    /// let start = NonNull::new(owner.as_mut_ptr()).unwrap();
    /// let len = owner.len();
    /// // SAFETY: the vector has three initialised bytes there. They stay in place when the vector moves, and only the
    /// // buffer accesses them.
    /// let buffer = unsafe { HostBuffer::from_raw_parts(start, len, owner) };
    /// assert_eq!(*buffer, [1, 2, 3]);
    /// ```
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped, `len` bytes from `start` on are initialised, may be read and written from
    /// any thread, and are accessed through the result only. Any code that can name the type of `owner` gets
    /// a reference to it from [`owner_as`](Self::owner_as): with that, no safe function writes to them, or
    /// reads them for longer. Moving `owner` must not claim exclusive access to them, as moving a `Box` does.
    /// `len` is at most `isize::MAX`.
    #[must_use]
    pub unsafe fn from_raw_parts(start: NonNull<u8>, len: usize, owner: impl Any + Send + Sync) -> Self {
        Self(Bytes::Raw(RawParts::new(start, len, owner)))
    }

    /// A buffer of bytes that `owner` owns and that other code may read meanwhile, such as a file that is
    /// mapped or an array of another library. A queued write reads them where they are. Before the first
    /// mutable access, such as a queued read into the buffer, the buffer copies them.
    ///
    /// Dropping the buffer, or the queued write that has it, drops the owner.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use std::sync::Arc;
    ///
    /// use device_registry::{Device, HostBuffer};
    ///
    /// let table = Arc::new(vec![1, 2, 3]);
    /// let start = NonNull::from(&table[..]).cast();
    /// let len = table.len();
    /// // SAFETY: the vector has three initialised bytes there. As it is in an `Arc`, nothing writes to them.
    /// let source = unsafe { HostBuffer::from_shared_parts(start, len, Arc::clone(&table)) };
    /// let buffer = Device::cpu().allocate(3)?;
    /// let stream = Device::cpu().create_stream()?;
    /// stream.write(&buffer, 0, source)?;
    /// assert_eq!(*table, [1, 2, 3]);
    /// assert_eq!(*stream.read(&buffer, 0..3)?.wait()?, *table);
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Until `owner` is dropped, `len` bytes from `start` on are initialised, may be read from any thread,
    /// and nothing writes to them. `len` is at most `isize::MAX`.
    #[must_use]
    pub unsafe fn from_shared_parts(start: NonNull<u8>, len: usize, owner: impl Any + Send + Sync) -> Self {
        Self(Bytes::Shared(RawParts::new(start, len, owner)))
    }

    /// The owner that [`from_raw_parts`](Self::from_raw_parts) got, if it is of this type.
    ///
    /// This is how a driver finds the handle of its own pinned memory in a buffer that a program passes to a
    /// queued write or read. The type is private to the driver, so that no other code gets the handle:
    ///
    /// ```
    /// use std::ptr::NonNull;
    ///
    /// use device_registry::HostBuffer;
    ///
    /// struct Pinned {
    ///     bytes: Vec<u8>,
    ///     handle: u64,
    /// }
    ///
    /// let mut pinned = Pinned { bytes: vec![0; 4], handle: 7 };
    /// let start = NonNull::new(pinned.bytes.as_mut_ptr()).unwrap();
    /// // SAFETY: the vector has four initialised bytes there, which stay in place. Only the buffer accesses them.
    /// let buffer = unsafe { HostBuffer::from_raw_parts(start, 4, pinned) };
    /// assert_eq!(buffer.owner_as::<Pinned>().map(|pinned| pinned.handle), Some(7));
    /// assert!(HostBuffer::from(vec![0; 4]).owner_as::<Pinned>().is_none());
    /// ```
    ///
    /// All devices of a backend use one type, so the driver also compares the device. For a backend in a
    /// file, a buffer that comes back from the program has another owner, so a driver must also work without
    /// the handle.
    #[must_use]
    pub fn owner_as<T: Any>(&self) -> Option<&T> {
        match &self.0 {
            Bytes::Raw(raw) => (raw.owner.as_deref()? as &dyn Any).downcast_ref(),
            _ => None,
        }
    }

    /// The owner that [`from_raw_parts`](Self::from_raw_parts) got, or the buffer if its owner is of another
    /// type.
    pub(crate) fn into_owner<T: Any>(self) -> Result<T, Self> {
        match self.0 {
            Bytes::Raw(mut raw) if raw.owner.as_deref().is_some_and(|owner| owner.is::<T>()) => {
                let owner = raw.owner.take().map(|owner| (owner as Box<dyn Any>).downcast());
                Ok(*owner.expect("it was there").expect("it is of this type"))
            }
            bytes => Err(Self(bytes)),
        }
    }

    pub(crate) fn guarded(bytes: GuardedBytes) -> Self {
        Self(Bytes::Guarded(bytes))
    }

    /// The bytes of [`guarded`](Self::guarded), if it made this buffer.
    pub(crate) fn as_guarded(&self) -> Option<&GuardedBytes> {
        match &self.0 {
            Bytes::Guarded(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The first `len` bytes, with a guard in the bytes behind them; `None` for bytes that no driver owns. A
    /// driver may look for its own memory by its first address, so there is no guard before it.
    pub(crate) fn guarded_behind(mut self, len: usize) -> Option<Self> {
        let Bytes::Raw(raw) = &mut self.0 else { return None };
        let guard = u8::try_from(raw.len.checked_sub(len)?).ok()?;
        guarded_bytes::write_guard(&mut self[len..]);
        if let Bytes::Raw(raw) = &mut self.0 {
            (raw.len, raw.guard) = (len, guard);
        }
        Some(self)
    }

    /// The guard of [`guarded_behind`](Self::guarded_behind).
    pub(crate) fn guard(&self) -> &[u8] {
        match &self.0 {
            // SAFETY: the caller of `from_raw_parts` promised that these bytes are initialised, before
            // `guarded_behind` has shortened the buffer. Only this value reaches them, and it is borrowed.
            Bytes::Raw(raw) => unsafe {
                slice::from_raw_parts(raw.start.as_ptr().add(raw.len), raw.guard.into())
            },
            _ => &[],
        }
    }

    /// Marks the memory as pinned by a device.
    pub(crate) fn pinned_by(mut self, device: &'static dyn Owner) -> Self {
        if let Bytes::Raw(raw) = &mut self.0 {
            raw.pinned = true;
        }
        self.used_by(device)
    }

    /// Prepares the memory for work of a stream. A thread of the driver may drop it, and the owner's `drop`
    /// must not run there, as it may call the driver.
    pub(crate) fn used_by(mut self, device: &'static dyn Owner) -> Self {
        if let Bytes::Raw(raw) | Bytes::Shared(raw) = &mut self.0 {
            raw.device.get_or_insert(device);
        }
        self
    }

    /// Whether the memory is pinned, so that the device that made it copies it faster.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        matches!(&self.0, Bytes::Raw(raw) if raw.pinned)
    }

    /// The bytes as a vector. Copies them, unless the buffer was made from a vector.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Bytes::Vec(bytes) => bytes,
            other => Self(other).to_vec(),
        }
    }
}

impl AsRef<[u8]> for HostBuffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for HostBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Zeroed(bytes) => bytes.as_slice(),
            Bytes::Guarded(bytes) => bytes.as_slice(),
            Bytes::Vec(bytes) => bytes,
            // SAFETY: the caller of `from_raw_parts` promises `len` initialised bytes until the owner is
            // dropped. Only this value reaches them, and it is borrowed.
            Bytes::Raw(raw) => unsafe { slice::from_raw_parts(raw.start.as_ptr(), raw.len) },
            // SAFETY: the caller of `from_shared_parts` promises `len` initialised bytes, which nothing
            // changes until the owner is dropped.
            Bytes::Shared(shared) => unsafe { slice::from_raw_parts(shared.start.as_ptr(), shared.len) },
        }
    }
}

impl DerefMut for HostBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        if let Bytes::Shared(_) = self.0 {
            self.0 = Bytes::Vec(self.to_vec());
        }
        match &mut self.0 {
            Bytes::Zeroed(bytes) => bytes.as_mut_slice(),
            Bytes::Guarded(bytes) => bytes.as_mut_slice(),
            Bytes::Vec(bytes) => bytes,
            // SAFETY: the caller of `from_raw_parts` promises `len` initialised bytes until the owner is
            // dropped. Only this value reaches them, and it is borrowed exclusively.
            Bytes::Raw(raw) => unsafe { slice::from_raw_parts_mut(raw.start.as_ptr(), raw.len) },
            Bytes::Shared(_) => unreachable!("they were copied"),
        }
    }
}

impl From<Vec<u8>> for HostBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::Vec(bytes))
    }
}

/// Copies the bytes.
impl From<&[u8]> for HostBuffer {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

/// Copies the bytes.
impl<const N: usize> From<[u8; N]> for HostBuffer {
    fn from(bytes: [u8; N]) -> Self {
        bytes.to_vec().into()
    }
}

/// Copies the bytes.
impl From<&Vec<u8>> for HostBuffer {
    fn from(bytes: &Vec<u8>) -> Self {
        bytes.clone().into()
    }
}

impl From<Box<[u8]>> for HostBuffer {
    fn from(bytes: Box<[u8]>) -> Self {
        bytes.into_vec().into()
    }
}

/// Copies the bytes.
impl<const N: usize> From<&[u8; N]> for HostBuffer {
    fn from(bytes: &[u8; N]) -> Self {
        bytes.to_vec().into()
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBuffer")
            .field("len", &self.len())
            .field("pinned", &self.is_pinned())
            .finish_non_exhaustive()
    }
}
