//! Memory on a device, reference-counted, and the ranges of it that drivers get.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use entry_points::isolate;

use crate::backend::native::{Hint, handle};
use crate::backend::{BackendError, Freed, HostMemory, Memory, Owner, Progress, StreamOrder};

/// A range of bytes in one memory. Only the core constructs one, after it has checked the range: it is not
/// empty, and it lies inside the memory.
///
/// A driver or a kernel may keep a clone while it works on the bytes, which keeps the memory alive. The drop
/// of the last clone frees the memory, on this thread or later on one that may call the driver.
#[derive(Clone)]
pub struct Span {
    allocation: Arc<Allocation>,
    range: Range<usize>,
}

/// A part of memory that a driver has allocated at once, in the core's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Block {
    /// The index of the memory in the list.
    pub(crate) segment: usize,
    pub(crate) start: usize,
    pub(crate) size: usize,
}

/// Memory that a driver has allocated, or a part of it. The drop of the last user frees it.
pub(crate) struct Allocation {
    owner: &'static dyn Owner,
    /// `None` if it has no bytes, as zero lengths never reach a driver, and during the drop.
    memory: Option<Arc<dyn Memory>>,
    pub(crate) len: usize,
    /// Which part of the memory it is, on a device that keeps freed memory; otherwise it is all of it.
    block: Option<Block>,
    /// The stream that orders its uses, if it was allocated for one.
    order: Option<StreamOrder>,
    /// Its number for observers; 0 if there was none when it was allocated.
    number: u64,
}

// A panic can leave any values in the bytes, and all are valid.
impl UnwindSafe for Allocation {}
impl RefUnwindSafe for Allocation {}

impl Allocation {
    /// Owns memory of `len` bytes, or the first `len` bytes of a block of it.
    pub(crate) fn new(
        owner: &'static dyn Owner,
        memory: Arc<dyn Memory>,
        len: usize,
        block: Option<Block>,
        order: Option<StreamOrder>,
        number: u64,
    ) -> Self {
        Self { owner, memory: Some(memory), len, block, order, number }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn owner(&self) -> &'static dyn Owner {
        self.owner
    }

    pub(crate) fn order(&self) -> Option<&StreamOrder> {
        self.order.as_ref()
    }

    /// Has no bytes, and no memory.
    pub(crate) fn empty(owner: &'static dyn Owner) -> Self {
        Self { owner, memory: None, len: 0, block: None, order: None, number: 0 }
    }

    /// Whether the device has declared native handles that are numbers.
    pub(crate) fn has_native_handles(&self) -> bool {
        self.owner.has_native_handles()
    }

    pub(crate) fn is_owned_by(&self, owner: &dyn Owner) -> bool {
        std::ptr::addr_eq(self.owner, owner)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            let len = self.len;
            let block = self.block;
            let order = self.order.take();
            let number = self.number;
            self.owner.free(memory, Freed { len, block, order, number });
        }
    }
}

impl Span {
    /// A range of the allocation, which the caller has checked; `None` if it is empty.
    pub(crate) fn new(allocation: &Arc<Allocation>, range: Range<usize>) -> Option<Self> {
        let start = allocation.block.map_or(0, |block| block.start);
        let range = start + range.start..start + range.end;
        (!range.is_empty()).then(|| Self { allocation: Arc::clone(allocation), range })
    }

    /// A range of an allocation that is all of its memory. The caller has checked the range, which is not
    /// empty.
    #[inline]
    pub(crate) fn of_memory(allocation: Arc<Allocation>, range: Range<usize>) -> Self {
        debug_assert!(allocation.block.is_none() && !range.is_empty() && range.end <= allocation.len);
        Self { allocation, range }
    }

    /// Notes that work of this number uses the bytes, if the memory was allocated for the stream of that
    /// work. Returns whether it was.
    pub(crate) fn used_in(&self, progress: &Arc<Progress>, number: u64, accepted: bool) -> bool {
        let Some(order) = self.allocation.order().filter(|order| order.is_by(progress)) else { return false };
        order.used_by(number);
        if accepted {
            order.used(&self.range);
        }
        true
    }

    /// The stream that has to do earlier work before anything else writes to the bytes, and the number below
    /// which that work is; `None` if the work is done.
    pub(crate) fn waits_for(&self) -> Option<(&StreamOrder, u64)> {
        let order = self.allocation.order()?;
        Some((order, order.waits_for(&self.range)?))
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    /// A part of the span. The range is relative to the span; the caller ensures that it is not empty and
    /// lies inside.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        debug_assert!(!range.is_empty() && range.end <= self.len());
        let start = self.range.start;
        Self { allocation: Arc::clone(&self.allocation), range: start + range.start..start + range.end }
    }

