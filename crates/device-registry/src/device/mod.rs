//! A device as a value, and its text.

pub(crate) mod current_index;
pub(crate) mod grammar;
pub(crate) mod list;
pub(crate) mod selector;

use std::fmt;
use std::num::NonZeroU32;

use entry_points::Entry;

use crate::backend::{Backend, backends};
use crate::cpu;

/// A device: a backend and perhaps an index. It is a small `Copy` value. Making one runs no backend code,
/// unless the string has a selector (`name@uuid=…`).
///
/// Without an index it means *the current device of that backend* on the thread that uses it. That is device
/// 0 until a [`DeviceGuard`](crate::DeviceGuard) or [`set_current_device`](crate::set_current_device) changes
/// it. So `cuda` and `cuda:0` are not equal, as in PyTorch. [`resolve`](Self::resolve) fixes the index, and
/// the device of a [`Buffer`](crate::Buffer) is always resolved.
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
///          | "name=" text          a part of the property: letters, digits, `.`, `-`, `_`,
///          | "vendor=" text          and spaces between them
///          | "platform=" text
/// ```
///
/// Other spaces, signs and leading zeros are invalid. `default`, `all` and `none` are reserved. `auto` is the
/// first available device of the [default selection](crate::default_selection), or an error if there is none.
/// For every device, `Device::parse(&device.to_string())` is that device. A [`Selection`](crate::Selection)
/// is a list of devices, with kinds and exclusions.
///
/// | string | device |
/// |---|---|
/// | `cuda` | the current device of the backend |
/// | `cuda:1` | the device with index 1 |
/// | `cuda@uuid=0d7c8f22` | the device whose UUID starts with these digits, in upper or lower case |
/// | `cuda@pci=3b:00.0` | the device at this PCI address |
/// | `cuda@name=4090` | the device whose [name](crate::DeviceProperties::name) contains this, in upper or lower case |
/// | `cuda@vendor=nvidia` | the device whose [vendor](crate::DeviceProperties::vendor) contains this |
/// | `cuda@platform=cuda` | the device whose [driver](crate::DeviceProperties::driver) contains this |
///
/// `platform` is for OpenCL, which may have several drivers for one processor: `opencl@platform=Portable`.
/// The `driver` of an OpenCL device begins with the name of its platform, and wgpu's with its interface, as
/// in `wgpu@platform=Vulkan`. Once another driver is installed, an index may name another device; a text
/// names the same one, or is ambiguous.
///
/// Parsing resolves a selector. It loads the backend, reads the [`properties`](Self::properties) of each of
/// its devices, opens none, and returns an ordinary device with its index. `Display` prints that index, not
/// the selector. If no device matches, or several do, the error lists the candidates with their properties. A
/// device whose properties cannot be read might match too, so a prefix of a UUID or a text is then an error;
/// a whole UUID or a PCI address always names one device. Two devices of one model and one driver have equal
/// texts, so only an index, a UUID or an address tells them apart.
///
/// # The backend numbers its devices
///
/// An index is the backend's own ordinal, in the backend's order: `cuda:0` is device 0 of the CUDA driver,
/// after `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`. Another backend may list the same hardware in
/// another order, so `cuda:0` and `opencl:0` need not be the same card. Compare their
/// [`uuid`](crate::DeviceProperties::uuid) or [`pci`](crate::DeviceProperties::pci), where both backends know
/// it. A selector names the same card whatever the order, within one machine: see
/// [`uuid`](crate::DeviceProperties::uuid).
///
/// # What is checked when
///
/// Parsing looks up the name. The first use checks whether the device *exists*: [`allocate`](Self::allocate),
/// [`properties`](Self::properties), [`memory_info`](Self::memory_info) or
/// [`set_current_device`](crate::set_current_device). A string with a selector is the exception: parsing it
/// makes the checks that the table lists under use.
///
/// | the backend is | parsing returns | `resolve` returns | use | [`is_available`](crate::is_available) |
/// |---|---|---|---|---|
/// | not linked | an error that lists the linked backends | | | `false` |
/// | disabled by a switch | an error that names the switch | | | `false` |
/// | offered by two packages | an error that names both | | | `false` |
/// | linked or loaded | the device | the index | loads it, opens the device | `true` |
/// | linked or loaded, and has no device with this index | the device | the index | an error with the count | `false` |
/// | linked or loaded, and this device is [absent](crate::Presence) | the device | the index | an error with the reason; the next use looks again | `false` |
/// | loaded, and this device is lost | the device | the index | the error of the loss, until [`reset`](Self::reset) | `false` |
/// | unavailable: no driver, no hardware | the device | the index | an error with the reason; looks again, see below | `false`; looks again |
/// | failed: its `load` returned an error or panicked | the device | the index | that same error, until a retry | `false` |
/// | linked or loaded, and a selector matches one device | loads it; the device with its index | the index | opens the device | `true` |
/// | linked or loaded, and a selector matches none or several | loads it; an error that lists the devices | | | `false` |
/// | linked or loaded, and a prefix of a UUID or a text matches one device while another does not answer | loads it; an error that lists both | | | `false` |
/// | unavailable or failed, and the string has a selector | an error with the reason | | | `false` |
///
/// Parsing without a selector and `resolve` run no backend code. Parsing with a selector, using a device and
/// `is_available` do.
///
/// A missing driver may turn up while the program runs. A backend that is unavailable returns the same error
/// for [`UNAVAILABLE_FOR`](crate::backend::LoadFailure::UNAVAILABLE_FOR); after that, the next use or
/// `is_available` runs its `load` again. So a program may call `is_available` in a loop until the driver is
/// there. A backend that failed keeps its error until [`Group::retry`](crate::registry::Group::retry). The
/// devices themselves are counted at each use, and a device that fails to open is opened again at the next
/// use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    backend: Entry<dyn Backend>,
    /// Never `Some(0)` for the cpu, which has one device and one name.
    index: Index,
}

/// An optional index as one number, so that a `Device` fits in two registers and parsing one takes half the
/// time.
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

impl Device {
    /// The cpu: the memory of the host as a device. It is always present.
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

    /// This device with a fixed index: its own, or the index of the backend's current device on this thread.
    /// Runs no backend code, so the device need not exist.
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
            None => Self::of_backend(self.backend, Some(current_index::get(self.backend))),
        }
    }

    /// The position among the backend's devices, for a resolved device.
    pub(crate) fn ordinal(self) -> usize {
        self.index().unwrap_or(0).into()
    }
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

#[cfg(test)]
mod tests {
    use std::panic::{RefUnwindSafe, UnwindSafe};

    use super::*;
    use crate::parse::device;
    use crate::testing::fake;

    #[test]
    fn a_device_is_small_copy_and_thread_safe() {
        fn check<T: Copy + Send + Sync + UnwindSafe + RefUnwindSafe + Ord + std::hash::Hash + 'static>()
        -> usize {
            size_of::<T>()
        }
        assert!(check::<Device>() <= 16);
    }

    #[test]
    fn the_cpu_is_one_device_with_one_name() {
        assert_eq!(device("cpu:0").unwrap(), Device::cpu());
        assert_eq!(device("cpu:0").unwrap().to_string(), "cpu");
        assert_ne!(device("cpu:1").unwrap(), Device::cpu());
        assert_eq!(Device::cpu().resolve().index(), None);
    }

    #[test]
    fn a_device_without_an_index_is_not_index_zero() {
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
    fn tables_can_be_aligned() {
        assert_eq!(format!("{:<8}|", fake(Some(1))), "fake:1  |");
    }
}
