//! The layers of crates, in `layers.txt`. A module imports only from its own layer and lower ones, and no
//! imports lead back to the module in which they begin.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use device_registry_tests::workspace;

/// For each crate, by its folder, a line for each layer from the lowest up, with its modules by their paths.
const LAYERS: &str = include_str!("layers.txt");

/// The texts of a crate's files, by their paths without the ending; `mod.rs` has the path of its folder.
type Sources = BTreeMap<String, String>;

/// Each module with those that it imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The crates of the list, each with its layers.
fn crates() -> Vec<(&'static str, Vec<Vec<&'static str>>)> {
    let mut crates: Vec<(_, Vec<Vec<_>>)> = Vec::new();
    for line in LAYERS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("    "), crates.last_mut()) {
            (Some(layer), Some((_, layers))) => layers.push(layer.split(' ').collect()),
            _ => crates.push((line, Vec::new())),
        }
    }
    crates
}

/// The files of a crate, without `lib.rs`, which only exports, and without files of tests.
fn sources(folder: &str) -> Sources {
    let mut found = Sources::new();
    add_sources(&workspace().join(folder).join("src"), "", &mut found);
    let tests: Vec<_> = found.iter().flat_map(|(file, text)| test_modules(file, text)).collect();
    let of_tests =
        |file: &str| tests.iter().any(|test| file == test || file.starts_with(&format!("{test}/")));
    found.retain(|file, _| !of_tests(file) && file != "lib" && file != "main");
    found
}

fn add_sources(folder: &Path, prefix: &str, found: &mut Sources) {
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it is there").path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("UTF-8");
        if path.is_dir() {
            add_sources(&path, &format!("{prefix}{stem}/"), found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = if stem == "mod" {
                prefix.trim_end_matches('/').to_owned()
            } else {
                format!("{prefix}{stem}")
            };
            found.insert(name, fs::read_to_string(&path).expect("it is text"));
        }
    }
}

/// The files that this one declares for tests only.
fn test_modules(file: &str, text: &str) -> Vec<String> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let declared = lines.windows(2).filter(|pair| pair[0].starts_with("#[cfg(") && pair[0].contains("test"));
    let names = declared.filter_map(|pair| pair[1].strip_suffix(';')?.split_once("mod "));
    names.map(|(_, name)| if file == "lib" { name.to_owned() } else { format!("{file}/{name}") }).collect()
}

/// The code of a file without its tests and its comments.
fn code(text: &str) -> String {
    let mut attributes = text.match_indices("\n#[cfg(").map(|(at, _)| at);
    let is_test = |at: &usize| {
        let mut lines = text[at + 1..].lines();
        lines.next().is_some_and(|line| line.contains("test"))
            && lines
                .find(|line| !line.starts_with('#'))
                .is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    };
    let end = attributes.find(is_test).unwrap_or(text.len());
    let lines = text[..end].lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths that `a::{b, c::{d, e}}` stands for.
fn expanded(tree: &str, prefix: &str, paths: &mut Vec<String>) {
    let Some((head, group)) = tree.split_once('{') else {
        paths.push(format!("{prefix}{}", tree.trim()));
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                if !group[start..at].trim().is_empty() {
                    expanded(&group[start..at], &prefix, paths);
                }
                start = at + 1;
                if c == '}' {
                    return;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

/// The paths in the code of a file that begin with `crate`, `self` or `super`.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for root in ["crate::", "self::", "super::"] {
        for (at, _) in code.match_indices(root) {
            // `$crate::` is in a macro, and names what `lib.rs` exports.
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c)) {
                continue;
            }
            let line = code[..at].rfind('\n').map_or(0, |end| end + 1);
            let is_import =
                code[line..at].trim_start_matches("pub(crate) ").trim_start_matches("pub ").trim() == "use";
            let rest = &code[at..];
            let end = if is_import {
                rest.find(';')
            } else {
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
            };
            // In a module within the file, `super` is the file.
            if root == "super::" && code[line..].starts_with(' ') {
                continue;
            }
            expanded(&rest[..end.unwrap_or(rest.len())], "", &mut found);
        }
    }
    found
}

/// The file that a path in `file` leads to: the longest part of it that is one.
fn file_of(path: &str, file: &str, sources: &Sources) -> Option<String> {
    let mut from: Vec<&str> =
        if path.starts_with("crate::") { Vec::new() } else { file.split('/').collect() };
    for segment in path.split("::").map(str::trim) {
        match segment {
            "crate" | "self" => {}
            "super" => drop(from.pop()),
            name => from.push(name),
        }
    }
    while !from.is_empty() && !sources.contains_key(&from.join("/")) {
        from.pop();
    }
    (!from.is_empty()).then(|| from.join("/"))
}

