//! What a backend implements for a device that is open, and the values that the core hands to it.
//!
//! The core has checked all arguments: ranges lie inside their memory, are aligned as the properties require,
//! are not empty, and have matching lengths. Each [`Span`] belongs to this driver's device. An error or a
//! panic in a driver becomes an error of that one call.

use std::any::Any;
use std::sync::Arc;

use crate::backend::{
    AllocateOptions, BackendError, FaultInjector, FillPattern, HostBuffer, HostMemory, MemoryInfo, Span,
    StreamDriver, StreamOptions,
};

/// A device that is open.
///
/// A driver implements [`memory_info`](Self::memory_info), [`allocate`](Self::allocate), and one of two ways
/// to move bytes:
///
/// - *Blocking calls*: [`write`](Self::write), [`read`](Self::read) and [`copy`](Self::copy). The core runs a
///   thread for each stream, which calls them.
/// - *Queues*: [`create_stream`](Self::create_stream). The core builds blocking calls on top of it: it
///   enqueues the work in its own stream and waits. A driver that copies faster when the caller waits
///   implements the blocking calls as well; through a queue, the bytes of a write or a read are copied on the
///   host once more.
///
/// Every other function that does work returns *unsupported* by default, and the core then does the work
/// itself where it can. So a first backend is short, and still offers streams, events, fills and copies
/// between devices.
///
/// Each function blocks until its work is done, and may be called from any thread while others run. The
/// functions know nothing of streams: the core calls them after all earlier work of the stream is done.
///
/// # The contract of memory
///
/// It is written once, here, and holds for all functions of a driver and its streams. The conformance suite
/// tests it on every backend, from the declared properties.
///
/// - *Alignment is declared.* Each range of a copy or a fill begins at a multiple of its device's
///   [`copy_alignment`](crate::DeviceProperties::copy_alignment). Its length is a multiple too, unless it
///   reaches the end of its buffer; the bytes up to the next multiple then belong to no other buffer. So
///   whole buffers of any length can be written, read, filled and copied over each other. A driver that
///   copies whole words rounds its memory up.
/// - *Overlap is the caller's error*: source and destination never overlap. They may be parts of one
///   memory.
/// - *A fill begins and ends at multiples of its pattern*, of 1, 2, 4, 8 or 16 bytes.
/// - *Lengths are never zero*: the core handles those itself.
///
/// [Rules D1 to D6](crate::backend#memory) say what holds for new memory, for addresses, and for the bytes of
/// failed and of concurrent operations.
///
/// # Soundness
///
/// Safe code of any crate, including another backend, must not be able to cause undefined behaviour in a
/// driver's `unsafe` blocks. Such a block may rely on only two things:
///
/// - *The driver has checked it*, or its own types guarantee it.
/// - *The core guarantees it*: the contract of memory above, one length for source and destination, and that
///   what queued work uses stays where it is until the driver itself says that the work is done, or has ended
///   it with its stream (rules D10 and D19 of [the contract](crate::backend#streams)). This holds because
///   only the core calls a driver: it is inside an [`OpenedDevice`](crate::backend::OpenedDevice) from the
///   moment it is opened.
///
/// So the type that implements this trait, or [`StreamDriver`], is private to its crate. Programs and kernels
/// get another type, the [native handle](Self::native), which implements neither, and whose safe functions
/// are always sound to call, even after the device was closed. A value that comes from another
/// crate, such as the length of a slice that it returns, is read once and then compared.
///
/// # Loss
///
/// A driver that finds its device gone, or stuck in an unrecoverable state, returns [`BackendError::lost`]. A
/// driver that finds out while no call runs, or while its calls wait, reports it with a
/// [`LossReporter`](crate::backend::LossReporter). From then on every call of a program returns that error.
/// [Rules D18 and D19](crate::backend#the-end-of-a-device) say what the core calls then, and what it keeps
/// alive.
///
/// # A device that does not answer
///
/// A call into the driver must end, since the core cannot interrupt it. So a driver whose device may fall
/// silent, for example behind a connection, limits its own waits, and then returns a loss. The core can
/// only end its own waits: a program that calls
/// [`Stream::synchronize_timeout`](crate::Stream::synchronize_timeout) or
/// [`Buffer::read_timeout`](crate::Buffer::read_timeout) gets its thread back, and the work stays with the
/// driver. The core makes such calls in a stream, so that they end in time even if the driver's call does
/// not. A driver's queue has to accept work without waiting for it.
///
/// # The end of the process
///
/// A driver that the core has opened is never dropped: at exit, the libraries under it may be gone already. A
/// program whose libraries require it [closes](crate::Device::close) its devices before it exits.
pub trait DeviceDriver: Send + Sync {
    /// The device's handle for programs and kernels: [`Device::with_driver`](crate::Device::with_driver) and
    /// [`Launch::driver_as`](crate::backend::Launch::driver_as) downcast it. By default there is none.
    ///
    /// It has another type of the backend than the one that implements this trait, with the device's native
    /// handles and functions that are sound to call at any time: see [Soundness](Self#soundness).
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// The device's handle of a kind, as a number: a pointer, an address or an ordinal. `None`, the default,
    /// for a kind that the device does not have.
    ///
    /// A *kind* is a string that says what the number is, such as `opencl.cl_context` or `cuda.CUcontext`.
    /// Before the dot it has the name of the interface or of the backend that owns the kind. After the dot it
    /// has the type of the handle, as the owner writes it. The owner documents what a handle of the kind is
    /// and how long it is valid. A backend returns a handle for a kind of another owner only if it means the
    /// same.
    ///
    /// [`native`](Self::native) returns a Rust type, which a program finds only in a backend that is linked
    /// into it. A number crosses any boundary, so kernels that use kinds also work for a backend from a file.
    ///
    /// The handle is borrowed: it is valid while the device is open, and a close or a reset ends it.
    /// Returning one is always safe, since a number does nothing. *Using* one takes unsafe code in the
    /// caller, which relies on what the owner of the kind documents. A backend promises that with
    /// [`OpenedDevice::with_native_handles`](crate::backend::OpenedDevice::with_native_handles), which is
    /// unsafe. The core calls this function only for such a backend.
    ///
    /// Kernels call it at each launch, from any thread and several at once, so it is cheap: it compares
    /// strings, and neither blocks nor allocates.
    fn native_handle(&self, kind: &str) -> Option<u64> {
        let _ = kind;
        None
    }

