//! Finding the device that a selector chooses: `name@uuid=0d7c8f22`, `name@pci=3b:00.0`,
//! `name@platform=Portable`.

use std::sync::Arc;

use entry_points::Entry;

use crate::backend::Backend;
use crate::device::Device;
use crate::device::selector::{Found, Selector, SelectorError};
use crate::error::DeviceError;
use crate::runtime::isolation::log_isolated;
use crate::runtime::{listing, probe};

/// The one device of a backend that the selector matches. Loads the backend, and opens nothing. `text` is the
/// whole device string.
///
/// A device that does not answer never makes a selector unambiguous: the start of a UUID, or a part of a
/// name, might match it too. A value that only one device can have is enough.
pub(crate) fn select(
    selector: Selector<'_>,
    backend: Entry<dyn Backend>,
    text: &str,
) -> Result<Device, DeviceError> {
    let mut candidates = Vec::new();
    let mut matching = Vec::new();
    for device in probe::devices_of(backend)? {
        let properties = listing::properties_of_counted(device);
        matching.extend(properties.iter().filter(|properties| selector.matches(properties)).map(|_| device));
        candidates.push((device, properties));
    }
    let is_silent = |(_, known): &(Device, Result<_, DeviceError>)| known.is_err();
    let found = match *matching {
        [device] if selector.is_whole() || !candidates.iter().any(is_silent) => Ok(device),
        [device] => Err(Found::Undecided(device)),
        [] => Err(Found::None),
        _ => Err(Found::Several),
    };
    let device = match found {
        Ok(device) => device,
        Err(found) => {
            candidates.retain(|candidate| match found {
                Found::None => true,
                Found::Several => matching.contains(&candidate.0),
                Found::Undecided(device) => candidate.0 == device || is_silent(candidate),
            });
            let error = SelectorError::new(text, backend, selector, found, candidates);
            return Err(DeviceError::Selector(Arc::new(error)));
        }
    };
    for (other, properties) in &candidates {
        if let Err(error) = properties {
            log_isolated(|| {
                log::info!(
                    "`{text}` is `{device}`; `{other}` was not compared, as it has no properties: {error}"
                );
            });
        }
    }
    Ok(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::available::is_available;
    use crate::backend::BackendErrorKind;
    use crate::parse::device;
    use crate::runtime::table;
    use crate::selection::first_available;
    use crate::testing::{device_of, fake};
    use entry_points::State;

    /// The device of the fake backend with UUIDs that a selector chooses.
    fn selected(selector: &str) -> Result<Device, DeviceError> {
        device_of("has_uuids");
        device(&format!("has_uuids@{selector}"))
    }

    fn refused(text: &str) -> Arc<SelectorError> {
        match device(text) {
            Err(DeviceError::Selector(error)) => error,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_prefix_finds_a_uuid_in_either_form_and_case() {
        for prefix in [
            "0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10",
            "0D7C8F22-3D1B-4D0A-9A55-0C1F5D7E9B10",
            "0d7c8f223d1b4d0a9a550c1f5d7e9b10",
            "0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b1",
            "0d7c8f22-",
            "0d7c8f22-3",
            "0d7c8f223D",
            "0d7c8f22",
            "0D7c8f2",
        ] {
            let device = selected(&format!("uuid={prefix}")).unwrap();
            assert_eq!(device.to_string(), "has_uuids:0", "{prefix}");
        }
        assert_eq!(selected("uuid=0d7c8f3").unwrap().to_string(), "has_uuids:1");
        assert_eq!(selected("uuid=f").unwrap().to_string(), "has_uuids:2");
    }

    #[test]
    fn the_middle_of_a_uuid_does_not_find_it() {
        for text in ["uuid=7c8f22", "uuid=3d1b", "uuid=0d7c8f22-3d1c", "uuid=0d7c8f223d1b5"] {
            assert!(matches!(selected(text), Err(DeviceError::Selector(_))), "{text}");
        }
    }

    #[test]
    fn a_pci_address_is_found_with_its_domain_and_without_where_that_is_zero() {
        for (address, index) in [("0000:3b:00.0", 0), ("3b:00.0", 0), ("3B:0.0", 0), ("10000:3b:00.0", 1)] {
            let device = selected(&format!("pci={address}")).unwrap();
            assert_eq!(device.index(), Some(index), "{address}");
        }
        assert!(selected("pci=3b:00.1").is_err());
    }

    #[test]
    fn a_selected_device_is_the_one_that_its_index_names() {
        let device = selected("pci=10000:3b:00.0").unwrap();
        assert_eq!(device, crate::device("has_uuids:1").unwrap());
        assert_eq!(Device::parse(&device.to_string()).unwrap(), device);
        assert!(is_available("has_uuids@uuid=f") && !is_available("has_uuids@uuid=e"));
    }

    #[test]
    fn an_ambiguous_prefix_lists_the_matching_devices_only() {
        selected("uuid=f").unwrap();
        let error = refused("has_uuids@uuid=0d7C8F");
        assert!(error.is_ambiguous());
        assert_eq!(
            error.to_string(),
            "`has_uuids@uuid=0d7C8F` matches 2 devices of `has_uuids`; write more of the uuid, or an index, such as \
             `has_uuids:0`:\n  \
               has_uuids:0  fake 0  uuid=0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10  pci=0000:3b:00.0\n  \
               has_uuids:1  fake 1  uuid=0d7c8f33-3d1b-4d0a-9a55-0c1f5d7e9b10  pci=10000:3b:00.0"
        );
    }

    #[test]
    fn an_unknown_value_lists_every_device_in_the_form_of_a_selector() {
        selected("uuid=f").unwrap();
        let error = refused("has_uuids@pci=01:00.0");
        assert!(!error.is_ambiguous());
        assert_eq!(error.candidates().len(), 3);
        let message = error.to_string();
        let (first, table) = message.split_once('\n').unwrap();
        assert_eq!(first, "`has_uuids@pci=01:00.0` matches none of the devices of `has_uuids`:");
        let last = "  has_uuids:2  fake 2  uuid=ffffffff-ffff-ffff-ffff-ffffffffffff  no pci";
        assert_eq!(table.lines().last(), Some(last));
        for row in table.lines() {
            let mut words = row.split_whitespace();
            let name = words.next().unwrap();
            for selector in words.filter(|word| word.contains('=')) {
                assert_eq!(device(&format!("has_uuids@{selector}")).unwrap().to_string(), name);
            }
        }
    }

    #[test]
    fn a_part_of_a_text_finds_a_device_whatever_its_case() {
        device_of("has_names");
        for (selector, index) in [
            ("name=EPYC", 2),
            ("name=epyc 9", 2),
            ("name=nameless", 3),
            ("vendor=micro", 2),
            ("platform=portable", 2),
            ("platform=Portable Language 3.1", 2),
        ] {
            let found = device(&format!("has_names@{selector}")).unwrap();
            assert_eq!(found.index(), Some(index), "{selector}");
        }
        let second = device("has_names:2").unwrap();
        for list in [
            "has_names@name=rtx,has_names@platform=portable,cpu",
            "!has_names@vendor=inc.,!*:cpu,has_names:2",
        ] {
            assert_eq!(first_available(list).unwrap().device, second, "{list}");
        }
        let excluded = "has_names:*,!has_names@name=9000";
        assert_eq!(
            first_available(excluded).unwrap().device.index(),
            Some(3),
            "an exclusion takes all that match"
        );
        assert!(is_available("has_names@name=epyc") && !is_available("has_names@name=9000"));
    }

    #[test]
    fn a_text_of_several_devices_lists_them() {
        device_of("has_names");
        assert_eq!(
            refused("has_names@name=9000").to_string(),
            "`has_names@name=9000` matches 3 devices of `has_names`; write more of the name, another selector, or an index, such as \
             `has_names:0`:\n  \
               has_names:0  Example RTX 9000 (Ti), Example, Inc., Example CL 1.2  no uuid  no pci\n  \
               has_names:1  Example RTX 9000 (Ti), Example, Inc., Example CL 1.2  no uuid  no pci\n  \
               has_names:2  EPYC 9000, Advanced Micro Examples, Portable Language 3.1  no uuid  no pci"
        );
        let message = refused("has_names@name=rtx").to_string();
        let first =
            "`has_names@name=rtx` matches 2 devices of `has_names`; write an index, such as `has_names:0`:\n";
        assert!(message.starts_with(first), "no part of the name is enough: {message}");
    }

    #[test]
    fn a_text_of_no_device_lists_all_and_says_where_it_is_unknown() {
        device_of("has_names");
        let error = refused("has_names@platform=rusticl");
        assert!(!error.is_ambiguous());
        assert_eq!(error.candidates().len(), 4);
        let message = error.to_string();
        assert!(message.starts_with("`has_names@platform=rusticl` matches none of the devices"), "{message}");
        assert!(message.ends_with("\n  has_names:3  nameless  no uuid  no pci  no platform"), "{message}");
        let message = refused("cpu@vendor=x").to_string();
        assert!(message.ends_with("  no vendor"), "{message}");
    }

    #[test]
    fn the_list_says_which_properties_a_device_lacks() {
        fake(None);
        let message = refused("fake@uuid=0").to_string();
        assert!(message.ends_with("\n  fake:1  fake  no uuid  no pci"), "{message}");
        let message = refused("cpu@pci=00:00.0").to_string();
        assert!(message.contains("\n  cpu  host (") && message.ends_with("  no uuid  no pci"), "{message}");
    }

    #[test]
    fn a_device_that_does_not_answer_makes_a_prefix_undecided_and_a_whole_value_is_enough() {
        device_of("first_has_no_properties");
        let error = refused("first_has_no_properties@uuid=0d");
        assert!(error.is_ambiguous());
        let listed: Vec<_> = error.candidates().iter().map(|(device, _)| device.index()).collect();
        assert_eq!(listed, [Some(0), Some(1)]);
        let message = error.to_string();
        let first = "`first_has_no_properties@uuid=0d` matches `first_has_no_properties:1`, and might match devices that do \
                     not answer; write the whole uuid, or an index, such as `first_has_no_properties:1`:\n";
        assert!(message.starts_with(first), "{message}");
        for whole in [
            "uuid=0d7c8f22-3d1b-4d0a-9a55-0c1f5d7e9b10",
            "uuid=0D7C8F223D1B4D0A9A550C1F5D7E9B10",
            "pci=3b:00.0",
        ] {
            let found = device(&format!("first_has_no_properties@{whole}")).unwrap();
            assert_eq!(found.index(), Some(1), "{whole}");
        }
    }

    #[test]
    fn a_device_that_does_not_answer_makes_a_name_undecided() {
        device_of("first_has_no_properties");
        let error = refused("first_has_no_properties@name=fake 0");
        assert!(error.is_ambiguous());
        let first = "`first_has_no_properties@name=fake 0` matches `first_has_no_properties:1`, and might match \
                     devices that do not answer; write an index, such as `first_has_no_properties:1`:\n";
        assert!(error.to_string().starts_with(first), "{error}");
    }

    #[test]
    fn a_device_without_properties_is_listed_with_its_error() {
        device_of("first_has_no_properties");
        let error = refused("first_has_no_properties@uuid=1d");
        let [(_, Err(first)), (_, Ok(_))] = error.candidates() else { panic!("{error}") };
        assert_eq!(first.backend_error().unwrap().kind(), BackendErrorKind::Unavailable);
        let row =
            "\n  first_has_no_properties:0  `first_has_no_properties:0`: properties: unavailable: gone\n";
        assert!(error.to_string().contains(row), "{error}");
    }

    #[test]
    fn a_panic_in_properties_is_listed_as_an_error() {
        device_of("panics_in_properties");
        let message = refused("panics_in_properties@uuid=1d").to_string();
        assert_eq!(message.matches("properties: the backend panicked: on purpose").count(), 2, "{message}");
    }

    #[test]
    fn the_error_says_when_a_backend_has_no_devices() {
        device_of("has_no_devices");
        let message = refused("has_no_devices@uuid=1d").to_string();
        assert_eq!(message, "`has_no_devices@uuid=1d` matches no device: `has_no_devices` has no devices");
    }

    #[test]
    fn a_backend_that_does_not_load_or_count_returns_its_own_error() {
        for (name, part) in [("fails_to_load", "on purpose"), ("panics_in_count", "device count")] {
            device_of(name);
            let error = device(&format!("{name}@uuid=0")).unwrap_err();
            assert!(!matches!(error, DeviceError::Selector(_)), "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = device("not_linked@uuid=0").unwrap_err();
        assert!(matches!(error, DeviceError::UnknownBackend(_)), "{error}");
    }

    #[test]
    fn only_a_selector_loads_the_backend_and_nothing_is_opened() {
        let device = device_of("loaded_by_a_selector");
        for text in ["loaded_by_a_selector", "loaded_by_a_selector:1", "loaded_by_a_selector@serial=1"] {
            let _ = Device::parse(text);
            assert!(matches!(device.backend().state(), State::Linked), "{text}");
        }
        assert!(refused("loaded_by_a_selector@uuid=0").candidates().iter().all(|(_, known)| known.is_ok()));
        assert!(matches!(device.backend().state(), State::Loaded { .. }));
        assert!(table::find(device).unwrap().is_none());
    }

    #[test]
    fn first_available_accepts_selectors() {
        selected("uuid=f").unwrap();
        let found = first_available("has_uuids@uuid=e,has_uuids@pci=01:00.0,has_uuids@uuid=f,cpu").unwrap();
        assert_eq!(found.device.to_string(), "has_uuids:2");
        let error = first_available("has_uuids@uuid=e,fake:9").unwrap_err().to_string();
        assert!(error.contains("\n  has_uuids@uuid=e: `has_uuids@uuid=e` matches none"), "{error}");
        assert!(error.contains("\n      has_uuids:1  fake 1"), "the table is indented: {error}");
        let error = first_available("cpu,has_uuids@uuid=").unwrap_err();
        assert!(matches!(error, DeviceError::Syntax(_)), "{error}");
    }
}
