//! What the tests of plugins share: folders with libraries and their manifests.

use std::path::{Path, PathBuf};
use std::{env, fs};

use device_plugin::Plugins;
use device_registry::{Device, device};
use serde_json::json;

/// The code on the page for programs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/plugins/applications.md")]
pub struct Applications;

/// The code on the page for authors in Rust.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/plugins/rust-authors.md")]
pub struct RustAuthors;

/// A backend of this repository, in a library that is built as an example of this package.
#[derive(Clone, Copy, Debug)]
pub struct Plugin {
    /// The name of the backend.
    pub name: &'static str,
    /// Its package.
    pub package: &'static str,
}

/// The backends that are built as libraries.
pub const PLUGINS: [Plugin; 3] = [
    Plugin { name: "openreg", package: "device-openreg" },
    Plugin { name: "cuda", package: "device-cuda" },
    Plugin { name: "opencl", package: "device-opencl" },
];

/// A library that is built as an example of this package, `libNAME.so`.
///
/// # Panics
///
/// If it was not built: `cargo test -p device-plugin-tests` builds it, but not with `--test`.
#[must_use]
pub fn library(name: &str) -> PathBuf {
    let program = env::current_exe().expect("this program has a file");
    let profile = program.parent().and_then(Path::parent).expect("it lies in target/<profile>/deps");
    let file = format!("{}{name}{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX);
    let library = profile.join("examples").join(file);
    assert!(
        library.exists(),
        "{} is not there: `cargo test -p device-plugin-tests` builds it, but not with `--test`",
        library.display()
    );
    library
}

/// Copies the library of a backend into a folder, with a manifest that calls the backend `name`.
///
/// # Panics
///
/// If there is no room.
pub fn install_copy(folder: &Path, plugin: Plugin, name: &str) {
    let library = library(&format!("{}_file", plugin.name));
    let file = library.file_name().expect("it has a name");
    fs::copy(&library, folder.join(file)).expect("there is room");
    let (file, entry, package) = (Path::new(file), plugin.name, plugin.package);
    Manifest { file, entry, package, version: env!("CARGO_PKG_VERSION") }.write(folder, name, &[]);
}

/// A backend in a file, as its manifest describes it.
#[derive(Clone, Copy, Debug)]
pub struct Manifest<'a> {
    /// The library: an absolute path, or one relative to the manifest.
    pub file: &'a Path,
    /// The name that the library has for the backend.
    pub entry: &'a str,
    /// The package that it comes from.
    pub package: &'a str,
    /// The version of the package.
    pub version: &'a str,
}

impl Manifest<'_> {
    /// Writes it to a folder, for the backend `name` with options: names and descriptions.
    ///
    /// # Panics
    ///
    /// If there is no room.
    pub fn write(&self, folder: &Path, name: &str, options: &[(&str, &str)]) {
        let options: Vec<_> = options
            .iter()
            .map(|(name, description)| json!({"name": name, "description": description}))
            .collect();
        let manifest = json!({
            "manifest": 1,
            "group": "device.backends",
            "name": name,
            "entry": self.entry,
            "package": self.package,
            "version": self.version,
            "library": self.file,
            "abi": {"major": 0, "minor": 3},
            "options": options,
        });
        fs::write(folder.join(format!("{name}.plugin.json")), manifest.to_string()).expect("there is room");
    }

    /// Installs it as the backend `name`, and returns its first device. Opens nothing.
    ///
    /// # Panics
    ///
    /// If the name is invalid.
    pub fn install(&self, name: &str) -> Device {
        self.install_with_options(name, &[]);
        device(name).expect("it is installed").resolve()
    }

    /// Installs it as the backend `name` with options. Opens nothing.
    ///
    /// # Panics
    ///
    /// If a name is invalid.
    pub fn install_with_options(&self, name: &str, options: &[(&str, &str)]) {
        let folder = tempfile::tempdir().expect("there is room");
        self.write(folder.path(), name, options);
        // Libraries of a checkout may belong to anybody.
        let plugins = Plugins::new().folder(folder.path()).trust_any_owner();
        let report = plugins.install().expect("the folder is absolute");
        assert_eq!(report.installed().len(), 1, "{report}");
    }
}
