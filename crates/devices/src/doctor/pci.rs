//! Cards on the PCI buses of Linux, and which backends serve them.

use std::fmt;
use std::fs;
use std::path::Path;

use device_registry::registry::State;
use device_registry::{DeviceKind, DeviceList, DeviceProperties, ListedBackend, PciAddress};
use serde::Serialize;

/// A graphics card or an accelerator.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Card {
    /// In the form of a device string: `0000:3b:00.0`.
    address: String,
    class: &'static str,
    vendor: u16,
    device: u16,
    /// The kernel's driver, if one has taken the card.
    driver: Option<String>,
    /// The devices of this program that are the card.
    devices: Vec<String>,
    /// Devices of this program that could be the card, as they have its vendor and no address.
    perhaps: Vec<String>,
    /// Whether this program has a backend that could serve the card, and it is on.
    served: bool,
}

/// Vendors by the number that the PCI-SIG has given them: a name, words of which one is in the vendor that
/// their drivers report, and what to install.
static VENDORS: [(u16, &str, &[&str], &str); 4] = [
    (0x10de, "NVIDIA", &["nvidia"], "NVIDIA's driver, which has libcuda.so.1, OpenCL and Vulkan"),
    (
        0x1002,
        "AMD",
        &["amd", "advanced micro devices"],
        "Mesa's Vulkan driver (mesa-vulkan-drivers), or ROCm for OpenCL",
    ),
    (0x8086, "Intel", &["intel"], "Mesa's Vulkan driver (mesa-vulkan-drivers), or intel-opencl-icd"),
    (0x106b, "Apple", &["apple"], "Mesa's Vulkan driver"),
];

/// The backends of this repository for cards of several kinds.
const GENERAL: [&str; 3] = ["cuda", "opencl", "wgpu"];

/// The cards in Linux's folder of devices on PCI buses, sorted by address. None where there is no such
/// folder.
pub(super) fn cards(folder: &Path) -> Vec<Card> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut cards: Vec<Card> = entries.flatten().filter_map(|entry| Card::read(&entry.path())).collect();
    cards.sort_unstable_by(|a, b| a.address.cmp(&b.address));
    cards
}

impl Card {
    fn read(folder: &Path) -> Option<Self> {
        let number = |file: &str| {
            let text = fs::read_to_string(folder.join(file)).ok()?;
            u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
        };
        // The upper 16 of 24 bits are the class and the subclass, as the PCI Code and ID Assignment says.
        let class = match number("class")? >> 8 {
            0x0300 | 0x0302 | 0x0380 => "graphics card",
            0x1200 => "accelerator",
            _ => return None,
        };
        let driver = fs::read_link(folder.join("driver")).ok();
        Some(Self {
            address: folder.file_name()?.to_str()?.to_owned(),
            class,
            vendor: u16::try_from(number("vendor")?).ok()?,
            device: u16::try_from(number("device")?).ok()?,
            driver: driver.and_then(|driver| Some(driver.file_name()?.to_str()?.to_owned())),
            devices: Vec::new(),
            perhaps: Vec::new(),
            served: false,
        })
    }

    pub(super) fn find_backends(&mut self, list: &DeviceList) {
        let is_on = |backend: &&ListedBackend| !matches!(backend.state(), State::Disabled { .. });
        self.served = list.backends().iter().filter(is_on).any(|backend| GENERAL.contains(&backend.name()));
        let known = list
            .devices()
            .filter_map(|listed| Some((listed.device().to_string(), listed.properties().ok()?)));
        for (device, properties) in known {
            self.compare(device, properties);
        }
    }

    fn compare(&mut self, device: String, properties: &DeviceProperties) {
        let words = VENDORS.iter().find(|vendor| vendor.0 == self.vendor).map_or(&[][..], |vendor| vendor.2);
        let vendor = properties.vendor.as_deref().unwrap_or_default().to_lowercase();
        match properties.pci {
            Some(pci) if self.address.parse::<PciAddress>() == Ok(pci) => self.devices.push(device),
            // A driver for the processor tells its vendor too.
            None if matches!(properties.kind, DeviceKind::Cpu | DeviceKind::Simulated) => {}
            None if words.iter().any(|word| vendor.contains(word)) => self.perhaps.push(device),
            _ => {}
        }
    }

