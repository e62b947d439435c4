//! A device as a value.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use entry_points::Entry;

use crate::grammar::{DeviceString, Which};
use crate::launch::downcast;
use crate::open_device::OpenDevice;
use crate::{
    Backend, BackendError, DeviceDriver, DeviceError, DeviceProperties, Fault, FaultInjector, MemoryInfo,
    MemoryStatistics, backends, cpu, current, host_call, open,
};

/// A device: a backend and perhaps an index. A small `Copy` value; making one runs no backend's code, unless it is
/// chosen by what it says of itself (`name@uuid=…`).
///
/// Without an index it means *the current device of that backend* on the thread that uses it, which is device 0
/// until a [`DeviceGuard`](crate::DeviceGuard) or [`set_current_device`](crate::set_current_device) says
/// otherwise. So `cuda` and `cuda:0` are not equal, as in PyTorch. [`resolve`](Self::resolve) fixes the
/// index, and a [`Buffer`](crate::Buffer) always reports a device that is resolved.
///
/// ```
/// use device_registry::{Device, device};
///
/// let cpu = device("cpu")?;
/// assert_eq!(cpu, "cpu".parse::<Device>()?);
/// assert_eq!(cpu.to_string(), "cpu");
/// assert_eq!(cpu, device("cpu:0")?); // the cpu is one device
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
///
/// # Device strings
///
/// ```text
/// device   = name [ ":" index | "@" selector ]
/// name     = [a-z_][a-z0-9_]*      at most 32 bytes
/// index    = "0" | [1-9][0-9]*     0 ..= 65535
/// selector = "uuid=" prefix        hexadecimal digits, with the hyphens of a UUID or without
///          | "pci=" address        0000:3b:00.0, or 3b:00.0 in domain 0
/// ```
///
/// No spaces, signs or leading zeros. `auto`, `default`, `all` and `none` are reserved. For every device,
/// `Device::parse(&device.to_string())` is that device.
///
/// | string | device |
/// |---|---|
/// | `cuda` | the current one of the backend |
/// | `cuda:1` | the one of index 1 |
/// | `cuda@uuid=0d7c8f22` | the one whose UUID begins so, in upper or lower case |
/// | `cuda@pci=3b:00.0` | the one that is plugged in there |
///
/// A selector is resolved when it is parsed. That loads the backend and asks each of its devices for its
/// [`properties`](Self::properties), opens nothing, and gives an ordinary device with its index, as which it is printed.
/// If none fits, or several, the error lists them with what they say of themselves.
///
/// # Whose index it is
///
/// An index is the backend's own ordinal, in the backend's order: `cuda:0` is what the driver of CUDA calls device 0,
/// of those and in the order that its environment (`CUDA_VISIBLE_DEVICES`, `CUDA_DEVICE_ORDER`) asks for. Another backend
/// that shows the same hardware may count it in another order, so that `cuda:0` and `opencl:0` need not be one card.
/// Whether they are is told by [`uuid`](DeviceProperties::uuid) and [`pci`](DeviceProperties::pci), where both backends
/// know them; and a selector means the same card whatever the order.
///
/// # What is checked when
///
/// Parsing looks the name up; whether the device *exists* is found out when it is used: by
/// [`allocate`](Self::allocate), [`properties`](Self::properties), [`memory_info`](Self::memory_info) or
/// [`set_current_device`](crate::set_current_device). A string with a selector is the exception: what the table says of
/// use is said when it is parsed.
///
/// | the backend is | parsing gives | `resolve` gives | use | [`is_available`](crate::is_available) |
/// |---|---|---|---|---|
/// | not linked | an error that lists what is | | | `false` |
/// | disabled by a switch | an error that names the switch | | | `false` |
/// | offered by two packages | an error that names both | | | `false` |
/// | linked or loaded | the device | the index | loads it, opens the device | `true` |
/// | the same, with no device of this index | the device | the index | an error with the count | `false` |
/// | unavailable: no driver, no hardware | the device | the index | an error with the reason | `false` |
/// | failed: its `load` gave an error or panicked | the device | the index | that same error | `false` |
/// | linked or loaded, and a selector fits one device | loads it; the device with its index | the index | opens the device | `true` |
/// | the same, and it fits none or several | loads it; an error that lists the devices | | | `false` |
/// | unavailable or failed, and there is a selector | an error with the reason | | | `false` |
///
/// Neither parsing without a selector nor `resolve` runs the backend's code; parsing with one, using a device and
/// `is_available` do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    backend: Entry<dyn Backend>,
    /// Never `Some(0)` for the cpu, which has one device and one name.
    index: Index,
}

