//! Which files read variables of the environment. One that names a file, a folder or a library is read by
//! `path_variable` alone, as a process with more rights than its user must not obey it. And all of them are
//! known to the registry, which notices misspelt ones.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use device_registry_tests::{files, workspace};

/// The files of crates that read variables by other means, how often, and what they read.
const READERS: [(&str, usize, &str); 29] = [
    ("crates/device-config/src/apply.rs", 1, "whether DEVICE_DEFAULT is set"),
    ("crates/device-conformance/src/environment.rs", 5, "what a test runs, in a process of a test"),
    ("crates/device-conformance/src/process.rs", 3, "the variables of a child, in a process of a test"),
    ("crates/device-conformance/src/subprocess.rs", 4, "the name of a test, in a process of a test"),
    ("crates/device-cuda/src/backend.rs", 1, "numbers of devices, for a message"),
    ("crates/device-opencl/src/library.rs", 2, "for a message; elevated processes have returned before"),
    ("crates/device-openreg/src/lib.rs", 1, "numbers and names of devices"),
    ("crates/device-plugin/src/install/places.rs", 1, "folders, which an elevated process ignores there"),
    ("crates/device-plugin/src/abi/header.rs", 2, "a compiler and a folder, of its tests"),
    ("crates/device-plugin/src/abi/rules.rs", 1, "whether a test writes a file"),
    ("crates/device-registry/src/backend/elevated.rs", 1, "`path_variable` itself"),
    ("crates/device-registry/src/runtime/switch.rs", 1, "on or off"),
    ("crates/device-registry/src/selection/auto.rs", 1, "names of devices"),
    ("crates/device-trace/src/lib.rs", 1, "on or off"),
    ("crates/device-trace/src/trace.rs", 1, "a number of megabytes"),
    ("crates/device-wgpu/src/apis.rs", 1, "names of interfaces"),
    ("crates/devices/src/doctor/drivers.rs", 1, "names of drivers"),
    ("crates/devices/src/doctor/environment.rs", 1, "all, to print them"),
    ("crates/devices/src/lib.rs", 1, "whether folders of plugins are named"),
    ("crates/entry-points-macros/src/group.rs", 2, "what Cargo says to a macro"),
    ("crates/entry-points-macros/src/rustc_args.rs", 1, "whether an editor runs a macro"),
    ("crates/entry-points/src/group.rs", 4, "switches and options by name, and whether others are set"),
    ("integrations/burn/device-burn-backend", 4, "names of devices, and of ways to compute"),
    ("integrations/onnxruntime/src/choice.rs", 1, "names of backends, and whether the CPU may compute"),
    ("integrations/torch/src/choice.rs", 1, "names and numbers of devices"),
    ("integrations/torch/src/counts.rs", 1, "whether the CPU may compute"),
    ("kernels/device-cuda-kernels/src/products.rs", 1, "whether NVIDIA's libraries compute"),
    ("kernels/device-kernels-plugin/src/header.rs", 1, "a folder, of its tests"),
    (
        "kernels/device-generated-kernels/src/place.rs",
        3,
        "folders, which an elevated process does not ask for",
    ),
];

/// The functions of `std::env` that read variables, its folders for a user included.
const FUNCTIONS: [&str; 6] = ["var", "var_os", "vars", "vars_os", "home_dir", "temp_dir"];

/// How often the code of a crate names such a function. Its tests are left out.
fn reads(text: &str) -> usize {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let in_line = |line: &str| {
        let mut words = line.split("env::").skip(1);
        // An import in braces is a function of its own.
        let names = |rest: &str| match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                list.split(',').filter(|name| FUNCTIONS.contains(&name.trim())).count()
            }
            None => usize::from(FUNCTIONS.contains(&rest.split(|c| !is_word(c)).next().unwrap_or_default())),
        };
        words.by_ref().map(names).sum::<usize>()
    };
    lines.map(in_line).sum()
}

/// Whether a file is part of a crate that programs link, or of a command.
fn is_of_crate(path: &Path) -> bool {
    let is_crate = ["crates", "kernels", "integrations"].iter().any(|folder| path.starts_with(folder));
    is_crate && path.components().any(|part| part.as_os_str() == "src")
}

