//! The devices of all backends as a list: data that can be printed.

use std::fmt;

use entry_points::{Entry, Report, State};

use crate::backend::{Backend, DeviceProperties, MemoryInfo, Presence, backends};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::statistics::MemoryStatistics;
use crate::runtime::{listing, probe};

/// Every backend with its state, and their devices with their properties. Loads each backend that is not
/// disabled, and opens no device. A device that is absent or lost is in the list, with the reason.
///
/// It is for a program's `--list`, and for support tools. `backends().report()` has only the states, and
/// loads nothing.
///
/// ```
/// let list = device_registry::device_list();
/// for device in list.devices() {
///     match device.properties() {
///         Ok(properties) => println!("{}: {}", device.device(), properties.name),
///         Err(error) => println!("{}: {error}", device.device()),
///     }
/// }
/// assert!(list.to_string().contains("\ncpu:\n  cpu "), "{list}");
/// ```
///
/// It blocks while backends load, look for their devices, or return the free memory of an open device.
#[must_use]
pub fn device_list() -> DeviceList {
    let group = backends();
    let backends = group.iter().map(ListedBackend::of).collect();
    // Taken last, so that it shows each backend's state after loading.
    DeviceList { report: group.report(), backends }
}

/// The result of [`device_list`]: the state of the registry at the time of that call.
///
/// `Display` prints it on several lines, from the same values that the functions return.
///
/// With the feature `serde` it can be serialized. `docs/devices.schema.json` of the repository is the JSON
/// Schema of the document, and `version` in it is [`DOCUMENT_VERSION`](Self::DOCUMENT_VERSION). An unknown
/// value is null, and the `errors` beside it say why. Sizes are in bytes. `report` and each `state` have the
/// form of [`Report`](crate::registry::Report).
///
/// ```json
/// {
///   "version": 1,
///   "report": { "group": "device.backends", "interface": "dyn Backend", "entries": [], "notes": [] },
///   "backends": [
///     {
///       "name": "cpu",
///       "state": { "kind": "loaded", "took": 0.00001 },
///       "errors": [],
///       "devices": [
///         {
///           "device": "cpu",
///           "presence": { "kind": "present" },
///           "properties": { "name": "host (x86_64)", "kind": "cpu", "total_memory": null },
///           "open": false,
///           "memory": null,
///           "statistics": null,
///           "errors": []
///         }
///       ]
///     }
///   ]
/// }
/// ```
///
/// `report` and `properties` are shortened here.
#[derive(Clone, Debug)]
pub struct DeviceList {
    report: Report,
    backends: Vec<ListedBackend>,
}

impl DeviceList {
    /// The version of the document that serde writes. It changes when a field changes its meaning or is
    /// removed. Fields and kinds may be added within a version.
    pub const DOCUMENT_VERSION: u32 = 1;

    /// The report on the group of backends, after each of them was loaded: packages, versions, files,
    /// options, and notes on probable mistakes.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Every backend, sorted by name, in any state. A name that several packages claim appears once.
    #[must_use]
    pub fn backends(&self) -> &[ListedBackend] {
        &self.backends
    }

    /// The devices of all backends, sorted by the name of the backend and the index.
    pub fn devices(&self) -> impl Iterator<Item = &ListedDevice> {
        self.backends.iter().flat_map(ListedBackend::devices)
    }
}

/// A backend in a [`DeviceList`].
#[derive(Clone, Debug)]
pub struct ListedBackend {
    name: &'static str,
    state: State,
    devices: Result<Vec<ListedDevice>, DeviceError>,
}

impl ListedBackend {
    fn of(backend: Entry<dyn Backend>) -> Self {
        let devices = match backend.state() {
            State::Disabled { .. } => Ok(Vec::new()),
            _ => probe::devices_of(backend).map(|all| all.into_iter().map(ListedDevice::of).collect()),
        };
        Self { name: backend.name(), state: backend.state(), devices }
    }

    /// The name of the backend, which begins its device strings.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The state of the backend after the attempt to load it. `State::Disabled` says which switch turned it
    /// off; it was not loaded.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Its devices, in the order of their indices. Empty for a backend that has none, is disabled, or failed.
    #[must_use]
    pub fn devices(&self) -> &[ListedDevice] {
        self.devices.as_deref().unwrap_or_default()
    }

    /// Why its devices are not known: the backend does not load, or cannot count its devices. `None` for a
    /// backend that is disabled.
    #[must_use]
    pub fn error(&self) -> Option<&DeviceError> {
        self.devices.as_ref().err()
    }
}

/// A device in a [`DeviceList`].
#[derive(Clone, Debug)]
pub struct ListedDevice {
    device: Device,
    presence: Result<Presence, DeviceError>,
    properties: Result<DeviceProperties, DeviceError>,
    opened: Option<Opened>,
}

/// What is known about an open device.
#[derive(Clone, Debug)]
struct Opened {
    statistics: MemoryStatistics,
    memory: Result<MemoryInfo, DeviceError>,
}

impl Device {
    /// What a [list of all devices](device_list) says about this one. Loads only its backend, and opens
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the backend does not load, or does not have the device.
    pub fn listed(self) -> Result<ListedDevice, DeviceError> {
        probe::check_exists(self)?;
        Ok(ListedDevice::of(self.resolve()))
    }
}

impl ListedDevice {
    fn of(device: Device) -> Self {
        // The presence comes first: a backend that looks for a device finds out more about it.
        let presence = listing::presence_of_counted(device);
        let properties = listing::properties_of_counted(device);
        let opened = listing::memory_of_open(device);
        Self {
            device,
            presence,
            properties,
            opened: opened.map(|(statistics, memory)| Opened { statistics, memory }),
        }
    }

