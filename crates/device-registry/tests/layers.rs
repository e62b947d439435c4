//! The layers of this crate: the programs' interface, the machinery, and the contract below both. A module
//! imports only from its own layer and lower ones.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of each layer, from the lowest up, and the modules below that it may name. It may also name
/// its own.
const LAYERS: [(&[&str], &[&str]); 3] = [
    (&["sync"], &[]),
    (&["backend", "device", "error", "cpu"], &["sync"]),
    (&["runtime"], &["backend", "device", "error", "sync"]),
];

fn files_of(module: &str) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let file = source.join(format!("{module}.rs"));
    let mut files: Vec<_> = file.exists().then_some(file).into_iter().collect();
    let mut folders = vec![source.join(module)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// The modules at the root of this crate that the code of a file names, without its tests and its
/// documentation.
fn named(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap().lines();
    let code = code.filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1))
        .map(|path| path.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect())
        .collect()
}

/// The names that a file may not use.
fn forbidden(file: &Path, own: &[&str], below: &[&str]) -> Vec<String> {
    let allowed = |name: &String| own.contains(&name.as_str()) || below.contains(&name.as_str());
    named(file).into_iter().filter(|name| !allowed(name)).collect()
}

#[test]
fn imports_only_name_lower_layers() {
    for (own, below) in LAYERS {
        let files: Vec<_> = own.iter().flat_map(|module| files_of(module)).collect();
        assert!(files.len() >= own.len(), "{own:?}: {files:?}");
        for file in files {
            let forbidden = forbidden(&file, own, below);
            assert!(forbidden.is_empty(), "{} names {forbidden:?} of this crate", file.display());
        }
    }
}

#[test]
fn an_import_of_a_higher_layer_is_detected() {
    // A file of the programs' layer breaks the rule of the layer of `backend`.
    let [stream] = &files_of("stream")[..] else { panic!() };
    let (own, below) = LAYERS[1];
    assert!(forbidden(stream, own, below).contains(&"runtime".to_owned()));
}

/// The cpu is a backend like any other, and uses only the contract.
#[test]
fn the_cpu_names_the_contract_only() {
    let [cpu] = &files_of("cpu")[..] else { panic!() };
    assert_eq!(forbidden(cpu, &[], &["backend"]), [""; 0]);
}

/// `use crate::{A, B}` would hide which layer a name is from.
#[test]
fn imports_name_the_module() {
    for module in
        ["backend", "device", "runtime", "error", "cpu", "sync", "buffer", "stream", "event", "lifecycle"]
    {
        for file in files_of(module) {
            assert!(!named(&file).contains(&String::new()), "{} imports from the root", file.display());
        }
    }
}
