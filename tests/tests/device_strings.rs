//! Device strings as a user types them: what is accepted, what is refused, and what the refusal says.

use std::hash::{DefaultHasher, Hash, Hasher};

use device_registry::{Device, DeviceError, device, first_available, is_available};
use proptest::prelude::*;

device_registry::autoload!();

#[test]
fn accepted_strings_print_as_they_were_written() {
    for text in [
        "cpu",
        "cpu:1",
        "cpu:65535",
        "openreg",
        "openreg:0",
        "openreg:1",
        "openreg:127",
        "openreg:128",
        "openreg:255",
        "openreg:256",
        "openreg:9999",
        "openreg:65535",
    ] {
        let device = device(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(device.to_string(), text);
        assert_eq!(text.parse::<Device>().unwrap(), device);
    }
    // The cpu is one device, and has one name.
    assert_eq!(device("cpu:0").unwrap().to_string(), "cpu");
}

/// Each string with a part of the message that refuses it.
const REFUSED: &[(&str, &str)] = &[
    ("", "empty"),
    (":", "does not start with the name"),
    (":0", "does not start with the name"),
    ("0", "does not start with the name"),
    ("1", "does not start with the name"),
    ("-1", "holds a-z, 0-9 and _ only, and not '-'"),
    ("openreg-0", "and not '-'"),
    ("openreg ", "and not ' '"),
    (" openreg", "and not ' '"),
    ("open reg", "and not ' '"),
    ("openreg\t", "and not '\\t'"),
    ("openreg\n", "and not '\\n'"),
    ("openreg\0", "and not '\\0'"),
    ("é", "and not 'é'"),
    ("openreg/0", "and not '/'"),
    ("openreg.0", "and not '.'"),
    ("openreg,cpu", "and not ','"),
    ("Openreg", "is `openreg` meant?"),
    ("OPENREG:1", "is `openreg:1` meant?"),
    ("CPU", "is `cpu` meant?"),
    ("openreg:", "there is no index after the colon"),
    ("openreg::0", "an index is made of digits"),
    ("openreg:0:", "an index is made of digits"),
    ("openreg:-1", "an index is made of digits"),
    ("openreg:-0", "an index is made of digits"),
    ("openreg:+1", "an index is made of digits"),
    ("openreg: 1", "an index is made of digits"),
    ("openreg:1 ", "an index is made of digits"),
    ("openreg:0x1", "an index is made of digits"),
    ("openreg:1.0", "an index is made of digits"),
    ("openreg:1e1", "an index is made of digits"),
    ("openreg:a", "an index is made of digits"),
    ("openreg:\u{661}", "an index is made of digits"),
    ("openreg:00", "no leading zeros"),
    ("openreg:01", "no leading zeros"),
    ("openreg:007", "no leading zeros"),
    ("openreg:65536", "at most 65535"),
    ("openreg:2147483648", "at most 65535"),
    ("openreg:18446744073709551616", "at most 65535"),
    ("auto", "are reserved"),
    ("default", "are reserved"),
    ("all", "are reserved"),
    ("none:0", "are reserved"),
    ("openreg@", "no selector after the `@`; the selectors are `uuid=PREFIX` and `pci=ADDRESS`"),
    ("openreg@1", "a selector is a key, `=` and a value"),
    ("openreg@serial=12", "there is no such selector; the selectors are `uuid=PREFIX` and `pci=ADDRESS`"),
    ("openreg@uuid=", "there is no value after the `=`"),
    ("openreg@pci=", "there is no value after the `=`"),
    ("openreg@uuid=x", "no UUID begins so"),
    ("openreg@uuid=0 ", "a selector holds no ' '"),
    ("openreg@uuid=0@uuid=0", "one `@` and one selector at most"),
    ("openreg@uuid=ab:0", "a selector or an index, and not both"),
    ("openreg:0@uuid=ab", "a selector or an index, and not both"),
    ("openreg@pci=3b:00", "a PCI address is written as `0000:3b:00.0` or `3b:00.0`"),
    ("openreg@pci=3b:00.0", "fits none of the devices of `openreg`:\n  openreg:0  "),
    ("cpu@uuid=0", "no uuid  no pci"),
    ("openrag@uuid=0", "is `openreg` meant?"),
    ("rocm@uuid=0", "a crate `device-rocm` in Cargo.toml would add it; this is a guess"),
    ("a23456789012345678901234567890123", "at most 32 bytes"),
    ("openrag", "is `openreg` meant?"),
    ("openreg0", "is `openreg` meant?"),
    ("rocm", "a crate `device-rocm` in Cargo.toml would add it; this is a guess"),
    ("rocm:1", "no backend called `rocm` is linked into this program"),
    ("privateuseone", "device.backends: "),
];

#[test]
fn refused_strings_say_why() {
    for (text, part) in REFUSED {
        let error = device(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text:?}: {part:?} in {error}");
        assert!(!is_available(text), "{text:?}");
    }
}

#[test]
fn an_unknown_name_lists_what_is_linked() {
    let error = device("vulkan:1").unwrap_err();
    assert!(matches!(error, DeviceError::UnknownBackend(_)));
    let error = error.to_string();
    for part in ["vulkan", "cpu", "built in", "openreg", "device-openreg", "a crate `device-vulkan`"] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[test]
fn without_an_index_is_not_index_zero() {
    assert_ne!(device("openreg").unwrap(), device("openreg:0").unwrap());
    assert_eq!(device("openreg").unwrap().resolve(), device("openreg:0").unwrap());
}

proptest! {
    #[test]
    fn no_input_panics(text in ".*") {
        let _ = device(&text);
        let _ = first_available(&text);
        let _ = is_available(&text);
    }

    #[test]
    fn nothing_that_resembles_a_device_panics(text in "[a-zA-Z_0-9:@=.,+ -]{0,40}") {
        if let Ok(device) = device(&text) {
            prop_assert_eq!(Device::parse(&device.to_string()).unwrap(), device);
        }
        let _ = first_available(&text);
    }

    #[test]
    fn no_selector_panics(name in "cpu|openreg", selector in "(uuid|pci)=[0-9a-f:.-]{0,12}") {
        let text = format!("{name}@{selector}");
        if let Ok(device) = device(&text) {
            prop_assert_eq!(Device::parse(&device.to_string()).unwrap(), device);
        }
        let _ = is_available(&text);
    }

    #[test]
    fn what_is_printed_parses_back_to_the_same(name in "cpu|openreg", index in proptest::option::of(any::<u16>())) {
        let text = index.map_or(name.clone(), |index| format!("{name}:{index}"));
        let device = Device::parse(&text).unwrap();
        let again = Device::parse(&device.to_string()).unwrap();
        prop_assert_eq!(again, device);
        let hash = |device: Device| {
            let mut hasher = DefaultHasher::new();
            device.hash(&mut hasher);
            hasher.finish()
        };
        prop_assert_eq!(hash(again), hash(device));
        prop_assert_eq!(device.index(), index.filter(|index| name != "cpu" || *index != 0));
    }

    #[test]
    fn an_index_is_taken_whole_or_refused(index in any::<u64>()) {
        let parsed = device(&format!("openreg:{index}"));
        match u16::try_from(index) {
            Ok(index) => prop_assert_eq!(parsed.unwrap().index(), Some(index)),
            Err(_) => prop_assert!(parsed.is_err()),
        }
    }
}
