//! The system and the variables that backends and their drivers read.

use std::env;
use std::fs;

/// Variables of drivers and loaders, as their documentation names them: CUDA, OpenCL's loader and PoCL,
/// Vulkan's loader, Mesa, ROCm and oneAPI.
const OF_DRIVERS: [&str; 15] = [
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "MESA_VK_DEVICE_SELECT",
    "NODEVICE_SELECT",
    "NVIDIA_VISIBLE_DEVICES",
    "OCL_ICD_FILENAMES",
    "OCL_ICD_VENDORS",
    "ONEAPI_DEVICE_SELECTOR",
    "POCL_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "WGPU_BACKEND",
];

/// The operating system, its version where it is known, and the processor's architecture.
pub(super) fn system() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let words = [env::consts::OS, kernel.trim(), env::consts::ARCH];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The variables that are set, sorted: those of this registry and its backends, and those of drivers.
pub(super) fn variables() -> Vec<(String, String)> {
    let mut found: Vec<_> = env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with("DEVICE_") || OF_DRIVERS.contains(&name.as_str()))
        .map(|(name, value)| (name.escape_debug().to_string(), value.escape_debug().to_string()))
        .collect();
    found.sort_unstable();
    found
}
