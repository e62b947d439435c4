//! The properties of a device, and the state of its memory.

use std::fmt;

use crate::backend::error::size;
use crate::backend::{Api, AttributeValue, Attributes, DeviceUuid, PciAddress, Version};

/// The properties of a device: facts that do not change while the program runs.
///
/// A backend builds them with [`new`](Self::new) and the `with_` functions, since later versions may add
/// fields. It leaves out an unknown property and never guesses one.
///
/// ```
/// use device_registry::{DeviceKind, DeviceProperties};
///
/// let properties = DeviceProperties::new("Example 9000")
///     .with_kind(DeviceKind::Gpu)
///     .with_driver("example 1.2")
///     .with_uuid("0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10".parse()?)
///     .with_pci("0000:3b:00.0".parse()?)
///     .with_copy_alignment(4);
/// assert_eq!(
///     properties.to_string(),
///     "Example 9000, gpu, driver example 1.2, uuid=0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10, pci=0000:3b:00.0"
/// );
/// # Ok::<(), device_registry::backend::IdentityError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProperties {
    /// The device's name, for people: a model, not a device string.
    pub name: String,
    /// The vendor of the device.
    pub vendor: Option<String>,
    /// The kind of device.
    pub kind: DeviceKind,
    /// The driver and its version, if there is one, for people. Where a backend has several drivers, the text
    /// begins with the name that users know, such as the OpenCL platform's: the selector `platform=`
    /// finds a part of it.
    pub driver: Option<String>,
    /// Only the driver's version, in the form that the driver gives it.
    pub driver_version: Option<String>,
    /// The interface through which the backend uses the device, with the newest version that both have.
    pub api: Option<Api>,
    /// The version of the device's instruction set, where the vendor numbers it: NVIDIA's compute capability.
    pub compute_capability: Option<Version>,
    /// The total memory of the device, in bytes.
    pub total_memory: Option<u64>,
    /// The largest allocation that the device can make, in bytes, if it has such a limit. The core refuses a
    /// larger one with an error that names the limit.
    pub largest_allocation: Option<u64>,
    /// The types of numbers with which the device computes: the types in its instruction set or, where that
    /// is hidden, in the language of its interface. They are named like the dtypes of `device-tensor` and
    /// `device-kernels`, such as `f32`, `bf16` and `i64`. A kernel for another type, which the device can
    /// still store, has to emulate it. `None` if the backend does not know.
    pub native_dtypes: Option<Vec<String>>,
    /// The device's UUID. One card has the same UUID in every backend that lists it.
    ///
    /// It does not identify a device across machines: each machine with the same driver may have the same
    /// one. Mesa's drivers for the processor have the text `mesa` and their version, SwiftShader its name,
    /// and Intel's OpenCL runtime for the processor its model (CPUID).
    pub uuid: Option<DeviceUuid>,
    /// The device's PCI address. One card has the same address in every backend that lists it.
    pub pci: Option<PciAddress>,
    /// The alignment of copies and fills, in bytes: a power of two, at most 1 MiB, and 1 for no requirement.
    /// Their ranges start at a multiple of it, and end at a multiple or at the end of the memory.
    pub copy_alignment: usize,
    /// Whether work of several streams can run at the same time.
    pub concurrent_streams: bool,
    /// Whether the device supports timed events.
    pub timed_events: bool,
    /// Whether [`Device::allocate_host`](crate::Device::allocate_host) returns pinned memory.
    pub pinned_memory: bool,
    /// How the core uses freed memory of the device again: see
    /// [`Device::empty_cache`](crate::Device::empty_cache).
    pub memory_reuse: MemoryReuse,
    /// Further facts by name, which differ from backend to backend.
    pub attributes: Attributes,
}

/// How the core uses freed memory of a device again. It is for devices on which allocating is slow.
///
/// Where it does, the driver frees memory some time after the last user has dropped it. The core does not use
/// memory again while a driver still holds a handle of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryReuse {
    /// Each allocation and each free reaches the driver.
    #[default]
    Never,
    /// Memory serves allocations of the same length. Lengths are not rounded, for devices on which native
    /// code sees how long memory is, such as a shader by `arrayLength`.
    Exact,
    /// Memory serves allocations of about the same length. The driver gets lengths that are rounded up, by an
    /// eighth or 512 bytes at most, so that native memory may be longer than its buffer.
    Rounded,
    /// Allocations of `from` bytes and more are [`Rounded`](Self::Rounded). Each smaller one, and its free,
    /// reaches the driver. For the host's own memory: its allocator is quicker than the core for a small
    /// block, and fills each large one with zeros. The core keeps at most 256 MiB, unless the program [says
    /// otherwise](crate::Device::set_cache_limit): such a device is never full before its host is.
    Large {
        /// From which length on, in bytes.
        from: usize,
    },
    /// Memory serves any allocations that fit into it, several at a time. So a new buffer may begin anywhere
    /// in native memory, at a multiple of `alignment`, and streams use different buffers in one memory at the
    /// same time. For devices that address memory with pointers, and for interfaces that bind a buffer with
    /// an offset: [rule D4](crate::backend#memory).
    Divided {
        /// A power of two, at most 1 MiB. It is at least 512 in any case.
        alignment: usize,
    },
}

