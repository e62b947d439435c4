//! What a device says of itself.

use std::fmt;

use crate::backend::{DeviceUuid, PciAddress};

/// What a device is: facts that do not change while the program runs.
///
/// A backend builds one; more facts will be added, so that the fields can be read but the struct is made by its
/// builder. What a backend does not know it leaves out: nothing is guessed.
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
    /// Who made it.
    pub vendor: Option<String>,
    /// What kind of device it is.
    pub kind: DeviceKind,
    /// The driver and its version, if there is one.
    pub driver: Option<String>,
    /// All memory that it has, in bytes.
    pub total_memory: Option<u64>,
    /// The longest allocation that it can make, in bytes, if there is such a limit. A longer one is an error that
    /// names it, and never reaches the driver.
    pub largest_allocation: Option<u64>,
    /// What tells it from all others in the world. One card that two backends show has one UUID.
    pub uuid: Option<DeviceUuid>,
    /// Where it is plugged in. One card that two backends show has one address.
    pub pci: Option<PciAddress>,
    /// Copies and fills begin at a multiple of so many bytes, and are as long, or reach the end of the memory. A
    /// power of two, at most 1 MiB; 1 if nothing is asked for.
    pub copy_alignment: usize,
    /// Whether work of several streams can run at the same time.
    pub concurrent_streams: bool,
    /// Whether events can have a time.
    pub timed_events: bool,
    /// Whether [`Device::allocate_host`](crate::Device::allocate_host) gives memory that is pinned.
    pub pinned_memory: bool,
}

impl DeviceProperties {
    /// Properties of a device called `name`, of a kind of its own, with all else unknown: any alignment is fine,
    /// streams are concurrent, events have times, host memory is not pinned. That is what the core's own streams
    /// offer on top of a driver that has none.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            vendor: None,
            kind: DeviceKind::Other,
            driver: None,
            total_memory: None,
            largest_allocation: None,
            uuid: None,
            pci: None,
            copy_alignment: 1,
            concurrent_streams: true,
            timed_events: true,
            pinned_memory: false,
        }
    }

    /// Adds who made it.
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

    /// Adds how many bytes of memory it has.
    #[must_use]
    pub fn with_total_memory(self, bytes: u64) -> Self {
        Self { total_memory: Some(bytes), ..self }
    }

    /// Adds how long an allocation can be, in bytes.
    #[must_use]
    pub fn with_largest_allocation(self, bytes: u64) -> Self {
        Self { largest_allocation: Some(bytes), ..self }
    }

    /// Adds the UUID. One of nothing but zeros is none (RFC 9562, section 5.9): some drivers have it for "unknown".
    #[must_use]
    pub fn with_uuid(self, uuid: DeviceUuid) -> Self {
        Self { uuid: (*uuid.as_bytes() != [0; 16]).then_some(uuid), ..self }
    }

    /// Adds where it is plugged in.
    #[must_use]
    pub fn with_pci(self, address: PciAddress) -> Self {
        Self { pci: Some(address), ..self }
    }

    /// Sets what copies and fills are aligned to, in bytes. What is no power of two makes every open fail.
    #[must_use]
    pub fn with_copy_alignment(self, bytes: usize) -> Self {
        Self { copy_alignment: bytes, ..self }
    }

    /// Sets whether work of several streams can run at the same time.
    #[must_use]
    pub fn with_concurrent_streams(self, concurrent: bool) -> Self {
        Self { concurrent_streams: concurrent, ..self }
    }

    /// Sets whether events can have a time.
    #[must_use]
    pub fn with_timed_events(self, timed: bool) -> Self {
        Self { timed_events: timed, ..self }
    }

    /// Sets whether host memory can be pinned.
    #[must_use]
    pub fn with_pinned_memory(self, pinned: bool) -> Self {
        Self { pinned_memory: pinned, ..self }
    }

    /// Whether both say that they are the same hardware: one card that two backends show, say. Their UUIDs are the
    /// same, or their PCI addresses. Where neither is known to both it is `false`, as nothing is guessed.
    ///
    /// Parts of a card that are devices of their own share its address; where it matters, compare the UUIDs.
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

/// In one line, as lists of devices show it: what is known, and a UUID and an address in the form of a selector.
impl fmt::Display for DeviceProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = vec![self.name.clone()];
        parts.extend(self.vendor.clone());
        if self.kind != DeviceKind::Other {
            parts.push(self.kind.to_string());
        }
        parts.extend(self.driver.as_ref().map(|driver| format!("driver {driver}")));
        parts.extend(self.total_memory.map(|bytes| format!("{} MiB", bytes >> 20)));
        parts.extend(self.uuid.map(|uuid| format!("uuid={uuid}")));
        parts.extend(self.pci.map(|pci| format!("pci={pci}")));
        f.pad(&parts.join(", "))
    }
}

/// What kind of device it is.
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
    /// A program that behaves like a device.
    Simulated,
    /// Anything else, or unknown.
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

/// A device's memory, in bytes, at the moment of asking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// All memory that the device has, if it is known.
    pub total: Option<u64>,
    /// What is free now, if it is known. Another thread or process may take it at any time.
    pub free: Option<u64>,
}

impl MemoryInfo {
    /// Nothing is known.
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

    /// Sets what is free.
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
    fn hardware_is_the_same_by_what_both_know() {
        let card = |uuid: u8, pci: Option<&str>| {
            let card = DeviceProperties::new("card").with_uuid(DeviceUuid::from_bytes([uuid; 16]));
            pci.iter().fold(card, |card, pci| card.with_pci(pci.parse().unwrap()))
        };
        let (first, second) = (Some("3b:00.0"), Some("5e:00.0"));
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
