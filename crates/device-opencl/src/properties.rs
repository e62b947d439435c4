//! Properties of a device, which OpenCL knows without opening it.

use device_registry::backend::MemoryReuse;
use device_registry::{Api, DeviceKind, DeviceProperties, DeviceUuid, PciAddress, Version};

use crate::error::OpenClError;
use crate::functions::{OpenClFunctions, value};
use crate::sys::*;

/// A device's properties, and what opening it depends on.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) properties: DeviceProperties,
    pub(crate) version: Version,
    pub(crate) priorities: bool,
}

impl Facts {
    /// Queries the device. Leaves out what it does not know, except the name, without which this fails.
    ///
    /// # Safety
    ///
    /// The device is valid.
    pub(crate) unsafe fn query(
        functions: &'static OpenClFunctions,
        platform: &str,
        device: cl_device_id,
    ) -> Result<Self, OpenClError> {
        let device = Device { functions, device };
        let name = text(&device.bytes(CL_DEVICE_NAME)?);
        let extensions = device.text(CL_DEVICE_EXTENSIONS).unwrap_or_default();
        let has = |extension: &str| extensions.split_whitespace().any(|name| name == extension);
        let queues = device.number(CL_DEVICE_QUEUE_ON_HOST_PROPERTIES).unwrap_or(0);
        // A timer without a resolution does not count: Rusticl of Mesa 22.3 numbers the timestamps of each
        // event from 0 to 3.
        let has_timer = device.number(CL_DEVICE_PROFILING_TIMER_RESOLUTION) != Some(0);
        let profiles = queues & CL_QUEUE_PROFILING_ENABLE != 0 && has_timer;
        let mut properties = DeviceProperties::new(name)
            .with_kind(device.kind())
            .with_timed_events(profiles)
            .with_pinned_memory(true)
            .with_memory_reuse(MemoryReuse::Rounded);
        properties.vendor = device.text(CL_DEVICE_VENDOR);
        properties.driver_version = device.text(CL_DRIVER_VERSION);
        properties.driver = properties.driver_version.as_ref().map(|version| format!("{platform} {version}"));
        properties.total_memory = device.size(CL_DEVICE_GLOBAL_MEM_SIZE);
        properties.largest_allocation = device.size(CL_DEVICE_MAX_MEM_ALLOC_SIZE);
        properties.uuid = has("cl_khr_device_uuid").then(|| device.uuid()).flatten();
        properties.pci = [
            ("cl_khr_pci_bus_info", Device::pci_khr as fn(&Device) -> Option<PciAddress>),
            ("cl_nv_device_attribute_query", Device::pci_nv),
            ("cl_amd_device_attribute_query", Device::pci_amd),
        ]
        .into_iter()
        .find_map(|(extension, address)| has(extension).then(|| address(&device)).flatten());
        if has("cl_nv_device_attribute_query") {
            properties.compute_capability = device.compute_capability_nv();
        }
        let version = device.text(CL_DEVICE_VERSION).and_then(|text| version(&text));
        let api = Api::new("OpenCL");
        properties.api = Some(version.map_or(api.clone(), |version| api.with_version(version)));
        let is_full = device.text(CL_DEVICE_PROFILE).as_deref() == Some("FULL_PROFILE");
        let doubles = device.number(CL_DEVICE_DOUBLE_FP_CONFIG).unwrap_or(0) != 0;
        // The language has these types, whatever the instruction set is.
        let dtypes = [
            (true, &["i8", "u8", "i16", "u16", "i32", "u32", "f32"][..]),
            (is_full || has("cles_khr_int64"), &["i64", "u64"]),
            (doubles || has("cl_khr_fp64"), &["f64"]),
            (has("cl_khr_fp16"), &["f16"]),
        ];
        let dtypes = dtypes.into_iter().filter(|(has, _)| *has).flat_map(|(_, names)| names);
        properties.native_dtypes = Some(dtypes.map(|&name| name.to_owned()).collect());
        for (name, what, divisor) in ATTRIBUTES {
            if let Some(number) = device.size(what) {
                properties.attributes.set(name, number / divisor);
            }
        }
        let version = version.unwrap_or(Version::new(1, 0));
        let priorities = has("cl_khr_priority_hints") && version >= Version::new(2, 0);
        Ok(Self { properties, version, priorities })
    }
}

