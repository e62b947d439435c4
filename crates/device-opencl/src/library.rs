//! The ICD loader, opened at run time, and its platforms.

use std::env;

use cl3::error_codes::{CL_PLATFORM_NOT_FOUND_KHR, DLOPEN_FUNCTION_NOT_AVAILABLE};
use cl3::types::cl_platform_id;
use device_registry::backend::LoadFailure;

use crate::error::{Status, call_error};

/// Libraries to try before the system's, with `;` between them.
const PATHS: &str = "OPENCL_DYLIB_PATH";
const UNSET: &str = "unset it, or name a loader";
/// Where the loaders of Linux look for drivers, in place of `/etc/OpenCL/vendors`: that of ocl-icd, and that of Khronos.
const VENDORS: [&str; 2] = ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"];

/// The library that `cl3` opens.
const LIBRARY: &str = if cfg!(windows) {
    "OpenCL.dll"
} else if cfg!(target_os = "macos") {
    "/System/Library/Frameworks/OpenCL.framework/OpenCL"
} else {
    "libOpenCL.so.1"
};

const INSTALL: &str = if cfg!(windows) {
    "install your GPU's driver, which brings it"
} else if cfg!(target_os = "macos") {
    "it is part of macOS"
} else {
    "install ocl-icd-libopencl1 (Debian) or ocl-icd (Fedora)"
};

/// Opens the loader permanently.
pub(crate) fn open() -> Result<(), LoadFailure> {
    if cfg!(all(windows, target_arch = "x86")) {
        // OpenCL's functions there remove their own arguments from the stack, and `cl3` calls them as if they did not.
        return Err(LoadFailure::unavailable("OpenCL cannot be called on Windows with 32 bits"));
    }
    open_named()?;
    match cl3::load_library() {
        Ok(_) => Ok(()),
        Err(error) => {
            let reason = format!("no OpenCL loader: `{LIBRARY}` does not open ({error}); {INSTALL}");
            Err(LoadFailure::unavailable(reason))
        }
    }
}

/// Fails if the variable names libraries and none of them opens. `cl3` would silently open the system's.
fn open_named() -> Result<(), LoadFailure> {
    let Some(paths) = env::var_os(PATHS) else { return Ok(()) };
    let Some(paths) = paths.to_str() else {
        let reason = format!("no OpenCL loader: {PATHS} is set to a value that is not UTF-8; {UNSET}");
        return Err(LoadFailure::unavailable(reason));
    };
    if paths.split(';').any(str::is_empty) {
        // The empty name stands for the program itself, which would open.
        let reason =
            format!("no OpenCL loader: {PATHS} is set to `{paths}`, which has an empty name; {UNSET}");
        return Err(LoadFailure::unavailable(reason));
    }
    let mut reason = format!("no OpenCL loader: {PATHS} is set, and none of its libraries opens");
    for path in paths.split(';') {
        match dlopen2::raw::Library::open(path) {
            Ok(library) => {
                // The library stays open for `cl3`, which opens it again.
                std::mem::forget(library);
                return Ok(());
            }
            Err(error) => reason += &format!("; `{path}`: {error}"),
        }
    }
    Err(LoadFailure::unavailable(format!("{reason}; {UNSET}")))
}

/// All platforms, in the loader's order, of which there is at least one.
pub(crate) fn platforms() -> Result<Vec<cl_platform_id>, LoadFailure> {
    match cl3::platform::get_platform_ids() {
        Ok(platforms) if !platforms.is_empty() => Ok(platforms),
        Ok(_) | Err(CL_PLATFORM_NOT_FOUND_KHR) => Err(LoadFailure::unavailable(no_platform())),
        Err(status @ DLOPEN_FUNCTION_NOT_AVAILABLE) => {
            let mut reason =
                format!("the library that was opened is not an OpenCL loader: {}", Status(status));
            if let Some(paths) = env::var_os(PATHS) {
                reason += &format!("; {PATHS} is set to `{}`; {UNSET}", paths.display());
            }
            Err(LoadFailure::unavailable(reason))
        }
        Err(status) => Err(call_error("clGetPlatformIDs", status).into()),
    }
}

fn no_platform() -> String {
    let mut reason = String::from("the OpenCL loader was opened, and it has no platform (ICD)");
    for name in VENDORS {
        if let Some(value) = env::var_os(name) {
            reason += &format!("; {name} is set to `{}`", value.display());
        }
    }
    reason + "; install your GPU's driver, or pocl-opencl-icd (Debian) or pocl (Fedora) for the processor"
}