    /// The device, with its index; `cpu` has none, as it is one device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Whether the device is there: [present](Presence::Present), or absent or lost, with the reason.
    ///
    /// # Errors
    ///
    /// The backend cannot say.
    pub fn presence(&self) -> Result<&Presence, &DeviceError> {
        self.presence.as_ref()
    }

    /// Whether the device can be used: it is [present](Presence::Present).
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.presence.as_ref().is_ok_and(Presence::is_present)
    }

    /// The properties of the device. Some backends know them for an absent device.
    ///
    /// # Errors
    ///
    /// The backend cannot read them.
    pub fn properties(&self) -> Result<&DeviceProperties, &DeviceError> {
        self.properties.as_ref()
    }

    /// Whether this program has the device open. A device that is lost is open until its
    /// [reset](Device::reset).
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    /// The total and the free memory. `None` unless the device is open: [`Device::memory_info`] opens it. The
    /// [properties](Self::properties) have the total memory of other devices.
    ///
    /// # Errors
    ///
    /// The driver's error, or the loss of the device.
    pub fn memory(&self) -> Option<Result<&MemoryInfo, &DeviceError>> {
        self.opened.as_ref().map(|opened| opened.memory.as_ref())
    }

    /// Statistics of the memory that this program has allocated. `None` unless the device is open.
    #[must_use]
    pub fn statistics(&self) -> Option<&MemoryStatistics> {
        self.opened.as_ref().map(|opened| &opened.statistics)
    }
}

/// Writes the properties, or why the device cannot be used, without the device's name.
impl fmt::Display for ListedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.presence(), self.properties()) {
            (Ok(Presence::Present), Ok(properties)) => properties.fmt(f),
            (Ok(Presence::Present), Err(error)) => error.fmt(f),
            (Ok(other), Ok(properties)) => write!(f, "{properties}, {other}"),
            // The properties of an absent device need not be known.
            (Ok(other), Err(_)) => other.fmt(f),
            (Err(error), _) => error.fmt(f),
        }
    }
}

/// Writes the name, and a line for each device, or the error; for a disabled backend the switch.
impl fmt::Display for ListedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        match (&self.devices, &self.state) {
            (Ok(_), State::Disabled { .. }) => write!(f, " {}", self.state),
            (Ok(devices), _) if devices.is_empty() => f.write_str(" no devices"),
            (Ok(devices), _) => {
                devices.iter().try_for_each(|listed| write!(f, "\n  {:<12}  {listed}", listed.device))
            }
            (Err(error), _) => write!(f, " {error}"),
        }
    }
}

/// Writes the report, and then each backend that is not disabled, with an empty line before it.
impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        let enabled = self.backends.iter().filter(|backend| !matches!(backend.state, State::Disabled { .. }));
        enabled.into_iter().try_for_each(|backend| write!(f, "\n\n{backend}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device_of;

    fn backend<'a>(list: &'a DeviceList, name: &str) -> &'a ListedBackend {
        list.backends().iter().find(|backend| backend.name() == name).unwrap()
    }

    #[test]
    fn the_list_has_absent_and_lost_devices_with_the_reason() {
        device_of("second_is_absent");
        let lost = device_of("is_lost_at_a_read");
        let mut byte = [0];
        lost.allocate(1).unwrap().read(0, &mut byte).unwrap_err();
        let list = device_list();
        let text = list.to_string();
        for part in [
            "\nsecond_is_absent:\n  second_is_absent:0  fake 0, ",
            "\n  second_is_absent:1  absent: no server at 127.0.0.1:9",
            "\n  is_lost_at_a_read:0  fake, lost: it fell off the bus",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let [there, absent] = backend(&list, "second_is_absent").devices() else { panic!("{text}") };
        assert!(there.is_present() && !absent.is_present());
        assert_eq!(absent.presence().unwrap().reason().unwrap().message(), "no server at 127.0.0.1:9");
        assert!(!absent.is_open() && absent.memory().is_none() && absent.statistics().is_none());
        let lost = &backend(&list, "is_lost_at_a_read").devices()[0];
        assert!(matches!(lost.presence(), Ok(Presence::Lost(_))) && lost.is_open());
        assert_eq!(lost.properties().unwrap().name, "fake");
        assert!(lost.memory().unwrap().unwrap_err().to_string().contains("it fell off the bus"));
    }

    #[test]
    fn a_backend_that_fails_has_its_state_and_the_error() {
        for name in ["fails_to_load", "panics_in_count"] {
            device_of(name);
        }
        let list = device_list();
        let failed = backend(&list, "fails_to_load");
        assert!(matches!(failed.state(), State::Failed { .. }) && failed.devices().is_empty());
        assert!(failed.error().unwrap().to_string().contains("on purpose"));
        let panics = backend(&list, "panics_in_count");
        assert!(matches!(panics.state(), State::Loaded { .. }) && panics.error().is_some());
        assert_eq!(list.report().group(), "device.backends");
    }

    #[test]
    fn only_an_open_device_has_memory_and_statistics() {
        let device = device_of("is_listed");
        let listed = |list: &DeviceList| backend(list, "is_listed").devices()[0].clone();
        let before = listed(&device_list());
        assert!(!before.is_open() && before.memory().is_none() && before.statistics().is_none());
        let buffer = device.allocate(7).unwrap();
        let after = listed(&device_list());
        assert!(after.is_open() && after.memory().unwrap().is_ok());
        assert_eq!(after.statistics().unwrap().allocated, 7);
        drop(buffer);
    }
}
