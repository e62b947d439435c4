//! The built-in backend: the host itself, as one device.

use std::sync::Arc;
use std::thread::available_parallelism;

use crate::backend::{
    AllocateOptions, Backend, BackendError, DeviceDriver, DeviceKind, DeviceProperties, FillPattern,
    HostMemory, LoadFailure, Memory, MemoryInfo, MemoryReuse, OpenedDevice, Span, open_windows,
};

pub(crate) const NAME: &str = "cpu";

pub(crate) fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    // Computed once: properties stay the same, but the number of threads that the process may use can change.
    Ok(Box::new(Cpu { threads: available_parallelism().ok().map(|threads| threads.get() as u64) }))
}

/// From which length on freed memory is used again. The allocator's zeros and the core take equally long at
/// 16 KiB; at 64 KiB the zeros take twice as long.
const LARGE: usize = 32 << 10;

/// What every processor of [these architectures](COMPUTES_WITH_ALL) computes with.
const DTYPES: [&str; 10] = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"];

/// Whether the instruction set is known to have 64-bit integers and both floating-point types.
const COMPUTES_WITH_ALL: bool = cfg!(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "powerpc64",
    target_arch = "s390x",
    target_arch = "loongarch64",
    all(target_arch = "riscv64", target_feature = "d"),
    target_family = "wasm",
));

struct Cpu {
    /// How many threads can run at the same time, if the system says so.
    threads: Option<u64>,
}

impl Backend for Cpu {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(1)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let properties = DeviceProperties::new(format!("host ({})", std::env::consts::ARCH))
            .with_kind(DeviceKind::Cpu)
            .with_memory_reuse(MemoryReuse::Large { from: LARGE });
        let properties = match self.threads {
            Some(threads) => properties.with_attribute("threads", threads),
            None => properties,
        };
        Ok(if COMPUTES_WITH_ALL { properties.with_native_dtypes(DTYPES) } else { properties })
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
        let from = source.memory_as::<HostMemory>()?;
        let to = destination.memory_as::<HostMemory>()?;
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