    /// How much memory there is, and how much of it is free.
    ///
    /// # Errors
    ///
    /// If the query fails. A value that the driver does not know is `None` in [`MemoryInfo`], not an error.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError>;

    /// Allocates memory of `options.len` bytes, which is never zero. Dropping the result frees it.
    ///
    /// The length comes from the user and may be anything up to `isize::MAX`. Where the memory is the host's,
    /// take a [`HostMemory`](crate::backend::HostMemory): `vec![0; len]` ends the process when there is not
    /// enough.
    ///
    /// # Errors
    ///
    /// [`BackendError::out_of_memory`] when there is not enough of it.
    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError>;

    /// Copies from the host to the device. `source` has the length of `destination`.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core use [a
    /// queue](Self::create_stream). Any other error is the outcome; the bytes of `destination` are then
    /// unspecified.
    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let _ = (destination, source);
        Err(BackendError::unsupported("blocking writes"))
    }

    /// Copies from the device to the host. `destination` has the length of `source`.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core use [a
    /// queue](Self::create_stream). Any other error is the outcome; the bytes of `destination` are then
    /// unspecified.
    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let _ = (source, destination);
        Err(BackendError::unsupported("blocking reads"))
    }

    /// Copies within the device. Source and destination have the same length and do not overlap. They may be
    /// parts of one memory, so do not lock it twice. Copies in opposite directions may run at once and must
    /// not deadlock. [`open_windows`](crate::backend::open_windows) handles both.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core use [a
    /// queue](Self::create_stream). Any other error is the outcome; the bytes of `destination` are then
    /// unspecified.
    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let _ = (source, destination);
        Err(BackendError::unsupported("blocking copies"))
    }

    /// Fills with a pattern that is repeated to the end.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, for all fills or for this pattern or range, makes
    /// the core write a part and double it by copies. Any other error is the outcome.
    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let _ = (destination, pattern);
        Err(BackendError::unsupported("filling"))
    }

    /// Copies to this device from another device of the same backend, without passing through the host. Both
    /// have the same length. `source` is memory that the other device's driver allocated.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, makes the core copy through the host instead. Any
    /// other error is the outcome.
    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let _ = (source, destination);
        Err(BackendError::unsupported("copying from a peer"))
    }

    /// Creates a queue on the device. Must not wait for other work.
    ///
    /// # Errors
    ///
    /// With [`BackendError::unsupported`], the default, the core runs each stream on its own thread,
    /// which calls the functions above one after the other. Any other error is the outcome.
    fn create_stream(&self, options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        let _ = options;
        Err(BackendError::unsupported("streams of its own"))
    }

    /// Allocates host memory that the device reaches faster than other memory of the host ("pinned"): `len`
    /// bytes, which is never zero, by [`HostBuffer::from_raw_parts`]. In queued work,
    /// [`HostBuffer::owner_as`] finds its owner again.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, or [`BackendError::out_of_memory`].
    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        let _ = len;
        Err(BackendError::unsupported("pinned host memory"))
    }

    /// Prepares a lost device to be opened again. Afterwards the core makes no new calls to this driver;
    /// calls that already run on other threads may still finish. Called at most once at a time.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`], which is the default, says that only a new process can use the device
    /// again.
    fn reset(&self) -> Result<(), BackendError> {
        Err(BackendError::unsupported("resetting the device; the process has to be started again"))
    }

    /// Releases the device: its context, its threads, its locked memory. Called at most once, when the work
    /// of its streams is done and no call is under way. No function of this driver is called afterwards. A
    /// stream of another device may still copy from its memory.
    ///
    /// Memory, events and streams that a program still holds are dropped later or never, and so is pinned
    /// host memory, whose bytes stay valid until then.
    ///
    /// # Errors
    ///
    /// Any error. The device counts as closed nevertheless.
    fn close(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Fault injection, for tests; `None`, the default, if the driver offers none.
    fn faults(&self) -> Option<&dyn FaultInjector> {
        None
    }
}

