//! The layers of this crate: the programs' interface, the machinery, and the contract below both. A module
//! imports only from its own layer and lower ones, and within the interface and the machinery only from
//! modules that stand before it, so that no two import each other.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of each layer, from the lowest up, and the modules below that it may name. It may also name
/// its own.
const LAYERS: [(&[&str], &[&str]); 3] = [
    (&["exit", "sync"], &[]),
    (&["backend", "device", "error", "cpu"], &["exit", "sync"]),
    (&["runtime"], &["backend", "device", "error", "exit", "sync"]),
];

/// The modules of `runtime`, from the lowest up.
const RUNTIME: [&[&str]; 6] = [
    // What does not know that devices can be open.
    &[
        "device_use",
        "switch",
        "at_once",
        "fork",
        "call_watch",
        "isolation",
        "activity",
        "deferred",
        "deadline",
        "memory_cache",
    ],
    // One open device, its end and its memory.
    &["statistics", "validation", "open_device"],
    // What comes of work.
    &["origin", "recorded", "outcome", "point"],
    // One piece of work, and the ways to do it.
    &["transfer", "operation"],
    // The work of a stream, in order.
    &["queue", "chosen_stream", "timed"],
    // All devices.
    &["probe", "table", "listing"],
];

/// The modules of the programs' interface, from the lowest up.
const INTERFACE: [&[&str]; 1] = [&[
    "activity",
    "select",
    "available",
    "selection",
    "parse",
    "current",
    "device_list",
    "serialize",
    "lifecycle",
    "faults",
    "plugin",
    "buffer",
    "event",
    "pending",
    "stream",
    "current_stream",
]];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The files of a module, whose path has slashes.
fn files_of(module: &str) -> Vec<PathBuf> {
    let file = source().join(format!("{module}.rs"));
    let mut files: Vec<_> = file.exists().then_some(file).into_iter().collect();
    let mut folders = vec![source().join(module)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// The code of a file without its tests and its comments.
fn code_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap().lines();
    code.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The names that follow `prefix` in the code: one, or those at the start of each item in braces.
fn named_after(prefix: &str, code: &str) -> Vec<String> {
    let name = |path: &str| path.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect::<String>();
    let names = code.split(prefix).skip(1).map(|rest| match rest.strip_prefix('{') {
        Some(group) => {
            let mut depth = 1;
            let inside = group.chars().take_while(|c| {
                depth += i32::from(*c == '{') - i32::from(*c == '}');
                depth > 0
            });
            // Only the items of this group itself: a group within one belongs to the name before it.
            let mut within = 0;
            let outer: String = inside
                .filter(|c| {
                    within += i32::from(*c == '{') - i32::from(*c == '}');
                    within == 0
                })
                .collect();
            outer.split(',').map(|item| name(item.trim())).filter(|name| !name.is_empty()).collect()
        }
        None => vec![name(rest)],
    });
    names.flatten().collect()
}

/// The modules at the root of this crate that a file names.
fn named(file: &Path) -> Vec<String> {
    named_after("crate::", &code_of(file))
}

/// The names that a file may not use.
fn forbidden(file: &Path, own: &[&str], below: &[&str]) -> Vec<String> {
    let allowed = |name: &String| own.contains(&name.as_str()) || below.contains(&name.as_str());
    named(file).into_iter().filter(|name| !allowed(name)).collect()
}

/// For modules in an order: each `A names B` where B stands not before A. `code` gives the code of a module.
fn arrows_up(order: &[&str], prefix: &str, code: impl Fn(&str) -> String) -> Vec<String> {
    let mut found = Vec::new();
    for (place, module) in order.iter().enumerate() {
        for name in named_after(prefix, &code(module)) {
            let named = order.iter().position(|other| **other == name);
            if named.is_some_and(|named| named > place) {
                found.push(format!("{module} names {name}"));
            }
        }
    }
    found
}

fn code_of_module(path: &str) -> String {
    files_of(path).iter().map(|file| code_of(file) + "\n").collect()
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

#[test]
fn modules_of_the_machinery_name_those_before_them() {
    let order = RUNTIME.concat();
    let found = arrows_up(&order, "crate::runtime::", |module| code_of_module(&format!("runtime/{module}")));
    assert!(found.is_empty(), "{found:#?}");
    assert_complete(&order, &code_of(&source().join("runtime/mod.rs")), &[]);
}

#[test]
fn modules_of_the_interface_name_those_before_them() {
    let order = INTERFACE.concat();
    let found = arrows_up(&order, "crate::", code_of_module);
    assert!(found.is_empty(), "{found:#?}");
    let lower = LAYERS.iter().flat_map(|(own, _)| own.iter().copied());
    let of_tests = ["model", "testing"];
    assert_complete(&order, &code_of(&source().join("lib.rs")), &lower.chain(of_tests).collect::<Vec<_>>());
}

/// Checks that a list and `others` have all modules that a file declares, and no more.
fn assert_complete(order: &[&str], file: &str, others: &[&str]) {
    let declared = file.lines().filter_map(|line| {
        let declaration = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        declaration.strip_prefix("mod ")?.strip_suffix(';')
    });
    let mut declared: Vec<_> = declared.filter(|module| !others.contains(module)).collect();
    let mut listed = order.to_vec();
    declared.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, declared);
}

#[test]
fn an_import_of_a_later_module_is_detected() {
    let code = |module: &str| match module {
        "low" => "use crate::high::A;".to_owned(),
        "middle" => "use crate::{low, high::{B, low::C}};".to_owned(),
        _ => "use crate::low;".to_owned(),
    };
    let found = arrows_up(&["low", "middle", "high"], "crate::", code);
    assert_eq!(found, ["low names high", "middle names high"]);
}

/// The cpu is a backend like any other, and uses only the contract.
#[test]
fn the_cpu_names_the_contract_only() {
    let [cpu] = &files_of("cpu")[..] else { panic!() };
    assert_eq!(forbidden(cpu, &[], &["backend"]), [""; 0]);
}

/// `use crate::{A, B}` of names at the root would hide which layer a name is from.
#[test]
fn imports_name_the_module() {
    let modules =
        INTERFACE.concat().into_iter().chain(LAYERS.iter().flat_map(|(own, _)| own.iter().copied()));
    for file in modules.flat_map(files_of) {
        let group = code_of(&file).contains("crate::{");
        assert!(!group, "{} imports from the root", file.display());
    }
}
