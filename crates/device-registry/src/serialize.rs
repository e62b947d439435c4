//! The list of devices in any format of serde: the feature `serde`. The fields are part of the public
//! interface; `docs/devices.schema.json` describes their JSON.

use std::error::Error;
use std::iter::successors;

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::backend::{
    Api, AttributeValue, Attributes, BackendError, DeviceKind, DeviceProperties, DeviceUuid, MemoryInfo,
    MemoryReuse, PciAddress, Presence, Version,
};
use crate::device_list::{DeviceList, ListedBackend, ListedDevice};
use crate::runtime::statistics::MemoryStatistics;

/// Enough for any honest chain; a `source` that leads back to itself has no end.
const LONGEST: usize = 16;

/// The messages of an error and its causes, innermost last, in the same form as a state of `entry-points`.
fn messages(error: &(dyn Error + 'static)) -> Vec<String> {
    successors(Some(error), |&error| error.source()).take(LONGEST).map(ToString::to_string).collect()
}

/// The same for the reason why a device is absent or lost, without the words for its kind.
fn reasons(error: &BackendError) -> Vec<String> {
    let mut reasons = vec![error.message().to_owned()];
    reasons.extend(error.source().map(messages).unwrap_or_default());
    reasons
}

/// Fields of a struct that is serialized whole.
macro_rules! fields {
    ($serializer:ident, $name:literal, [$($field:literal: $value:expr,)*]) => {{
        let mut fields = $serializer.serialize_struct($name, [$($field),*].len())?;
        $(fields.serialize_field($field, &$value)?;)*
        fields.end()
    }};
}

/// The version of the document, the report on the group of backends, and each backend with its devices.
impl Serialize for DeviceList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields!(serializer, "DeviceList", [
            "version": Self::DOCUMENT_VERSION,
            "report": self.report(),
            "backends": self.backends(),
        ])
    }
}

/// `errors` says why the devices are not known, and is empty if they are.
impl Serialize for ListedBackend {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let errors = self.error().map(|error| messages(error)).unwrap_or_default();
        fields!(serializer, "ListedBackend", [
            "name": self.name(),
            "state": self.state(),
            "errors": errors,
            "devices": self.devices(),
        ])
    }
}

/// An unknown value is null, and `errors` says why: the error of the presence if there is one, else of the
/// properties, else of the memory.
impl Serialize for ListedDevice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let memory = self.memory();
        let errors = [self.presence().err(), self.properties().err(), memory.and_then(Result::err)];
        let errors = errors.into_iter().flatten().next().map(|error| messages(error)).unwrap_or_default();
        fields!(serializer, "ListedDevice", [
            "device": self.device(),
            "presence": self.presence().ok(),
            "properties": self.properties().ok(),
            "open": self.is_open(),
            "memory": memory.and_then(Result::ok),
            "statistics": self.statistics(),
            "errors": errors,
        ])
    }
}

/// A map with the `kind`, and the `errors` of a device that is absent or lost.
impl Serialize for Presence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kind = match self {
            Self::Present => "present",
            Self::Absent(_) => "absent",
            Self::Lost(_) => "lost",
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", kind)?;
        if let Some(reason) = self.reason() {
            map.serialize_entry("errors", &reasons(reason))?;
        }
        map.end()
    }
}

/// All fields, in the order of their declaration; an unknown one is null. Also how many attributes were left
/// out.
impl Serialize for DeviceProperties {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            name,
            vendor,
            kind,
            driver,
            driver_version,
            api,
            compute_capability,
            total_memory,
            largest_allocation,
            native_dtypes,
            uuid,
            pci,
            copy_alignment,
            concurrent_streams,
            timed_events,
            pinned_memory,
            memory_reuse,
            attributes,
        } = self;
        fields!(serializer, "DeviceProperties", [
            "name": name,
            "vendor": vendor,
            "kind": kind,
            "driver": driver,
            "driver_version": driver_version,
            "api": api,
            "compute_capability": compute_capability,
            "total_memory": total_memory,
            "largest_allocation": largest_allocation,
            "native_dtypes": native_dtypes,
            "uuid": uuid,
            "pci": pci,
            "copy_alignment": copy_alignment,
            "concurrent_streams": concurrent_streams,
            "timed_events": timed_events,
            "pinned_memory": pinned_memory,
            "memory_reuse": memory_reuse,
            "attributes": attributes,
            "attributes_left_out": attributes.left_out(),
        ])
    }
}

/// The words of `Display`, with `_` for a space.
impl Serialize for DeviceKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
            Self::IntegratedGpu => "integrated_gpu",
            Self::Accelerator => "accelerator",
            Self::Simulated => "simulated",
            Self::Other => "other",
        })
    }
}

/// A map with the `kind`, and its number.
impl Serialize for MemoryReuse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, number) = match self {
            Self::Never => ("never", None),
            Self::Exact => ("exact", None),
            Self::Rounded => ("rounded", None),
            Self::Large { from } => ("large", Some(("from", from))),
            Self::Divided { alignment } => ("divided", Some(("alignment", alignment))),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", kind)?;
        if let Some((name, number)) = number {
            map.serialize_entry(name, number)?;
        }
        map.end()
    }
}

impl Serialize for Api {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields!(serializer, "Api", ["name": self.name, "version": self.version,])
    }
}

/// Two numbers: text would sort 8.10 before 8.9.
impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields!(serializer, "Version", ["major": self.major, "minor": self.minor,])
    }
}

/// A map from the names to the values, in the order in which the backend gave them.
impl Serialize for Attributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl Serialize for AttributeValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Text(value) => serializer.serialize_str(value),
        }
    }
}

impl Serialize for MemoryInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        fields!(serializer, "MemoryInfo", ["total": self.total, "free": self.free,])
    }
}

impl Serialize for MemoryStatistics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { allocated, peak, live, active, reserved, peak_reserved, cached, reused, retries } = self;
        fields!(serializer, "MemoryStatistics", [
            "allocated": allocated,
            "peak": peak,
            "live": live,
            "active": active,
            "reserved": reserved,
            "peak_reserved": peak_reserved,
            "cached": cached,
            "reused": reused,
            "retries": retries,
        ])
    }
}

/// The identity of a device as its text, which a configuration may keep.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(DeviceUuid, PciAddress);
