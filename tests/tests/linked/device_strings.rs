//! Device strings as a user types them: what is accepted, what is refused, and what the refusal says.

use std::hash::{DefaultHasher, Hash, Hasher};

use device_registry::{Device, DeviceError, choose, device, first_available, is_available};
use proptest::prelude::*;

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
    (":", "expected the name of a backend at the start"),
    (":0", "expected the name of a backend at the start"),
    ("0", "expected the name of a backend at the start"),
    ("1", "expected the name of a backend at the start"),
    ("-1", "invalid character '-' in the name: expected only a-z, 0-9 and _"),
    ("openreg-0", "invalid character '-'"),
    ("openreg ", "invalid character ' '"),
    (" openreg", "invalid character ' '"),
    ("open reg", "invalid character ' '"),
    ("openreg\t", "invalid character '\\t'"),
    ("openreg\n", "invalid character '\\n'"),
    ("openreg\0", "invalid character '\\0'"),
    ("é", "invalid character 'é'"),
    ("openreg/0", "invalid character '/'"),
    ("openreg.0", "invalid character '.'"),
    ("openreg,cpu", "invalid character ','"),
    ("Openreg", "did you mean `openreg`?"),
    ("OPENREG:1", "did you mean `openreg:1`?"),
    ("CPU", "did you mean `cpu`?"),
    ("openreg:", "there is no index after the colon"),
    ("openreg::0", "an index consists of digits"),
    ("openreg:0:", "an index consists of digits"),
    ("openreg:-1", "an index consists of digits"),
    ("openreg:-0", "an index consists of digits"),
    ("openreg:+1", "an index consists of digits"),
    ("openreg: 1", "an index consists of digits"),
    ("openreg:1 ", "an index consists of digits"),
    ("openreg:0x1", "an index consists of digits"),
    ("openreg:1.0", "an index consists of digits"),
    ("openreg:1e1", "an index consists of digits"),
    ("openreg:a", "an index consists of digits"),
    ("openreg:\u{661}", "an index consists of digits"),
    ("openreg:00", "no leading zeros"),
    ("openreg:01", "no leading zeros"),
    ("openreg:007", "no leading zeros"),
    ("openreg:65536", "at most 65535"),
    ("openreg:2147483648", "at most 65535"),
    ("openreg:18446744073709551616", "at most 65535"),
    ("auto", "the variable DEVICE_DEFAULT, which is not set"),
    ("auto:0", "`auto` is the default selection, and has no index, kind or order"),
    ("openreg:gpu", "and `gpu` is a kind of device, which a list has, and not one device"),
    ("default", "are reserved"),
    ("all", "are reserved"),
    ("none:0", "are reserved"),
    ("openreg@", "no selector after the `@`; the selectors are `uuid=PREFIX`, `pci=ADDRESS`, `name=TEXT`"),
    ("openreg@1", "a selector is a key, `=` and a value"),
    ("openreg@serial=12", "unknown selector; the selectors are `uuid=PREFIX`, `pci=ADDRESS`, `name=TEXT`"),
    ("openreg@uuid=", "there is no value after the `=`"),
    ("openreg@pci=", "there is no value after the `=`"),
    ("openreg@uuid=x", "expected the start of a UUID"),
    ("openreg@uuid=0 ", "invalid character ' ' in the selector"),
    ("openreg@uuid=0@uuid=0", "at most one selector"),
    ("openreg@name= ", "expected a part of the text, of the characters A-Z, a-z, 0-9, `.`, `-` and `_`"),
    ("openreg@name=(R)", "invalid character '(' in the selector"),
    ("openreg@name=openreg", "`openreg@name=openreg` matches 2 devices of `openreg`"),
    ("openreg@platform=portable", "matches none of the devices of `openreg`:\n  openreg:0  "),
    ("openreg@uuid=ab:0", "a selector or an index, found both"),
    ("openreg:0@uuid=ab", "a selector or an index, found both"),
    ("openreg@pci=3b:00", "expected a PCI address, as in `0000:3b:00.0` or `3b:00.0`"),
    ("openreg@pci=3b:00.0", "matches none of the devices of `openreg`:\n  openreg:0  "),
    ("cpu@uuid=0", "no uuid  no pci"),
    ("openrag@uuid=0", "did you mean `openreg`?"),
    ("rocm@uuid=0", "so `device-rocm` in this program's Cargo.toml would add it"),
    ("a23456789012345678901234567890123", "at most 32 bytes"),
    ("openrag", "did you mean `openreg`?"),
    ("openreg0", "did you mean `openreg`?"),
    ("rocm", "so `device-rocm` in this program's Cargo.toml would add it"),
    (
        "tensor",
        "the crate `device-tensor` is linked and has no `entry_points!` block in this build: perhaps a",
    ),
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
    for part in [
        "vulkan",
        "cpu",
        "built in",
        "openreg",
        "device-openreg",
        "so `device-vulkan` in this program's Cargo.toml",
    ] {
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
    fn nothing_that_resembles_a_list_panics(
        parts in proptest::collection::vec("!?(cpu|openreg|\\*|auto|[a-z]{1,3})(:(\\*|cpu|simulated|[a-z0-9]{1,2}))?(\\((free|memory|x)\\))?", 1..5),
    ) {
        let list = parts.join(",");
        let chosen = choose(&list, |devices| devices.first());
        let first = first_available(&list).ok().map(|chosen| chosen.device.resolve());
        prop_assert_eq!(chosen.ok().map(|chosen| chosen.device), first);
    }

    #[test]
    fn no_selector_panics(name in "cpu|openreg", selector in "(uuid|pci|name|vendor|platform)=[0-9a-f:. -]{0,12}") {
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