/// What breaks the rules in a crate with these layers.
fn violations(layers: &[Vec<&str>], sources: &Sources) -> Vec<String> {
    let mut found = Vec::new();
    let is_below = |file: &str, module: &str| file == module || file.starts_with(&format!("{module}/"));
    // The longest path decides.
    let module_of = |file: &str| {
        let modules = layers.iter().flatten();
        let paths = modules.flat_map(|&module| module.split('+').map(move |path| (module, path)));
        let listed = paths.filter(|(_, path)| is_below(file, path));
        listed.max_by_key(|(_, path)| path.len()).map(|(module, _)| module)
    };
    let layer = |module: &str| layers.iter().position(|modules| modules.contains(&module));
    let mut imports = Imports::new();
    for (file, text) in sources {
        let Some(module) = module_of(file) else {
            let code = code(text);
            let mut lines = code.lines().filter(|line| !line.is_empty() && !line.starts_with("#["));
            if !lines.all(|line| line.contains("mod ") && line.ends_with(';')) {
                found.push(format!("{file} has no layer"));
            }
            continue;
        };
        let imported = imports.entry(module.to_owned()).or_default();
        for path in paths(&code(text)) {
            match file_of(&path, file, sources) {
                None => found.push(format!("{file}: `{path}` names no module")),
                Some(other) => {
                    imported.extend(module_of(&other).filter(|other| *other != module).map(str::to_owned))
                }
            }
        }
    }
    for (module, imported) in &imports {
        for other in imported.iter().filter(|other| layer(other) > layer(module)) {
            found.push(format!("{module} imports {other}, of a higher layer"));
        }
    }
    let listed = layers.iter().flatten().filter(|module| !imports.contains_key(**module));
    found.extend(listed.map(|module| format!("there is no {module}")));
    // What imports nothing that is left is taken away, and what nothing imports. The rest is circles.
    let is_end = |module: &str, imports: &Imports| {
        let imported = &imports[module];
        !imported.iter().any(|other| imports.contains_key(other))
            || !imports.values().any(|of| of.contains(module))
    };
    while let Some(module) = imports.keys().find(|module| is_end(module, &imports)).cloned() {
        imports.remove(&module);
    }
    if !imports.is_empty() {
        found.push(format!("a circle is among {:?}", imports.keys()));
    }
    found
}

#[test]
fn imports_lead_down_and_never_back() {
    let mut found = Vec::new();
    for (folder, layers) in crates() {
        let of_crate = violations(&layers, &sources(folder));
        found.extend(of_crate.into_iter().map(|violation| format!("{folder}: {violation}")));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The cpu is a backend like any other, and uses only the contract.
#[test]
fn the_cpu_names_the_contract_only() {
    let sources = sources("crates/device-registry");
    let paths = paths(&code(&sources["cpu"]));
    assert!(!paths.is_empty());
    assert!(paths.iter().all(|path| path.starts_with("crate::backend::")), "{paths:?}");
}

#[test]
fn a_wrong_import_is_found() {
    let layers = [vec!["low", "other"], vec!["high", "high/top"]];
    let found = |file: &str, line: &str| {
        let mut sources: Sources = [
            ("low", "use crate::other::A;\n"),
            ("other", ""),
            ("high", "use crate::{low::{self, A}, other};\nmod tests {\n    use super::*;\n}\n"),
            ("high/part", "use super::B;\n"),
            ("high/top", "use super::C;\n"),
        ]
        .map(|(file, text)| (file.to_owned(), text.to_owned()))
        .into();
        sources.entry(file.to_owned()).or_default().push_str(line);
        violations(&layers, &sources)
    };
    assert_eq!(found("low", ""), [""; 0]);
    assert_eq!(found("high", "fn f(of: &crate::low::A) {}\nuse crate::high::part::D;\n"), [""; 0]);
    assert_eq!(
        found("low", "// use crate::high::A;\n\n#[cfg(test)]\nmod tests {\n    use crate::high::A;\n"),
        [""; 0]
    );
    assert_eq!(found("low", "use crate::high::A;\n")[0], "low imports high, of a higher layer");
    let braces = "use crate::{\n    high::{\n        part::{E},\n    },\n};\n";
    assert_eq!(found("other", braces)[0], "other imports high, of a higher layer");
    assert_eq!(found("other", "fn f() -> super::low::A {}\n"), [r#"a circle is among ["low", "other"]"#]);
    assert_eq!(found("high/part", "use super::top::A;\n"), [r#"a circle is among ["high", "high/top"]"#]);
    assert_eq!(found("low", "use crate::A;\n"), ["low: `crate::A` names no module"]);
    assert_eq!(found("new", "fn f() {}\n"), ["new has no layer"]);
    assert_eq!(found("new", "#[allow(unsafe_code)]\nmod below;\n"), [""; 0]);
}
