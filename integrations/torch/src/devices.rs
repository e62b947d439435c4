//! The devices, by their index in PyTorch.

use std::fmt::{Display, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use device_registry::{
    AttributeValue, Device, DeviceError, DeviceProperties, ErrorChain, backends, device, device_count,
};
use log::warn;

use crate::choice::choice;
use crate::failure::Failure;
use crate::forks::watch_forks;
use crate::own_process;

/// An index has 8 bits in PyTorch, with a sign.
pub(crate) const MOST: usize = 127;

struct Found {
    devices: Vec<Device>,
    /// Why a backend has none.
    problems: Vec<String>,
}

static FOUND: OnceLock<Found> = OnceLock::new();

impl Found {
    /// The devices of the chosen backends; `count` says how many a backend has.
    fn by(count: impl Fn(&str) -> Result<usize, String>) -> Self {
        let mut devices = Vec::new();
        let mut problems = Vec::new();
        for &backend in choice().map(|choice| choice.backends.as_slice()).unwrap_or_default() {
            let of_backend = count(backend).and_then(|count| {
                let all = (0..count).map(|index| device(&format!("{backend}:{index}")));
                all.collect::<Result<Vec<_>, _>>().map_err(in_words)
            });
            match of_backend {
                Ok(of_backend) => devices.extend(of_backend),
                Err(problem) => problems.push(format!("{backend}: {problem}")),
            }
        }
        if devices.len() > MOST {
            problems.push(format!("PyTorch has room for {MOST} of the {} devices", devices.len()));
            devices.truncate(MOST);
        }
        problems.iter().for_each(|problem| warn!("{problem}"));
        Self { devices, problems }
    }
}

fn in_words(error: DeviceError) -> String {
    ErrorChain::new(&error).to_string()
}

/// Loads a backend, and counts its devices. Opens none.
fn count(backend: &str) -> Result<usize, String> {
    device_count(backend).map_err(in_words)
}

/// Counts a backend's devices in its own process, and loads nothing in this one.
fn count_elsewhere(backend: &str) -> Result<usize, String> {
    let answer = own_process::ask(|| count(backend).map_or_else(|why| why, |count| count.to_string()))?;
    answer.parse().map_err(|_| answer)
}

/// All devices, in the order of their indices.
pub(crate) fn all() -> &'static [Device] {
    &FOUND.get_or_init(|| Found::by(count_elsewhere)).devices
}

static IS_USED: AtomicBool = AtomicBool::new(false);

/// Marks devices as used by this process, which is about to call their drivers.
pub(crate) fn begin_use() {
    IS_USED.store(true, Ordering::Relaxed);
    watch_forks();
    FOUND.get_or_init(|| Found::by(count));
}

/// The device with an index.
pub(crate) fn get(index: i32) -> Result<Device, Failure> {
    let found = usize::try_from(index).ok().and_then(|index| all().get(index));
    found.copied().ok_or_else(|| absent(index))
}

/// Why there is no device with an index.
pub(crate) fn absent(index: i32) -> Failure {
    let name = name();
    let all = all();
    let mut message = match all.len() {
        0 => format!("`{name}` has no device"),
        // It begins with PyTorch's words.
        count => format!(
            "The device index is out of range: `{name}` has {count} device{}, asked for `{name}:{index}`",
            if count == 1 { "" } else { "s" }
        ),
    };
    let problems = FOUND.get().map(|found| found.problems.as_slice()).unwrap_or_default();
    for problem in problems {
        let _ = write!(message, "; {problem}");
    }
    if problems.is_empty() && all.is_empty() {
        let _ = write!(message, "\n{}", backends().report());
    }
    Failure::new(message)
}

/// The name of the device in PyTorch.
fn name() -> &'static str {
    choice().map(|choice| choice.name.as_str()).unwrap_or("the device")
}

/// The known properties of a device: a line for each, of the name, the kind of the value (`s` for text, `i`
/// for an integer, `b` for 0 or 1), and the value, with tabs between them. Opens nothing, and loads nothing
/// before the first use.
pub(crate) fn properties(index: i32) -> Result<String, Failure> {
    check_fork()?;
    let device = get(index)?;
    if IS_USED.load(Ordering::Relaxed) {
        return Ok(lines_of(device.properties()?));
    }
    // The first letter says which of the two it is.
    let answer = own_process::ask(|| match device.properties() {
        Ok(found) => format!("+{}", lines_of(found)),
        Err(error) => format!("-{}", in_words(error)),
    });
    let answer = answer.map_err(Failure::new)?;
    match answer.strip_prefix('+') {
        Some(lines) => Ok(lines.to_owned()),
        None => Err(Failure::new(answer.trim_start_matches('-'))),
    }
}

fn lines_of(found: DeviceProperties) -> String {
    let mut lines = String::new();
    let mut add = |name: &str, kind: char, value: &dyn Display| {
        // Texts of drivers, which may contain anything.
        let value = value.to_string().replace(|c: char| c.is_control(), " ");
        let _ = writeln!(lines, "{name}\t{kind}\t{value}");
    };
    let mut text = |name: &str, value: Option<String>| {
        value.into_iter().for_each(|value| add(name, 's', &value));
    };
    text("name", Some(found.name));
    text("vendor", found.vendor);
    text("kind", Some(found.kind.to_string()));
    text("driver", found.driver);
    text("driver_version", found.driver_version);
    text("api", found.api.map(|api| api.to_string()));
    text("uuid", found.uuid.map(|uuid| uuid.to_string()));
    text("pci", found.pci.map(|pci| pci.to_string()));
    text("native_dtypes", found.native_dtypes.map(|names| names.join(" ")));
    for (name, value) in [
        ("major", found.compute_capability.map(|version| version.major.into())),
        ("minor", found.compute_capability.map(|version| version.minor.into())),
        ("total_memory", found.total_memory),
        ("largest_allocation", found.largest_allocation),
    ] {
        value.into_iter().for_each(|value| add(name, 'i', &value));
    }
    for (name, value) in [
        ("concurrent_streams", found.concurrent_streams),
        ("timed_events", found.timed_events),
        ("pinned_memory", found.pinned_memory),
    ] {
        add(name, 'b', &u8::from(value));
    }
    for (name, value) in found.attributes.iter() {
        let name = format!("attributes.{name}");
        match value {
            AttributeValue::Bool(value) => add(&name, 'b', &u8::from(*value)),
            AttributeValue::Integer(value) => add(&name, 'i', value),
            other => add(&name, 's', other),
        }
    }
    lines
}

static FORKED: AtomicBool = AtomicBool::new(false);

/// Marks the process as a child of one that had devices.
pub(crate) fn set_forked() {
    FORKED.store(true, Ordering::Relaxed);
}

pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// An error in a child of a fork: before a lock, which a thread of the parent may have held.
pub(crate) fn check_fork() -> Result<(), Failure> {
    if !is_forked() {
        return Ok(());
    }
    Err(forked())
}

/// What a child of a process that has used devices gets.
pub(crate) fn forked() -> Failure {
    let name = name();
    Failure::new(format_args!(
        "`{name}` was used before this process was forked, and a child cannot use its devices; start it with \
         multiprocessing's method `spawn`"
    ))
}
