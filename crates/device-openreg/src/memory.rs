//! One allocation, as kernels and frameworks see it.

use std::fmt;
use std::sync::Arc;

use device_registry::backend::testing::FaultCounter;
use device_registry::backend::{BackendError, HostMemory, Memory};

use crate::pool::Region;

/// The memory behind a buffer on a device of `openreg`.
///
/// Its [`address`](Self::address) stands for the pointer of a real device: the host can neither read nor
/// write there. [`Buffer`](device_registry::Buffer) copies its bytes, and kernels reach them through
/// [`bytes`](Self::bytes).
///
/// # A kernel
///
/// A kernel for `openreg` is host code that stands for device code. It finds the memory behind each buffer
/// and opens windows to all bytes that it uses, in one call.
///
/// ```
/// use device_openreg::OpenRegMemory;
/// use device_registry::backend::{BackendError, Span, open_windows};
/// use device_registry::device;
///
/// device_registry::autoload!();
///
/// /// Adds the bytes of `right` to the bytes of `left`, which has the same length.
/// fn add_assign(left: &Span, right: &Span) -> Result<(), BackendError> {
///     let (to, from) = (left.memory_as::<OpenRegMemory>()?, right.memory_as::<OpenRegMemory>()?);
///     let reads = [(from.bytes()?, right.range())];
///     let ([from], [mut to]) = open_windows(reads, [(to.bytes()?, left.range())])?;
///     for (to, from) in to.iter_mut().zip(&*from) {
///         *to = to.wrapping_add(*from);
///     }
///     Ok(())
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let openreg = device("openreg")?;
/// let left = openreg.allocate(2)?;
/// let right = openreg.allocate(2)?;
/// left.write(0, &[1, 255])?;
/// right.write(0, &[3, 3])?;
///
/// openreg.current_stream()?.launch(&[&left, &right], |launch| match launch.spans() {
///     [Some(left), Some(right)] => add_assign(left, right),
///     _ => Ok(()),
/// })?;
///
/// let mut sum = [0; 2];
/// left.read(0, &mut sum)?;
/// assert_eq!(sum, [4, 2]);
/// # Ok(())
/// # }
/// ```
pub struct OpenRegMemory {
    region: Region,
    ordinal: usize,
    faults: Arc<FaultCounter>,
}

/// The kind of [`OpenRegMemory::address`].
const ADDRESS: &str = "openreg.address";

impl Memory for OpenRegMemory {
    fn native_handle(&self, kind: &str) -> Option<u64> {
        (kind == ADDRESS).then(|| self.address().addr() as u64)
    }

    fn mapped(&self) -> Result<Option<&HostMemory>, BackendError> {
        self.bytes().map(Some)
    }
}

impl OpenRegMemory {
    pub(crate) fn new(region: Region, ordinal: usize, faults: Arc<FaultCounter>) -> Self {
        Self { region, ordinal, faults }
    }

    /// The bytes, to be read and written through windows.
    ///
    /// A thread opens all windows of one operation together, by
    /// [`open_windows`](device_registry::backend::open_windows). Windows nest without waiting, see
    /// [`HostMemory`]; bytes that are written to can be in one window only. [`HostMemory::window_count`]
    /// returns how many are open.
    ///
    /// # Errors
    ///
    /// - [`BackendError::lost`] if the device is lost.
    /// - [`BackendError::invalid`] if the device is closed.
    /// - [`BackendError::invalid`] in a child of `fork`, which does not have the memory of its parent's
    ///   devices.
    pub fn bytes(&self) -> Result<&HostMemory, BackendError> {
        // Before the faults: a child of `fork` must not take a lock that a thread of its parent may have
        // held.
        let bytes = self.region.bytes()?;
        self.faults.check()?;
        Ok(bytes)
    }

    /// The ordinal of the device: 1 for `openreg:1`.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The address of the first byte, a multiple of 256. No two allocations share an address, whatever their
    /// devices. The bytes of a [`Span`](device_registry::backend::Span) begin
    /// [`offset`](device_registry::backend::Span::offset) bytes further.
    ///
    /// A program can print it, compare it, compute with it and [locate](crate::locate) it. Host code that
    /// reads or writes there ends the process, by SIGSEGV on Linux.
    ///
    /// It is also the [native handle](device_registry::backend::Span::native_handle) of the kind
    /// `openreg.address`, for programs whose `openreg` is from a file.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.region.address())
    }
}

impl fmt::Debug for OpenRegMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRegMemory")
            .field("ordinal", &self.ordinal)
            .field("address", &self.address())
            .field("len", &self.region.len())
            .finish_non_exhaustive()
    }
}
