//! The system and the variables that backends and their drivers read.

use std::env;
use std::fs;

/// Variables of drivers and loaders, as their documentation names them: CUDA, Vulkan's loader, Mesa, ROCm,
/// oneAPI, and the dynamic linker.
const OF_DRIVERS: [&str; 26] = [
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "GALLIUM_DRIVER",
    "HIP_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LIBGL_ALWAYS_SOFTWARE",
    "MESA_LOADER_DRIVER_OVERRIDE",
    "MESA_VK_DEVICE_SELECT",
    "NODEVICE_SELECT",
    "NVIDIA_VISIBLE_DEVICES",
    "ONEAPI_DEVICE_SELECTOR",
    "ROCR_VISIBLE_DEVICES",
    "VK_ADD_DRIVER_FILES",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_INSTANCE_LAYERS",
    "VK_LAYER_PATH",
    "VK_LOADER_DRIVERS_DISABLE",
    "VK_LOADER_DRIVERS_SELECT",
    "WGPU_BACKEND",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    "ZE_AFFINITY_MASK",
];

/// What the variables of this registry and its backends, of OpenCL's loaders, PoCL and Rusticl begin with.
const PREFIXES: [&str; 5] = ["DEVICE_", "OCL_ICD_", "OPENCL_", "POCL_", "RUSTICL_"];

/// The operating system, its version where it is known, and the processor's architecture.
pub(super) fn system() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let words = [env::consts::OS, kernel.trim(), env::consts::ARCH];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The variables of this registry, its backends and drivers that are set, sorted.
pub(super) fn variables() -> Vec<(String, String)> {
    let mut found: Vec<_> = env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| {
            PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || OF_DRIVERS.contains(&name.as_str())
        })
        .map(|(name, value)| (name.escape_debug().to_string(), value.escape_debug().to_string()))
        .collect();
    found.sort_unstable();
    found
}
