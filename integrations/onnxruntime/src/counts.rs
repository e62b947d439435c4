//! How many nodes of all sessions each device computes, and which operators were left to others.

use std::collections::BTreeMap;

use device_registry::Device;
use parking_lot::Mutex;

/// The counts of a device.
#[derive(Clone, Debug, Default)]
struct Counts {
    taken: usize,
    left: BTreeMap<String, usize>,
}

static COUNTS: Mutex<BTreeMap<String, Counts>> = Mutex::new(BTreeMap::new());

/// Adds what became of the nodes of a session.
pub(crate) fn add(device: Device, taken: usize, left: &[(String, String)]) {
    let mut counts = COUNTS.lock();
    let counts = counts.entry(device.to_string()).or_default();
    counts.taken += taken;
    for (operator, _) in left {
        *counts.left.entry(operator.clone()).or_default() += 1;
    }
}

/// What became of the nodes of all sessions of this process, by device: how many it has `taken`, and how many
/// of each other operator it has left to another provider.
#[must_use]
pub fn counts() -> BTreeMap<String, BTreeMap<String, usize>> {
    let all = COUNTS.lock();
    let of_device = |counts: &Counts| {
        let mut numbers = counts.left.clone();
        numbers.insert("taken".into(), counts.taken);
        numbers
    };
    all.iter().map(|(device, counts)| (device.clone(), of_device(counts))).collect()
}

/// A line for each device and number: the device, `taken` or the name of an operator that was left, and the
/// number, with tabs between them.
pub(crate) fn lines() -> String {
    let mut lines = String::new();
    for (device, mut numbers) in counts() {
        let taken = numbers.remove_entry("taken");
        for (name, number) in taken.into_iter().chain(numbers) {
            lines += &format!("{device}\t{name}\t{number}\n");
        }
    }
    lines
}
