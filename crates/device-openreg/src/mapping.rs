//! The bytes of a device: one memory object, mapped twice.
//!
//! The *public* range has no access at all: its addresses are what the device's pointers are, and whoever follows one
//! on the host dies of it, as with a real accelerator. The *alias* can be read and written, and only windows know
//! where it is. Opening and closing the pages of the public range around each access, as PyTorch's OpenReg does, was
//! measured at a third of the bandwidth, and each allocation took a mapping of its own, of which a process has 65,530.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use device_registry::backend::{BackendError, HostMemory};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

pub(crate) use crate::fork::Process;

/// Bytes of a device, all of them zero at first. Pages that are never used take no room.
pub(crate) struct Mapping {
    public: Map,
    alias: Map,
}

impl Mapping {
    /// # Errors
    ///
    /// If the system refuses the object or a mapping of it, such as for lack of addresses.
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
            // SAFETY: the kernel chooses a place where nothing is mapped, and nobody has a reference into it yet.
            let start = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, &object, 0) };
            let start = start.map_err(|error| refused("a mapping", error))?;
            let map = Map { start: start.cast(), len, process };
            // A child that wrote here would write to its parent's device, past the locks. Where the advice is refused,
            // it still does not as long as it asks the core.
            let _ = map.advise(0..len, Advice::LinuxDontFork);
            Ok::<_, BackendError>(map)
        };
        let (public, alias) = (map(ProtFlags::empty())?, map(ProtFlags::READ | ProtFlags::WRITE)?);
        // Somebody who has only the number makes a pointer of it.
        public.start.expose_provenance();
        Ok(Self { public, alias })
    }

    /// The address of the first byte, at which nobody can read or write.
    pub(crate) fn start(&self) -> usize {
        self.public.start.addr()
    }

    /// The bytes of `range`, which lies inside.
    ///
    /// # Safety
    ///
    /// Until the result is dropped, there is no other for these bytes, and they are not [discarded](Self::discard).
    pub(crate) unsafe fn bytes(self: &Arc<Self>, range: Range<usize>) -> Result<HostMemory, BackendError> {
        assert!(range.start <= range.end && range.end <= self.alias.len, "{range:?} is not inside");
        let start = self.alias.start.wrapping_add(range.start);
        let start = NonNull::new(start).expect("nothing is mapped at address 0");
        // SAFETY: the bytes are mapped for reading and writing as long as the owner lives. The kernel has initialised
        // them. Nobody else knows the alias, and the caller has no other memory for this part of it.
        Ok(unsafe { HostMemory::from_raw_parts(start, range.len(), Arc::clone(self)) })
    }

    /// Gives the pages of `range`, which lies inside, back to the system. They are zero afterwards.
    ///
    /// # Safety
    ///
    /// There are no [bytes](Self::bytes) of this range, and the mapping [is of this process](Self::is_of_this_process).
    pub(crate) unsafe fn discard(&self, range: Range<usize>) {
        // No page of any system is larger.
        const PAGE: usize = 1 << 16;
        let range = range.start.next_multiple_of(PAGE)..range.end / PAGE * PAGE;
        if !range.is_empty() {
            // Where it is refused, the pages stay, and are used again.
            let _ = self.alias.advise(range, Advice::LinuxRemove);
        }
    }

    /// Whether the process that made it is this one, and not the parent of this one, which does not have its parent's
    /// mapping. It costs next to nothing.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.alias.is_of_this_process()
    }
}

/// One mapping of the object.
struct Map {
    start: *mut u8,
    len: usize,
    process: Process,
}

// SAFETY: it is an address and a length; who reads or writes there answers for that.
unsafe impl Send for Map {}
// SAFETY: a shared reference gives an address and a length, and nothing is read or written through them here.
unsafe impl Sync for Map {}

impl Map {
    fn at(&self, offset: usize) -> *mut c_void {
        self.start.wrapping_add(offset).cast()
    }

    fn advise(&self, range: Range<usize>, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is of this mapping. Neither advice that is given here takes the mapping away; what it does
        // to the bytes is the caller's.
        unsafe { madvise(self.at(range.start), range.len(), advice) }
    }

    fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // In a child of the process, something else may have been mapped there.
        if self.is_of_this_process() {
            // SAFETY: the range was mapped by `mmap`, and what hands out its bytes keeps the mapping.
            let unmapped = unsafe { munmap(self.at(0), self.len) };
            debug_assert_eq!(unmapped, Ok(()));
        }
    }
}
