//! Compiled programs, by device and by what they were generated from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use device_cuda::cudarc::driver::sys::CUdevice_attribute;
use device_cuda::{CudaDevice, CudaKernel};
use device_generated_kernels::{Disk, GroupAxes, Kernels, Key, Recipe, Traits};
use device_kernels::Call;
use device_registry::activity;
use device_registry::backend::{BackendError, NativeDevice};
use parking_lot::Mutex;

use crate::nvrtc::{Architecture, Nvrtc};

/// How many texts this process has compiled.
static COMPILATIONS: AtomicU64 = AtomicU64::new(0);

/// How many programs this process has compiled, for tests and measurements.
///
/// A program is compiled once for each compute capability, and not if an earlier process has kept it on disk.
#[must_use]
pub fn compilations() -> u64 {
    COMPILATIONS.load(Ordering::Relaxed)
}

/// What a binary was made from, and for what.
type Program = (Architecture, GroupAxes, Recipe);

/// What was compiled. Devices of one architecture share it, and contexts to come.
static BINARIES: LazyLock<Mutex<HashMap<Program, Arc<[u8]>>>> = LazyLock::new(Mutex::default);

/// A device while it is open, and the kernels of its context. It is kept until the device is closed or reset.
pub(crate) struct OpenKernels {
    pub(crate) device: Arc<CudaDevice>,
    pub(crate) traits: Traits,
    architecture: Architecture,
    kernels: Kernels<CudaKernel>,
    kernels_on_one_axis: Kernels<CudaKernel>,
}

/// An open device. The sets share it, and its pool of temporary memory.
pub(crate) fn device_of(native: NativeDevice<'_>) -> Result<Arc<CudaDevice>, BackendError> {
    native.value(|| CudaDevice::from_native(native))
}

/// An open device, and its kernels.
pub(crate) fn open(native: NativeDevice<'_>, nvrtc: &Nvrtc) -> Result<Arc<OpenKernels>, BackendError> {
    use CUdevice_attribute as Attribute;
    native.value(|| {
        let device = device_of(native)?;
        let major = device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let units = device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        Ok(OpenKernels {
            architecture: nvrtc.architecture(major, minor)?,
            traits: Traits { doubles: true, groups: true, units: units.max(1).into() },
            device,
            kernels: Kernels::default(),
            kernels_on_one_axis: Kernels::default(),
        })
    })
}

impl OpenKernels {
    /// The kernel of a recipe in the context of the device, for a call.
    ///
    /// # Errors
    ///
    /// If the compiler rejects the text. The next call tries again.
    pub(crate) fn kernel(
        &self,
        recipe: &Recipe,
        axes: GroupAxes,
        nvrtc: &Nvrtc,
        call: &Call,
    ) -> Result<Arc<CudaKernel>, BackendError> {
        let kernels = match axes {
            GroupAxes::All => &self.kernels,
            GroupAxes::First => &self.kernels_on_one_axis,
        };
        kernels.get_or_make(recipe, || self.make(recipe, axes, nvrtc, call))
    }

    fn make(
        &self,
        recipe: &Recipe,
        axes: GroupAxes,
        nvrtc: &Nvrtc,
        call: &Call,
    ) -> Result<CudaKernel, BackendError> {
        // SAFETY: NVRTC has made the bytes, or this user has written them to a file, with their checksum.
        let load = |binary: &[u8]| unsafe { self.device.load_kernel(binary, c"run") };
        let of = (self.architecture, axes, recipe.clone());
        let made = BINARIES.lock().get(&of).cloned();
        if let Some(kernel) = made.and_then(|binary| load(&binary).ok()) {
            return Ok(kernel);
        }
        let text = recipe.cuda_text(axes);
        let version = format!("NVRTC {}.{}", nvrtc.version.0, nvrtc.version.1);
        let architecture = self.architecture.to_string();
        let parts = [version.as_str(), &architecture].into_iter();
        let key = Key::of(parts.chain(text.options.iter().copied()).chain([text.source.as_str()]));
        let disk = disk()?;
        if let Some((kernel, binary)) = disk.and_then(|disk| disk.load(&key, load)) {
            BINARIES.lock().insert(of, binary.into());
            return Ok(kernel);
        }
        let start = Instant::now();
        let _span = activity::span(&format!("compile {}", call.name()));
        let binary = nvrtc.compile(&text.source, &text.options, self.architecture)?;
        let kernel = load(&binary)?;
        let count = 1 + COMPILATIONS.fetch_add(1, Ordering::Relaxed);
        let milliseconds = start.elapsed().as_millis();
        log::info!(
            "compiled a program of cuda in {milliseconds} ms, number {count} of this process: {recipe:?}"
        );
        if let Some(disk) = disk {
            disk.write(&key, &binary);
        }
        BINARIES.lock().insert(of, binary.into());
        Ok(kernel)
    }
}

/// Where programs are kept for other processes, or `None` if they are not.
///
/// # Errors
///
/// If the variable `DEVICE_PROGRAM_CACHE` has an invalid value.
fn disk() -> Result<Option<&'static Disk>, BackendError> {
    static DISK: LazyLock<Result<Option<Disk>, String>> = LazyLock::new(|| Disk::of_user("cuda-programs"));
    DISK.as_ref().map(Option::as_ref).map_err(BackendError::invalid)
}
