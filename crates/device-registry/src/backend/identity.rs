//! The identity of a device: its UUID and its PCI address.

use std::fmt;
use std::str::FromStr;

/// A device's UUID: 128 bits, written as `0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceUuid([u8; 16]);

impl DeviceUuid {
    /// The UUID with these bytes, in the order in which they are written.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the UUID, in the order in which they are written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(36);
        for (place, byte) in self.0.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        f.pad(&text)
    }
}

impl FromStr for DeviceUuid {
    type Err = IdentityError;

    /// Parses 32 hexadecimal digits with hyphens in the usual places.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let refused = || IdentityError { text: text.into(), form: "0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10" };
        let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
        let mut bytes = [0; 16];
        if digits.len() != 32 {
            return Err(refused());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = pair.iter().try_fold(0, |sum, &digit| hex(digit, sum)).ok_or_else(refused)?;
        }
        // Misplaced hyphens are an error: the value would hide the mistake.
        if Self(bytes).to_string().eq_ignore_ascii_case(text) { Ok(Self(bytes)) } else { Err(refused()) }
    }
}

fn hex(digit: u8, sum: u8) -> Option<u8> {
    Some(sum * 16 + char::from(digit).to_digit(16)? as u8)
}

/// A device's PCI address, written as `0000:3b:00.0`: domain, bus, device and function, in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// The address with these parts: the domain, also called segment, the bus, the device, below 32, and its
    /// function, below 8. `None` if the device or the function is out of range.
    #[must_use]
    pub fn new(domain: u32, bus: u8, device: u8, function: u8) -> Option<Self> {
        (device < 32 && function < 8).then_some(Self { domain, bus, device, function })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

impl FromStr for PciAddress {
    type Err = IdentityError;

    /// Parses `0000:3b:00.0`, or `3b:00.0` for domain 0.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let parse = || {
            let (place, function) = text.split_once('.')?;
            let parts: Vec<&str> = place.split(':').collect();
            let [domain, bus, device] =
                parts.first_chunk::<3>().copied().unwrap_or(["0", *parts.first()?, *parts.get(1)?]);
            let number = |text: &str, most: u32| {
                let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                u32::from_str_radix(text, 16).ok().filter(|&number| digits && number <= most)
            };
            let byte = |text, most| number(text, most).map(|number| number as u8);
            let domain = number(domain, u32::MAX)?;
            let bus = byte(bus, 0xff)?;
            Self::new(domain, bus, byte(device, 31)?, byte(function, 7)?).filter(|_| parts.len() <= 3)
        };
        parse().ok_or_else(|| IdentityError { text: text.into(), form: "0000:3b:00.0" })
    }
}

/// The error of a malformed UUID or PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` does not have the form `{form}`")]
pub struct IdentityError {
    text: String,
    form: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_parses_as_it_prints_and_other_forms_are_errors() {
        let text = "0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10";
        assert_eq!(text.parse::<DeviceUuid>().unwrap().to_string(), text);
        assert_eq!(text.to_uppercase().parse::<DeviceUuid>(), text.parse());
        for bad in [
            "",
            "0d7c8f22",
            "0d7c8f223d1b-4d0a-9a55-0c1f5d7e9b10",
            &text.replace('0', "g"),
            &text.replace("0d", "é"),
        ] {
            let error = bad.parse::<DeviceUuid>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{bad}` does not have the form `0d7c8f22-")), "{error}");
        }
    }

    #[test]
    fn a_pci_address_parses_as_it_prints_and_other_forms_are_errors() {
        for text in ["0000:3b:00.0", "10000:ff:1f.7"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
        assert_eq!("3b:00.1".parse().ok(), PciAddress::new(0, 0x3b, 0, 1));
        assert_eq!((PciAddress::new(0, 0, 32, 0), PciAddress::new(0, 0, 0, 8)), (None, None));
        for bad in [
            "",
            "3b",
            "3b:00",
            ".0",
            "0:0:3b:00.0",
            "3b:20.0",
            "3b:00.8",
            "3b:+1.0",
            "100:00.0",
            "::.",
            "3b.0",
        ] {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad}");
        }
    }
}
