//! The manifests of a library, compared with what the library itself offers.

use std::fs;
use std::path::{Path, PathBuf};

use device_registry::backend::LoadFailure;
use device_registry::backends;
use device_registry::registry::{Installed, RegisterError};
use entry_points::message::{shown, shown_path};
use serde_json::Value;

use crate::abi;
use crate::install::{Examined, Manifest, canonical, manifests, read_manifest, show_digest};
use crate::load::LibraryEntry;
use crate::tool::arguments::Opening;
use crate::tool::page::{Level, Page};
use crate::tool::print::command;
use crate::tool::process::{Entry, Seen};

/// The manifests that name a library: those in its folder, and one that the user names.
pub(super) fn manifests_of(
    library: &Path,
    given: Option<&Path>,
    opening: Opening,
    page: &mut Page,
) -> Vec<Manifest> {
    let folder = library.parent().unwrap_or(library);
    let mut files = manifests(folder).unwrap_or_default();
    let given = given.and_then(|given| canonical(given).ok());
    files.extend(given.clone().filter(|given| !files.contains(given)));
    let mut found = Vec::new();
    for file in files {
        let refused = match read_manifest(&file, opening.any_owner) {
            Ok(Some(manifest)) => {
                if is(manifest.library(), library) {
                    found.push(manifest);
                }
                continue;
            }
            // For another group.
            Ok(None) => continue,
            Err(reason) => reason,
        };
        if claims(&file, library) {
            page.shared_problem(skipped(&file, &refused));
            // What else is wrong with it.
            found.extend(read_manifest(&file, true).ok().flatten());
        }
    }
    found
}

/// That programs skip a manifest.
pub(super) fn skipped(manifest: &Path, reason: &str) -> String {
    format!("programs skip the manifest `{}`: {reason}", shown_path(manifest))
}

/// Whether a path leads to a library, whose path is canonical.
fn is(path: &Path, library: &Path) -> bool {
    canonical(path).is_ok_and(|path| path == library)
}

/// Whether a manifest that programs skip names a library, or cannot be read at all.
fn claims(manifest: &Path, library: &Path) -> bool {
    let Some(json) = fs::read(manifest).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok())
    else {
        return true;
    };
    let folder = manifest.parent().unwrap_or(manifest);
    json["library"].as_str().is_some_and(|path| is(&folder.join(path), library))
}

/// Finds what is wrong with the manifests of a library.
pub(super) fn compare(found: &[Manifest], seen: &Seen, file: &Examined, page: &mut Page) {
    for (at, manifest) in found.iter().enumerate() {
        let name = manifest.name();
        page.fact("manifest", format_args!("{}: `{name}`", shown_path(manifest.file())));
        if let Err(error) = may_be_called(name) {
            page.problem(
                skipped(manifest.file(), &error.to_string()),
                "give it another `name`, and `entry` as the name in its library",
            );
        }
        if let Some(first) = found[..at].iter().find(|earlier| earlier.name() == name) {
            let (file, first) = (shown_path(manifest.file()), shown_path(first.file()));
            page.problem(
                format!("`{file}` and `{first}` are both called `{name}`, and a program uses one of them"),
                "remove one of them, or give it another `name`",
            );
        }
    }
    if seen.interface.is_none() {
        return compare_digests(found, file, page);
    }
    let backends: Vec<&LibraryEntry> = offered(&seen.entries).collect();
    for manifest in found {
        let shown_manifest = shown_path(manifest.file());
        let Some(entry) = backends.iter().find(|entry| entry.name == manifest.entry()) else {
            let names: Vec<_> = backends.iter().map(|entry| format!("`{}`", shown(&entry.name))).collect();
            let field = if manifest.entry() == manifest.name() { "name" } else { "entry" };
            let text = format!(
                "the `{field}` in `{shown_manifest}` is `{}`; the library offers {}",
                manifest.entry(),
                if names.is_empty() { "no backend".to_owned() } else { names.join(", ") }
            );
            // Which of several is meant is not known.
            let entry = (backends.len() > 1).then_some("ENTRY");
            let name = Some(manifest.name());
            let help = command(&file.path, manifest.file(), name, entry, manifest.sha256().is_some());
            page.problem(text, help);
            continue;
        };
        let several = (backends.len() > 1).then_some(&*entry.name);
        let renamed = (manifest.name() != entry.name).then_some(manifest.name());
        let help = command(&file.path, manifest.file(), renamed, several, manifest.sha256().is_some());
        for difference in differences(manifest, entry, seen.interface, file) {
            page.problem(difference, &*help);
        }
    }
    for entry in &backends {
        if found.iter().all(|manifest| manifest.entry() != entry.name) {
            without_manifest(entry, backends.len(), found.is_empty(), file, page);
        }
    }
}

