//! The command `devices` of a program with a backend of its own: `cargo run --example own_backend -- list`.

use std::process::ExitCode;
use std::sync::Arc;

use device_registry::backend::{
    AllocateOptions, BACKENDS, Backend, BackendDescriptor, BackendError, DeviceDriver, FillPattern,
    HostMemory, Memory, OpenedDevice, Span, open_windows,
};
use device_registry::{DeviceKind, DeviceProperties, MemoryInfo};

device_registry::autoload!();

fn main() -> ExitCode {
    devices::run(std::env::args_os())
}

device_registry::backend::entry_points! {
    #[distributed_slice(BACKENDS)]
    static MINE: BackendDescriptor = BackendDescriptor::new("mine", || Ok(Box::new(Mine)));
}

/// One device, in memory of the host.
struct Mine;

impl Backend for Mine {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(1)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("a device of this program").with_kind(DeviceKind::Simulated))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, MyDevice))
    }
}

struct MyDevice;

impl DeviceDriver for MyDevice {
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
        destination.copy_from_slice(&source.memory_as::<HostMemory>()?.read(source.range())?);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (source.memory_as::<HostMemory>()?, destination.memory_as::<HostMemory>()?);
        let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
        to.copy_from_slice(&from);
        Ok(())
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        pattern.fill(&mut destination.memory_as::<HostMemory>()?.write(destination.range())?);
        Ok(())
    }
}
