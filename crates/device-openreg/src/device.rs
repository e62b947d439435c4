//! One open device.

use std::sync::Arc;

use device_registry::BackendErrorKind;
use device_registry::backend::testing::{FaultCounter, FaultPoint};
use device_registry::backend::{
    AllocateOptions, BackendError, DeviceDriver, FaultInjector, FillPattern, LossReporter, Memory,
    MemoryInfo, Span, open_windows,
};
use parking_lot::Mutex;

use crate::location;
use crate::memory::OpenRegMemory;
use crate::pool::Pool;

pub(crate) struct OpenRegDevice {
    ordinal: usize,
    /// `None` once the device was closed or reset: the core never drops a driver, which would keep its
    /// memory.
    pool: Mutex<Option<Arc<Pool>>>,
    faults: Arc<FaultCounter>,
    loss_reporter: LossReporter,
}

impl OpenRegDevice {
    /// The device `openreg:ordinal`, with `capacity` bytes of memory.
    pub(crate) fn new(ordinal: usize, capacity: usize) -> Result<Self, BackendError> {
        let pool = Pool::new(&format!("openreg:{ordinal}"), capacity)?;
        location::register(ordinal, &pool)?;
        let loss_reporter = LossReporter::new();
        let faults = FaultCounter::new().with_loss_reporter(loss_reporter.clone());
        Ok(Self { ordinal, pool: Mutex::new(Some(pool)), faults: Arc::new(faults), loss_reporter })
    }

    fn pool(&self) -> Result<Arc<Pool>, BackendError> {
        match &*self.pool.lock() {
            Some(pool) => Ok(Arc::clone(pool)),
            // A device that was reset is lost, and `check` returns that error.
            None => self.faults.check().and(Err(BackendError::invalid("the device is closed"))),
        }
    }

    /// Returns the memory of the device to the system, once the program has dropped all buffers in it.
    fn release(&self) {
        let pool = self.pool.lock().take();
        // After the lock, as unmapping takes a while.
        drop(pool);
    }

    pub(crate) fn loss_reporter(&self) -> LossReporter {
        self.loss_reporter.clone()
    }

    pub(crate) fn injector(&self) -> &impl FaultInjector {
        &*self.faults
    }
}

impl DeviceDriver for OpenRegDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.faults.check()?;
        let pool = self.pool()?;
        let total = pool.capacity();
        let free = pool.free();
        Ok(MemoryInfo::unknown().with_total(total as u64).with_free(free as u64))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        self.faults.before(FaultPoint::Allocate { len: options.len })?;
        let block = self.pool()?.allocate(options.len)?;
        Ok(Arc::new(OpenRegMemory::new(block, self.ordinal, Arc::clone(&self.faults))))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Write)?;
        let memory = destination.memory_as::<OpenRegMemory>()?;
        memory.bytes()?.write(destination.range())?.copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Read)?;
        let memory = source.memory_as::<OpenRegMemory>()?;
        destination.copy_from_slice(&memory.bytes()?.read(source.range())?);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Copy)?;
        let from = source.memory_as::<OpenRegMemory>()?;
        let to = destination.memory_as::<OpenRegMemory>()?.bytes()?;
        // The source may be on another device, and that device may have been lost or closed after the core
        // checked it. This device is not lost with it.
        let from = from.bytes().map_err(|error| {
            let end = if error.kind() == BackendErrorKind::Lost { "lost" } else { "closed" };
            let message = format_args!("the source was {end} with its device, `openreg:{}`", from.ordinal());
            BackendError::unavailable(message).with_source(error)
        })?;
        let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
        to.copy_from_slice(&from);
        Ok(())
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.faults.before(FaultPoint::Fill)?;
        let memory = destination.memory_as::<OpenRegMemory>()?;
        pattern.fill(&mut memory.bytes()?.write(destination.range())?);
        Ok(())
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        // Both devices lie in one address space, and the memory is of one type.
        self.copy(source, destination)
    }

    fn reset(&self) -> Result<(), BackendError> {
        // Operations that still stall and kernels that still run belong to the device before the reset.
        self.faults.lose("it was reset, and this belongs to the device before the reset");
        self.release();
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        self.faults.close();
        self.release();
        Ok(())
    }

    fn faults(&self) -> Option<&dyn FaultInjector> {
        Some(&*self.faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> OpenRegDevice {
        OpenRegDevice::new(0, 1 << 16).unwrap()
    }

    /// The errors of a device that is closed or lost.
    fn errors(device: &OpenRegDevice) -> [BackendError; 2] {
        [device.allocate(&AllocateOptions::new(1)).err().unwrap(), device.memory_info().err().unwrap()]
    }

    #[test]
    fn every_operation_of_a_closed_driver_is_invalid() {
        let device = device();
        device.close().unwrap();
        for error in errors(&device) {
            assert_eq!(error.kind(), BackendErrorKind::Invalid);
            assert!(error.to_string().contains("the device is closed"), "{error}");
        }
        device.close().unwrap();
    }

    #[test]
    fn every_operation_of_a_driver_that_was_reset_is_lost() {
        let device = device();
        device.reset().unwrap();
        for error in errors(&device) {
            assert_eq!(
                error.to_string(),
                "device lost: it was reset, and this belongs to the device before the reset"
            );
        }
    }
}