impl DeviceProperties {
    /// Properties of a device with this name, of the kind [`DeviceKind::Other`].
    ///
    /// By default copies need no alignment, streams are concurrent, timed events are supported, host memory
    /// is not pinned, freed memory is not reused, and the rest is unknown. The core's own streams, for a
    /// driver without queues, have these properties.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            vendor: None,
            kind: DeviceKind::Other,
            driver: None,
            driver_version: None,
            api: None,
            compute_capability: None,
            total_memory: None,
            largest_allocation: None,
            native_dtypes: None,
            uuid: None,
            pci: None,
            copy_alignment: 1,
            concurrent_streams: true,
            timed_events: true,
            pinned_memory: false,
            memory_reuse: MemoryReuse::Never,
            attributes: Attributes::new(),
        }
    }

    /// Adds the vendor.
    #[must_use]
    pub fn with_vendor(self, vendor: impl Into<String>) -> Self {
        Self { vendor: Some(vendor.into()), ..self }
    }

    /// Sets the kind.
    #[must_use]
    pub fn with_kind(self, kind: DeviceKind) -> Self {
        Self { kind, ..self }
    }

    /// Adds the driver and its version.
    #[must_use]
    pub fn with_driver(self, driver: impl Into<String>) -> Self {
        Self { driver: Some(driver.into()), ..self }
    }

    /// Adds only the driver's version.
    #[must_use]
    pub fn with_driver_version(self, version: impl Into<String>) -> Self {
        Self { driver_version: Some(version.into()), ..self }
    }

    /// Adds the interface through which the backend uses the device.
    #[must_use]
    pub fn with_api(self, api: Api) -> Self {
        Self { api: Some(api), ..self }
    }

    /// Adds the compute capability.
    #[must_use]
    pub fn with_compute_capability(self, version: Version) -> Self {
        Self { compute_capability: Some(version), ..self }
    }

    /// Adds the total memory, in bytes.
    #[must_use]
    pub fn with_total_memory(self, bytes: u64) -> Self {
        Self { total_memory: Some(bytes), ..self }
    }

    /// Adds the size of the largest allocation, in bytes.
    #[must_use]
    pub fn with_largest_allocation(self, bytes: u64) -> Self {
        Self { largest_allocation: Some(bytes), ..self }
    }

    /// Sets the types of numbers with which the device computes by itself. Replaces those set before.
    ///
    /// ```
    /// use device_registry::DeviceProperties;
    ///
    /// let properties = DeviceProperties::new("Example 9000").with_native_dtypes(["i32", "f32", "f16"]);
    /// assert_eq!(properties.is_native_dtype("f16"), Some(true));
    /// assert_eq!(properties.is_native_dtype("f64"), Some(false));
    /// assert_eq!(DeviceProperties::new("Example 1").is_native_dtype("f32"), None);
    /// ```
    #[must_use]
    pub fn with_native_dtypes<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        Self { native_dtypes: Some(names.into_iter().map(Into::into).collect()), ..self }
    }

    /// Adds a fact by name, and replaces one with this name. One outside of the [limits](Attributes#limits)
    /// is left out.
    #[must_use]
    pub fn with_attribute(mut self, name: &str, value: impl Into<AttributeValue>) -> Self {
        self.attributes.set(name, value);
        self
    }

    /// Adds the UUID. A UUID of only zeros counts as unknown (RFC 9562, section 5.9), as some drivers use it
    /// that way.
    #[must_use]
    pub fn with_uuid(self, uuid: DeviceUuid) -> Self {
        Self { uuid: (*uuid.as_bytes() != [0; 16]).then_some(uuid), ..self }
    }

    /// Adds the PCI address.
    #[must_use]
    pub fn with_pci(self, address: PciAddress) -> Self {
        Self { pci: Some(address), ..self }
    }

    /// Sets the alignment of copies and fills, in bytes. A value that is not a power of two, or is above 1
    /// MiB, makes every open fail.
    #[must_use]
    pub fn with_copy_alignment(self, bytes: usize) -> Self {
        Self { copy_alignment: bytes, ..self }
    }

    /// Sets whether work of several streams can run at the same time.
    #[must_use]
    pub fn with_concurrent_streams(self, concurrent: bool) -> Self {
        Self { concurrent_streams: concurrent, ..self }
    }

    /// Sets whether the device supports timed events.
    #[must_use]
    pub fn with_timed_events(self, timed: bool) -> Self {
        Self { timed_events: timed, ..self }
    }

    /// Sets whether host memory can be pinned.
    #[must_use]
    pub fn with_pinned_memory(self, pinned: bool) -> Self {
        Self { pinned_memory: pinned, ..self }
    }

    /// Sets how the core uses freed memory again. An alignment that is not a power of two, or is above 1 MiB,
    /// makes every open fail.
    #[must_use]
    pub fn with_memory_reuse(self, reuse: MemoryReuse) -> Self {
        Self { memory_reuse: reuse, ..self }
    }

    /// Whether a type, such as `f16`, is one of the [native dtypes](Self::native_dtypes). `None` if the
    /// backend does not know.
    #[must_use]
    pub fn is_native_dtype(&self, name: &str) -> Option<bool> {
        self.native_dtypes.as_ref().map(|names| names.iter().any(|native| native == name))
    }

    /// Whether both describe the same hardware, for example one card that two backends list: their UUIDs are
    /// equal, or their PCI addresses are. Returns `false` if neither property is known on both sides. It is
    /// for properties that were read on one machine: see [`uuid`](Self::uuid).
    ///
    /// Partitions of a card that are separate devices share its address. To tell them apart, compare the
    /// UUIDs.
    ///
    /// ```
    /// use device_registry::{Device, devices};
    ///
    /// // All devices, each card once.
    /// let mut cards: Vec<(Device, _)> = Vec::new();
    /// for device in devices().flat_map(|(_, devices)| devices.unwrap_or_default()) {
    ///     let Ok(properties) = device.properties() else { continue };
    ///     if !cards.iter().any(|(_, other)| properties.is_same_hardware(other)) {
    ///         cards.push((device, properties));
    ///     }
    /// }
    /// # assert_eq!(cards[0].0, Device::parse("cpu:0")?);
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    #[must_use]
    pub fn is_same_hardware(&self, other: &Self) -> bool {
        let same_uuid = self.uuid.is_some() && self.uuid == other.uuid;
        let same_address = self.pci.is_some() && self.pci == other.pci;
        same_uuid || same_address
    }
}

