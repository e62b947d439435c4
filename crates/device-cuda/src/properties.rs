//! Properties of a device, which the driver knows without a context.

use cudarc::driver::sys::CUdevice_attribute;
use device_registry::backend::{Api, BackendError, DeviceKind, DeviceProperties, MemoryReuse, Version};

use crate::library::{Device, Library};

/// Properties of the device with this ordinal; `version` is the driver's.
pub(crate) fn properties(
    library: Library,
    ordinal: usize,
    version: Version,
) -> Result<DeviceProperties, BackendError> {
    let device = library.device(ordinal)?;
    let kind = match device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? {
        0 => DeviceKind::Gpu,
        _ => DeviceKind::IntegratedGpu,
    };
    let concurrent = device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)?;
    let total = device.total_memory()?;
    let api = Api::new("CUDA").with_version(version);
    let properties = DeviceProperties::new(device.name()?)
        .with_vendor("NVIDIA")
        .with_kind(kind)
        .with_driver(api.to_string())
        .with_api(api)
        .with_total_memory(total as u64)
        .with_uuid(device.uuid()?)
        .with_concurrent_streams(concurrent != 0)
        .with_pinned_memory(true)
        .with_memory_reuse(MemoryReuse::Divided { alignment: 512 });
    let properties = with_compute_capability(&device, with_attributes(&device, properties));
    Ok(match device.pci_bus_id()?.parse() {
        Ok(address) => properties.with_pci(address),
        Err(error) => {
            log::warn!("`cuda:{ordinal}` has a PCI address of an unknown form: {error}");
            properties
        }
    })
}

/// Adds the attributes that the driver knows; an older one does not have all.
fn with_attributes(device: &Device, properties: DeviceProperties) -> DeviceProperties {
    use CUdevice_attribute as Attribute;
    let attributes = [
        ("multiprocessors", Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        ("warp_size", Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        ("max_block_threads", Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        ("max_block_shared_memory_bytes", Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        ("l2_cache_bytes", Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
        ("memory_bus_bits", Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
    ];
    let properties = attributes.into_iter().fold(properties, |properties, (name, attribute)| {
        match device.attribute(attribute) {
            Ok(value) => properties.with_attribute(name, value),
            Err(_) => properties,
        }
    });
    let number = |attribute| device.attribute(attribute).ok().filter(|number| *number > 0).map(i64::from);
    let clock = number(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    match clock.zip(number(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)) {
        // The clock is in kHz, and the bus moves its bits twice in each period: "How to Implement Performance
        // Metrics in CUDA C/C++", NVIDIA.
        Some((clock, bits)) => {
            properties.with_attribute("memory_bandwidth_bytes_per_second", clock * 1000 * 2 * bits / 8)
        }
        None => properties,
    }
}

/// Adds the compute capability, and the types for which PTX has arithmetic from that one on. It has none for
/// integers of 8 bits.
fn with_compute_capability(device: &Device, properties: DeviceProperties) -> DeviceProperties {
    let number = |attribute| device.attribute(attribute).ok().and_then(|number| u32::try_from(number).ok());
    let numbers = (
        number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    );
    let (Some(major), Some(minor)) = numbers else { return properties };
    let capability = Version::new(major, minor);
    properties.with_compute_capability(capability).with_native_dtypes(dtypes(capability))
}

fn dtypes(capability: Version) -> Vec<&'static str> {
    let mut dtypes = vec!["i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"];
    for (dtype, since) in [("f16", Version::new(5, 3)), ("bf16", Version::new(8, 0))] {
        if capability >= since {
            dtypes.push(dtype);
        }
    }
    dtypes
}

/// The newest version of CUDA that the driver offers. The interface does not return the driver's own version.
pub(crate) fn version(library: Library) -> Result<Version, BackendError> {
    let version = u32::try_from(library.version()?).unwrap_or(0);
    Ok(Version::new(version / 1000, version % 1000 / 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_depends_on_the_compute_capability() {
        let halves = |major, minor| {
            let all = dtypes(Version::new(major, minor));
            (all.contains(&"f16"), all.contains(&"bf16"))
        };
        assert_eq!(halves(5, 2), (false, false));
        assert_eq!(halves(5, 3), (true, false));
        assert_eq!(halves(7, 5), (true, false));
        assert_eq!(halves(8, 0), (true, true));
        assert_eq!(halves(12, 0), (true, true));
    }
}
