//! The layers of this crate. A file imports only from its own layer and lower ones, and no imports lead back
//! to the file in which they begin.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The files of each layer, from the lowest up. Errors and reports are data: they know no group.
const LAYERS: [(&str, &[&str]); 7] = [
    ("locks", &["sync", "sync/fork", "sync/model", "sync/of_loom", "sync/of_std"]),
    ("words", &["error_chain", "group_name", "isolation", "message", "name", "nearest"]),
    ("structures", &["index", "once_load", "once_load/model", "once_load/wait_graph", "versions"]),
    ("data", &["defaults", "error", "failure", "options", "report", "serialize", "state"]),
    ("entry points", &["claim", "collect/element", "entry_point", "installed", "pattern"]),
    (
        "rules",
        &[
            "assignments",
            "collect",
            "collect/by_inventory",
            "collect/by_linkme",
            "collect/diagnosis",
            "collect/no_inventory",
            "collect/no_linkme",
            "declaration",
            "switches",
            "used_groups",
            "verdict",
        ],
    ),
    ("groups", &["by_name", "entry", "fuzzing", "group", "groups", "slot"]),
];

/// Each file, with the files that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The files of a folder of sources, by their paths without the ending, and their texts. `lib.rs` only
/// exports.
fn sources(folder: &Path, prefix: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_stem().unwrap().to_str().unwrap());
        if path.is_dir() {
            found.extend(sources(&path, &format!("{name}/")));
        } else if name != "lib" {
            found.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    found
}

fn this_crate() -> BTreeMap<String, String> {
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "")
}

/// The code of a file without its tests and its documentation.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let tests =
        ["\n#[cfg(test)]\nmod ", "\n#[cfg(all(test, not(loom)))]\nmod ", "\n#[cfg(all(test, loom))]\nmod "];
    let end = tests.iter().filter_map(|test| text.find(test)).min().unwrap_or(text.len());
    text[..end].lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// The segments of a path at the beginning of `text`.
fn segments(text: &str) -> Vec<&str> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    text[..end].split("::").filter(|segment| !segment.is_empty()).collect()
}

/// The paths in the code of a file, from the root of the crate.
fn paths(file: &str, text: &str) -> Vec<String> {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let modules: Vec<&str> = code(text)
        .filter_map(|line| line.strip_suffix(';')?.split_once("mod "))
        .map(|(_, name)| name)
        .collect();
    let mut found = Vec::new();
    for line in code(text) {
        let mut roots = vec![("crate::", String::new()), ("self::", format!("{file}/"))];
        // In a module within the file, `super` is the file.
        if !line.starts_with(' ') {
            roots.push(("super::", format!("{folder}/")));
        }
        let children: Vec<_> =
            modules.iter().map(|module| (format!("{module}::"), format!("{file}/{module}/"))).collect();
        roots.extend(children.iter().map(|(word, root)| (word.as_str(), root.clone())));
        for (word, root) in roots {
            for (at, _) in line.match_indices(word) {
                let before = line[..at].chars().next_back();
                // `$crate::` is in a macro, and names what `lib.rs` exports.
                if before.is_none_or(|c| !(c.is_alphanumeric() || "_:$".contains(c))) {
                    found.push(format!("{root}{}", segments(&line[at + word.len()..]).join("/")));
                }
            }
        }
    }
    found
}

/// The imports of each of these files.
fn imports(sources: &BTreeMap<String, String>) -> Imports {
    let file_of = |path: &str| {
        let mut path = path.trim_matches('/');
        loop {
            if sources.contains_key(path) {
                return Some(path.to_owned());
            }
            path = path.rsplit_once('/')?.0;
        }
    };
    let all = sources.iter().map(|(file, text)| {
        let paths = paths(file, text);
        let known = paths.iter().map(|path| {
            file_of(path).unwrap_or_else(|| panic!("{file}.rs: `{path}` names no file of this crate"))
        });
        (file.clone(), known.filter(|other| other != file).collect())
    });
    all.collect()
}

/// What breaks the rules: an import of a higher layer, a circle, and a file without a layer.
fn violations(imports: &Imports) -> Vec<String> {
    let layer = |file: &str| LAYERS.iter().position(|(_, files)| files.contains(&file));
    let mut found = Vec::new();
    for (file, imported) in imports {
        let Some(own) = layer(file) else {
            found.push(format!("{file} has no layer"));
            continue;
        };
        for other in imported.iter().filter(|other| layer(other).is_some_and(|other| other > own)) {
            found.push(format!("{file} imports {other}, of a higher layer"));
        }
    }
    // What imports nothing that is left is taken away; the rest is circles, and what imports them.
    let mut rest = imports.clone();
    while let Some(free) =
        rest.iter().find(|(_, imported)| !imported.iter().any(|other| rest.contains_key(other)))
    {
        let free = free.0.clone();
        rest.remove(&free);
    }
    if !rest.is_empty() {
        found.push(format!("a circle is among {:?}", rest.keys()));
    }
    found
}

#[test]
fn imports_lead_down_and_never_back() {
    let imports = imports(&this_crate());
    assert_eq!(violations(&imports), [""; 0]);
    let arrows: usize = imports.values().map(BTreeSet::len).sum();
    assert!(arrows > 80, "the imports are not recognized: {imports:?}");
}

#[test]
fn every_file_of_the_list_exists() {
    let sources = this_crate();
    let listed: Vec<_> = LAYERS.iter().flat_map(|(_, files)| *files).collect();
    assert_eq!(listed.len(), sources.len());
    for file in listed {
        assert!(sources.contains_key(*file), "{file}");
    }
}

#[test]
fn a_wrong_import_is_detected() {
    for (file, line, expected) in [
        // Up, by itself and in a circle.
        ("nearest", "use crate::error_chain::ErrorChain;", None),
        ("nearest", "use crate::state::State;", Some("nearest imports state, of a higher layer")),
        ("state", "use crate::error::LoadError;", Some("a circle is among")),
        (
            "report",
            "fn f(group: &crate::group::Group<u8>) {}",
            Some("report imports group, of a higher layer"),
        ),
        ("slot", "use crate::group::Group;", Some("a circle is among")),
        ("sync/fork", "use super::Clock;", Some("a circle is among")),
        ("switches", "use crate::verdict::Verdict;", Some("a circle is among")),
    ] {
        let mut sources = this_crate();
        let text = sources.get_mut(file).unwrap();
        *text = format!("{line}\n{text}");
        let found = violations(&imports(&sources));
        match expected {
            Some(expected) => assert!(found.iter().any(|one| one.starts_with(expected)), "{line}: {found:?}"),
            None => assert_eq!(found, [""; 0], "{line}"),
        }
    }
    let mut sources = this_crate();
    sources.insert("manager".to_owned(), "use crate::message::shown;\n".to_owned());
    assert_eq!(violations(&imports(&sources)), ["manager has no layer"]);
}

/// `use crate::{A, B}` would hide which layer a name is from.
#[test]
fn imports_name_the_module() {
    for (file, text) in this_crate() {
        assert!(!code(&text).any(|line| line.contains("crate::{")), "{file} imports from the root");
    }
}