    /// The memory that contains the bytes.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> &dyn Memory {
        self.allocation.memory.as_deref().expect("a span has bytes, and they live as long as it does")
    }

    /// Whether the memory is [`HostMemory`].
    #[inline]
    pub(crate) fn is_host_memory(&self) -> bool {
        let memory: &dyn Any = self.memory();
        memory.is::<HostMemory>()
    }

    /// The memory as the type that the driver has allocated.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if the memory has another type: the span belongs to another backend, or to
    /// one with several types of memory.
    pub fn memory_as<M: Memory>(&self) -> Result<&M, BackendError> {
        let memory: &dyn Any = self.memory();
        memory.downcast_ref().ok_or_else(|| {
            let device = self.allocation.owner.device();
            let name = std::any::type_name::<M>();
            let hint = Hint { device, instead: "Span::native_handle" };
            BackendError::invalid(format_args!(
                "expected memory of type `{name}`, found another type on `{device}`{hint}"
            ))
        })
    }

    /// The memory's handle of a [kind](Memory::native_handle), such as `opencl.cl_mem` or `cuda.CUdeviceptr`.
    /// It works the same for a linked backend and for one from a file.
    ///
    /// It is the handle of the whole memory: the bytes of the span begin [`offset`](Self::offset) bytes into
    /// it, also for a span of a whole buffer. The handle is borrowed: it is valid for as long as the span, or
    /// a clone of it. A kernel need not keep the span, as the core does until the work of the launch is done.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the memory does not have a handle of this kind. The loss of a lost
    /// device, and [`BackendError::invalid`] if the device was closed or this process is a child of the one
    /// that opened it.
    pub fn native_handle(&self, kind: &str) -> Result<u64, BackendError> {
        let owner = self.allocation.owner;
        let mut found = None;
        owner.while_open(&mut || {
            let query = || self.memory().native_handle(kind);
            found = Some(handle(owner, "the memory of ", kind, query));
        })?;
        found.expect("it has run")
    }

    /// The bytes where they are, without a copy, if the memory of the device is the
    /// [host's](Memory::on_host), whatever type the backend gave it: the memory and the range that
    /// [`open_windows`](crate::backend::open_windows) takes. In a [launch](crate::Stream::launch) of a stream
    /// without a queue of its driver, it is the stream's turn; elsewhere the caller waits for work that uses
    /// the bytes.
    ///
    /// ```
    /// use device_registry::backend::open_windows;
    ///
    /// device_registry::autoload!();
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = device_registry::device("cpu")?;
    /// let from = device.allocate(3)?;
    /// let to = device.allocate(3)?;
    /// from.write(0, &[1, 2, 3])?;
    ///
    /// // A framework's own loop, for any device whose memory is the host's.
    /// device.current_stream()?.launch(&[&from, &to], |launch| {
    ///     let [Some(from), Some(to)] = launch.spans() else { return Ok(()) };
    ///     let ([from], [mut to]) = open_windows([from.on_host()?], [to.on_host()?])?;
    ///     to.iter_mut().zip(&*from).for_each(|(to, from)| *to = 2 * from);
    ///     Ok(())
    /// })?;
    ///
    /// let mut doubled = [0; 3];
    /// to.read(0, &mut doubled)?;
    /// assert_eq!(doubled, [2, 4, 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the memory is not the host's: its bytes are copied, by
    /// [`Buffer::read`](crate::Buffer::read). So it is for a backend from a file, whose locks on its memory
    /// are in the file.
    pub fn on_host(&self) -> Result<(&HostMemory, Range<usize>), BackendError> {
        match isolate(|| self.memory().on_host()) {
            Ok(Some(memory)) => Ok((memory, self.range())),
            Ok(None) => Err(BackendError::unsupported(format_args!(
                "the memory of `{}` is not the host's: copy its bytes, by `Buffer::read` or `Stream::read`",
                self.allocation.owner.device()
            ))),
            Err(panic) => Err(BackendError::other(format_args!("the backend panicked: {}", panic.message()))),
        }
    }

    /// The bytes where they are, for code of the host that computes in the device's place: the memory and the
    /// range for [`open_windows`](crate::backend::open_windows). `None` if the host reaches them only by
    /// copies.
    ///
    /// It is wider than [`on_host`](Self::on_host): the memory may be the device's own and be mapped. So all
    /// work of the device on the bytes must be done first, by
    /// [`Stream::synchronize`](crate::Stream::synchronize), and no new work may use them while windows are
    /// open. Work that does so all the same waits for the windows.
    ///
    /// # Errors
    ///
    /// If the device is lost or closed, or the backend panics.
    pub fn mapped(&self) -> Result<Option<(&HostMemory, Range<usize>)>, BackendError> {
        match isolate(|| self.memory().mapped()) {
            Ok(memory) => Ok(memory?.map(|memory| (memory, self.range()))),
            Err(panic) => Err(BackendError::other(format_args!("the backend panicked: {}", panic.message()))),
        }
    }

    /// The range of the bytes in the memory.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The offset of the first byte in the memory. It may be above zero even for a whole buffer, where the
    /// core [divides](crate::backend::MemoryReuse::Divided) memory.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> usize {
        self.range.start
    }

    /// The number of bytes, which is never zero.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    #[inline]
    pub fn len(&self) -> usize {
        self.range.len()
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Span").field("range", &self.range).finish_non_exhaustive()
    }
}
