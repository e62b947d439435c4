//! The drivers that the loaders of OpenCL and Vulkan look for on Linux, and why one does not open. The
//! loaders skip such a driver and say nothing.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use device_registry::backend::path_variable;
use device_registry::backends;
use device_registry::registry::State;
use serde::Serialize;
use serde_json::Value;

use crate::doctor::open::{self, Outcome};
use crate::output::outside;

const ICD_FOLDER: &str = "/etc/OpenCL/vendors";

/// How much of a file is read that names a library.
const LONGEST: u64 = 1 << 16;

/// The longest path of a library, as Linux has it.
const LONGEST_PATH: usize = 4096;

/// A driver that a loader looks for.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Driver {
    interface: &'static str,
    /// The file that names the library, or the variable.
    file: String,
    /// As a loader opens it, if the file names one.
    library: Option<String>,
    /// Why it does not open: the dynamic linker's words, where it was tried.
    error: Option<String>,
    /// What to do about the error, or what else to know.
    note: Option<String>,
}

/// A driver before it was tried.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    /// A file, or a variable.
    by: PathBuf,
    library: Result<PathBuf, String>,
    note: Option<&'static str>,
}

/// Opens each driver of the interfaces for which the program has a backend that is on.
pub(super) fn drivers() -> Vec<Driver> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    // An elevated process does not open what its user names; neither does a loader there.
    let variable = |name: &str| path_variable(name).ok().flatten().filter(|value| !value.is_empty());
    let is_on = |name: &str| {
        backends().get(name).is_some_and(|backend| !matches!(backend.state(), State::Disabled { .. }))
    };
    let mut found = Vec::new();
    if is_on("opencl") {
        found.extend(of_opencl(variable).into_iter().map(|named| named.open("OpenCL")));
    }
    if is_on("wgpu") {
        found.extend(of_vulkan(variable).into_iter().map(|named| named.open("Vulkan")));
    }
    found
}

/// The drivers that ocl-icd and Khronos' loader look for. They differ in their variables; a driver is listed
/// if either loader looks for it.
fn of_opencl(variable: impl Fn(&str) -> Option<OsString>) -> Vec<Named> {
    let mut found = Vec::new();
    for library in paths(variable("OCL_ICD_FILENAMES")) {
        let note = "Khronos' loader opens it, and ocl-icd ignores the variable";
        found.push(Named { by: "OCL_ICD_FILENAMES".into(), library: Ok(library), note: Some(note) });
    }
    let folder = || variable("OPENCL_VENDOR_PATH").map_or_else(|| ICD_FOLDER.into(), PathBuf::from);
    let Some(named) = variable("OCL_ICD_VENDORS").map(PathBuf::from) else {
        found.extend(in_folder(&folder(), "icd", of_icd));
        return found;
    };
    let note = Some("ocl-icd opens it, and Khronos' loader takes folders only");
    if named.is_dir() {
        found.extend(in_folder(&named, "icd", of_icd));
    } else if named.extension().is_some_and(|extension| extension == "icd") {
        // A bare name is in the usual folder.
        let usual = folder().join(&named);
        let file = if named.components().count() == 1 && usual.exists() { usual } else { named };
        found.push(Named { note, ..of_icd(file) });
    } else {
        found.push(Named { by: "OCL_ICD_VENDORS".into(), library: Ok(named), note });
    }
    found
}

