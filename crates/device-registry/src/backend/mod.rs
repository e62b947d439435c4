//! The contract: the traits that a backend implements, and the values that this crate passes to it.
//!
//! A backend with blocking calls implements [`Backend`] and [`DeviceDriver`]. A backend whose device has its
//! own queues also implements [`StreamDriver`] and [`EventDriver`]. Its crate registers a
//! [`BackendDescriptor`] in [`BACKENDS`], in an [`entry_points!`] block at its root. Kernels, which know a
//! backend, use [`Launch`], [`Span`] and [`HostMemory`].
//!
//! This crate checks all arguments before it calls a driver. Ranges lie inside their memory, are aligned as
//! the properties require, are not empty and have matching lengths. Every [`Span`] belongs to the device
//! whose driver gets it. A driver need not check again. An error or a panic in it becomes an error of that
//! one call.
//!
//! | what | where |
//! |---|---|
//! | the plugin, and its devices | [`Backend`], [`Presence`], [`DeviceProperties`], [`Api`], [`Attributes`], [`OpenedDevice`], [`DeviceDriver`], [`LossReporter`] |
//! | memory | [`Memory`], [`Span`], [`HostMemory`], [`open_windows`], [`HostBuffer`], [`FillPattern`] |
//! | queues of the device's own | [`StreamDriver`], [`EventDriver`], [`Completion`], [`CompletionWatch`], [`ReadThreads`] |
//! | kernels | [`Launch`], [`NativeDevice`] |
//! | errors | [`BackendError`], [`BackendErrorKind`] |
//! | variables that name files or libraries | [`path_variable`], [`is_elevated`] |
//! | fault injection, for tests | [`FaultInjector`], [`Fault`], [`testing`] |
//! | registration | [`BackendDescriptor`], [`BACKENDS`], [`entry_points!`], [`LoadFailure`] |
//! | options that users set by name | [`BackendDescriptor::with_options`], [`OptionSpec`], [`Options`], [`OptionValue`] |
//!
#![doc = include_str!("rules.md")]

mod attributes;
mod completion;
mod device_values;
mod driver;
// The system says whether the process is elevated.
#[allow(unsafe_code)]
mod elevated;
pub(crate) mod error;
mod event_driver;
mod fault;
mod fill_pattern;
pub(crate) mod guarded_bytes;
// Pinned memory comes from a driver as an address.
#[allow(unsafe_code)]
mod host_buffer;
// Several threads write to disjoint ranges of the same bytes, which references cannot express.
#[allow(unsafe_code)]
mod host_memory;
mod identity;
mod launch;
mod loss_reporter;
mod native;
// Declaring native handles is a promise that unsafe code relies on.
#[allow(unsafe_code)]
mod opened_device;
mod options;
mod owner;
mod presence;
mod properties;
mod range_lock;
mod read_threads;
pub(crate) mod registration;
#[doc(hidden)]
pub mod samples;
mod span;
mod stream_driver;
mod stream_order;
pub mod testing;
mod version;
// A window is a range of host memory.
#[allow(unsafe_code)]
mod host_windows;
// Zeroed memory comes from the allocator, so that a refusal is an error.
#[allow(unsafe_code)]
mod zeroed_bytes;

use std::any::Any;

/// A backend crate writes it as `device_registry::backend::entry_points! { … }`, with [`BACKENDS`] as the
/// group.
#[doc(inline)]
pub use entry_points::entry_points;
pub use entry_points::{LoadFailure, OptionSpec, OptionValue, Options};

pub use crate::backend::attributes::{AttributeValue, Attributes};
pub use crate::backend::completion::{Completion, CompletionWatch};
pub(crate) use crate::backend::completion::{Finish, Watched};
pub(crate) use crate::backend::device_values::DeviceValues;
pub use crate::backend::driver::{DeviceDriver, Memory};
pub use crate::backend::elevated::{ElevatedProcess, is_elevated, path_variable};
pub use crate::backend::error::{BackendError, BackendErrorKind};
pub use crate::backend::event_driver::EventDriver;
pub use crate::backend::fault::{Fault, FaultInjector};
pub use crate::backend::fill_pattern::FillPattern;
pub use crate::backend::host_buffer::HostBuffer;
pub use crate::backend::host_memory::HostMemory;
pub(crate) use crate::backend::host_windows::is_any_window_open;
pub use crate::backend::host_windows::{Window, WindowMut, open_all_windows, open_windows};
pub use crate::backend::identity::{DeviceUuid, IdentityError, PciAddress};
pub use crate::backend::launch::Launch;
pub use crate::backend::loss_reporter::LossReporter;
pub use crate::backend::native::NativeDevice;
pub(crate) use crate::backend::native::downcast;
pub use crate::backend::opened_device::OpenedDevice;
pub(crate) use crate::backend::opened_device::Parts;
pub use crate::backend::options::{AllocateOptions, EventOptions, LaunchOptions, Priority, StreamOptions};
pub(crate) use crate::backend::owner::{Freed, Owner};
pub use crate::backend::presence::Presence;
pub use crate::backend::properties::{DeviceKind, DeviceProperties, MemoryInfo, MemoryReuse};
pub use crate::backend::read_threads::{ReadThread, ReadThreads};
pub use crate::backend::registration::{BACKENDS, BackendDescriptor, backends};
pub use crate::backend::span::Span;
pub(crate) use crate::backend::span::{Allocation, Block};
pub use crate::backend::stream_driver::StreamDriver;
pub(crate) use crate::backend::stream_order::{Progress, StreamOrder};
pub use crate::backend::version::{Api, Version, VersionError};

