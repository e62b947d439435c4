//! Properties of an adapter, which it has without being opened.

use device_registry::backend::MemoryReuse;
use device_registry::{Api, DeviceKind, DeviceProperties, DeviceUuid, PciAddress, Version};
use wgpu::{AdapterInfo, Backend, COPY_BUFFER_ALIGNMENT, DeviceType, Features};

use crate::context::TIMESTAMPS;

/// An adapter's properties that decide the order of devices.
pub(crate) struct Facts {
    info: AdapterInfo,
    version: Option<Version>,
    uuid: Option<DeviceUuid>,
    pci: Option<PciAddress>,
}

impl Facts {
    pub(crate) fn of(adapter: &wgpu::Adapter) -> Self {
        let mut info = adapter.get_info();
        // The text is empty where the address is unknown.
        let pci = info.device_pci_bus_id.parse().ok();
        let Vulkan { version, driver_version, uuid } = of_vulkan(adapter);
        // A driver of Vulkan may describe itself with nothing, but it always has a number.
        if info.driver_info.trim().is_empty() {
            info.driver_info =
                driver_version.map(|number| version_text(number, info.vendor)).unwrap_or_default();
        }
        Self { version, uuid, pci, info }
    }

    /// The key that devices are sorted by. It does not depend on the order in which a driver lists adapters:
    /// first the kind, then the interface, then the place in the machine.
    pub(crate) fn order(&self) -> impl Ord + use<> {
        let kind = match self.info.device_type {
            DeviceType::DiscreteGpu => 0,
            DeviceType::IntegratedGpu => 1,
            DeviceType::VirtualGpu => 2,
            DeviceType::Other => 3,
            DeviceType::Cpu => 4,
        };
        let api = match self.info.backend {
            Backend::Vulkan => 0,
            Backend::Metal => 1,
            Backend::Dx12 => 2,
            _ => 3,
        };
        // Adapters without an address come last.
        let place = (self.pci.is_none(), self.pci, self.info.name.clone(), self.uuid);
        (kind, api, place)
    }
}

pub(crate) fn of(adapter: &wgpu::Adapter, facts: &Facts) -> DeviceProperties {
    let Facts { info, version, uuid, pci } = facts;
    let limits = adapter.limits();
    let features = adapter.features();
    // Whole words, as memory is rounded up to them.
    let largest = limits.max_buffer_size & !(COPY_BUFFER_ALIGNMENT - 1);
    let mut properties = DeviceProperties::new(&info.name)
        .with_kind(kind(info.device_type))
        .with_driver(driver(info))
        .with_largest_allocation(largest)
        .with_copy_alignment(COPY_BUFFER_ALIGNMENT as usize)
        .with_concurrent_streams(false)
        .with_timed_events(features.contains(TIMESTAMPS))
        .with_memory_reuse(MemoryReuse::Exact)
        .with_native_dtypes(dtypes(features))
        .with_attribute("subgroup_min_size", info.subgroup_min_size)
        .with_attribute("subgroup_max_size", info.subgroup_max_size)
        .with_attribute("max_workgroup_invocations", limits.max_compute_invocations_per_workgroup)
        .with_attribute("workgroup_memory_bytes", limits.max_compute_workgroup_storage_size)
        .with_attribute("max_storage_binding_bytes", limits.max_storage_buffer_binding_size)
        .with_attribute("max_storage_buffers", limits.max_storage_buffers_per_shader_stage);
    let api = Some(api(info.backend)).filter(|name| !name.is_empty()).map(Api::new);
    properties.api = api.map(|api| version.iter().fold(api, |api, version| api.with_version(*version)));
    let driver_version = info.driver_info.trim();
    properties.driver_version = (!driver_version.is_empty()).then(|| driver_version.to_owned());
    let properties = vendor(info.vendor).into_iter().fold(properties, DeviceProperties::with_vendor);
    let properties = uuid.iter().fold(properties, |properties, uuid| properties.with_uuid(*uuid));
    pci.iter().fold(properties, |properties, pci| properties.with_pci(*pci))
}

