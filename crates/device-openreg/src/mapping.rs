//! The bytes of a device: one memory object, mapped twice.
//!
//! The *public* range cannot be accessed: its addresses are the device's pointers, and host code that follows
//! one crashes, as with a real accelerator. The *alias* can be read and written, and only windows know where
//! it is.
//!
//! PyTorch's OpenReg opens and closes the pages of the public range around each access. That had a third of
//! the bandwidth, and needed a mapping for each allocation, and a process has at most 65,530 mappings.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use device_registry::backend::{BackendError, HostMemory};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

// `plain.rs`, which takes the place of this module elsewhere, has its own.
pub(crate) use crate::fork::Process;

/// The bytes of a device, which are zero at first. Pages that are never written to take no memory.
pub(crate) struct Mapping {
    public: Map,
    alias: Map,
}

impl Mapping {
    /// # Errors
    ///
    /// If the system refuses the object or a mapping of it, for example for lack of addresses.
    pub(crate) fn new(name: &str, len: usize) -> Result<Self, BackendError> {
        let refused = |what: &str, error: rustix::io::Errno| {
            let message = format!("the system refuses {what} of {len} bytes, to be the memory of `{name}`");
            BackendError::unavailable(message).with_source(error)
        };
        let process = Process::current()?;
        let object = memfd_create(name, MemfdFlags::CLOEXEC)
            .and_then(|object| ftruncate(&object, len as u64).map(|()| object))
            .map_err(|error| refused("a memory object", error))?;
        let map = |access| {
            // SAFETY: the kernel chooses a range where nothing is mapped, so there is no reference into it.
            let start = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &object, 0) };
            let start = start.map_err(|error| refused("a mapping", error))?;
            let map = Map { start: start.cast(), len, process };
            // A child of `fork` that wrote here would write to its parent's device, past the locks. Where the
            // kernel refuses the advice, the checks of the process still keep a child from it.
            let _ = map.advise(0..len, Advice::LinuxDontFork);
            Ok::<_, BackendError>(map)
        };
        let public = map(ProtFlags::empty())?;
        let alias = map(ProtFlags::READ | ProtFlags::WRITE)?;
        // `OpenRegMemory::address` makes a pointer of the number.
        public.start.expose_provenance();
        Ok(Self { public, alias })
    }

    /// The address of the first byte, where the host can neither read nor write.
    pub(crate) fn start(&self) -> usize {
        self.public.start.addr()
    }

    /// The bytes of `range`, which lies inside.
    ///
    /// # Safety
    ///
    /// Until the result is dropped, there is no other one for these bytes, and they are not
    /// [discarded](Self::discard).
    pub(crate) unsafe fn bytes(self: &Arc<Self>, range: Range<usize>) -> Result<HostMemory, BackendError> {
        assert!(range.start <= range.end && range.end <= self.alias.len, "{range:?} is not inside");
        let start = self.alias.start.wrapping_add(range.start);
        let start = NonNull::new(start).expect("nothing is mapped at address 0");
        // SAFETY: the bytes are mapped for reading and writing as long as the owner lives. The kernel has
        // initialised them. Only this type knows the alias, and the caller has no other `HostMemory` for this
        // part of it.
        Ok(unsafe { HostMemory::from_raw_parts(start, range.len(), Arc::clone(self)) })
    }

    /// Returns the pages of `range`, which lies inside, to the system. They are zero afterwards.
    ///
    /// # Safety
    ///
    /// There are no [bytes](Self::bytes) of this range, and the mapping [is of this
    /// process](Self::is_of_this_process).
    pub(crate) unsafe fn discard(&self, range: Range<usize>) {
        // The largest page of Linux.
        const PAGE: usize = 1 << 16;
        let range = range.start.next_multiple_of(PAGE)..range.end / PAGE * PAGE;
        if !range.is_empty() {
            // Where the kernel refuses, the pages stay, and are reused.
            let _ = self.alias.advise(range, Advice::LinuxRemove);
        }
    }

    /// Whether this process made the mapping. A child of `fork` did not, and does not have it. The check
    /// reads one number.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.alias.process.is_current()
    }
}

/// One mapping of the object.
struct Map {
    start: *mut u8,
    len: usize,
    process: Process,
}

// SAFETY: it is an address and a length, which any thread may have; `Mapping::bytes` answers for the
// accesses.
unsafe impl Send for Map {}
// SAFETY: a shared reference gives an address and a length, and nothing is read or written through them here.
unsafe impl Sync for Map {}

impl Map {
    fn at(&self, offset: usize) -> *mut c_void {
        self.start.wrapping_add(offset).cast()
    }

    fn advise(&self, range: Range<usize>, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is of this mapping, and neither advice that this module gives unmaps it.
        // `discard`, whose advice clears the bytes, has a caller that promises that nothing reads them.
        unsafe { madvise(self.at(range.start), range.len(), advice) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // A child of `fork` does not have the mapping, and may have mapped something else there.
        if self.process.is_current() {
            // SAFETY: `mmap` mapped the range, and every `HostMemory` into it keeps the mapping.
            let unmapped = unsafe { munmap(self.at(0), self.len) };
            debug_assert_eq!(unmapped, Ok(()));
        }
    }
}