/// A backend, such as CUDA: it counts its devices, describes them and opens them.
///
/// The `load` function of a [`BackendDescriptor`] makes it when its name is first used. It is loaded once,
/// and lives until the program ends.
///
/// Counting is cheap and opening is costly: `device_count`, `presence` and `properties` must not claim a
/// device, create a context or allocate memory on a device. Every function may be called from any thread, at
/// the same time as the others.
///
/// # What belongs where
///
/// | | where | looked at |
/// |---|---|---|
/// | what does not change once it is there: the driver's library, its version | `load` | until it succeeds:
/// again at a use, after [`LoadFailure::UNAVAILABLE_FOR`], while it returns [`LoadFailure::unavailable`]; any
/// other error is permanent until a retry |
/// | what changes while the program runs: how many devices there are | [`device_count`](Self::device_count) | at each use |
/// | whether a device that is configured is there now, such as a server of a list | [`presence`](Self::presence) | at each use |
/// | what a user sets: addresses, sizes, counts | [`Options`], which `load` gets | at each `load` |
///
/// A backend that counts its devices in `load` finds no device that is plugged in later. One that returns
/// *unavailable* for "no devices at the moment" hides a working driver: its `device_count` returns 0 instead.
/// One that returns it because one of its servers is down hides the others: that device is absent.
///
/// # A complete backend
///
/// A backend needs only the functions without a default. This one is complete:
///
/// ```
/// use std::sync::Arc;
///
/// use device_registry::backend::{
///     AllocateOptions, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceProperties,
///     HostMemory, LoadFailure, Memory, MemoryInfo, OpenedDevice, Span, open_windows,
/// };
/// use device_registry::{backends, device};
///
/// struct Toy;
///
/// impl Backend for Toy {
///     fn device_count(&self) -> Result<usize, BackendError> {
///         Ok(1)
///     }
///
///     fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
///         Ok(DeviceProperties::new("toy"))
///     }
///
///     fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
///         Ok(OpenedDevice::new(self, ToyDevice))
///     }
/// }
///
/// struct ToyDevice;
///
/// impl DeviceDriver for ToyDevice {
///     fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
///         Ok(MemoryInfo::unknown())
///     }
///
///     fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
///         // A backend for hardware returns its own type, with the driver's handle in it.
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
pub trait Backend: Any + Send + Sync {
    /// The number of devices at the moment. Their ordinals are `0..count`. A backend whose library lists its
    /// devices once may keep that number.
    ///
    /// A backend without devices returns `Ok(0)`, which is not an error. The core refuses a count above
    /// 65536, since device strings cannot name more.
    ///
    /// An ordinal names one device for as long as the program runs. So a device that is configured and not
    /// there now is counted, and [`presence`](Self::presence) says that it is absent. The count may grow.
    ///
    /// # Errors
    ///
    /// If the backend cannot count, for example [`BackendError::unavailable`] with the name of a missing
    /// library.
    fn device_count(&self) -> Result<usize, BackendError>;

    /// Whether a device is there now: [`Presence::Present`], or [`Presence::absent`] with the reason. Without
    /// this function each device that is counted is present.
    ///
    /// The core calls it with an ordinal below the count, before it opens the device and for
    /// [`is_available`](crate::is_available), [`first_available`](crate::first_available) and listings. It
    /// does not call it for an open device, which is present until its driver reports a loss. The core does
    /// not cache the result.
    ///
    /// It may look at the device within a limited time, for example by connecting. If that takes long, the
    /// backend caches its result for about a second.
    ///
    /// # Errors
    ///
    /// Any error. The device then cannot be opened.
    fn presence(&self, _ordinal: usize) -> Result<Presence, BackendError> {
        Ok(Presence::Present)
    }

    /// The properties of a device, without opening it: it creates no context and allocates nothing on the
    /// device.
    ///
    /// The core calls it with an ordinal below the count: for listings, for a device string with a selector
    /// (`name@uuid=…`), and when it opens the device. A backend that knows the properties of an absent
    /// device, such as a UUID from its configuration, returns them: then a selector can name that device.
    ///
    /// # Errors
    ///
    /// Any error, such as [`BackendError::unavailable`] for an absent device whose properties are not known.
    /// The device then cannot be opened.
    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError>;

    /// Opens a device. May block until the device is ready.
    ///
    /// The core calls it with an ordinal below the count, and keeps the opened device. It does not call it
    /// again for the same ordinal before the device is closed or reset. It does not keep an error: the next
    /// use tries again.
    ///
    /// The device is one of this backend, made with [`OpenedDevice::new(self, …)`](OpenedDevice::new). The
    /// core refuses one that another backend has opened.
    ///
    /// # Errors
    ///
    /// If the device cannot be opened at the moment.
    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError>;
}