#[test]
fn variables_with_paths_are_read_by_path_variable() {
    let mut counts = [0; READERS.len()];
    let mut wrong = Vec::new();
    for (path, text) in files("rs") {
        let path = path.strip_prefix(workspace()).expect("it is in this repository");
        let count = reads(&text);
        if count == 0 || !is_of_crate(path) {
            continue;
        }
        match READERS.iter().position(|(reader, ..)| path.starts_with(reader)) {
            Some(reader) => counts[reader] += count,
            None => wrong.push(format!("{} reads {count} variables", path.display())),
        }
    }
    for ((reader, expected, what), count) in READERS.iter().zip(counts) {
        if *expected != count {
            wrong.push(format!("{reader} reads {count} variables, and this list has {expected}: {what}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "use device_registry::backend::path_variable for a variable with a file, a folder or a library, and \
         say in this test what any other one is:\n{}",
        wrong.join("\n")
    );
}

/// Names of other things, and variables that only tests and their own processes set.
const OTHERS: [&str; 7] = [
    "DEVICE_CONFORMANCE_CHILD",
    "DEVICE_CONFORMANCE_PROCESS",
    "DEVICE_CONFORMANCE_SUBPROCESS",
    "DEVICE_CONFORMANCE_WORKER",
    "DEVICE_PLUGIN_MAJOR",
    "DEVICE_PLUGIN_MINOR",
    "DEVICE_PLUGIN_WRITE_RULES",
];

/// The texts of a source that are such a name and nothing else.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let texts = code.split(['"', '\'']);
    texts.filter(|text| {
        let is_name = |c: char| c.is_ascii_uppercase() || c == '_';
        text.starts_with("DEVICE_") && text.len() > "DEVICE_".len() && text.chars().all(is_name)
    })
}

#[test]
fn the_registry_knows_all_variables() {
    let file = workspace().join("crates/device-registry/src/backend/registration.rs");
    let text = fs::read_to_string(&file).expect("it is there");
    let list = text.split_once("const VARIABLES").and_then(|(_, rest)| rest.split_once("];"));
    let (list, _) = list.expect("it has the list");
    let known: BTreeSet<_> = list.split('"').filter(|name| name.starts_with("DEVICE_")).collect();
    let sources = [files("rs"), files("py")].concat();
    let mut found = BTreeSet::new();
    for (path, text) in &sources {
        let in_repository = path.strip_prefix(workspace()).expect("it is in this repository");
        let is_of_package = ["integrations/onnxruntime/python", "integrations/torch/python"]
            .iter()
            .any(|folder| in_repository.starts_with(folder));
        if path != &file && (is_of_crate(in_repository) || is_of_package || path.ends_with("setup.py")) {
            found.extend(names(text));
        }
    }
    let is_known = |name: &str| {
        let group = known.iter().filter_map(|known| known.strip_suffix("_*"));
        let is_of_group = |group: &str| name == group || name.starts_with(&format!("{group}_"));
        known.contains(name) || OTHERS.contains(&name) || group.into_iter().any(is_of_group)
    };
    let unknown: Vec<_> = found.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "add them to `VARIABLES` in {}: {unknown:?}", file.display());
    let of_nothing = known.iter().filter(|name| !found.contains(name.trim_end_matches("_*")));
    let of_nothing: Vec<_> = of_nothing.filter(|name| **name != "DEVICE_BACKEND_*").collect();
    assert!(of_nothing.is_empty(), "nothing reads these: {of_nothing:?}");
}

#[test]
fn reads_are_found_in_calls_paths_and_imports() {
    for (code, expected) in [
        ("let value = std::env::var_os(NAME);", 1),
        ("read(options, |name| env::var(name).ok(), env::vars_os)", 2),
        ("use std::env::{self, temp_dir, var};", 2),
        ("// env::var\n    /// std::env::var_os(NAME)\nenv::consts::OS; env::variable(1)", 0),
        ("env::current_exe()\n\n#[cfg(test)]\nmod tests {\n    env::var_os(NAME);\n}", 0),
    ] {
        assert_eq!(reads(code), expected, "{code}");
    }
}
