//! The ICD loader, opened at run time, and its platforms.

use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use device_registry::backend::{ElevatedProcess, LoadFailure, path_variable};
use libloading::Library;

use crate::functions::{OpenClFunctions, list};
use crate::sys::{CL_PLATFORM_NOT_FOUND_KHR, cl_platform_id};

/// Libraries to try before the system's, with `;` between them.
const PATHS: &str = "OPENCL_DYLIB_PATH";
const UNSET: &str = "unset it, or name a loader";
/// Where the loaders of Linux look for drivers. The first two replace `/etc/OpenCL/vendors`, the second in
/// ocl-icd only. The third names libraries, which Khronos' loader opens before the folder's, and ocl-icd
/// ignores.
const VENDORS: [&str; 3] = ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES"];
const VENDORS_FOLDER: &str = "/etc/OpenCL/vendors";
/// The libraries that loaders open besides drivers, and a driver's folder of compiled code.
const LAYERS: [&str; 3] = ["OPENCL_LAYERS", "OPENCL_LAYER_PATH", "POCL_CACHE_DIR"];

/// The system's loader.
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

impl OpenClFunctions {
    /// Opens the loader permanently, if it is not open yet, and looks its functions up. Calls none of them.
    ///
    /// An open device has [them](crate::OpenClDevice::functions) as well. This is for programs that call
    /// OpenCL without one.
    ///
    /// # Errors
    ///
    /// If there is no loader, with what was tried and what to install.
    pub fn open() -> Result<&'static Self, LoadFailure> {
        static FUNCTIONS: OnceLock<OpenClFunctions> = OnceLock::new();
        if let Some(functions) = FUNCTIONS.get() {
            return Ok(functions);
        }
        check_environment(path_variable)?;
        let paths = path_variable(PATHS);
        let ignored = paths.as_ref().err().map(|elevated| format!("{PATHS} is ignored: {elevated}"));
        ignored.iter().for_each(|ignored| log::warn!("{ignored}"));
        let ignored = ignored.map_or_else(String::new, |ignored| format!("; {ignored}"));
        let paths = paths.unwrap_or(None);
        let library = match &paths {
            Some(paths) => open_named(paths)?,
            None => open_library(LIBRARY).map_err(|error| {
                let reason =
                    format!("no OpenCL loader: `{LIBRARY}` does not open ({error}); {INSTALL}{ignored}");
                LoadFailure::unavailable(reason)
            })?,
        };
        let functions = OpenClFunctions::look_up(library);
        if functions.is_loader() {
            return Ok(FUNCTIONS.get_or_init(|| functions));
        }
        let mut reason = String::from(
            "the library that was opened is not an OpenCL loader: it does not have the function `clGetPlatformIDs`",
        );
        if let Some(paths) = paths {
            reason += &format!("; {PATHS} is set to `{}`; {UNSET}", paths.display());
        }
        Err(LoadFailure::unavailable(reason + &ignored))
    }
}

/// Refuses variables that loaders and drivers obey in an elevated process as well: ocl-icd does.
fn check_environment(
    variable: impl Fn(&str) -> Result<Option<OsString>, ElevatedProcess>,
) -> Result<(), LoadFailure> {
    for name in VENDORS.into_iter().chain(LAYERS) {
        variable(name).map_err(|elevated| {
            LoadFailure::unavailable(format!("OpenCL is not used while {name} is set: {elevated}; unset it"))
        })?;
    }
    Ok(())
}

/// The first library of the variable that opens.
fn open_named(paths: &OsStr) -> Result<Library, LoadFailure> {
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
        match open_library(path) {
            Ok(library) => return Ok(library),
            Err(error) => reason += &format!("; `{path}`: {error}"),
        }
    }
    Err(LoadFailure::unavailable(format!("{reason}; {UNSET}")))
}

/// Opens a library. The error is the system's text.
fn open_library(name: &str) -> Result<Library, String> {
    // SAFETY: opening a library runs its initialisers. A loader's make no demands of the program, and a
    // library that a user names runs because the user says so, as with `LD_PRELOAD`. Neither does in an
    // elevated process.
    let opened = unsafe { Library::new(name) };
    opened.map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))
}