fn kind(kind: DeviceType) -> DeviceKind {
    match kind {
        DeviceType::DiscreteGpu | DeviceType::VirtualGpu => DeviceKind::Gpu,
        DeviceType::IntegratedGpu => DeviceKind::IntegratedGpu,
        DeviceType::Cpu => DeviceKind::Cpu,
        DeviceType::Other => DeviceKind::Other,
    }
}

/// The interface below wgpu. Empty if there is none.
fn api(backend: Backend) -> &'static str {
    match backend {
        Backend::Vulkan => "Vulkan",
        Backend::Metal => "Metal",
        Backend::Dx12 => "DX12",
        Backend::Gl => "OpenGL",
        Backend::Noop | Backend::BrowserWebGpu => "",
    }
}

/// The types for which WGSL has arithmetic: three always, others with features of the adapter.
fn dtypes(features: Features) -> Vec<&'static str> {
    let optional = [
        (Features::SHADER_F16, &["f16"][..]),
        (Features::SHADER_F64, &["f64"]),
        (Features::SHADER_INT64, &["i64", "u64"]),
    ];
    let optional = optional.into_iter().filter(|(feature, _)| features.contains(*feature));
    ["i32", "u32", "f32"].into_iter().chain(optional.flat_map(|(_, names)| names.iter().copied())).collect()
}

/// The driver, with its interface: one card has a driver for each.
fn driver(info: &AdapterInfo) -> String {
    let parts = [api(info.backend), info.driver.trim(), info.driver_info.trim()];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

/// The maker, by its PCI number, or the number that Vulkan gives to makers without one. `None` for 0.
fn vendor(id: u32) -> Option<String> {
    let name = match id {
        0 => return None,
        0x1002 | 0x1022 => "AMD",
        0x1010 => "Imagination Technologies",
        0x106b => "Apple",
        0x10de => "NVIDIA",
        0x13b5 => "Arm",
        0x1414 => "Microsoft",
        0x144d => "Samsung",
        0x14e4 => "Broadcom",
        0x15ad => "VMware",
        0x19e5 => "Huawei",
        0x1ae0 => "Google",
        0x1af4 => "Red Hat",
        0x5143 => "Qualcomm",
        0x8086 => "Intel",
        0x1_0001 => "Vivante",
        0x1_0002 => "VeriSilicon",
        0x1_0003 => "Kazan",
        0x1_0004 => "Codeplay",
        0x1_0005 => "Mesa",
        0x1_0006 => "PoCL",
        id => return Some(format!("vendor {id:#06x}")),
    };
    Some(name.into())
}

/// The number of a Vulkan driver's version as text. NVIDIA's has parts of other widths than Vulkan's own.
fn version_text(number: u32, vendor: u32) -> String {
    let [major, minor] = [number >> 22, number >> 12 & 0x3ff];
    match vendor {
        _ if number == 0 => String::new(),
        0x10de => format!("{major}.{}.{}.{}", number >> 14 & 0xff, number >> 6 & 0xff, number & 0x3f),
        _ => format!("{major}.{minor}.{}", number & 0xfff),
    }
}

/// What Vulkan says of a device, and wgpu does not.
#[derive(Default)]
struct Vulkan {
    version: Option<Version>,
    driver_version: Option<u32>,
    uuid: Option<DeviceUuid>,
}

/// Nothing for the other interfaces.
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn of_vulkan(adapter: &wgpu::Adapter) -> Vulkan {
    use ash::vk;

    // SAFETY: the handles of the result are neither destroyed here nor used beyond this function.
    let Some(adapter) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else {
        return Vulkan::default();
    };
    let instance = adapter.shared_instance();
    let device = adapter.raw_physical_device();
    // SAFETY: the physical device belongs to this instance, and both live as long as `adapter`.
    let properties = unsafe { instance.raw_instance().get_physical_device_properties(device) };
    // The device offers its own version only through an instance that has it too.
    let common = instance.instance_api_version().min(properties.api_version);
    let version = Version::new(vk::api_version_major(common), vk::api_version_minor(common));
    let known =
        Vulkan { version: Some(version), driver_version: Some(properties.driver_version), uuid: None };
    if common < vk::API_VERSION_1_1 {
        return known;
    }
    let mut ids = vk::PhysicalDeviceIDProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut ids);
    // SAFETY: the physical device belongs to this instance, and both live as long as `adapter`. Both have
    // Vulkan 1.1, which has the function and the structure.
    unsafe { instance.raw_instance().get_physical_device_properties2(device, &mut properties) };
    // A driver without a UUID returns zeros.
    Vulkan { uuid: (ids.device_uuid != [0; 16]).then(|| DeviceUuid::from_bytes(ids.device_uuid)), ..known }
}