/// Numbers that every device has, each with its divisor: an alignment is in bits.
const ATTRIBUTES: [(&str, cl_device_info, u64); 7] = [
    ("compute_units", CL_DEVICE_MAX_COMPUTE_UNITS, 1),
    ("clock_mhz", CL_DEVICE_MAX_CLOCK_FREQUENCY, 1),
    ("max_work_group_size", CL_DEVICE_MAX_WORK_GROUP_SIZE, 1),
    ("local_memory_bytes", CL_DEVICE_LOCAL_MEM_SIZE, 1),
    ("cache_bytes", CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, 1),
    ("memory_alignment_bytes", CL_DEVICE_MEM_BASE_ADDR_ALIGN, 8),
    ("address_bits", CL_DEVICE_ADDRESS_BITS, 1),
];

/// A text about a platform.
///
/// # Safety
///
/// The platform is valid.
pub(crate) unsafe fn platform_text(
    functions: &'static OpenClFunctions,
    platform: cl_platform_id,
    what: cl_platform_info,
) -> Result<String, OpenClError> {
    // SAFETY: the caller promises a valid platform, and `value` passes a place together with its size.
    value(|size, place, written| unsafe { functions.clGetPlatformInfo(platform, what, size, place, written) })
        .map(|bytes| text(&bytes))
}

/// Whether the device can be used now.
///
/// # Safety
///
/// The device is valid.
pub(crate) unsafe fn is_available(
    functions: &'static OpenClFunctions,
    device: cl_device_id,
) -> Result<bool, OpenClError> {
    let available = Device { functions, device }.bytes(CL_DEVICE_AVAILABLE)?;
    Ok(available.iter().any(|&byte| byte != 0))
}

/// A valid device.
struct Device {
    functions: &'static OpenClFunctions,
    device: cl_device_id,
}

/// Each query compares sizes, because drivers return numbers of other sizes than the specification says. A
/// value of an unexpected size counts as unknown.
impl Device {
    fn bytes(&self, what: cl_device_info) -> Result<Vec<u8>, OpenClError> {
        // SAFETY: the device is valid.
        unsafe { self.functions.device_info(self.device, what) }
    }

    /// A text that is not empty.
    fn text(&self, what: cl_device_info) -> Option<String> {
        self.bytes(what).ok().map(|bytes| text(&bytes)).filter(|text| !text.is_empty())
    }

    /// A number of 32 or 64 bits.
    fn number(&self, what: cl_device_info) -> Option<u64> {
        number(&self.bytes(what).ok()?)
    }

    /// A number that is 0 where the driver does not know it.
    fn size(&self, what: cl_device_info) -> Option<u64> {
        self.number(what).filter(|&number| number > 0)
    }

    /// The type is a set. A device that is also a processor, such as a simulator that has every type, counts
    /// as a processor: selectors for GPUs do not match it.
    fn kind(&self) -> DeviceKind {
        let bits = self.number(CL_DEVICE_TYPE).unwrap_or(0);
        let is = |kind| bits & kind != 0;
        let shares_memory = || self.number(CL_DEVICE_HOST_UNIFIED_MEMORY).unwrap_or(0) != 0;
        if is(CL_DEVICE_TYPE_CPU) {
            DeviceKind::Cpu
        } else if is(CL_DEVICE_TYPE_GPU) {
            if shares_memory() { DeviceKind::IntegratedGpu } else { DeviceKind::Gpu }
        } else if is(CL_DEVICE_TYPE_ACCELERATOR) {
            DeviceKind::Accelerator
        } else {
            DeviceKind::Other
        }
    }

    fn uuid(&self) -> Option<DeviceUuid> {
        let mut bytes = [0; CL_UUID_SIZE_KHR];
        // The size is not queried: it is always the same.
        let known = self.bytes(CL_DEVICE_UUID_KHR).ok()?;
        bytes.copy_from_slice(known.get(..CL_UUID_SIZE_KHR)?);
        // A driver without a UUID returns zeros.
        (bytes != [0; CL_UUID_SIZE_KHR]).then(|| DeviceUuid::from_bytes(bytes))
    }

    fn compute_capability_nv(&self) -> Option<Version> {
        let number = |what| self.number(what).and_then(|number| u32::try_from(number).ok());
        let major = number(CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV)?;
        Some(Version::new(major, number(CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV)?))
    }

    fn pci_khr(&self) -> Option<PciAddress> {
        pci_of_khr(&self.bytes(CL_DEVICE_PCI_BUS_INFO_KHR).ok()?)
    }

    fn pci_nv(&self) -> Option<PciAddress> {
        let domain = self.number(CL_DEVICE_PCI_DOMAIN_ID_NV).unwrap_or(0);
        pci_of_nv(domain, self.number(CL_DEVICE_PCI_BUS_ID_NV)?, self.number(CL_DEVICE_PCI_SLOT_ID_NV)?)
    }

