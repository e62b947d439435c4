//! Compiled programs, by device and by what they were generated from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use device_generated_kernels::{Disk, Kernels, Key, Recipe, Traits};
use device_kernels::Call;
use device_opencl::sys::{
    CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_DRIVER_VERSION, CL_PLATFORM_NAME,
    CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION,
};
use device_opencl::{OpenClDevice, OpenClError, handles};
use device_registry::activity;
use device_registry::backend::{BackendError, NativeDevice};
use parking_lot::Mutex;

use crate::program::{Kernel, New, OPTIONS};

/// How many texts this process has compiled. A program of the cache, or one that is made from a binary, does
/// not count.
static COMPILATIONS: AtomicU64 = AtomicU64::new(0);

/// How many programs this process has compiled, for tests and measurements.
///
/// A program is compiled once for each device, and not if an earlier process has kept it on disk. After the
/// device was closed or reset, it is made from its binary, which does not count.
#[must_use]
pub fn compilations() -> u64 {
    COMPILATIONS.load(Ordering::Relaxed)
}

/// The programs of each device, by its address. OpenCL never frees a device.
static DEVICES: Mutex<Vec<(usize, Arc<Programs>)>> = Mutex::new(Vec::new());

/// What stays of a device when it is closed: for contexts to come.
#[derive(Default)]
pub(crate) struct Programs {
    /// A device's binaries are valid in each of its contexts.
    binaries: Mutex<HashMap<Recipe, Arc<[u8]>>>,
    traits: OnceLock<Traits>,
}

/// A device while it is open, and the kernels of its context. The device keeps it until it is closed or
/// reset, and enqueued commands keep what they need of it.
pub(crate) struct OpenKernels {
    pub(crate) device: Arc<OpenClDevice>,
    pub(crate) programs: Arc<Programs>,
    kernels: Kernels<Kernel>,
}

/// An open device, and its kernels.
pub(crate) fn open(native: NativeDevice<'_>) -> Result<Arc<OpenKernels>, BackendError> {
    native.value(|| {
        let programs = of_device(handles::device_id(native)?.addr());
        let device = Arc::new(OpenClDevice::from_native(native)?);
        Ok(OpenKernels { device, programs, kernels: Kernels::default() })
    })
}

fn of_device(id: usize) -> Arc<Programs> {
    let mut devices = DEVICES.lock();
    // There are few of them.
    if let Some((_, programs)) = devices.iter().find(|(device, _)| *device == id) {
        return Arc::clone(programs);
    }
    let programs = Arc::default();
    devices.push((id, Arc::clone(&programs)));
    programs
}

impl OpenKernels {
    /// The kernel of a recipe in the context of the device, for a call.
    ///
    /// # Errors
    ///
    /// If the driver rejects the text. The next call tries again.
    pub(crate) fn kernel(&self, recipe: &Recipe, call: &Call) -> Result<Arc<Kernel>, BackendError> {
        self.kernels.get_or_make(recipe, || {
            let binary = self.programs.binaries.lock().get(recipe).cloned();
            match binary.and_then(|binary| Kernel::load(&self.device, &binary).ok()) {
                Some(kernel) => Ok(kernel),
                None => self.programs.make(&self.device, recipe, call),
            }
        })
    }
}

impl Programs {
    /// What the device is like, by `find` at the first call. It stays so when the device is opened again.
    pub(crate) fn traits(&self, find: impl FnOnce() -> Traits) -> Traits {
        *self.traits.get_or_init(find)
    }

    /// Makes the kernel of a recipe: from its binary on disk, or by compiling the text.
    fn make(&self, device: &Arc<OpenClDevice>, recipe: &Recipe, call: &Call) -> Result<Kernel, BackendError> {
        let text = recipe.text();
        let on_disk = match disk()? {
            Some(disk) => key(device, &text).ok().map(|key| (disk, key)),
            None => None,
        };
        let kept =
            on_disk.as_ref().and_then(|(disk, key)| disk.load(key, |binary| Kernel::load(device, binary)));
        if let Some((kernel, binary)) = kept {
            self.binaries.lock().insert(recipe.clone(), binary.into());
            return Ok(kernel);
        }
        let start = Instant::now();
        let _span = activity::span(&format!("compile {}", call.name()));
        let kernel = Kernel::compile(device, &text, recipe, on_disk)?;
        let count = 1 + COMPILATIONS.fetch_add(1, Ordering::Relaxed);
        let milliseconds = start.elapsed().as_millis();
        log::info!(
            "compiled a program of opencl in {milliseconds} ms, number {count} of this process: {recipe:?}"
        );
        Ok(kernel)
    }

    /// Keeps the binary of a program whose kernel has run: for contexts to come, and for other processes.
    pub(crate) fn keep(&self, new: New) {
        // Without a binary, the text is compiled again.
        let Ok(Some(binary)) = new.program.binary() else { return };
        if let Some((disk, key)) = &new.on_disk {
            disk.write(key, &binary);
        }
        self.binaries.lock().insert(new.recipe, binary.into());
    }
}

/// Where programs are kept for other processes, or `None` if they are not.
///
/// # Errors
///
/// If the variable `DEVICE_PROGRAM_CACHE` has an invalid value.
fn disk() -> Result<Option<&'static Disk>, BackendError> {
    static DISK: LazyLock<Result<Option<Disk>, String>> = LazyLock::new(|| Disk::of_user("opencl-programs"));
    DISK.as_ref().map(Option::as_ref).map_err(BackendError::invalid)
}

/// What the program of a text follows from on a device.
fn key(device: &OpenClDevice, text: &str) -> Result<Key, OpenClError> {
    let mut parts = vec![format!("{} bits", usize::BITS)];
    for what in [CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION] {
        parts.push(String::from_utf8_lossy(&device.platform_info(what)?).into_owned());
    }
    for what in [CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_DRIVER_VERSION] {
        parts.push(String::from_utf8_lossy(&device.info(what)?).into_owned());
    }
    let options = OPTIONS.to_string_lossy();
    Ok(Key::of(parts.iter().map(String::as_str).chain([&*options, text])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_driver_and_the_text() {
        let Some(device) = device_conformance::device_or_skip("opencl") else { return };
        let (of_one, of_other, facts) = device
            .with_driver(|driver: &OpenClDevice| {
                let mut facts = Vec::new();
                for what in [CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_DRIVER_VERSION] {
                    facts.push(driver.info(what)?);
                }
                for what in [CL_PLATFORM_NAME, CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION] {
                    facts.push(driver.platform_info(what)?);
                }
                Ok((key(driver, "one")?, key(driver, "other")?, facts))
            })
            .unwrap();
        assert_ne!(of_one, of_other);
        let mut left = format!("{of_one:?}");
        for fact in facts {
            let fact = String::from_utf8(fact).unwrap();
            let fact = format!("{:?}", fact.trim_end_matches('\0'));
            let fact = fact.trim_matches('"').to_owned();
            // Each in its own place: some are equal, or parts of others.
            let quoted = format!("\"{fact}\\0\"");
            let shown = format!("{quoted:?}");
            let shown = shown.trim_matches('"');
            assert!(left.contains(shown), "{shown} in {left}");
            left = left.replacen(shown, "", 1);
        }
    }
}