/// All platforms, in the loader's order, of which there is at least one.
pub(crate) fn platforms(functions: &OpenClFunctions) -> Result<Vec<cl_platform_id>, LoadFailure> {
    // SAFETY: `list` passes a place together with its length.
    match list(|len, place, count| unsafe { functions.clGetPlatformIDs(len, place, count) }) {
        Ok(platforms) if !platforms.is_empty() => Ok(platforms),
        Err(error) if error.status() != Some(CL_PLATFORM_NOT_FOUND_KHR) => Err(error.own().into()),
        _ => Err(LoadFailure::unavailable(no_platform())),
    }
}

fn no_platform() -> String {
    let mut reason = String::from("the OpenCL loader was opened, and it has no platform (ICD)");
    for name in VENDORS {
        let Some(value) = env::var_os(name) else { continue };
        reason += &format!("; {name} is set to `{}`", value.display());
        if name == "OCL_ICD_FILENAMES" {
            reason +=
                ", which ocl-icd ignores, and whose libraries Khronos' loader adds to those of the folder";
        } else if PathBuf::from(&value).is_file() {
            reason +=
                ", a file, which ocl-icd takes in OCL_ICD_VENDORS, and Khronos' loader takes folders only";
        }
    }
    if let Some(file) = rusticl() {
        reason += &format!("; `{}` is there, and RUSTICL_ENABLE is ", file.display());
        match env::var_os("RUSTICL_ENABLE").filter(|value| !value.is_empty()) {
            Some(value) => reason += &format!("set to `{}`", value.display()),
            None => reason += "not set",
        }
        reason += ": Rusticl has no device unless it names a driver of Mesa's, as in RUSTICL_ENABLE=llvmpipe";
    }
    reason + "; install your GPU's driver, or pocl-opencl-icd (Debian) or pocl (Fedora) for the processor"
}

/// The file of Mesa's Rusticl, if the loader looks at it. Rusticl has no platform, or before Mesa 26 one
/// without devices, where its variable does not name a driver.
fn rusticl() -> Option<PathBuf> {
    let variables = ["OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"].into_iter();
    let values = variables.filter_map(|name| path_variable(name).ok().flatten());
    let place = values.map(PathBuf::from).find(|value| !value.as_os_str().is_empty());
    let place = place.unwrap_or_else(|| VENDORS_FOLDER.into());
    let files: Vec<_> = match fs::read_dir(&place) {
        Ok(files) => files.flatten().map(|file| file.path()).collect(),
        Err(_) => vec![place],
    };
    files.into_iter().filter(|path| path.extension() == Some("icd".as_ref())).find(|path| {
        let is_rusticl = |text: &str| text.to_lowercase().contains("rusticl");
        is_rusticl(&path.to_string_lossy()) || text(path).is_ok_and(|text| is_rusticl(&text))
    })
}

/// The text of a file that names a driver. Of a pipe or a device there is none, as reading it may not end.
fn text(file: &Path) -> io::Result<String> {
    const LONGEST: u64 = 1 << 16;

    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    File::open(file)?.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_may_never_end_has_no_text() {
        assert!(text(Path::new("/dev/null")).is_err());
        assert!(text(Path::new("Cargo.toml")).unwrap().contains("device-opencl"));
    }

    #[test]
    fn an_elevated_process_opens_no_loader_that_would_obey_its_user() {
        check_environment(|_| Ok(Some("/x".into()))).unwrap();
        for refused in VENDORS.into_iter().chain(LAYERS) {
            let variable = |name: &str| if name == refused { Err(ElevatedProcess) } else { Ok(None) };
            let failure = check_environment(variable).unwrap_err();
            let expected = format!(
                "OpenCL is not used while {refused} is set: this process has more rights than its user, whose environment \
                 must not name files; unset it"
            );
            assert!(failure.is_unavailable() && failure.to_string() == expected, "{failure}");
        }
    }
}
