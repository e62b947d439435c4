//! Memory on a device, counted, and the ranges of it that drivers are given.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::backend::{BackendError, Memory, Owner};

/// A range of bytes in one memory. Only the core makes one, and only after checking it: it is not empty, and it
/// lies inside the memory.
///
/// A driver, or a kernel, may keep a clone for as long as it works on the bytes; that keeps the memory alive. Where the
/// last one is dropped, the memory is freed: not on a thread that may not call the driver.
#[derive(Clone)]
pub struct Span {
    allocation: Arc<Allocation>,
    range: Range<usize>,
}

/// What a device's driver has allocated, until its last user is gone.
pub(crate) struct Allocation {
    owner: &'static dyn Owner,
    /// `None` if it has no bytes: zero lengths never reach a driver. And once it is being dropped.
    memory: Option<Arc<dyn Memory>>,
    pub(crate) len: usize,
}

// What a panic leaves in a driver's memory is bytes.
impl UnwindSafe for Allocation {}
impl RefUnwindSafe for Allocation {}

impl Allocation {
    /// Takes what a driver has allocated; `None` if `len` is zero.
    pub(crate) fn new(owner: &'static dyn Owner, memory: Option<Arc<dyn Memory>>, len: usize) -> Self {
        Self { owner, memory, len }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.owner.free(memory, self.len);
        }
    }
}

impl Span {
    /// The bytes of a range that lies inside; `None` if there are none.
    pub(crate) fn new(allocation: &Arc<Allocation>, range: Range<usize>) -> Option<Self> {
        (!range.is_empty()).then(|| Self { allocation: Arc::clone(allocation), range })
    }

    pub(crate) fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    /// A part of it, by places within it. The caller sees to it that it is not empty and lies inside.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        debug_assert!(!range.is_empty() && range.end <= self.len());
        let start = self.range.start;
        Self { allocation: Arc::clone(&self.allocation), range: start + range.start..start + range.end }
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &dyn Memory {
        self.allocation.memory.as_deref().expect("a span has bytes, and they live as long as it does")
    }

    /// The memory as the type that the driver allocated.
    ///
    /// # Errors
    ///
    /// [`BackendError::invalid`] if it is of another type: the span is of another backend, or that backend has several.
    pub fn memory_as<M: Memory>(&self) -> Result<&M, BackendError> {
        let memory: &dyn Any = self.memory();
        memory.downcast_ref().ok_or_else(|| {
            let (device, name) = (self.allocation.owner.device(), std::any::type_name::<M>());
            BackendError::invalid(format_args!("the memory is no `{name}`: it is on `{device}`"))
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
