//! Properties of a device, which the driver knows without a context.

use cudarc::driver::sys::CUdevice_attribute;
use device_registry::backend::{BackendError, DeviceKind, DeviceProperties, MemoryReuse};

use crate::library::Library;

/// Properties of the device with this ordinal; `version` is the driver's.
pub(crate) fn properties(
    library: Library,
    ordinal: usize,
    version: &str,
) -> Result<DeviceProperties, BackendError> {
    let device = library.device(ordinal)?;
    let kind = match device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? {
        0 => DeviceKind::Gpu,
        _ => DeviceKind::IntegratedGpu,
    };
    let concurrent = device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)?;
    let total = device.total_memory()?;
    let properties = DeviceProperties::new(device.name()?)
        .with_vendor("NVIDIA")
        .with_kind(kind)
        .with_driver(version)
        .with_total_memory(total as u64)
        .with_uuid(device.uuid()?)
        .with_concurrent_streams(concurrent != 0)
        .with_pinned_memory(true)
        .with_memory_reuse(MemoryReuse::Divided { alignment: 512 });
    Ok(match device.pci_bus_id()?.parse() {
        Ok(address) => properties.with_pci(address),
        Err(error) => {
            log::warn!("`cuda:{ordinal}` has a PCI address of an unknown form: {error}");
            properties
        }
    })
}

/// The newest version of CUDA that the driver offers. The interface does not return the driver's own version.
pub(crate) fn version(library: Library) -> Result<String, BackendError> {
    let version = library.version()?;
    Ok(format!("CUDA {}.{}", version / 1000, version % 1000 / 10))
}
