//! The devices, by their index in PyTorch.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use device_registry::{Device, DeviceError, ErrorChain, backends, device, device_count};
use log::warn;

use crate::choice::choice;
use crate::failure::Failure;

/// An index has 8 bits in PyTorch, with a sign.
pub(crate) const MOST: usize = 127;

struct Found {
    devices: Vec<Device>,
    /// Why a backend has none.
    problems: Vec<String>,
}

/// Loads the chosen backends, and counts their devices. Opens none.
fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        let (mut devices, mut problems) = (Vec::new(), Vec::new());
        for &backend in choice().map(|choice| choice.backends.as_slice()).unwrap_or_default() {
            match devices_of(backend) {
                Ok(of_backend) => devices.extend(of_backend),
                Err(error) => problems.push(format!("{backend}: {}", ErrorChain::new(&error))),
            }
        }
        if devices.len() > MOST {
            problems.push(format!("PyTorch has room for {MOST} of the {} devices", devices.len()));
            devices.truncate(MOST);
        }
        problems.iter().for_each(|problem| warn!("{problem}"));
        Found { devices, problems }
    })
}

fn devices_of(backend: &str) -> Result<Vec<Device>, DeviceError> {
    (0..device_count(backend)?).map(|index| device(&format!("{backend}:{index}"))).collect()
}

/// All devices, in the order of their indices.
pub(crate) fn all() -> &'static [Device] {
    &found().devices
}

/// The device with an index.
pub(crate) fn get(index: i32) -> Result<Device, Failure> {
    let found = found();
    if let Some(device) = usize::try_from(index).ok().and_then(|index| found.devices.get(index)) {
        return Ok(*device);
    }
    let name = choice().map(|choice| choice.name.as_str()).unwrap_or("device");
    let mut message = match found.devices.len() {
        0 => format!("`{name}` has no device"),
        1 => format!("`{name}` has 1 device, asked for `{name}:{index}`"),
        count => format!("`{name}` has {count} devices, asked for `{name}:{index}`"),
    };
    for problem in &found.problems {
        let _ = write!(message, "; {problem}");
    }
    if found.problems.is_empty() && found.devices.is_empty() {
        let _ = write!(message, "\n{}", backends().report());
    }
    Err(Failure::new(message))
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
    let name = choice().map(|choice| choice.name.as_str()).unwrap_or("the device");
    Err(Failure::new(format_args!(
        "`{name}` was used before this process was forked, and a child cannot use its devices; start it with \
         multiprocessing's method `spawn`"
    )))
}
