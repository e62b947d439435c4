//! What a backend implements: three traits, and the values that the core hands to them.
//!
//! A backend sees arguments that have been checked already: ranges lie inside their memory, lengths are not zero
//! and match, and every [`Span`] belongs to the device that it is given to. It need not check again, and it need
//! not fear for others: an error or a panic in it becomes an error of the one call.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{BackendError, DeviceProperties, MemoryInfo};

/// A kind of device, such as CUDA: it counts its devices and opens them.
///
/// It is made by the `load` function of a [`BackendDescriptor`](crate::BackendDescriptor), once, when its name is
/// first used, and lives until the program ends.
///
/// Counting is cheap and opening is costly: `device_count` must not claim a device, make a context, or take
/// memory on one. Both may be called from any thread, at the same time.
///
/// # A backend
///
/// The parts that have no default are all that a backend needs; this is a whole one.
///
/// ```
/// use std::sync::Arc;
///
/// use device_registry::{
///     AllocateOptions, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties, HostMemory,
///     LoadFailure, Memory, MemoryInfo, Span, backends, device, open_windows,
/// };
///
/// struct Toy;
///
/// impl Backend for Toy {
///     fn device_count(&self) -> Result<usize, BackendError> {
///         Ok(1)
///     }
///
///     fn open(&self, _ordinal: usize) -> Result<Box<dyn DeviceDriver>, BackendError> {
///         Ok(Box::new(ToyDevice))
///     }
/// }
///
/// struct ToyDevice;
///
/// impl DeviceDriver for ToyDevice {
///     fn properties(&self) -> Result<DeviceProperties, BackendError> {
///         Ok(DeviceProperties::new("toy"))
///     }
///
///     fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
///         Ok(MemoryInfo::unknown())
///     }
///
///     fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
///         // Or a type of the backend's own, with the driver's handle in it.
///         Ok(Arc::new(HostMemory::zeroed(options.len)?))
///     }
///
///     fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
///         let memory = destination.memory_as::<HostMemory>()?;
///         memory.write(destination.range())?.copy_from_slice(source);
///         Ok(())
///     }
///
///     fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
///         let memory = source.memory_as::<HostMemory>()?;
///         destination.copy_from_slice(&memory.read(source.range())?);
///         Ok(())
///     }
///
///     fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
///         let (from, to) = (source.memory_as::<HostMemory>()?, destination.memory_as::<HostMemory>()?);
///         let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
///         to.copy_from_slice(&from);
///         Ok(())
///     }
/// }
///
/// fn load() -> Result<Box<dyn Backend>, LoadFailure> {
///     Ok(Box::new(Toy))
/// }
///
/// static TOY: BackendDescriptor = BackendDescriptor::new("toy", load);
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A backend crate has an `entry_points!` block instead.
/// backends().register(&TOY)?;
/// let buffer = device("toy")?.allocate(3)?;
/// buffer.write(0, b"abc")?;
/// let mut bytes = [0; 2];
/// buffer.read(1, &mut bytes)?;
/// assert_eq!(&bytes, b"bc");
/// # Ok(())
/// # }
/// ```
pub trait Backend: Send + Sync {
    /// How many devices there are now. Their ordinals are `0..count`.
    ///
    /// No device is not an error: `Ok(0)`. More than 65536 cannot be named, and are one.
    ///
    /// # Errors
    ///
    /// When the count cannot be known, such as [`BackendError::unavailable`] with what is missing.
    fn device_count(&self) -> Result<usize, BackendError>;

    /// Opens a device. It may block for as long as the device takes.
    ///
    /// The core calls it with an ordinal below the count, keeps what it returns, and does not call it again for
    /// the same ordinal. An error is not kept: the next use tries again.
    ///
    /// # Errors
    ///
    /// When the device cannot be opened now.
    fn open(&self, ordinal: usize) -> Result<Box<dyn DeviceDriver>, BackendError>;
}