/// The drivers that Vulkan's loader looks for.
fn of_vulkan(variable: impl Fn(&str) -> Option<OsString>) -> Vec<Named> {
    let of = |path: PathBuf| {
        if path.is_dir() { in_folder(&path, "json", of_manifest) } else { vec![of_manifest(path)] }
    };
    if let Some(files) = variable("VK_DRIVER_FILES").or_else(|| variable("VK_ICD_FILENAMES")) {
        return paths(Some(files)).into_iter().flat_map(of).collect();
    }
    let home = variable("HOME").map(PathBuf::from);
    let at_home = |name: &str, folder: &str| {
        variable(name).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(folder)))
    };
    let of_system = |name: &str, folders: &str| paths(Some(variable(name).unwrap_or_else(|| folders.into())));
    let mut folders: Vec<PathBuf> = Vec::new();
    folders.extend(at_home("XDG_CONFIG_HOME", ".config"));
    folders.extend(of_system("XDG_CONFIG_DIRS", "/etc/xdg"));
    folders.push("/etc".into());
    folders.extend(at_home("XDG_DATA_HOME", ".local/share"));
    folders.extend(of_system("XDG_DATA_DIRS", "/usr/local/share:/usr/share"));
    let mut found: Vec<Named> = paths(variable("VK_ADD_DRIVER_FILES")).into_iter().flat_map(of).collect();
    found.extend(
        folders.iter().flat_map(|folder| in_folder(&folder.join("vulkan/icd.d"), "json", of_manifest)),
    );
    // A folder may be in two lists.
    let mut seen = HashSet::new();
    found.retain(|named| seen.insert(named.by.clone()));
    found
}

/// The paths of a variable that has a list of them.
fn paths(value: Option<OsString>) -> Vec<PathBuf> {
    let value = value.unwrap_or_default();
    std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// What each file of a folder names, in the order of their names. Nothing where the folder cannot be read, as
/// most of those are not there.
fn in_folder(folder: &Path, extension: &str, of: impl Fn(PathBuf) -> Named) -> Vec<Named> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|end| end == extension)).collect();
    files.sort_unstable();
    files.into_iter().map(of).collect()
}

/// The library in the first line of one of OpenCL's files.
fn of_icd(file: PathBuf) -> Named {
    let library = text(&file).and_then(|text| match text.lines().next().map(str::trim) {
        None | Some("") => Err("it names no library".to_owned()),
        Some(library) => path(library),
    });
    Named { by: file, library, note: None }
}

/// The library in one of Vulkan's manifests.
fn of_manifest(file: PathBuf) -> Named {
    let named = text(&file).and_then(|text| {
        let manifest: Value =
            serde_json::from_str(&text).map_err(|error| format!("it is not JSON: {error}"))?;
        match manifest["ICD"]["library_path"].as_str() {
            None | Some("") => Err("it has no `library_path` in `ICD`".to_owned()),
            // A path is relative to the manifest, and a name is looked for as any library.
            Some(text) if text.contains('/') => Ok(file.parent().unwrap_or(Path::new("")).join(path(text)?)),
            Some(name) => path(name),
        }
    });
    Named { by: file, library: named, note: None }
}

/// The path of a library, unless no library can have it.
fn path(text: &str) -> Result<PathBuf, String> {
    if text.len() > LONGEST_PATH {
        return Err(format!("the name of its library has more than {LONGEST_PATH} bytes"));
    }
    if text.contains('\0') {
        return Err("the name of its library has a NUL".to_owned());
    }
    Ok(text.into())
}

fn text(file: &Path) -> Result<String, String> {
    let read = |mut text: String| {
        // The open of a pipe would wait for a process that writes to it. The loader's does.
        if !fs::metadata(file)?.is_file() {
            let file = outside(file.display());
            anstream::eprintln!(
                "warning: {file} is not a regular file; this program may wait for it forever"
            );
            return Err(io::Error::other("it is not a regular file"));
        }
        File::open(file)?.take(LONGEST).read_to_string(&mut text)?;
        Ok(text)
    };
    read(String::new()).map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => "it is not UTF-8".to_owned(),
        _ => error.to_string(),
    })
}

impl Named {
    fn open(self, interface: &'static str) -> Driver {
        let Self { by, library, note } = self;
        let file = by.display().to_string();
        let note = note.map(str::to_owned);
        let library = match library {
            Ok(library) => library,
            Err(error) => return Driver { interface, file, library: None, error: Some(error), note },
        };
        let outcome = open::in_a_process(interface, &library);
        let library = library.display().to_string();
        let (error, found) = match outcome {
            Outcome::Opened => (None, rusticl(&file, &library)),
            // The other half of a system with two.
            Outcome::Refused(error) if error.contains("wrong ELF class") => {
                (None, Some("it is for programs of another architecture".to_owned()))
            }
            Outcome::NotTried(error) => {
                (None, Some(format!("no process could be started to open it: {error}")))
            }
            Outcome::Ended(error) => {
                // The loader opens it in this process too.
                anstream::eprintln!("warning: {}: {error}; this program may end as well", outside(&library));
                (Some(error), None)
            }
            Outcome::Refused(error) => {
                let help = help(interface, &file, &library, &error);
                (Some(error), help)
            }
        };
        Driver {
            interface,
            file,
            library: Some(library),
            error,
            note: note.into_iter().chain(found).reduce(|a, b| a + "; " + &b),
        }
    }
}