/// Writes the known properties in one line, for lists of devices. The UUID and the address have the form of a
/// selector.
impl fmt::Display for DeviceProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![self.name.clone()];
        parts.extend(self.vendor.clone());
        if self.kind != DeviceKind::Other {
            parts.push(self.kind.to_string());
        }
        parts.extend(self.driver.as_ref().map(|driver| format!("driver {driver}")));
        parts.extend(self.total_memory.map(size));
        parts.extend(self.uuid.map(|uuid| format!("uuid={uuid}")));
        parts.extend(self.pci.map(|pci| format!("pci={pci}")));
        f.pad(&parts.join(", "))
    }
}

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// The host's own processor.
    Cpu,
    /// A graphics processor with memory of its own.
    Gpu,
    /// A graphics processor that shares the host's memory.
    IntegratedGpu,
    /// Another processor for computing.
    Accelerator,
    /// A program that simulates a device.
    Simulated,
    /// Another kind, or an unknown one.
    Other,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::IntegratedGpu => "integrated gpu",
            Self::Accelerator => "accelerator",
            Self::Simulated => "simulated",
            Self::Other => "other",
        })
    }
}

/// The total and the free memory of a device, in bytes, at the time of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// The total memory of the device, if known.
    pub total: Option<u64>,
    /// The free memory, if known. Another thread or process may allocate it at any time.
    pub free: Option<u64>,
}

impl MemoryInfo {
    /// Neither the total nor the free memory is known.
    #[must_use]
    pub fn unknown() -> Self {
        Self::default()
    }

    /// Sets the total.
    #[must_use]
    pub fn with_total(mut self, bytes: u64) -> Self {
        self.total = Some(bytes);
        self
    }

    /// Sets the free memory.
    #[must_use]
    pub fn with_free(mut self, bytes: u64) -> Self {
        self.free = Some(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_is_the_same_by_a_property_that_both_sides_know() {
        let card = |uuid: u8, pci: Option<&str>| {
            let card = DeviceProperties::new("card").with_uuid(DeviceUuid::from_bytes([uuid; 16]));
            pci.iter().fold(card, |card, pci| card.with_pci(pci.parse().unwrap()))
        };
        let first = Some("3b:00.0");
        let second = Some("5e:00.0");
        for (one, other, same) in [
            (card(1, None), card(1, second), true),
            (card(1, None), card(2, None), false),
            (card(0, first), card(2, first), true),
            (card(0, first), card(0, second), false),
            (card(0, None), card(0, None), false),
            (card(1, None), card(0, first), false),
        ] {
            assert_eq!(one.is_same_hardware(&other), same, "{one}; {other}");
            assert_eq!(other.is_same_hardware(&one), same, "{one}; {other}");
        }
    }
}
