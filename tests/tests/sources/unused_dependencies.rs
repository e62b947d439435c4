//! Examples and templates have the lists that keep `cargo machete --fix` and `cargo shear --fix` from
//! deleting their backends, which no source line names.

use std::collections::BTreeSet;
use std::path::Path;

use device_registry_tests::{files, workspace};

/// The folders that users copy from.
const FOLDERS: [&str; 4] = ["examples", "integrations/burn/examples", "kernels/examples", "templates"];

/// The names of all tables of dependencies.
fn dependencies(manifest: &str) -> BTreeSet<&str> {
    let (mut names, mut is_in) = (BTreeSet::new(), false);
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_in = line.ends_with("dependencies]") && !line.starts_with("[workspace");
        } else if is_in && !line.starts_with('#') {
            names.extend(line.split(['.', '=', ' ']).next().filter(|name| !name.is_empty()));
        }
    }
    names
}

/// The list of one tool.
fn ignored<'a>(manifest: &'a str, tool: &str) -> BTreeSet<&'a str> {
    let table = format!("[package.metadata.{tool}]\nignored = [");
    let (_, list) = manifest.split_once(&table).unwrap_or_default();
    let list = list.split(']').next().unwrap_or_default();
    list.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty()).collect()
}

/// What is wrong with a manifest, whose package has these sources.
fn wrong<'a>(manifest: &'a str, sources: &[&str]) -> Vec<(&'static str, Vec<&'a str>)> {
    let code =
        sources.iter().flat_map(|text| text.lines()).filter(|line| !line.trim_start().starts_with("//"));
    let words: BTreeSet<_> =
        code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect();
    let is_unseen = |name: &&str| !words.contains(&*name.replace('-', "_"));
    let unseen: BTreeSet<_> = dependencies(manifest).into_iter().filter(is_unseen).collect();
    let differences = ["cargo-machete", "cargo-shear"].map(|tool| {
        let listed = ignored(manifest, tool);
        (tool, unseen.symmetric_difference(&listed).copied().collect::<Vec<_>>())
    });
    differences.into_iter().filter(|(_, names)| !names.is_empty()).collect()
}

#[test]
fn backends_of_examples_and_templates_are_in_the_lists_of_checks_for_unused_dependencies() {
    let (manifests, sources) = (files("toml"), files("rs"));
    let folder_of = |path: &Path| {
        path.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").exists()).map(Path::to_owned)
    };
    let (mut lists, mut mistakes) = (0, Vec::new());
    for (path, manifest) in &manifests {
        let is_example = FOLDERS.iter().any(|folder| path.starts_with(workspace().join(folder)));
        if !is_example || !path.ends_with("Cargo.toml") || !manifest.contains("[package]") {
            continue;
        }
        let own = sources.iter().filter(|(file, _)| folder_of(file).as_deref() == path.parent());
        let own: Vec<_> = own.map(|(_, text)| &**text).collect();
        lists += usize::from(manifest.contains("cargo-machete"));
        for (tool, names) in wrong(manifest, &own) {
            mistakes.push(format!("{}: {tool}: {}", path.display(), names.join(", ")));
        }
    }
    assert!(
        mistakes.is_empty(),
        "expected `ignored` to have the dependencies that no source line names:\n{}",
        mistakes.join("\n")
    );
    assert!(lists >= 9, "{lists} lists");
}

#[test]
fn a_dependency_that_no_line_names_is_missed_in_a_list() {
    let manifest = "[dependencies]\nlog = \"0.4\"\ndevice-a.workspace = true\n# device-b = 1\n\n\
                    [target.'cfg(unix)'.dev-dependencies]\ndevice-c = { path = \"c\" }\n\n\
                    [package.metadata.cargo-machete]\nignored = [\"device-a\", \"device-c\"]\n";
    let sources = ["//! Uses device_a.\nuse log::info;\n    // device_c::x"];
    assert_eq!(wrong(manifest, &sources), [("cargo-shear", vec!["device-a", "device-c"])]);
    let list = "[package.metadata.cargo-shear]\nignored = [\n    \"device-a\",\n    \"device-d\",\n]\n";
    let both = format!("{manifest}{list}");
    assert_eq!(wrong(&both, &sources), [("cargo-shear", vec!["device-c", "device-d"])]);
    assert_eq!(wrong(&both, &["use device_c as _; log!()"]).len(), 2);
}