    /// Why no device of this program is the card, and what to do. `None` if one is, and where it cannot be
    /// expected: the card is given to a virtual machine, no backend for such cards is on, or the card is the
    /// screen of a server or a virtual machine, which computes nothing.
    pub(super) fn problem(&self) -> Option<String> {
        let is_given_away = self.driver.as_deref() == Some("vfio-pci");
        if !self.devices.is_empty() || !self.perhaps.is_empty() || !self.served || is_given_away {
            return None;
        }
        let vendor = VENDORS.iter().find(|vendor| vendor.0 == self.vendor);
        let help = match (vendor, self.class) {
            (Some((_, _, _, install)), "graphics card") => match &self.driver {
                Some(driver) => format!(
                    "the kernel's driver {driver} has it, and no library for programs; install {install}"
                ),
                None => format!("install {install}"),
            },
            (None, "graphics card") => return None,
            _ => "no backend here is for it; its maker may have one".to_owned(),
        };
        Some(format!("no device of this program is the {} {}: {help}", self.class, self.name()))
    }

    fn name(&self) -> String {
        let vendor =
            VENDORS.iter().find(|vendor| vendor.0 == self.vendor).map_or("unknown vendor", |vendor| vendor.1);
        format!("{} ({vendor}, {:04x}:{:04x})", self.address, self.vendor, self.device)
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let driver = self.driver.as_deref().unwrap_or("no");
        write!(f, "{} {}, {driver} driver of the kernel", self.class, self.name())?;
        match (&self.devices[..], &self.perhaps[..]) {
            ([], []) => f.write_str(", no device of this program"),
            ([], perhaps) => write!(f, ", perhaps {}", perhaps.join(", ")),
            (devices, _) => write!(f, ": {}", devices.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as Linux has it, with one card.
    fn folder(class: &str, vendor: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let card = folder.path().join("0000:3b:00.0");
        fs::create_dir(&card).unwrap();
        for (file, text) in [("class", class), ("vendor", vendor), ("device", "0x2204\n")] {
            fs::write(card.join(file), text).unwrap();
        }
        folder
    }

    fn card(vendor: &str) -> Card {
        Card { served: true, ..cards(folder("0x030000\n", vendor).path()).pop().unwrap() }
    }

    #[test]
    fn cards_are_those_that_compute() {
        for (class, expected) in [
            ("0x030000", Some("graphics card")),
            ("0x030200", Some("graphics card")),
            ("0x120000", Some("accelerator")),
            // A card for cryptography is one.
            ("0x0b4000", None),
            ("0x020000", None),
            ("0x060400", None),
            ("", None),
            ("nonsense", None),
        ] {
            let found = cards(folder(class, "0x10de").path());
            assert_eq!(found.first().map(|card| card.class), expected, "{class}");
        }
        assert_eq!(cards(Path::new("/nonexistent")), []);
    }

    #[test]
    fn a_card_that_no_device_is_says_what_to_install() {
        assert_eq!(
            card("0x10de").problem().unwrap(),
            "no device of this program is the graphics card 0000:3b:00.0 (NVIDIA, 10de:2204): install NVIDIA's driver, which \
             has libcuda.so.1, OpenCL and Vulkan"
        );
        // The screen of a virtual machine.
        assert_eq!(card("0x1234").problem(), None);
        let accelerator = cards(folder("0x120000", "0x8086").path()).pop().unwrap();
        let accelerator = Card { served: true, ..accelerator };
        assert!(
            accelerator.problem().unwrap().ends_with(": no backend here is for it; its maker may have one")
        );
        let bound = Card { driver: Some("i915".to_owned()), ..card("0x8086") };
        assert!(
            bound.problem().unwrap().contains("the kernel's driver i915 has it, and no library for programs")
        );
        // Nothing is to be expected.
        assert_eq!(Card { served: false, ..card("0x10de") }.problem(), None);
        assert_eq!(Card { driver: Some("vfio-pci".to_owned()), ..card("0x10de") }.problem(), None);
    }

    #[test]
    fn a_device_at_the_address_is_the_card_and_one_of_the_vendor_may_be() {
        let mut served = card("0x10de");
        let properties = DeviceProperties::new("x").with_pci("0000:3b:00.0".parse().unwrap());
        served.compare("cuda:0".to_owned(), &properties);
        assert_eq!((&*served.devices, served.problem()), (&["cuda:0".to_owned()][..], None));
        assert!(served.to_string().ends_with("no driver of the kernel: cuda:0"), "{served}");

        let mut other = card("0x10de");
        other.compare(
            "cuda:1".to_owned(),
            &DeviceProperties::new("x").with_pci("0000:3c:00.0".parse().unwrap()),
        );
        other.compare("opencl:0".to_owned(), &DeviceProperties::new("x").with_vendor("Intel"));
        let processor = DeviceProperties::new("x").with_vendor("NVIDIA").with_kind(DeviceKind::Cpu);
        other.compare("opencl:2".to_owned(), &processor);
        assert!(other.problem().is_some());
        other.compare("opencl:1".to_owned(), &DeviceProperties::new("x").with_vendor("NVIDIA Corporation"));
        assert_eq!(other.problem(), None);
        assert!(other.to_string().ends_with(", perhaps opencl:1"), "{other}");
    }
}