/// What Rusticl needs: without it, it has no device or, since Mesa 26, no platform.
fn rusticl(file: &str, library: &str) -> Option<String> {
    let is_rusticl = [file, library].iter().any(|text| text.to_lowercase().contains("rusticl"));
    let is_enabled = std::env::var_os("RUSTICL_ENABLE").is_some_and(|value| !value.is_empty());
    (is_rusticl && !is_enabled).then(|| {
        "RUSTICL_ENABLE is not set, and without it Rusticl has no device: it names Mesa's drivers, as in \
         RUSTICL_ENABLE=llvmpipe"
            .to_owned()
    })
}

/// Libraries that drivers need, by the start of their names, and what brings them.
static BRINGS: [(&str, &str); 9] = [
    ("libsvml.so", INTEL),
    ("libimf.so", INTEL),
    ("libirng.so", INTEL),
    ("libintlc.so", INTEL),
    ("libtbb.so.12", "libtbb12 (Debian) or the Python package tbb has it"),
    ("libze_loader.so.1", "libze1 (Debian) has it"),
    ("libigdgmm.so.12", "libigdgmm12 (Debian) has it"),
    ("libhwloc.so.15", "libhwloc15 (Debian) has it"),
    ("libcuda.so.1", "NVIDIA's driver has it"),
];

const INTEL: &str = "the Python package intel-cmplr-lib-rt has it, on which intel-opencl-rt does not depend; name its \
                     folder in LD_LIBRARY_PATH";

/// The packages of files, by a part of the name.
static OWNERS: [(&str, &str); 10] = [
    ("OpenCL/vendors/rusticl", "mesa-opencl-icd"),
    ("OpenCL/vendors/mesa", "mesa-opencl-icd"),
    ("OpenCL/vendors/pocl", "pocl-opencl-icd"),
    ("OpenCL/vendors/nvidia", "nvidia-opencl-icd"),
    ("OpenCL/vendors/amdocl", "rocm-opencl-icd"),
    ("OpenCL/vendors/intel", "intel-opencl-icd"),
    ("icd.d/nvidia", "nvidia-vulkan-icd"),
    ("icd.d/intel", "mesa-vulkan-drivers"),
    ("icd.d/lvp", "mesa-vulkan-drivers"),
    ("icd.d/radeon", "mesa-vulkan-drivers"),
];

/// What to do about a library that the dynamic linker does not open.
fn help(interface: &str, file: &str, library: &str, error: &str) -> Option<String> {
    // As glibc writes it: `libsvml.so: cannot open shared object file: No such file or directory`.
    let (missing, _) = error.split_once(": cannot open shared object file")?;
    if missing != library {
        let known = BRINGS.iter().find(|(start, _)| missing.starts_with(start));
        return known.map(|(_, brings)| (*brings).to_owned()).or_else(|| of_llvm(missing));
    }
    if !file.contains('/') {
        return Some(format!("correct {file}, or unset it"));
    }
    let owner = OWNERS
        .iter()
        .find(|(part, _)| file.contains(part))
        .map_or(String::new(), |(_, owner)| format!("install {owner} (Debian), or "));
    let kind = if interface == "OpenCL" { "file" } else { "manifest" };
    Some(format!(
        "{owner}remove the {kind}, if it is left of a package that was removed, or correct the path"
    ))
}

/// The Debian package that has an LLVM library: they are named for the version.
fn of_llvm(library: &str) -> Option<String> {
    let (package, version) = [
        ("libllvm", library.strip_prefix("libLLVM-")),
        ("libllvm", library.strip_prefix("libLLVM.so.")),
        ("libclang-cpp", library.strip_prefix("libclang-cpp.so.")),
        ("libllvmspirvlib", library.strip_prefix("libLLVMSPIRVLib.so.")),
    ]
    .into_iter()
    .find_map(|(package, rest)| Some((package, rest?.split('.').next()?)))?;
    Some(format!("{package}{version} (Debian) has it"))
}

