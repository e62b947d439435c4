//! Folders, manifests and libraries for the unit tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::abi;

/// A folder that only this user can change.
pub(crate) struct Folder {
    _folder: TempDir,
    /// Without links.
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = super::files::canonical(folder.path()).unwrap();
        Self { _folder: folder, path }
    }

    /// Writes a file that others can read.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let file = self.path.join(name);
        fs::write(&file, bytes).unwrap();
        set_mode(&file, 0o644);
        file
    }

    pub(crate) fn create_folder(&self, name: &str) -> PathBuf {
        let folder = self.path.join(name);
        fs::create_dir(&folder).unwrap();
        set_mode(&folder, 0o755);
        folder
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    #[cfg(not(unix))]
    let _ = (path, mode);
}

/// A manifest that is valid, with `changes`. A field that is changed to null is missing.
pub(crate) fn manifest(changes: Value) -> String {
    let mut fields: Map<String, Value> = serde_json::from_value(json!({
        "manifest": 1,
        "group": "device.backends",
        "name": "acme",
        "package": "device-acme",
        "version": "1.2.0",
        "library": "libacme.so",
        "abi": {"major": abi::MAJOR, "minor": abi::MINOR},
    }))
    .unwrap();
    let Value::Object(changes) = changes else { panic!("{changes}") };
    for (field, value) in changes {
        match value {
            Value::Null => drop(fields.remove(&field)),
            value => drop(fields.insert(field, value)),
        }
    }
    Value::Object(fields).to_string()
}

/// A shared library for this program that exports functions with these names, built by rustc.
pub(crate) fn library(symbols: &[&str]) -> Vec<u8> {
    let folder = Folder::new();
    let functions = symbols.iter().enumerate().map(|(at, symbol)| {
        format!("#[unsafe(export_name = \"{symbol}\")] pub extern \"C\" fn f{at}() {{}}\n")
    });
    let source = folder.write("lib.rs", functions.collect::<String>());
    // Without a suffix, the linker of mingw adds `.exe`.
    let library = folder.path.join(format!("library{}", std::env::consts::DLL_SUFFIX));
    let rustc = option_env!("RUSTC").unwrap_or("rustc");
    // Without symbols at its end, a library of Windows is damaged wherever it is cut.
    let arguments = ["--edition=2024", "--crate-type=cdylib", "--crate-name=acme", "-Cstrip=symbols", "-o"];
    let built = Command::new(rustc).args(arguments).arg(&library).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    fs::read(library).unwrap()
}

/// A library with the symbol of this version.
pub(crate) fn sound_library() -> &'static [u8] {
    static LIBRARY: OnceLock<Vec<u8>> = OnceLock::new();
    LIBRARY.get_or_init(|| library(&[&format!("device_plugin_v{}", abi::MAJOR)]))
}
