//! Compiled programs, by device and by what they were generated from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use device_opencl::sys::{
    CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_DRIVER_VERSION, CL_PLATFORM_NAME,
    CL_PLATFORM_VENDOR, CL_PLATFORM_VERSION,
};
use device_opencl::{OpenClDevice, OpenClError, handles};
use device_registry::backend::{BackendError, NativeDevice};
use parking_lot::Mutex;

use crate::disk::{Found, Key};
use crate::generate::{Recipe, Traits};
use crate::place;
use crate::program::{Kernel, New, OPTIONS};
use crate::quick_hash::QuickHash;

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

/// The programs of one device.
#[derive(Default)]
pub(crate) struct Programs {
    state: Mutex<State>,
    traits: OnceLock<Traits>,
}

#[derive(Default)]
struct State {
    /// The device as it was opened last, which `kernels` belong to. It keeps its context, so that no other
    /// one has that address.
    open: Option<Arc<OpenClDevice>>,
    kernels: HashMap<Recipe, Arc<KernelCell>, QuickHash>,
    /// For contexts to come. A device's binaries are valid in each of its contexts.
    binaries: HashMap<Recipe, Arc<[u8]>>,
}

impl State {
    fn reopen(&mut self, open: &Arc<OpenClDevice>) {
        self.kernels.clear();
        self.open = Some(Arc::clone(open));
    }
}

/// A kernel, once it is compiled. The lock is held while it is: another thread that needs it waits, and all
/// others do not.
#[derive(Default)]
struct KernelCell(Mutex<Option<Arc<Kernel>>>);

/// An open device, and its programs.
pub(crate) fn open(native: NativeDevice<'_>) -> Result<(Arc<OpenClDevice>, Arc<Programs>), BackendError> {
    let id = handles::device_id(native)?.addr();
    let programs = of_device(id);
    let open = programs.open(native)?;
    Ok((open, programs))
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

impl Programs {
    /// What the device is like, by `find` at the first call. It stays so when the device is opened again.
    pub(crate) fn traits(&self, find: impl FnOnce() -> Traits) -> Traits {
        *self.traits.get_or_init(find)
    }

    /// The device as it is open now.
    fn open(&self, native: NativeDevice<'_>) -> Result<Arc<OpenClDevice>, BackendError> {
        let context = handles::context(native)?;
        let mut state = self.state.lock();
        if let Some(open) = state.open.as_ref().filter(|open| open.context() == context) {
            return Ok(Arc::clone(open));
        }
        // The device was opened, perhaps again. Enqueued commands keep what they need of the old context.
        let open = Arc::new(OpenClDevice::from_native(native)?);
        state.reopen(&open);
        Ok(open)
    }

    /// The kernel of a recipe in the context of the open device.
    ///
    /// # Errors
    ///
    /// If the driver rejects the text. The next call tries again.
    pub(crate) fn kernel(
        &self,
        device: &Arc<OpenClDevice>,
        recipe: &Recipe,
    ) -> Result<Arc<Kernel>, BackendError> {
        let cell = {
            let mut state = self.state.lock();
            if !state.open.as_ref().is_some_and(|open| Arc::ptr_eq(open, device)) {
                // A launch was under way while the device was reset, and opened again by another thread.
                state.reopen(device);
            }
            match state.kernels.get(recipe) {
                Some(cell) => Arc::clone(cell),
                None => Arc::clone(state.kernels.entry(recipe.clone()).or_default()),
            }
        };
        let mut kernel = cell.0.lock();
        if let Some(kernel) = &*kernel {
            return Ok(Arc::clone(kernel));
        }
        let binary = self.state.lock().binaries.get(recipe).cloned();
        let made = match binary.and_then(|binary| Kernel::load(device, &binary).ok()) {
            Some(made) => made,
            None => self.make(device, recipe)?,
        };
        Ok(Arc::clone(kernel.insert(Arc::new(made))))
    }
    /// Makes the kernel of a recipe: from its binary on disk, or by compiling the text.
    fn make(&self, device: &Arc<OpenClDevice>, recipe: &Recipe) -> Result<Kernel, BackendError> {
        let text = recipe.text();
        let on_disk = match place::disk()? {
            Some(disk) => key(device, &text).ok().map(|key| (disk, key)),
            None => None,
        };
        if let Some((disk, key)) = &on_disk {
            let refusal = match disk.read(key) {
                Found::Nothing => None,
                Found::Unusable(reason) => Some(reason),
                Found::Program(binary) => match Kernel::load(device, &binary) {
                    Ok(kernel) => {
                        log::debug!("made a program of opencl from {}", disk.path(key).display());
                        self.state.lock().binaries.insert(recipe.clone(), binary.into());
                        return Ok(kernel);
                    }
                    Err(error) => Some(format!("the driver refuses it: {error}")),
                },
            };
            if let Some(reason) = refusal {
                log::warn!("{} is not used, and made again: {reason}", disk.path(key).display());
            }
        }
        let start = Instant::now();
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
        self.state.lock().binaries.insert(new.recipe, binary.into());
    }
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
            // Each in a place of its own: some are equal, or parts of others.
            let quoted = format!("\"{fact}\\0\"");
            let shown = format!("{quoted:?}");
            let shown = shown.trim_matches('"');
            assert!(left.contains(shown), "{shown} in {left}");
            left = left.replacen(shown, "", 1);
        }
    }
}