/// One allocation on a device. Dropping it frees the memory.
///
/// It is [`Any`], so that a driver, or a framework's kernels for the same backend, can get at the native
/// handle with [`Span::memory_as`]. The core never looks inside. If the backend is in a file, the memory has
/// one of the loader's types, so kernels for such a backend use [`Span::native_handle`].
///
/// The core drops it when neither a program nor queued work uses it any more. It does so on a thread that may
/// use devices, and never within a [host call](crate::Stream::host_call).
///
/// In a child of `fork`, the core forgets the memory of its parent's devices without dropping it, as the
/// driver is unusable there. So it is always dropped in the process that allocated it, unless code outside of
/// the core keeps an `Arc` of it.
pub trait Memory: Any + Send + Sync {
    /// The memory's handle of a [kind](DeviceDriver::native_handle), such as `cuda.CUdeviceptr` or
    /// `opencl.cl_mem`. `None`, the default, for a kind that the memory does not have.
    ///
    /// The handle is of the memory as [`allocate`](DeviceDriver::allocate) returned it. A span begins
    /// [`offset`](Span::offset) bytes into it. The handle is borrowed: it is valid until the memory is
    /// dropped. The other rules are the same as for [`DeviceDriver::native_handle`].
    ///
    /// The core calls this function only for a device whose backend has opened it with
    /// [`OpenedDevice::with_native_handles`](crate::backend::OpenedDevice::with_native_handles). Without that
    /// call, an implementation has no effect: neither the compiler nor a check of the conformance suite finds
    /// this, and a program that requests the handle gets an error.
    fn native_handle(&self, kind: &str) -> Option<u64> {
        let _ = kind;
        None
    }

    /// The host memory that this is, from its first byte on, if code on the host may compute in it as the
    /// device does. `None`, the default, for all other memory, even if the host can map it: then the device's
    /// caches and queues matter.
    ///
    /// Kernels and frameworks that do not know the type reach it through [`Span::on_host`].
    fn on_host(&self) -> Option<&HostMemory> {
        None
    }

    /// The host memory that the bytes are in, for code on the host that computes in the device's place while
    /// the device is idle. `None` if the host can reach the bytes only by copies. The default is
    /// [`on_host`](Self::on_host).
    ///
    /// A device with its own memory returns it where that memory is mapped, such as a simulated device, or
    /// one that shares its memory with the host. Its kernels do not run on the host because of this.
    /// Frameworks reach it through [`Span::mapped`].
    ///
    /// # Errors
    ///
    /// If the memory cannot be accessed now: the device is lost or closed.
    fn mapped(&self) -> Result<Option<&HostMemory>, BackendError> {
        Ok(self.on_host())
    }
}