impl Driver {
    pub(super) fn problem(&self) -> Option<String> {
        let Self { interface, file, error, note, .. } = self;
        let error = error.as_ref()?;
        let note = note.as_ref().map_or(String::new(), |note| format!("; {note}"));
        Some(match &self.library {
            Some(library) => format!(
                "the {interface} driver `{library}`, which {file} names, does not open, and loaders skip it: {error}{note}"
            ),
            None => format!("{file} names no {interface} driver, and loaders skip it: {error}{note}"),
        })
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: ", self.interface, self.file)?;
        match (&self.library, &self.error, &self.note) {
            (None, ..) => f.write_str("no library: see the problems"),
            (Some(library), Some(_), _) => write!(f, "{library} does not open: see the problems"),
            (Some(library), None, None) => write!(f, "{library} opens"),
            (Some(library), None, Some(note)) => write!(f, "{library}; {note}"),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_brings_it() {
        let help = |file: &str, library: &str, missing: &str| {
            let error = format!("{missing}: cannot open shared object file: No such file or directory");
            help("OpenCL", file, library, &error).unwrap_or_default()
        };
        let rusticl = "/etc/OpenCL/vendors/rusticl.icd";
        let library = "libRusticlOpenCL.so.1";
        for (missing, package) in [
            ("libLLVM-15.so.1", "libllvm15 "),
            ("libLLVM.so.19.1", "libllvm19 "),
            ("libclang-cpp.so.15", "libclang-cpp15 "),
            ("libLLVMSPIRVLib.so.15", "libllvmspirvlib15 "),
            ("libsvml.so", "the Python package intel-cmplr-lib-rt "),
            ("libintlc.so.5", "the Python package intel-cmplr-lib-rt "),
            ("libtbb.so.12", "libtbb12 "),
            ("libunknown.so.1", ""),
        ] {
            let help = help(rusticl, library, missing);
            assert!(
                help.starts_with(package) && (package.is_empty() == help.is_empty()),
                "{missing}: {help}"
            );
        }
        // What apt leaves of a package that it removed.
        assert_eq!(
            help(rusticl, library, library),
            "install mesa-opencl-icd (Debian), or remove the file, if it is left of a package that was removed, or \
             correct the path"
        );
        assert_eq!(help("OCL_ICD_VENDORS", "/x", "/x"), "correct OCL_ICD_VENDORS, or unset it");
    }

    #[test]
    fn each_loaders_variables_are_obeyed_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).into_os_string();
        for name in ["a.icd", "b.icd"] {
            fs::write(path(name), format!("lib{name}.so\nmore\n")).unwrap();
        }
        let files = |variables: &[(&str, OsString)]| -> Vec<String> {
            let value = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
            };
            let names = |named: Named| named.library.unwrap().display().to_string();
            of_opencl(value).into_iter().map(names).collect()
        };
        let here = folder.path().as_os_str().to_owned();
        let both = ["liba.icd.so", "libb.icd.so"];
        assert_eq!(files(&[("OPENCL_VENDOR_PATH", here.clone())]), both);
        assert_eq!(files(&[("OCL_ICD_VENDORS", here.clone()), ("OPENCL_VENDOR_PATH", "/x".into())]), both);
        assert_eq!(files(&[("OCL_ICD_VENDORS", path("b.icd"))]), ["libb.icd.so"]);
        assert_eq!(
            files(&[("OCL_ICD_VENDORS", "b.icd".into()), ("OPENCL_VENDOR_PATH", here.clone())]),
            ["libb.icd.so"],
            "a name alone is one of the folder"
        );
        assert_eq!(
            files(&[("OCL_ICD_VENDORS", here), ("OCL_ICD_FILENAMES", "/x.so:/y.so".into())]),
            ["/x.so", "/y.so", "liba.icd.so", "libb.icd.so"]
        );
    }
}
