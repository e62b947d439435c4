//! The manifests of a library, compared with what the library itself offers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use device_registry::backend::LoadFailure;
use device_registry::backends;
use device_registry::registry::{Installed, RegisterError};
use entry_points::message::{shown, shown_path};
use serde_json::Value;

use crate::abi;
use crate::file::digest;
use crate::file::files::canonical;
use crate::file::manifest::Manifest;
use crate::install::examine::{Examined, manifests, read_manifest};
use crate::load::LibraryEntry;
use crate::tool::arguments::Opening;
use crate::tool::page::{Level, Page};
use crate::tool::print::command;
use crate::tool::process::{Entry, Seen};

/// The manifests that name a library: those in its folder, and one that the user names.
pub(super) fn manifests_of(
    examined: &Examined,
    given: Option<&Path>,
    opening: Opening,
    page: &mut Page,
) -> Vec<Manifest> {
    let library = &*examined.path;
    let folder = library.parent().unwrap_or(library);
    let mut files = manifests(folder).unwrap_or_default();
    let given = given.and_then(|given| canonical(given).ok());
    files.extend(given.clone().filter(|given| !files.contains(given)));
    let mut found = Vec::new();
    for file in files {
        // A library of this interface may have entries of any group.
        let its = |(group, path): (String, PathBuf)| is(&path, library).then_some(group);
        let group = says(&file).filter(|_| examined.kind.is_ok()).and_then(its);
        let refused = match read_manifest(&file, opening.any_owner, group.as_deref()) {
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
            found.extend(read_manifest(&file, true, group.as_deref()).ok().flatten());
        }
    }
    found
}

/// Says that programs skip a manifest.
pub(super) fn skipped(manifest: &Path, reason: &str) -> String {
    format!("programs skip the manifest `{}`: {reason}", shown_path(manifest))
}

/// Whether a path leads to a library, whose path is canonical.
fn is(path: &Path, library: &Path) -> bool {
    canonical(path).is_ok_and(|path| path == library)
}

/// Whether a manifest that programs skip names a library, or cannot be read at all.
fn claims(manifest: &Path, library: &Path) -> bool {
    json(manifest).is_none_or(|json| library_of(manifest, &json).is_some_and(|path| is(&path, library)))
}

/// The group and the library of a manifest that may be for any group.
pub(super) fn says(manifest: &Path) -> Option<(String, PathBuf)> {
    let json = json(manifest)?;
    Some((json["group"].as_str()?.to_owned(), library_of(manifest, &json)?))
}

fn json(manifest: &Path) -> Option<Value> {
    // Reading a pipe would wait for its writer.
    let text = manifest.is_file().then(|| fs::read(manifest).ok())??;
    serde_json::from_slice(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text)).ok()
}

fn library_of(manifest: &Path, json: &Value) -> Option<PathBuf> {
    // It lies beside the manifest itself, and not beside a link to it.
    let manifest = canonical(manifest).ok()?;
    Some(manifest.parent()?.join(json["library"].as_str()?))
}

/// Finds mistakes in the manifests of a library.
pub(super) fn compare(found: &[Manifest], seen: &Seen, file: &Examined, page: &mut Page) {
    for (at, manifest) in found.iter().enumerate() {
        let group = manifest.group();
        let name = manifest.name();
        let of = if group == abi::BACKENDS { String::new() } else { format!(" of {}", shown(group)) };
        page.fact("manifest", format_args!("{}: `{name}`{of}", shown_path(manifest.file())));
        if group == abi::BACKENDS
            && let Err(error) = may_be_called(name)
        {
            page.problem(
                skipped(manifest.file(), &error.to_string()),
                "give it another `name`, and `entry` as the name in its library",
            );
        }
        if let Some(first) =
            found[..at].iter().find(|earlier| (earlier.group(), earlier.name()) == (group, name))
        {
            let file = shown_path(manifest.file());
            let first = shown_path(first.file());
            page.problem(
                format!("`{file}` and `{first}` are both called `{name}`, and a program uses one of them"),
                "remove one of them, or give it another `name`",
            );
        }
    }
    if seen.interface.is_none() {
        return compare_digests(found, file, page);
    }
    let of_group = |group: &str| -> Vec<&LibraryEntry> {
        seen.entries.iter().map(|entry| &entry.says).filter(|entry| entry.group == group).collect()
    };
    let groups: BTreeSet<_> =
        seen.entries.iter().map(|entry| format!("`{}`", shown(&entry.says.group))).collect();
    let groups = Vec::from_iter(groups).join(", ");
    for manifest in found {
        let shown_manifest = shown_path(manifest.file());
        let group = manifest.group();
        let entries = of_group(manifest.group());
        let command = |name, entry| {
            command(&file.path, manifest.file(), group, name, entry, manifest.sha256().is_some())
        };
        let Some(entry) = entries.iter().find(|entry| entry.name == manifest.entry()) else {
            let names: Vec<_> = entries.iter().map(|entry| format!("`{}`", shown(&entry.name))).collect();
            let (field, says, offers) = match &names[..] {
                [] if group == abi::BACKENDS => ("name", manifest.name(), "no backend".to_owned()),
                [] => ("group", group, format!("entries of {groups}")),
                _ if manifest.entry() == manifest.name() => ("name", manifest.name(), names.join(", ")),
                _ => ("entry", manifest.entry(), names.join(", ")),
            };
            let text = format!(
                "the `{field}` in `{shown_manifest}` is `{}`; the library offers {offers}",
                shown(says)
            );
            // Which of several is meant is not known.
            let entry = (entries.len() > 1).then_some("ENTRY");
            page.problem(text, command(Some(manifest.name()), entry));
            continue;
        };
        let several = (entries.len() > 1).then_some(&*entry.name);
        let renamed = (manifest.name() != entry.name).then_some(manifest.name());
        let help = command(renamed, several);
        for difference in differences(manifest, entry, seen.interface, file) {
            page.problem(difference, &*help);
        }
    }
    for entry in seen.entries.iter().map(|entry| &entry.says) {
        if found.iter().all(|manifest| (manifest.group(), manifest.entry()) != (&entry.group, &entry.name)) {
            let is_alone = found.iter().all(|manifest| manifest.group() != entry.group);
            without_manifest(entry, of_group(&entry.group).len(), is_alone, file, page);
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

/// No program finds an entry without a manifest. Of several backends in a library, some may be left out on
/// purpose, and so may entries of other groups.
fn without_manifest(entry: &LibraryEntry, count: usize, is_alone: bool, file: &Examined, page: &mut Page) {
    let group = shown(&entry.group);
    let name = shown(&entry.name);
    let (level, what, manifest) = match &*entry.group {
        abi::BACKENDS if is_alone => (Level::Problem, format!("backend `{name}`"), name),
        abi::BACKENDS => (Level::Note, format!("backend `{name}`"), name),
        other => {
            let kind = shown(other.rsplit('.').next().unwrap_or(other));
            (Level::Note, format!("entry `{name}` of `{group}`"), format!("{name}_{kind}"))
        }
    };
    let manifest = file.path.with_file_name(format!("{manifest}.plugin.json"));
    let several = (count > 1).then_some(&*entry.name);
    let help = command(&file.path, &manifest, &entry.group, None, several, false);
    page.find(level, format!("no manifest in the folder of the library names its {what}"), help);
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
    let mut differences = Vec::new();
    let path = shown_path(manifest.file());
    let mut compare = |field: &str, says: &str, library: &str| {
        if says != library {
            let says = shown(says);
            let library = shown(library);
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
    let path = shown_path(manifest.file());
    let says = digest::show(says);
    let library = digest::show(&file.sha256);
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
