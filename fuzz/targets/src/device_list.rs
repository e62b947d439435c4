//! Lists of devices, against a second implementation of what the documentation of `Selection` says.

use std::cmp::Reverse;

use device_registry::{Device, DeviceError, DeviceKind, Selection, choose, devices, first_available};

use crate::check_message;
use crate::device_string::{Form, use_all_backends};

/// A part of a list that is in the grammar.
struct Part<'a> {
    excludes: bool,
    name: &'a str,
    which: Which<'a>,
    order: Option<&'a str>,
}

enum Which<'a> {
    Auto,
    /// A device string, or a name alone.
    One(&'a str),
    Kind(&'a str),
}

impl<'a> Part<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let excludes = text.starts_with('!');
        let text = &text[usize::from(excludes)..];
        if text == "auto" && !excludes {
            return Some(Self { excludes, name: "", which: Which::Auto, order: None });
        }
        let order = ["(free)", "(memory)"].into_iter().find(|order| text.ends_with(order));
        let body = &text[..text.len() - order.map_or(0, str::len)];
        if excludes && order.is_some() {
            return None;
        }
        let of_kind = |name: &'a str, kind| Some(Self { excludes, name, which: Which::Kind(kind), order });
        let words =
            ["cpu", "gpu", "discrete_gpu", "integrated_gpu", "accelerator", "simulated", "other", "*"];
        if body == "*" {
            return of_kind(body, "*");
        }
        if let Some((name, kind)) = body.split_once(':').filter(|(_, kind)| words.contains(kind)) {
            let is_name = name == "*" || Form::of(name).is_some_and(|form| form.name == name);
            return is_name.then(|| of_kind(name, kind))?;
        }
        let form = Form::of(body)?;
        match order {
            None => Some(Self { excludes, name: form.name, which: Which::One(body), order }),
            Some(_) if form.name == body => of_kind(body, "*"),
            Some(_) => None,
        }
    }

    /// Whether the part names the device, for a pattern or an exclusion.
    fn names(&self, device: Device) -> bool {
        let of_backend = self.name == "*" || self.name == device.name();
        of_backend
            && match self.which {
                Which::Auto => false,
                Which::One(text) if text == self.name => true,
                Which::One(text) => {
                    Device::parse(text).is_ok_and(|named| named.resolve() == device.resolve())
                }
                Which::Kind(word) => {
                    let kind = device.properties().unwrap().kind;
                    match word {
                        "*" => true,
                        "gpu" => matches!(kind, DeviceKind::Gpu | DeviceKind::IntegratedGpu),
                        word => kind.to_string().replace(' ', "_") == word.replace("discrete_", ""),
                    }
                }
            }
    }
}

/// What a list chooses where every backend works, as here, and there is no default selection.
fn chosen(parts: &[Part<'_>]) -> Vec<Device> {
    let all: Vec<Device> = devices().flat_map(|(_, devices)| devices.unwrap()).collect();
    let mut chosen = Vec::new();
    for part in parts.iter().filter(|part| !part.excludes) {
        let mut of_part: Vec<Device> = match part.which {
            Which::One(text) => {
                Device::parse(text).ok().filter(|device| device.properties().is_ok()).into_iter().collect()
            }
            _ => all.iter().copied().filter(|device| part.names(*device)).collect(),
        };
        of_part.retain(|device| !parts.iter().any(|part| part.excludes && part.names(*device)));
        of_part.sort_by_key(|device| match part.order {
            Some("(free)") => Reverse(device.memory_info().unwrap().free),
            Some(_) => Reverse(device.properties().unwrap().total_memory),
            None => Reverse(None),
        });
        chosen.extend(of_part);
    }
    chosen
}

/// The input is a list of devices.
pub fn device_list(input: &[u8]) {
    use_all_backends();
    let list = &*String::from_utf8_lossy(input);
    let found = first_available(list);
    let parts: Option<Vec<_>> = list.split(',').map(Part::of).collect();
    let is_list = |parts: &Vec<Part<'_>>| {
        let exclusions = parts.iter().filter(|part| part.excludes).count();
        exclusions <= 256 && exclusions < parts.len()
    };
    let Some(parts) = parts.filter(is_list) else {
        let Err(DeviceError::Syntax(error)) = found else { panic!("{list:?} is not well formed: {found:?}") };
        check_message(&error.to_string());
        assert!(!error.to_string().contains('\n') && error.to_string().chars().count() < 1500, "{error}");
        return;
    };
    assert_eq!(Selection::parse(list).unwrap().to_string(), list);
    let expected = chosen(&parts);
    match (found, expected.first()) {
        (Ok(found), Some(first)) => assert_eq!(found.device, *first, "{list:?}"),
        (Err(DeviceError::NoneAvailable(none)), None) => {
            assert!(!none.causes().is_empty(), "{list:?}");
            check_message(&none.to_string());
        }
        (found, first) => panic!("{list:?}: the first is {first:?}, and found is {found:?}"),
    }
    let mut offered = Vec::new();
    let last = choose(list, |candidates| {
        offered.extend(candidates.iter().map(|candidate| candidate.device));
        candidates.last()
    });
    let mut distinct = Vec::new();
    expected.into_iter().map(Device::resolve).for_each(|device| {
        if !distinct.contains(&device) {
            distinct.push(device);
        }
    });
    assert_eq!(offered, distinct, "{list:?}");
    assert_eq!(last.ok().map(|chosen| chosen.device), distinct.last().copied(), "{list:?}");
}