/// An index or none, as one number: so a `Device` travels in two registers, and parsing one takes half the time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Index(Option<NonZeroU32>);

impl Index {
    fn new(index: Option<u16>) -> Self {
        Self(index.and_then(|index| NonZeroU32::new(u32::from(index) + 1)))
    }

    fn get(self) -> Option<u16> {
        self.0.map(|number| (number.get() - 1) as u16)
    }
}

/// The device that a string names. The same as [`Device::parse`], for use as `device("cpu")?`.
///
/// # Errors
///
/// See [`Device::parse`].
#[inline]
pub fn device(text: &str) -> Result<Device, DeviceError> {
    Device::parse(text)
}

impl Device {
    /// The device that a string names. Runs no backend's code, unless the string has a selector.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Syntax`] if the string is not well formed, [`DeviceError::UnknownBackend`] if no backend of
    /// the name is linked, [`DeviceError::Backend`] if it is disabled or offered by two packages.
    ///
    /// With a selector, [`DeviceError::Selector`] if it fits no device or several, or that the backend does not load or
    /// cannot count.
    #[inline]
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        match Self::find(text) {
            Some(device) => Ok(device),
            None => Self::parse_strictly(text),
        }
    }

    /// The device that a string names, if all is well: what can be said without making an error.
    fn find(text: &str) -> Option<Self> {
        // A name that a backend has is well formed, and need not be looked at letter by letter.
        let (name, index) = DeviceString::split(text)?;
        let backend = backends().get(name).filter(|backend| backend.is_usable())?;
        Some(Self::of_backend(backend, index))
    }

    #[cold]
    fn parse_strictly(text: &str) -> Result<Self, DeviceError> {
        let DeviceString { name, which } = DeviceString::parse(text)?;
        let backend = backends().usable(name)?;
        match which {
            Which::Current => Ok(Self::of_backend(backend, None)),
            Which::Index(index) => Ok(Self::of_backend(backend, Some(index))),
            Which::Selected(selector) => selector.select(backend, text),
        }
    }

    /// The cpu: the memory of the host.
    ///
    /// # Panics
    ///
    /// Never: the cpu is built in.
    #[must_use]
    pub fn cpu() -> Self {
        Self::of_backend(backends().get(cpu::NAME).expect("a built-in name is always there"), None)
    }

    pub(crate) fn of_backend(backend: Entry<dyn Backend>, index: Option<u16>) -> Self {
        let one_name = index == Some(0) && backend.name() == cpu::NAME;
        Self { backend, index: Index::new(index.filter(|_| !one_name)) }
    }

    /// The name of the backend: the part before the colon.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.backend.name()
    }

    /// The index, if it has one. The cpu has none.
    #[must_use]
    pub fn index(self) -> Option<u16> {
        self.index.get()
    }

    /// The backend's entry in [`backends()`]: its package, version and state.
    #[must_use]
    pub fn backend(self) -> Entry<dyn Backend> {
        self.backend
    }

    /// Whether this is the cpu.
    #[must_use]
    pub fn is_cpu(self) -> bool {
        self.name() == cpu::NAME
    }

    /// This device with a fixed index: its own, or that of the backend's current device on this thread. Runs no
    /// backend's code, so that the device need not exist.
    ///
    /// ```
    /// # use device_registry::Device;
    /// // The cpu is one device, and needs no index to be fixed.
    /// assert_eq!(Device::cpu().resolve(), Device::cpu());
    /// ```
    #[must_use]
    pub fn resolve(self) -> Self {
        match self.index() {
            Some(_) => self,
            None => Self::of_backend(self.backend, Some(current::index(self.backend))),
        }
    }

    /// How many devices the backend has. Loads the backend, and opens nothing.
    ///
    /// # Errors
    ///
    /// If the backend does not load or cannot count.
    pub fn count(self) -> Result<usize, DeviceError> {
        open::count(self.backend)
    }

    /// What the device is. Loads the backend, and opens nothing.
    ///
    /// # Errors
    ///
    /// If the backend does not load, has no such device or cannot say.
    pub fn properties(self) -> Result<DeviceProperties, DeviceError> {
        open::properties(self)
    }

    /// Opens the device, unless it is open: what every use of it does by itself, for those who want to fail early. It
    /// may block for as long as the device takes.
    ///
    /// # Errors
    ///
    /// If the backend does not load, has no such device or cannot open it, or if the device is lost.
    pub fn open(self) -> Result<(), DeviceError> {
        open::device(self)?.check("open")
    }

    /// Lets the next use open the device afresh, after it was lost. What belonged to it before — buffers, streams,
    /// events — goes on saying that it is lost. A device that is not open needs no reset.
    ///
    /// # Errors
    ///
    /// [`BackendErrorKind::Unsupported`](crate::BackendErrorKind::Unsupported) where only a new process has the device
    /// again; [`BackendErrorKind::Invalid`](crate::BackendErrorKind::Invalid) if it is not lost.
    pub fn reset(self) -> Result<(), DeviceError> {
        open::reset(self)
    }

    /// Gives the device back, after waiting for the work of its streams: its context, its threads. What belongs to it —
    /// buffers, streams, events — says from now on that it is closed; the next use opens it afresh. A device that is
    /// not open is closed already. Blocks.
    ///
    /// At the end of a program it is needed only where a driver's library asks for it: see
    /// [`close_all`](crate::close_all).
    ///
    /// # Errors
    ///
    /// What work had failed of which nobody was told, or what the driver reports. The device is closed all the same,
    /// unless it is lost.
    pub fn close(self) -> Result<(), DeviceError> {
        open::close(self)
    }

    /// What is allocated on the device through this crate. Opens nothing.
    ///
    /// # Errors
    ///
    /// If this process is a fork of the one that uses the device.
    pub fn memory_statistics(self) -> Result<MemoryStatistics, DeviceError> {
        let statistics = |device: &'static OpenDevice| {
            device.collect();
            device.statistics().now()
        };
        Ok(open::known(self)?.map(statistics).unwrap_or_default())
    }

    /// Tells the device to have a fault, for a test of what a program does then. Opens it at the first use.
    ///
    /// ```
    /// use device_registry::{BackendErrorKind, Fault, device};
    ///
    /// // Most devices, such as the cpu, have no faults to order.
    /// let error = device("cpu")?.inject(Fault::FailCopy { nth: 1 }).unwrap_err();
    /// assert_eq!(error.backend_error().unwrap().kind(), BackendErrorKind::Unsupported);
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BackendErrorKind::Unsupported`](crate::BackendErrorKind::Unsupported) if it cannot.
    pub fn inject(self, fault: Fault) -> Result<(), DeviceError> {
        open::device(self)?.call("inject a fault", |driver| faults(driver)?.inject(fault))
    }

    /// Has the device have no faults any more: what stalls goes on. What is lost stays so: see [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// As [`inject`](Self::inject).
    pub fn clear_faults(self) -> Result<(), DeviceError> {
        open::device(self)?.call_although_lost("clear faults", |driver| {
            faults(driver)?.clear();
            Ok(())
        })
    }

    /// How much memory the device has now. Opens it at the first use.
    ///
    /// # Errors
    ///
    /// As [`properties`](Self::properties), or if the device cannot say.
    pub fn memory_info(self) -> Result<MemoryInfo, DeviceError> {
        open::device(self)?.call("memory info", |driver| driver.memory_info())
    }

    /// Calls native code with the backend's handle of the device, outside of any stream: to compile kernels, say. Opens
    /// the device at the first use, and returns what the code returns.
    ///
    /// It runs on this thread, beside whatever the device's streams do. What is to happen in the order of a stream is
    /// [launched](crate::Stream::launch) there. As a kernel it may not use devices: a call of this crate's in it is an
    /// error, for one that closes the device would wait for itself.
    ///
    /// ```no_run
    /// # struct AcmeDevice;
    /// # struct Program;
    /// # impl AcmeDevice {
    /// #     fn compile(&self, text: &str) -> Result<Program, device_registry::BackendError> { Ok(Program) }
    /// # }
    /// let device = device_registry::device("acme")?;
    /// let program = device.with_driver(|driver: &AcmeDevice| driver.compile("…"))?;
    /// # Ok::<(), device_registry::DeviceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// That of the code, or that it panicked; [`BackendErrorKind::Unsupported`](crate::BackendErrorKind::Unsupported) if the
    /// backend has no handle of this type; or why the device cannot be used.
    pub fn with_driver<D: Any, T>(
        self,
        code: impl FnOnce(&D) -> Result<T, BackendError>,
    ) -> Result<T, DeviceError> {
        open::device(self)?.call("native code", |driver| {
            let native = driver.native();
            let device = downcast(&native, "device")?;
            host_call::run(|| code(device))
        })
    }

    /// The place among the backend's devices, once resolved.
    pub(crate) fn ordinal(self) -> usize {
        self.index().unwrap_or(0).into()
    }
}