    fn pci_amd(&self) -> Option<PciAddress> {
        pci_of_amd(&self.bytes(CL_DEVICE_TOPOLOGY_AMD).ok()?)
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

fn number(bytes: &[u8]) -> Option<u64> {
    if let Ok(bytes) = bytes.try_into() {
        return Some(u64::from_ne_bytes(bytes));
    }
    bytes.try_into().ok().map(u32::from_ne_bytes).map(u64::from)
}

/// Parses `OpenCL 1.2 and what the vendor adds`, the form of the specification.
fn version(text: &str) -> Option<Version> {
    let (major, minor) = text.strip_prefix("OpenCL ")?.split_whitespace().next()?.split_once('.')?;
    Some(Version::new(major.parse().ok()?, minor.parse().ok()?))
}

/// Four numbers: domain, bus, device, function.
fn pci_of_khr(bytes: &[u8]) -> Option<PciAddress> {
    let (numbers, []) = bytes.as_chunks::<4>() else { return None };
    let [domain, bus, device, function] = <[[u8; 4]; 4]>::try_from(numbers).ok()?.map(u32::from_ne_bytes);
    let byte = |number: u32| u8::try_from(number).ok();
    PciAddress::new(domain, byte(bus)?, byte(device)?, byte(function)?)
}

/// The slot is the device, and below it three bits for the function.
fn pci_of_nv(domain: u64, bus: u64, slot: u64) -> Option<PciAddress> {
    let bus = u8::try_from(bus).ok()?;
    let slot = u8::try_from(slot).ok()?;
    PciAddress::new(u32::try_from(domain).ok()?, bus, slot >> 3, slot & 7)
}

/// A number that is 1 for PCI, 17 unused bytes, then bus, device and function.
fn pci_of_amd(bytes: &[u8]) -> Option<PciAddress> {
    let (kind, place) = bytes.split_first_chunk()?;
    match (u32::from_ne_bytes(*kind), place) {
        (1, &[.., bus, device, function]) if place.len() == 20 => PciAddress::new(0, bus, device, function),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_whatever_the_vendor_adds() {
        assert_eq!(version("OpenCL 3.0 PoCL HSTR: pthread"), Some(Version::new(3, 0)));
        assert_eq!(version("OpenCL 1.1"), Some(Version::new(1, 1)));
        assert_eq!(version("OpenCL 1.2 "), Some(Version::new(1, 2)));
        for bad in ["", "OpenCL", "OpenCL 1", "1.2", "OpenCL x.y"] {
            assert_eq!(version(bad), None, "{bad}");
        }
    }

    #[test]
    fn numbers_have_the_size_that_the_driver_gives_them() {
        assert_eq!(number(&7u32.to_ne_bytes()), Some(7));
        assert_eq!(number(&(1u64 << 40).to_ne_bytes()), Some(1 << 40));
        assert_eq!(number(&[1, 2, 3]), None);
        assert_eq!(number(&[]), None);
    }

    #[test]
    fn texts_end_at_their_zero() {
        assert_eq!(text(b" Intel(R) UHD \0\0"), "Intel(R) UHD");
        assert_eq!(text(b"no zero"), "no zero");
        assert_eq!(text(b"\0"), "");
    }

    #[test]
    fn pci_addresses_are_read_in_three_forms() {
        let expected = PciAddress::new(0, 0x3b, 2, 1);
        let khr: Vec<u8> = [0u32, 0x3b, 2, 1].into_iter().flat_map(u32::to_ne_bytes).collect();
        assert_eq!(pci_of_khr(&khr), expected);
        assert_eq!(pci_of_nv(0, 0x3b, 2 << 3 | 1), expected);
        let mut amd = [0; 24];
        amd[..4].copy_from_slice(&1u32.to_ne_bytes());
        amd[21..].copy_from_slice(&[0x3b, 2, 1]);
        assert_eq!(pci_of_amd(&amd), expected);
    }

    #[test]
    fn anything_else_is_not_a_pci_address() {
        assert_eq!(pci_of_khr(&[0; 15]), None);
        let large: Vec<u8> = [0u32, 256, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
        assert_eq!(pci_of_khr(&large), None);
        assert_eq!(pci_of_nv(0, 256, 0), None);
        assert_eq!(pci_of_amd(&[0; 24]), None, "of another kind");
        assert_eq!(pci_of_amd(&[1, 0, 0, 0, 0, 0, 0]), None);
    }
}
