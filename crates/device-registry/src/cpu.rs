//! The built-in backend: the host itself, as one device.

use std::sync::Arc;

use crate::backend::{
    AllocateOptions, Backend, BackendError, DeviceDriver, DeviceKind, DeviceProperties, FillPattern,
    HostMemory, LoadFailure, Memory, MemoryInfo, MemoryReuse, OpenedDevice, Span, open_windows,
};

pub(crate) const NAME: &str = "cpu";

pub(crate) fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(Cpu))
}

/// From which length on freed memory is used again. The allocator's zeros and the core take as long as each
/// other at 16 KiB, and at 64 KiB the zeros take twice as long.
const LARGE: usize = 32 << 10;

struct Cpu;

impl Backend for Cpu {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(1)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new(format!("host ({})", std::env::consts::ARCH))
            .with_kind(DeviceKind::Cpu)
            .with_memory_reuse(MemoryReuse::Large { from: LARGE }))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, CpuDevice))
    }
}

struct CpuDevice;

impl DeviceDriver for CpuDevice {
    /// Unknown: a process may not be able to use all free memory of the host, and std has no call to query
    /// it.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(HostMemory::zeroed(options.len)?))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        let memory = destination.memory_as::<HostMemory>()?;
        memory.write(destination.range())?.copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        let memory = source.memory_as::<HostMemory>()?;
        destination.copy_from_slice(&memory.read(source.range())?);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (source.memory_as::<HostMemory>()?, destination.memory_as::<HostMemory>()?);
        let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
        to.copy_from_slice(&from);
        Ok(())
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        let memory = destination.memory_as::<HostMemory>()?;
        pattern.fill(&mut memory.write(destination.range())?);
        Ok(())
    }
}