#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn of_vulkan(_adapter: &wgpu::Adapter) -> Vulkan {
    Vulkan::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(kind: DeviceType, api: Backend, pci: &str, uuid: u8) -> Facts {
        let info = AdapterInfo { device_pci_bus_id: pci.into(), ..AdapterInfo::new(kind, api) };
        Facts { version: None, pci: pci.parse().ok(), uuid: Some(DeviceUuid::from_bytes([uuid; 16])), info }
    }

    #[test]
    fn cards_come_first_and_the_cpu_last_whatever_order_the_drivers_have() {
        let ordered = [
            facts(DeviceType::DiscreteGpu, Backend::Vulkan, "0000:01:00.0", 9),
            facts(DeviceType::DiscreteGpu, Backend::Vulkan, "0000:41:00.0", 1),
            facts(DeviceType::DiscreteGpu, Backend::Vulkan, "", 0),
            facts(DeviceType::DiscreteGpu, Backend::Dx12, "0000:01:00.0", 0),
            facts(DeviceType::DiscreteGpu, Backend::Gl, "", 0),
            facts(DeviceType::IntegratedGpu, Backend::Vulkan, "0000:00:02.0", 0),
            facts(DeviceType::IntegratedGpu, Backend::Metal, "", 0),
            facts(DeviceType::VirtualGpu, Backend::Vulkan, "0000:00:03.0", 0),
            facts(DeviceType::Cpu, Backend::Vulkan, "", 3),
            facts(DeviceType::Cpu, Backend::Vulkan, "", 4),
        ];
        for (place, left) in ordered.iter().enumerate() {
            for right in &ordered[place + 1..] {
                assert!(left.order() < right.order(), "{:?} before {:?}", left.info, right.info);
            }
        }
    }

    #[test]
    fn known_makers_have_a_name_and_others_a_number() {
        assert_eq!(vendor(0x10de).as_deref(), Some("NVIDIA"));
        assert_eq!(vendor(0x1_0005).as_deref(), Some("Mesa"));
        assert_eq!(vendor(0xbeef).as_deref(), Some("vendor 0xbeef"));
        assert_eq!(vendor(0), None);
    }

    #[test]
    fn optional_types_follow_the_features_of_the_adapter() {
        assert_eq!(dtypes(Features::empty()), ["i32", "u32", "f32"]);
        let all = dtypes(Features::SHADER_F16 | Features::SHADER_INT64);
        assert_eq!(all, ["i32", "u32", "f32", "f16", "i64", "u64"]);
    }

    #[test]
    fn the_number_of_a_version_is_read_as_its_maker_writes_it() {
        assert_eq!(version_text(5 << 22, 0x1ae0), "5.0.0");
        assert_eq!(version_text(22 << 22 | 3 << 12 | 6, 0x1_0005), "22.3.6");
        assert_eq!(version_text(580 << 22 | 159 << 14 | 4 << 6, 0x10de), "580.159.4.0");
        assert_eq!(version_text(0, 0x1ae0), "");
    }

    #[test]
    fn the_driver_is_named_with_its_interface_and_without_empty_parts() {
        let driver = |driver: &str, version: &str| {
            let info = AdapterInfo::new(DeviceType::Other, Backend::Dx12);
            super::driver(&AdapterInfo { driver: driver.into(), driver_info: version.into(), ..info })
        };
        assert_eq!(driver("WARP ", "1.0"), "DX12 WARP 1.0");
        assert_eq!(driver("", "31.0"), "DX12 31.0");
        assert_eq!(driver("", ""), "DX12");
    }
}