/// Whether programs accept a backend of this name from a file. This process uses no backends, so it tries.
fn may_be_called(name: &str) -> Result<(), RegisterError> {
    let load = |_: &_| Err(LoadFailure::new("it is not used here"));
    backends().install(Installed::new(name, Path::new(name), load))
}

/// What a library offers to programs with devices.
pub(super) fn offered(entries: &[Entry]) -> impl Iterator<Item = &LibraryEntry> {
    entries.iter().map(|entry| &entry.says).filter(|entry| entry.group == abi::BACKENDS)
}

/// No program finds a backend without a manifest. Of several in a library, some may be left out on purpose.
fn without_manifest(entry: &LibraryEntry, count: usize, is_problem: bool, file: &Examined, page: &mut Page) {
    let manifest: PathBuf = file.path.with_file_name(format!("{}.plugin.json", entry.name));
    let several = (count > 1).then_some(&*entry.name);
    let help = command(&file.path, &manifest, None, several, false);
    let text = format!("no manifest in the folder of the library names its backend `{}`", shown(&entry.name));
    page.find(if is_problem { Level::Problem } else { Level::Note }, text, help);
}

/// Only the digests can be compared if the library did not open.
fn compare_digests(found: &[Manifest], file: &Examined, page: &mut Page) {
    for difference in found.iter().filter_map(|manifest| digest(manifest, file)) {
        page.problem(difference, "install the two again together");
    }
}

fn differences(
    manifest: &Manifest,
    entry: &LibraryEntry,
    interface: Option<(u32, u32)>,
    file: &Examined,
) -> Vec<String> {
    let (mut differences, path) = (Vec::new(), shown_path(manifest.file()));
    let mut compare = |field: &str, says: &str, library: &str| {
        if says != library {
            let (says, library) = (shown(says), shown(library));
            differences.push(format!("the `{field}` in `{path}` is `{says}`; the library has `{library}`"));
        }
    };
    compare("package", manifest.package(), &entry.package);
    compare("version", manifest.version(), &entry.version);
    let (major, minor) = interface.unwrap_or_default();
    compare("abi", &format!("{}.{}", abi::MAJOR, manifest.minor()), &format!("{major}.{minor}"));
    let described = |name: &str| manifest.options().find(|(known, _)| *known == name).map(|(_, text)| text);
    for (name, description) in &entry.options {
        let (name, says) = (shown(name), described(name));
        match says {
            None => differences.push(format!("`{path}` does not have the option `{name}` of the library")),
            Some(says) if says != description => {
                differences
                    .push(format!("the option `{name}` in `{path}` has another description in the library"));
            }
            Some(_) => {}
        }
    }
    let unknown = manifest.options().filter(|(name, _)| entry.options.iter().all(|(known, _)| known != name));
    differences.extend(
        unknown.map(|(name, _)| format!("`{path}` has the option `{name}`, which the library does not have")),
    );
    differences.extend(digest(manifest, file));
    differences
}

fn digest(manifest: &Manifest, file: &Examined) -> Option<String> {
    let says = manifest.sha256().filter(|says| **says != file.sha256)?;
    let (path, says, library) = (shown_path(manifest.file()), show_digest(says), show_digest(&file.sha256));
    Some(format!("the `sha256` in `{path}` is {says}; the library has {library}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_belongs_to_the_program_is_refused_as_programs_do() {
        let error = may_be_called("cpu").unwrap_err().to_string();
        assert!(error.starts_with("`cpu` is a built-in or reserved name"), "{error}");
        assert!(may_be_called("auto").is_err());
        assert!(may_be_called("acme").is_ok());
    }
}
