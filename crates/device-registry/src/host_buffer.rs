//! Host memory that queued work can own.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::block::Block;
use crate::open_device::OpenDevice;
use crate::{BackendError, PinnedMemory};

/// Bytes of the host that a stream writes from or reads into, and owns meanwhile.
///
/// It is a slice of bytes: made from a `Vec<u8>` without copying, zeroed and aligned to 16 bytes by
/// [`zeroed`](Self::zeroed), or [pinned](crate::Device::allocate_host) for a device that copies faster then.
///
/// ```
/// use device_registry::HostBuffer;
///
/// let mut bytes = HostBuffer::zeroed(4)?;
/// bytes[1] = 7;
/// assert_eq!(*bytes, [0, 7, 0, 0]);
/// assert_eq!(HostBuffer::from(vec![1, 2]).into_vec(), [1, 2]);
/// # Ok::<(), device_registry::BackendError>(())
/// ```
pub struct HostBuffer(Bytes);

enum Bytes {
    Block(Block),
    Vec(Vec<u8>),
    Pinned(Pinned),
}

struct Pinned {
    device: &'static OpenDevice,
    /// `None` once it is being dropped.
    memory: Option<Box<dyn PinnedMemory>>,
}

// What a panic leaves in a driver's memory is bytes.
impl UnwindSafe for Pinned {}
impl RefUnwindSafe for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.device.drop_when_allowed(self.memory.take());
    }
}

/// Why the memory of a `Pinned` is there.
const NOT_DROPPED: &str = "only `drop` takes it";

impl HostBuffer {
    /// `len` zero bytes, aligned to 16 bytes.
    ///
    /// # Errors
    ///
    /// [`BackendError::out_of_memory`] if the host has not that many.
    pub fn zeroed(len: usize) -> Result<Self, BackendError> {
        Ok(Self(Bytes::Block(Block::zeroed(len)?)))
    }

    pub(crate) fn pinned(device: &'static OpenDevice, memory: Box<dyn PinnedMemory>) -> Self {
        Self(Bytes::Pinned(Pinned { device, memory: Some(memory) }))
    }

    /// Whether it is pinned, and so reached faster by the device that made it.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        matches!(self.0, Bytes::Pinned(_))
    }

    /// The bytes as a vector. Copies them, unless they were one.
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
            Bytes::Block(bytes) => bytes.as_slice(),
            Bytes::Vec(bytes) => bytes,
            Bytes::Pinned(pinned) => pinned.memory.as_deref().expect(NOT_DROPPED).as_slice(),
        }
    }
}

impl DerefMut for HostBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Bytes::Block(bytes) => bytes.as_mut_slice(),
            Bytes::Vec(bytes) => bytes,
            Bytes::Pinned(pinned) => pinned.memory.as_deref_mut().expect(NOT_DROPPED).as_mut_slice(),
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
