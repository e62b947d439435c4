//! Backends for this crate's own tests: one that works, and others that each misbehave in one way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use crate::available::device_count;
use crate::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, DeviceDriver, DeviceKind, DeviceProperties,
    DeviceUuid, LoadFailure, Memory, MemoryInfo, OpenedDevice, PciAddress, Presence, Span, backends,
};
use crate::device::Device;
use crate::parse::device;

/// How often a device of the backend `opened_once` was opened.
pub(crate) static OPENED: AtomicUsize = AtomicUsize::new(0);

/// How often the backend `copies_by_itself` copied within a device.
pub(crate) static COPIES: AtomicUsize = AtomicUsize::new(0);

/// How often the backend `copies_by_itself` copied from one of its devices to the other.
pub(crate) static PEER_COPIES: AtomicUsize = AtomicUsize::new(0);

/// Whether the devices of the backend `comes_later` are there.
pub(crate) static HAS_COME: AtomicBool = AtomicBool::new(false);

static FAKE: BackendDescriptor = BackendDescriptor::new("fake", || backend("fake"));

/// Both backends must have started before either continues.
static LOADING_AND_OPENING: Barrier = Barrier::new(2);

static OTHERS: [BackendDescriptor; 35] = [
    BackendDescriptor::new("other", || backend("other")),
    BackendDescriptor::new("opened_once", || backend("opened_once")),
    BackendDescriptor::new("fails_at_first", || backend("fails_at_first")),
    BackendDescriptor::new("opens_itself", || backend("opens_itself")),
    BackendDescriptor::new("opens_left", || backend("opens_left")),
    BackendDescriptor::new("opens_right", || backend("opens_right")),
    BackendDescriptor::new("has_no_devices", || backend("has_no_devices")),
    BackendDescriptor::new("panics_in_count", || backend("panics_in_count")),
    BackendDescriptor::new("panics_in_open", || backend("panics_in_open")),
    BackendDescriptor::new("panics_in_properties", || backend("panics_in_properties")),
    BackendDescriptor::new("panics_in_allocate", || backend("panics_in_allocate")),
    BackendDescriptor::new("panics_in_drop", || backend("panics_in_drop")),
    BackendDescriptor::new("opens_while_it_loads", || {
        LOADING_AND_OPENING.wait();
        device_of("loads_while_it_opens").open()?;
        backend("opens_while_it_loads")
    }),
    BackendDescriptor::new("loads_while_it_opens", || backend("loads_while_it_opens")),
    BackendDescriptor::new("copies_by_itself", || backend("copies_by_itself")),
    BackendDescriptor::new("peers_fail", || backend("peers_fail")),
    BackendDescriptor::new("counts_too_many", || backend("counts_too_many")),
    BackendDescriptor::new("counts_itself", || backend("counts_itself")),
    BackendDescriptor::new("describes_itself", || backend("describes_itself")),
    BackendDescriptor::new("declares_odd_alignment", || backend("declares_odd_alignment")),
    BackendDescriptor::new("declares_huge_alignment", || backend("declares_huge_alignment")),
    BackendDescriptor::new("has_uuids", || backend("has_uuids")),
    BackendDescriptor::new("has_names", || backend("has_names")),
    BackendDescriptor::new("has_kinds", || backend("has_kinds")),
    BackendDescriptor::new("excluded_only", || backend("excluded_only")),
    BackendDescriptor::new("selected_only", || backend("selected_only")),
    BackendDescriptor::new("first_has_no_properties", || backend("first_has_no_properties")),
    BackendDescriptor::new("second_is_absent", || backend("second_is_absent")),
    BackendDescriptor::new("comes_later", || backend("comes_later")),
    BackendDescriptor::new("is_lost_at_a_write", || backend("is_lost_at_a_write")),
    BackendDescriptor::new("is_lost_at_a_read", || backend("is_lost_at_a_read")),
    BackendDescriptor::new("loaded_by_a_selector", || backend("loaded_by_a_selector")),
    BackendDescriptor::new("is_listed", || backend("is_listed")),
    BackendDescriptor::new("panics_in_load", || panic!("on purpose")),
    BackendDescriptor::new("fails_to_load", || Err(LoadFailure::new("on purpose"))),
];

