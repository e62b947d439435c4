//! One of each value that a driver returns, for tests of code that has to pass on all of them. Not public
//! API.
//!
//! A `match` of another crate on these types needs `_`, which would hide a new variant from its test. The
//! matches here do not compile without the new variant.

use std::iter::successors;

use crate::backend::{
    Api, Attributes, BackendErrorKind, DeviceKind, DeviceProperties, DeviceUuid, MemoryReuse, PciAddress,
    Version,
};

/// One of each kind of error.
pub fn error_kinds() -> impl Iterator<Item = BackendErrorKind> {
    use BackendErrorKind::{Invalid, Lost, Other, OutOfMemory, Unavailable, Unsupported};
    successors(Some(OutOfMemory { asked: 7, free: Some(5) }), |kind| match kind {
        OutOfMemory { free: Some(_), .. } => Some(OutOfMemory { asked: 7, free: None }),
        OutOfMemory { free: None, .. } => Some(Unsupported),
        Unsupported => Some(Unavailable),
        Unavailable => Some(Lost),
        Lost => Some(Invalid),
        Invalid => Some(Other),
        Other => None,
    })
}

/// One of each kind of device.
pub fn device_kinds() -> impl Iterator<Item = DeviceKind> {
    use DeviceKind::{Accelerator, Cpu, Gpu, IntegratedGpu, Other, Simulated};
    successors(Some(Cpu), |kind| match kind {
        Cpu => Some(Gpu),
        Gpu => Some(IntegratedGpu),
        IntegratedGpu => Some(Accelerator),
        Accelerator => Some(Simulated),
        Simulated => Some(Other),
        Other => None,
    })
}

/// One of each way to use freed memory again, and one with the largest number.
pub fn memory_reuses() -> impl Iterator<Item = MemoryReuse> {
    use MemoryReuse::{Divided, Exact, Large, Never, Rounded};
    successors(Some(Never), |reuse| match reuse {
        Never => Some(Exact),
        Exact => Some(Rounded),
        Rounded => Some(Large { from: 0 }),
        Large { from: 0 } => Some(Large { from: usize::MAX }),
        Large { .. } => Some(Divided { alignment: 512 }),
        Divided { .. } => None,
    })
}

/// Properties in which every field differs from [`DeviceProperties::new`].
pub fn filled_properties() -> DeviceProperties {
    let mut attributes = Attributes::new();
    attributes.set("number", -7);
    attributes.set("fact", true);
    attributes.set("words", "7 = \"seven\"");
    attributes.set("not_a_number", "7");
    attributes.set("not_a_bool", "false");
    DeviceProperties {
        name: "a name".to_owned(),
        vendor: Some("a vendor".to_owned()),
        kind: DeviceKind::Accelerator,
        driver: Some("a driver".to_owned()),
        driver_version: Some("1.2 beta".to_owned()),
        api: Some(Api::new("An API").with_version(Version::new(1, 2))),
        compute_capability: Some(Version::new(8, 9)),
        total_memory: Some(1 << 40),
        largest_allocation: Some(1 << 39),
        native_dtypes: Some(vec!["f32".to_owned(), "i8".to_owned()]),
        uuid: Some(DeviceUuid::from_bytes([7; 16])),
        pci: PciAddress::new(1, 2, 3, 4),
        copy_alignment: 8,
        concurrent_streams: false,
        timed_events: false,
        pinned_memory: true,
        memory_reuse: MemoryReuse::Divided { alignment: 1024 },
        attributes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_of_filled_properties_is_as_it_was() {
        let filled = filled_properties();
        let new = DeviceProperties::new("");
        let lines = |of: &DeviceProperties| format!("{of:#?}").lines().map(str::to_owned).collect::<Vec<_>>();
        let same: Vec<_> = lines(&new).into_iter().filter(|line| lines(&filled).contains(line)).collect();
        assert_eq!(same, ["DeviceProperties {", "}"]);
    }
}