/// An open device.
///
/// What it is given has been checked: ranges lie inside their memory and are not empty, lengths match, and every
/// [`Span`] belongs to this device (but for the source of [`copy_from_peer`](Self::copy_from_peer)). It need not
/// check again. An error or a panic becomes an error of the one call.
///
/// Each function blocks until its work is done, and may be called from any thread while others are running.
/// Queues of work that run beside the host will be made here too, by a function that a driver may offer.
pub trait DeviceDriver: Send + Sync {
    /// What the device is. Asked once, after opening it.
    ///
    /// # Errors
    ///
    /// Any; the device then counts as not opened.
    fn properties(&self) -> Result<DeviceProperties, BackendError>;

    /// How much memory there is, and how much of it is free.
    ///
    /// # Errors
    ///
    /// When the device cannot say. What is only unknown is `None` in [`MemoryInfo`].
    fn memory_info(&self) -> Result<MemoryInfo, BackendError>;

    /// Allocates memory of `options.len` bytes, which is never zero. Dropping the result frees it.
    ///
    /// The length comes from the user and may be anything up to `usize::MAX`. Where the memory is the host's, take a
    /// [`HostMemory`](crate::HostMemory): `vec![0; len]` ends the process when there is not enough.
    ///
    /// The bytes hold anything, but nothing that another user of the device wrote in secret: they are initialised.
    ///
    /// # Errors
    ///
    /// [`BackendError::out_of_memory`] when there is not enough of it.
    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError>;

    /// Copies from the host to the device. `source` has the length of `destination`.
    ///
    /// # Errors
    ///
    /// Any; the bytes of `destination` are then unspecified.
    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError>;

    /// Copies from the device to the host. `destination` has the length of `source`.
    ///
    /// # Errors
    ///
    /// Any; the bytes of `destination` are then unspecified.
    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError>;

    /// Copies within the device. Both have one length, and they do not overlap. They may be parts of one memory, which
    /// is not to be locked twice then; and copies in opposite directions may run at the same time, which are not to
    /// wait for each other. [`open_windows`](crate::open_windows) sees to both.
    ///
    /// # Errors
    ///
    /// Any; the bytes of `destination` are then unspecified.
    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError>;

    /// Copies to this device from another device of the same backend, with no way through the host. Both have
    /// one length. `source` is memory that the other device's driver allocated.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core copy through the host instead. Any
    /// other error is the outcome.
    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let _ = (source, destination);
        Err(BackendError::unsupported("copying from a peer"))
    }
}

/// One allocation on a device. Dropping it frees the memory.
///
/// It is [`Any`], so that a driver, or a framework's kernels for the same backend, can get at the native handle
/// with [`Span::memory_as`] or [`Buffer::memory`](crate::Buffer::memory). The core looks at nothing in it.
pub trait Memory: Any + Send + Sync {}

/// What memory is asked for. Alignment and the like will be added.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AllocateOptions {
    /// The length in bytes, at least 1.
    pub len: usize,
}

impl AllocateOptions {
    /// Memory of `len` bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { len }
    }
}

/// A range of bytes in one memory. Only the core makes one, and only after checking it: it is not empty, and it
/// lies inside the memory.
///
/// A driver may keep a clone for as long as it works on the bytes; that keeps the memory alive.
#[derive(Clone)]
pub struct Span {
    memory: Arc<dyn Memory>,
    range: Range<usize>,
}

impl Span {
    pub(crate) fn new(memory: Arc<dyn Memory>, range: Range<usize>) -> Self {
        Self { memory, range }
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// The memory as the type that the driver allocated.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if it is of another type, which means that the backend has several.
    pub fn memory_as<M: Memory>(&self) -> Result<&M, BackendError> {
        let memory: &dyn Any = &*self.memory;
        memory.downcast_ref().ok_or_else(|| {
            BackendError::invalid(format!("the memory is no `{}`", std::any::type_name::<M>()))
        })
    }

    /// Where the bytes lie in the memory.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The first byte's place in the memory.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.range.start
    }

    /// How many bytes there are; never zero.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.range.len()
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span").field("range", &self.range).finish_non_exhaustive()
    }
}