/// A device of the backend that works. It has two.
pub(crate) fn fake(index: Option<u16>) -> Device {
    backends().register(&FAKE).unwrap();
    Device::of_backend(backends().get("fake").unwrap(), index)
}

/// The current device of one of the other backends.
pub(crate) fn device_of(name: &str) -> Device {
    backends().register(OTHERS.iter().find(|other| other.name() == name).unwrap()).unwrap();
    device(name).unwrap()
}

fn backend(name: &'static str) -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(Fake { name, opened_before: AtomicBool::new(false) }))
}

struct Fake {
    name: &'static str,
    opened_before: AtomicBool,
}

/// The kind, the total memory and the free memory of a device of `has_kinds`.
fn of_kind(ordinal: usize) -> (DeviceKind, u64, Option<u64>) {
    match ordinal {
        0 => (DeviceKind::Cpu, 4 << 30, None),
        1 => (DeviceKind::IntegratedGpu, 4 << 30, Some(3 << 30)),
        2 => (DeviceKind::Gpu, 64 << 30, Some(64 << 30)),
        _ => (DeviceKind::Gpu, 8 << 30, Some(2 << 30)),
    }
}

/// The properties of a card. Two cards have similar UUIDs and addresses that differ in the domain; a third
/// has no address.
fn of_hardware(card: usize) -> DeviceProperties {
    let uuid = ["0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10", "0d7c8f33-3d1b-4d0a-9a55-0c1f5d7e9b10"];
    let uuid = uuid.get(card).map_or(DeviceUuid::from_bytes([0xff; 16]), |uuid| uuid.parse().unwrap());
    let properties = DeviceProperties::new(format!("fake {card}")).with_uuid(uuid);
    match card {
        0 => properties.with_pci(PciAddress::new(0, 0x3b, 0, 0).unwrap()),
        1 => properties.with_pci(PciAddress::new(0x10000, 0x3b, 0, 0).unwrap()),
        _ => properties,
    }
}

/// The properties of a device without a UUID or an address: two of one model, the processor on another
/// platform, and one that knows only its name.
fn of_driver(device: usize) -> DeviceProperties {
    let (name, vendor, driver) = match device {
        0 | 1 => ("Example RTX 9000 (Ti)", "Example, Inc.", "Example CL 1.2"),
        2 => ("EPYC 9000", "Advanced Micro Examples", "Portable Language 3.1"),
        _ => return DeviceProperties::new("nameless"),
    };
    DeviceProperties::new(name).with_vendor(vendor).with_driver(driver)
}

fn panic_if(condition: bool) {
    assert!(!condition, "on purpose");
}

impl Backend for Fake {
    fn device_count(&self) -> Result<usize, BackendError> {
        panic_if(self.name == "panics_in_count");
        match self.name {
            "has_no_devices" => Ok(0),
            "has_uuids" => Ok(3),
            "has_names" | "has_kinds" => Ok(4),
            // A count of -1 from C.
            "counts_too_many" => Ok(usize::MAX),
            "counts_itself" => device_count(device_of(self.name).name()).map_err(|error| {
                let message = error.to_string();
                BackendError::other(message).with_source(error)
            }),
            _ => Ok(2),
        }
    }

