//! One allocation, as kernels and frameworks see it.

use std::fmt;
use std::sync::Arc;

use device_registry::backend::{BackendError, HostMemory, Memory};

use crate::faults::Faults;
use crate::pool::Block;

/// The memory behind a buffer on a device of `openreg`.
///
/// It has an [`address`](Self::address), as a pointer of a real device is one, at which the host can neither read nor
/// write: it faults. Its bytes are reached by the copies of [`Buffer`](device_registry::Buffer), and by kernels
/// through [`bytes`](Self::bytes).
///
/// # A kernel
///
/// A kernel for `openreg` is code on the host that stands for code on the device. It finds the memory behind a buffer,
/// opens windows to all bytes that it is going to touch, all of them at once, and works on them.
///
/// ```
/// use device_openreg::OpenRegMemory;
/// use device_registry::backend::{BackendError, Span, open_windows};
/// use device_registry::device;
///
/// device_registry::autoload!();
///
/// /// Adds the bytes of `right` to those of `left`, which are as many.
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
/// let (left, right) = (openreg.allocate(2)?, openreg.allocate(2)?);
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
    block: Block,
    ordinal: usize,
    faults: Arc<Faults>,
}

impl Memory for OpenRegMemory {}

impl OpenRegMemory {
    pub(crate) fn new(block: Block, ordinal: usize, faults: Arc<Faults>) -> Self {
        Self { block, ordinal, faults }
    }

    /// The bytes, to be read and written through windows.
    ///
    /// A thread opens all windows of one operation together, by [`open_windows`](device_registry::backend::open_windows). They
    /// nest, without waiting, as [`HostMemory`] says; what is written to can be in one of them only. How many are open is
    /// [`HostMemory::window_count`].
    ///
    /// # Errors
    ///
    /// [`BackendError::lost`] if the device is lost, as what runs on it is lost with it. [`BackendError::invalid`] if it
    /// is closed, and in a child of the process by `fork`: a child does not have the memory of its parent's devices.
    pub fn bytes(&self) -> Result<&HostMemory, BackendError> {
        // First, as a child may not take a lock that a thread of its parent held.
        let bytes = self.block.bytes()?;
        self.faults.check()?;
        Ok(bytes)
    }

    /// The ordinal of the device: 1 for `openreg:1`.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The address of the first byte, a multiple of 256. All memory there is, on all devices, has its own. The bytes
    /// of a [`Span`](device_registry::backend::Span) begin [`offset`](device_registry::backend::Span::offset) bytes further.
    ///
    /// It is a number to be shown, compared, computed with and [found again](crate::locate), as the addresses of a real
    /// device are: what reads or writes there on the host ends the process, by SIGSEGV on Linux.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.block.address())
    }
}

impl fmt::Debug for OpenRegMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRegMemory")
            .field("ordinal", &self.ordinal)
            .field("address", &self.address())
            .field("len", &self.block.len())
            .finish_non_exhaustive()
    }
}
