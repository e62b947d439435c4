//! A device of a twin: its blocking calls.

use std::ptr::NonNull;
use std::sync::Arc;

use device_registry::backend::{
    AllocateOptions, BackendError, DeviceDriver, FaultInjector, FillPattern, HostBuffer, LossReporter,
    Memory, MemoryInfo, Span, StreamDriver, StreamOptions,
};
use parking_lot::Mutex;

use crate::defect::Defect::*;
use crate::faults::{Faults, Operation};
use crate::misallocate::{self, Opener};
use crate::pool::{Place, Pool, TwinMemory};
use crate::stream::TwinStream;
use crate::twin::{Queues, Twin};
use crate::wrong::wrong;
use crate::{misqueue, mistransfer as wrongly, transfer};

pub(crate) struct TwinDevice {
    twin: &'static Twin,
    /// `None` once it was closed or reset.
    pool: Mutex<Option<Arc<Pool>>>,
    faults: Arc<Faults>,
    opened_by: Opener,
}

impl TwinDevice {
    pub(crate) fn open(twin: &'static Twin) -> Result<Self, BackendError> {
        let (pool, faults) = (misallocate::pool()?, Faults::of_a_new_device());
        Ok(Self { twin, pool: Mutex::new(Some(pool)), faults, opened_by: Opener::new() })
    }

    pub(crate) fn report_losses_with(&self, reporter: LossReporter) {
        self.faults.report_with(reporter);
    }

    fn pool(&self) -> Result<Arc<Pool>, BackendError> {
        let pool = self.pool.lock().clone();
        pool.ok_or_else(|| BackendError::invalid("the device is closed"))
    }

    /// Runs before each operation.
    fn begin(&self, operation: Operation) -> Result<(), BackendError> {
        misallocate::enter(&self.opened_by)?;
        self.faults.before(operation)
    }

    /// Runs before each transfer, with its destination, or with the source of a read.
    fn begin_on(&self, span: &Span) -> Result<(), BackendError> {
        wrongly::keep(span);
        self.begin(Operation::Copy).map_err(|error| wrongly::fail(span, error))
    }

    /// An error for an optional feature if the twin offers none.
    fn offers(&self, what: &str) -> Result<(), BackendError> {
        if self.twin.all { Ok(()) } else { Err(BackendError::unsupported(what)) }
    }
}

impl TwinDevice {
    /// An error for a call that the twin leaves to the core.
    fn blocks(&self) -> Result<(), BackendError> {
        if self.twin.blocking { Ok(()) } else { Err(BackendError::unsupported("blocking calls")) }
    }
}

impl DeviceDriver for TwinDevice {
    fn native_handle(&self, _kind: &str) -> Option<u64> {
        wrong(DevicesHaveEveryHandle).then_some(7)
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.faults.check()?;
        if self.twin.all { Ok(misallocate::memory_info(&*self.pool()?)) } else { Ok(MemoryInfo::unknown()) }
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        self.begin(Operation::Allocate(options.len))?;
        let pool = self.pool()?;
        misallocate::before(&pool, options.len)?;
        let memory = TwinMemory::allocate(&pool, options.len, self.twin.alignment);
        Ok(Arc::new(misallocate::after(&pool, options.len, memory)?))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        self.blocks()?;
        self.begin_on(destination)?;
        transfer::write(&Place::of(destination)?, source)
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.blocks()?;
        self.begin_on(source)?;
        transfer::read(&Place::of(source)?, destination)?;
        wrongly::read_too_far(destination);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.blocks()?;
        self.begin_on(destination)?;
        transfer::copy(&Place::of(source)?, &Place::of(destination)?)
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.blocks()?;
        self.offers("filling")?;
        self.begin_on(destination)?;
        transfer::fill(&Place::of(destination)?, pattern)
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.blocks()?;
        self.offers("copying from a peer")?;
        self.begin_on(destination)?;
        transfer::copy_from_peer(&Place::of(source)?, &Place::of(destination)?)
    }

    fn create_stream(&self, options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        if self.twin.queues == Queues::No {
            return Err(BackendError::unsupported("streams of its own"));
        }
        self.faults.check()?;
        misqueue::create(options)?;
        Ok(Box::new(TwinStream::new(self.twin, &self.faults)?))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        misallocate::before_pinned_memory()?;
        self.offers("pinned host memory")?;
        self.begin(Operation::Allocate(len))?;
        let len = if wrong(PinnedMemoryIsTooShort) { len - 1 } else { len };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| BackendError::out_of_memory(len as u64, None))?;
        bytes.resize(len, 0);
        if wrong(PinnedMemoryIsOrdinary) {
            return Ok(bytes.into());
        }
        let Some(start) = NonNull::new(bytes.as_mut_ptr()) else { return Ok(bytes.into()) };
        // SAFETY: the vector has `len` initialised bytes there, does not move them when it is moved, and is
        // only dropped.
        Ok(unsafe { HostBuffer::from_raw_parts(start, len, bytes) })
    }

    fn reset(&self) -> Result<(), BackendError> {
        self.offers("resetting")?;
        if wrong(ResetFails) {
            return Err(BackendError::other("the device does not answer"));
        }
        // Ends the stalled operations of the old device.
        self.faults.lose();
        if !wrong(ResetKeepsTheMemory) {
            *self.pool.lock() = None;
        }
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        misallocate::close()?;
        if wrong(CloseWipesItsMemory) {
            self.pool()?.bytes.write(0..64 << 20)?.fill(0);
        }
        if !wrong(CloseKeepsTheMemory) {
            *self.pool.lock() = None;
        }
        Ok(())
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        if wrong(FaultsComeAndGo) && misallocate::every_third_time() {
            return None;
        }
        self.twin.all.then_some(&*self.faults)
    }
}