    fn presence(&self, ordinal: usize) -> Result<Presence, BackendError> {
        let absent = match self.name {
            "second_is_absent" => ordinal == 1,
            "has_kinds" => ordinal == 2,
            "comes_later" => !HAS_COME.load(Ordering::SeqCst),
            _ => false,
        };
        Ok(if absent { Presence::absent("no server at 127.0.0.1:9") } else { Presence::Present })
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        panic_if(self.name == "panics_in_properties");
        match self.name {
            "has_uuids" => Ok(of_hardware(ordinal)),
            "has_names" => Ok(of_driver(ordinal)),
            "has_kinds" => {
                let (kind, total, _) = of_kind(ordinal);
                let properties = DeviceProperties::new("fake").with_kind(kind).with_total_memory(total);
                Ok(if ordinal == 1 { properties.with_uuid(of_hardware(0).uuid.unwrap()) } else { properties })
            }
            "second_is_absent" if ordinal == 1 => Err(BackendError::unavailable("not connected")),
            "second_is_absent" => Ok(of_hardware(0)),
            "first_has_no_properties" if ordinal == 0 => Err(BackendError::unavailable("gone")),
            "first_has_no_properties" => Ok(of_hardware(0)),
            "declares_odd_alignment" => Ok(DeviceProperties::new("fake").with_copy_alignment(3)),
            "declares_huge_alignment" => {
                Ok(DeviceProperties::new("fake").with_copy_alignment(1 << (usize::BITS - 1)))
            }
            "describes_itself" => device_of(self.name).properties().map_err(|error| {
                let message = error.to_string();
                BackendError::other(message).with_source(error)
            }),
            _ => Ok(DeviceProperties::new("fake")),
        }
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        // Both backends must be inside `open` before either continues.
        static BOTH: Barrier = Barrier::new(2);
        let first = !self.opened_before.swap(true, Ordering::SeqCst);
        panic_if(self.name == "panics_in_open");
        let needed = match self.name {
            "fails_at_first" if first => return Err(BackendError::unavailable("busy")),
            "loads_while_it_opens" => {
                LOADING_AND_OPENING.wait();
                let loaded = backends().load("opens_while_it_loads");
                loaded.map_err(|error| BackendError::other(&error).with_source(error))?;
                None
            }
            "opened_once" => {
                OPENED.fetch_add(1, Ordering::SeqCst);
                None
            }
            "opens_itself" => Some("opens_itself"),
            "opens_left" => Some("opens_right"),
            "opens_right" => Some("opens_left"),
            _ => None,
        };
        if let Some(needed) = needed {
            if first && needed != self.name {
                BOTH.wait();
            }
            device_of(needed).open().map_err(|error| BackendError::other(&error).with_source(error))?;
        }
        Ok(OpenedDevice::new(self, FakeDevice { backend: self.name, ordinal }))
    }
}

struct FakeDevice {
    backend: &'static str,
    ordinal: usize,
}

struct FakeMemory {
    bytes: Mutex<Vec<u8>>,
    panics: bool,
}

impl Memory for FakeMemory {}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        panic_if(self.panics);
    }
}

impl DeviceDriver for FakeDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let free = if self.backend == "has_kinds" { of_kind(self.ordinal).2 } else { None };
        Ok(free.map_or_else(MemoryInfo::unknown, |free| MemoryInfo::unknown().with_free(free)))
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        assert_ne!(options.len, 0, "zero lengths never reach a driver");
        panic_if(self.backend == "panics_in_allocate");
        let bytes = Mutex::new(vec![0; options.len]);
        Ok(Arc::new(FakeMemory { bytes, panics: self.backend == "panics_in_drop" }))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        if self.backend == "is_lost_at_a_write" {
            return Err(BackendError::lost("it fell off the bus"));
        }
        let memory = destination.memory_as::<FakeMemory>()?;
        memory.bytes.lock().unwrap()[destination.range()].copy_from_slice(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        if self.backend == "is_lost_at_a_read" {
            return Err(BackendError::lost("it fell off the bus"));
        }
        let memory = source.memory_as::<FakeMemory>()?;
        destination.copy_from_slice(&memory.bytes.lock().unwrap()[source.range()]);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        COPIES.fetch_add(usize::from(self.backend == "copies_by_itself"), Ordering::SeqCst);
        let mut bytes = vec![0; source.len()];
        self.read(source, &mut bytes)?;
        self.write(destination, &bytes)
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        match self.backend {
            "copies_by_itself" => {
                PEER_COPIES.fetch_add(1, Ordering::SeqCst);
                let mut bytes = vec![0; source.len()];
                self.read(source, &mut bytes)?;
                self.write(destination, &bytes)
            }
            "peers_fail" => Err(BackendError::other("the link is down")),
            _ => Err(BackendError::unsupported("copying from a peer")),
        }
    }
}
