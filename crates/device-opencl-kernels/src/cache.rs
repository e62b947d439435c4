//! Compiled programs, by device and by what they were generated from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use device_opencl::OpenClDevice;
use device_registry::backend::BackendError;
use parking_lot::Mutex;

use crate::generate::Recipe;
use crate::generate::dialect::OpenClC;
use crate::program::Kernel;

/// How many texts this process has compiled. A program of the cache, or one that is made from a binary, does not count.
static COMPILATIONS: AtomicU64 = AtomicU64::new(0);

/// How many programs this process has compiled, for tests and measurements.
///
/// A program is compiled once for each device. After the device was closed or reset, it is made from its
/// binary, which does not count.
#[must_use]
pub fn compilations() -> u64 {
    COMPILATIONS.load(Ordering::Relaxed)
}

/// The programs of each device, by its address. OpenCL never frees a device.
static DEVICES: LazyLock<Mutex<HashMap<usize, Arc<Programs>>>> = LazyLock::new(Mutex::default);

/// The programs of one device.
#[derive(Default)]
pub(crate) struct Programs(Mutex<State>);

#[derive(Default)]
struct State {
    /// The address of the context that `slots` are of. A kernel keeps its context, so that no other context has the address
    /// while there is a kernel in `slots`.
    context: usize,
    slots: HashMap<Recipe, Arc<Slot>>,
    /// For contexts to come. A device's binaries are valid in each of its contexts.
    binaries: HashMap<Recipe, Arc<[u8]>>,
}

/// A kernel, once it is compiled. The lock is held while it is: another thread that needs it waits, and all others do not.
#[derive(Default)]
struct Slot(Mutex<Option<Arc<Kernel>>>);

impl Programs {
    /// The programs of an open device.
    pub(crate) fn of(device: &OpenClDevice) -> Arc<Self> {
        Arc::clone(DEVICES.lock().entry(device.device_id().addr()).or_default())
    }

    /// The kernel of a recipe in the context of the open device.
    ///
    /// # Errors
    ///
    /// If the driver rejects the text. The next call tries again.
    pub(crate) fn kernel(&self, device: &OpenClDevice, recipe: &Recipe) -> Result<Arc<Kernel>, BackendError> {
        let (slot, binary) = {
            let mut state = self.0.lock();
            let context = device.context().addr();
            if state.context != context {
                // The device was opened again. Enqueued commands keep what they need.
                state.slots.clear();
                state.context = context;
            }
            if let Some(slot) = state.slots.get(recipe) {
                (Arc::clone(slot), state.binaries.get(recipe).cloned())
            } else {
                let slot = Arc::<Slot>::default();
                state.slots.insert(recipe.clone(), Arc::clone(&slot));
                (slot, state.binaries.get(recipe).cloned())
            }
        };
        let mut kernel = slot.0.lock();
        if let Some(kernel) = &*kernel {
            return Ok(Arc::clone(kernel));
        }
        let loaded = binary.and_then(|binary| Kernel::load(device, &binary).ok());
        let made = match loaded {
            Some(made) => made,
            None => {
                let (made, binary) = Kernel::compile(device, &recipe.text(&OpenClC))?;
                COMPILATIONS.fetch_add(1, Ordering::Relaxed);
                if let Some(binary) = binary {
                    self.0.lock().binaries.insert(recipe.clone(), binary.into());
                }
                made
            }
        };
        Ok(Arc::clone(kernel.insert(Arc::new(made))))
    }
}
