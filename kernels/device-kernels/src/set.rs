//! Kernel sets: the operators of one backend, and the group that they register in.

use std::fmt;
use std::sync::OnceLock;

use device_registry::Device;
use device_registry::backend::{Backend, BackendError, Launch};
use entry_points::{Entry, EntryPoint, LoadError};

use crate::call::Call;
use crate::coverage::Coverage;

/// The operators of one backend.
///
/// A set says what it can do before it is asked to, as [data](Self::coverage): a call that
/// [`supports`](Self::supports) accepts is launched, with its arguments checked. [`Launch::spans`] has the
/// buffers in the order of [`Call::arrays`]. Each span begins where the buffer of its array begins, at a
/// multiple of an element's size in its memory. Layouts count from there.
///
/// Arrays of one call may be in one memory. An output shares elements with no other array, unless the
/// operator is [element-wise](crate::Operator::is_elementwise) and the input has the same layout.
pub trait KernelSet: Send + Sync {
    /// What the set has kernels for on `device`, as data, from which tables are made. It
    /// [covers](Coverage::covers) each call that the set supports. Devices of one backend may differ, for
    /// example in whether they have `f64`.
    fn coverage(&self, device: Device) -> Vec<Coverage>;

    /// Whether the set has a kernel for `call` on `device`, which is of the set's backend. It does not wait
    /// for work, but may open the device and the set's library at the first call. By default it does where
    /// the [coverage](Self::coverage) says so. A set may support fewer calls, for example because of a limit
    /// of the device that no field of the data is for: see [`Device::properties`] and
    /// [`Device::with_native`].
    ///
    /// A `true` is for the life of the program: threads remember it for calls that are equal. A `false` is
    /// asked for again at the next one, unless another set has a kernel, which is remembered then. Calls of
    /// one [`Expression`](crate::Expression) are equal whatever the values of their scalars are, and so are
    /// the operators that do one in parts.
    fn supports(&self, device: Device, call: &Call) -> bool {
        self.coverage(device).iter().any(|coverage| coverage.covers(call))
    }

    /// Whether the kernel for `call` may run on the thread that enqueues it: it takes no longer than some
    /// tens of microseconds and waits for nothing, nor for another thread, such as one of rayon's. See
    /// [`LaunchOptions::short`](device_registry::LaunchOptions::short); only streams without a queue of their
    /// driver ask. The answer is remembered together with [`supports`](Self::supports)'s.
    ///
    /// A set whose kernels wait for something else, such as a network, says `false` here.
    fn is_short(&self, call: &Call) -> bool {
        call.is_short()
    }

    /// The function that computes this set's calls in bytes of the host, if the memory of its devices is the
    /// host's own, as on `cpu`. A framework whose arrays are on the host then needs neither buffers
    /// nor a stream: see [`Planned::compute_on_host`](crate::Planned::compute_on_host). `None`, the default,
    /// for all others.
    fn on_host(&self) -> Option<ComputeOnHost> {
        None
    }

    /// What traces and counts name a launch of `call`, if that is not the [operator's
    /// name](crate::Operator::name): such as a vendor's library that computes it.
    fn launch_name(&self, _call: &Call) -> Option<&'static str> {
        None
    }

    /// Runs or submits `call`, as [`Stream::launch`](device_registry::Stream::launch) says.
    ///
    /// # Errors
    ///
    /// The error of the stream. The caller adds the call and the name of the set to it.
    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError>;
}

/// Computes a call on the calling thread, and on others that it waits for.
///
/// There are as many inputs as the call has, `None` for a scalar, and as many outputs. The bytes of an array
/// are its [range](Call::byte_ranges).
pub type ComputeOnHost = fn(&Call, &[Option<&[u8]>], &mut [&mut [u8]]) -> Result<(), BackendError>;

/// A kernel set as constant data: the name of its backend, the package that it comes from, and how to load
/// it.
///
/// ```
/// use device_kernels::{Call, Coverage, DType, KERNEL_SETS, KernelSet, KernelSetDescriptor};
/// use device_registry::Device;
/// use device_registry::backend::{BackendError, Launch, LoadFailure};
///
/// device_kernels::entry_points! {
///     /// A better product of matrices for `cpu`. The name continues after two underscores, so that `cpu` may have a set
///     /// besides.
///     #[distributed_slice(KERNEL_SETS)]
///     pub static CPU_FAST: KernelSetDescriptor = KernelSetDescriptor::new("cpu__fast", load);
/// }
///
/// fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
///     Ok(Box::new(Fast))
/// }
///
/// struct Fast;
///
/// impl KernelSet for Fast {
///     fn coverage(&self, _device: Device) -> Vec<Coverage> {
///         vec![Coverage::of("matmul").dtypes([DType::F32])]
///     }
///
///     fn launch(&self, _call: &Call, _launch: &Launch<'_>) -> Result<(), BackendError> {
///         todo!("multiply")
///     }
/// }
/// # fn main() {}
/// ```
pub type KernelSetDescriptor = EntryPoint<dyn KernelSet>;