/// [Closes](Device::close) all devices that are open: for the end of a program, where the library of a driver crashes
/// when it is still in use then. Nothing is closed otherwise, as the system takes everything back.
///
/// ```
/// device_registry::device("cpu")?.open()?;
/// for (device, outcome) in device_registry::close_all() {
///     println!("{device}: {outcome:?}");
/// }
/// # Ok::<(), device_registry::DeviceError>(())
/// ```
pub fn close_all() -> Vec<(Device, Result<(), DeviceError>)> {
    open::all().into_iter().map(|device| (device, device.close())).collect()
}

fn faults(driver: &dyn DeviceDriver) -> Result<&dyn FaultInjector, BackendError> {
    driver.faults().ok_or_else(|| BackendError::unsupported("faults to order"))
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index() {
            // `pad` in both arms, so that `{:<12}` works in tables.
            None => f.pad(self.name()),
            Some(index) => f.pad(&format!("{}:{index}", self.name())),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self})")
    }
}

impl FromStr for Device {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for Device {
    type Error = DeviceError;

    fn try_from(text: &str) -> Result<Self, DeviceError> {
        Self::parse(text)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Device {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Device {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{RefUnwindSafe, UnwindSafe};

    use super::*;
    use crate::testing::fake;

    #[test]
    fn a_device_is_small_and_can_go_anywhere() {
        fn check<T: Copy + Send + Sync + UnwindSafe + RefUnwindSafe + Ord + std::hash::Hash + 'static>()
        -> usize {
            size_of::<T>()
        }
        assert!(check::<Device>() <= 16);
    }

    #[test]
    fn display_and_parse_are_inverse() {
        for text in ["cpu", "cpu:1", "fake", "fake:0", "fake:65535"] {
            let _ = fake(None);
            let device = device(text).unwrap();
            assert_eq!(device.to_string(), text);
            assert_eq!(Device::parse(&device.to_string()).unwrap(), device);
        }
    }

    #[test]
    fn the_short_way_through_parse_accepts_what_the_long_way_does() {
        let _ = fake(None);
        let names =
            ["cpu", "fake", "", "auto", "none", "Fake", "fak", "fakee", "é", "fake@x", "fake:0", "cpu:"];
        let indices =
            ["", ":", ":0", ":7", ":9", ":00", ":01", ":10", ":65535", ":65536", ":-1", ":+1", ": 1", ":é"];
        for text in names.iter().flat_map(|name| indices.map(|index| format!("{name}{index}"))) {
            assert_eq!(Device::find(&text), Device::parse_strictly(&text).ok(), "{text:?}");
        }
    }

    #[test]
    fn the_cpu_is_one_device_with_one_name() {
        assert_eq!(device("cpu:0").unwrap(), Device::cpu());
        assert_eq!(device("cpu:0").unwrap().to_string(), "cpu");
        assert_ne!(device("cpu:1").unwrap(), Device::cpu());
        assert_eq!(Device::cpu().resolve().index(), None);
    }

    #[test]
    fn without_an_index_is_not_index_zero() {
        assert_ne!(fake(None), fake(Some(0)));
        assert_eq!(fake(None).resolve(), fake(Some(0)));
    }

    #[test]
    fn devices_are_ordered_by_name_then_index() {
        let mut devices = [fake(Some(10)), fake(Some(9)), fake(None), Device::cpu()];
        devices.sort();
        assert_eq!(devices, [Device::cpu(), fake(None), fake(Some(9)), fake(Some(10))]);
    }

    #[test]
    fn an_index_without_a_device_parses_and_fails_on_use_with_the_count() {
        let error = fake(Some(7)).properties().unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no device `fake:7`: `fake` has 2 devices, `fake:0` to `fake:1`"
        );
    }

    #[test]
    fn tables_can_be_aligned() {
        assert_eq!(format!("{:<8}|", fake(Some(1))), "fake:1  |");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn serde_writes_and_reads_the_string() {
        use serde::Deserialize;
        use serde::de::IntoDeserializer;
        use serde::de::value::{Error, StrDeserializer};

        struct Shown(Device);
        impl fmt::Display for Shown {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // A formatter is a serializer of strings.
                serde::Serialize::serialize(&self.0, f)
            }
        }
        assert_eq!(Shown(fake(Some(1))).to_string(), "fake:1");
        let read = |text: &'static str| -> Result<Device, Error> {
            let deserializer: StrDeserializer<'_, Error> = text.into_deserializer();
            Device::deserialize(deserializer)
        };
        assert_eq!(read("fake:1"), Ok(fake(Some(1))));
        assert!(read("fake:01").unwrap_err().to_string().contains("leading zeros"));
    }
}