entry_points::group! {
    /// The distributed slice that kernel sets register in.
    pub static KERNEL_SETS: [KernelSetDescriptor];

    /// The group `device.kernels`: every kernel set of this program. Variables with the prefix
    /// `DEVICE_KERNELS` switch its entries on and off.
    ///
    /// An entry has the name of its backend, such as `opencl`. A backend can have more sets: their names
    /// continue after two underscores, as `opencl__convolutions`. Those are asked first, in the order of
    /// their names.
    pub fn kernel_sets() -> Group<dyn KernelSet> {
        entry_points::Group::new("device.kernels")
            .noun("kernel set")
            .switches("DEVICE_KERNELS")
            .autoload_line("device_registry::autoload!();")
    }
}

/// The kernel sets of one backend that are linked and switched on.
pub struct Kernels {
    sets: Vec<LinkedSet>,
}

/// A loaded kernel set, with its names.
#[derive(Clone, Copy)]
pub struct LinkedSet {
    entry: Entry<dyn KernelSet>,
    set: &'static dyn KernelSet,
}

impl Kernels {
    /// The kernel sets of a device's backend. They are loaded at the first call, and stay.
    ///
    /// # Errors
    ///
    /// If a set is linked and does not load, or if two packages offer one name. No set at all is no error:
    /// nothing is then [supported](Self::find).
    pub fn of(device: Device) -> Result<&'static Self, LoadError> {
        /// The sets of a backend, and of those whose sets were loaded later. The list only grows, so that a
        /// reader takes no lock.
        struct Loaded {
            backend: Entry<dyn Backend>,
            kernels: Kernels,
            next: OnceLock<Box<Self>>,
        }

        static LOADED: OnceLock<Box<Loaded>> = OnceLock::new();

        let backend = device.backend();
        let mut place = &LOADED;
        let mut new = None;
        loop {
            match (place.get(), new.take()) {
                (Some(loaded), _) if loaded.backend == backend => return Ok(&loaded.kernels),
                (Some(loaded), loads) => (place, new) = (&loaded.next, loads),
                // Two threads may both load here; the group lets each set load once. The one that comes
                // second finds the sets of the first.
                (None, None) => {
                    let kernels = Self::load(backend.name())?;
                    new = Some(Box::new(Loaded { backend, kernels, next: OnceLock::new() }));
                }
                (None, Some(loaded)) => new = place.set(loaded).err(),
            }
        }
    }

    fn load(backend: &str) -> Result<Self, LoadError> {
        let of_backend = |entry: &Entry<dyn KernelSet>| {
            let rest = entry.name().strip_prefix(backend);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("__"))
        };
        let mut sets = Vec::new();
        for entry in kernel_sets().iter().filter(of_backend) {
            match entry.load() {
                Ok(set) => sets.push(LinkedSet { entry, set }),
                Err(LoadError::Disabled { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // The shortest name is the backend's, and comes last.
        sets.sort_by_key(|set| (set.entry.name() == backend, set.entry.name()));
        Ok(Self { sets })
    }

    /// The first set with a kernel for `call` on `device`, which is of the backend of [`of`](Self::of).
    #[must_use]
    pub fn find(&self, device: Device, call: &Call) -> Option<LinkedSet> {
        self.sets.iter().find(|linked| linked.set.supports(device, call)).copied()
    }

    /// The sets, in the order in which they are asked.
    #[must_use]
    pub fn sets(&self) -> &[LinkedSet] {
        &self.sets
    }
}

impl LinkedSet {
    /// The set itself.
    #[must_use]
    pub fn set(&self) -> &'static dyn KernelSet {
        self.set
    }

    /// An error of the kernel for `call`, with both.
    pub(crate) fn failed(self, call: &Call, error: BackendError) -> BackendError {
        let message = format_args!("the kernel set {self} failed at {call}");
        BackendError::new(error.kind(), message).with_source(error)
    }
}

/// The name of the set and its package: `opencl (device-opencl-kernels 0.1.0)`.
impl fmt::Display for LinkedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.name())?;
        if let (Some(package), Some(version)) = (self.entry.package(), self.entry.version()) {
            write!(f, " ({package} {version})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for LinkedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkedSet({self})")
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.sets).finish()
    }
}
