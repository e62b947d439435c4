//! `devices plugin manifest`: the manifest of a library.

use std::path::Path;

use entry_points::message::{shown, shown_path};
use serde_json::Value;

use crate::abi;
use crate::file::{digest, manifest};
use crate::group;
use crate::install::examine::examine;
use crate::load::LibraryEntry;
use crate::tool::arguments::{How, Manifest};
use crate::tool::process::{self, Entry};

/// Why there is no manifest.
#[derive(Debug)]
pub enum NoManifest {
    /// The arguments name no entry of the library.
    Usage(String),
    /// Something is wrong with the library.
    Problem(String),
}

/// The text of a library's manifest.
///
/// # Errors
///
/// If the library cannot have one, or it is not clear which.
pub fn manifest(arguments: &Manifest) -> Result<String, NoManifest> {
    let problem = NoManifest::Problem;
    let opening = arguments.opening;
    let file = examine(&arguments.file, opening.any_owner).map_err(problem)?;
    file.trust.map_err(problem)?;
    file.kind.map_err(problem)?;
    let seen = process::inspect(&file.path, How::Open, opening.limit);
    if let Some(refused) = seen.refused {
        return Err(problem(refused));
    }
    if let Some((message, help)) = seen.end.describe(opening.limit) {
        return Err(problem(format!("{message}; {help}")));
    }
    let interface = seen.interface.unwrap_or_default();
    let group = arguments.group.as_deref().unwrap_or(abi::BACKENDS);
    let entry = choose(&seen.entries, group, arguments.entry.as_deref())?;
    let name = arguments.name.as_deref().unwrap_or(&entry.name);
    let library = arguments.file.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        problem(format!(
            "the name of `{}` is not UTF-8, as it has to be in a manifest",
            shown_path(&file.path)
        ))
    })?;
    let sha256 = arguments.sha256.then(|| digest::show(&file.sha256));
    let text = write(entry, name, library, interface, sha256.as_deref());
    match manifest::Manifest::parse(text.as_bytes(), &file.path, &group::IN_FILES, Some(group)) {
        Ok(_) => Ok(text),
        Err(reason) => Err(problem(format!("`{}` cannot have a manifest: {reason}", shown_path(&file.path)))),
    }
}

/// The entry that is meant.
fn choose<'a>(entries: &'a [Entry], group: &str, name: Option<&str>) -> Result<&'a LibraryEntry, NoManifest> {
    let (one, several) = match group {
        abi::BACKENDS => ("backend".to_owned(), "backends".to_owned()),
        _ => (format!("entry of `{}`", shown(group)), format!("entries of `{}`", shown(group))),
    };
    let mut of_group = entries.iter().map(|entry| &entry.says).filter(|entry| entry.group == group);
    let names: Vec<_> = of_group.clone().map(|entry| format!("`{}`", shown(&entry.name))).collect();
    let names = names.join(", ");
    match (name, of_group.clone().count()) {
        (_, 0) => Err(NoManifest::Problem(format!("the library offers no {one}"))),
        (Some(name), _) => of_group.find(|entry| entry.name == name).ok_or_else(|| {
            let name = shown(name);
            NoManifest::Usage(format!("the library offers no {one} `{name}`; it offers {names}"))
        }),
        (None, 1) => of_group.next().ok_or_else(|| NoManifest::Problem(String::new())),
        (None, count) => Err(NoManifest::Usage(format!(
            "the library offers {count} {several}: choose one with `--entry`: {names}"
        ))),
    }
}

/// A manifest, with its fields in the order of the documentation.
fn write(
    entry: &LibraryEntry,
    name: &str,
    library: &str,
    (major, minor): (u32, u32),
    sha256: Option<&str>,
) -> String {
    let json = |text: &str| Value::from(text).to_string();
    let mut fields = vec![
        ("manifest", "1".to_owned()),
        ("group", json(&entry.group)),
        ("name", json(name)),
        ("package", json(&entry.package)),
        ("version", json(&entry.version)),
        ("library", json(library)),
        ("abi", format!(r#"{{ "major": {major}, "minor": {minor} }}"#)),
    ];
    if name != entry.name {
        fields.insert(3, ("entry", json(&entry.name)));
    }
    if entry.requires > 0 {
        fields.push(("requires", entry.requires.to_string()));
    }
    if !entry.options.is_empty() {
        let options = entry.options.iter().map(|(name, description)| {
            format!(r#"    {{ "name": {}, "description": {} }}"#, json(name), json(description))
        });
        fields.push(("options", format!("[\n{}\n  ]", options.collect::<Vec<_>>().join(",\n"))));
    }
    fields.extend(sha256.map(|digest| ("sha256", json(digest))));
    let fields: Vec<_> = fields.iter().map(|(field, value)| format!("  \"{field}\": {value}")).collect();
    format!("{{\n{}\n}}\n", fields.join(",\n"))
}

/// The command that prints the manifest of an entry into a file.
pub(super) fn command(
    library: &Path,
    manifest: &Path,
    group: &str,
    name: Option<&str>,
    entry: Option<&str>,
    sha256: bool,
) -> String {
    let option = |option: &str, value: Option<&str>| match value {
        Some(value) => format!(" --{option} {value}"),
        None => String::new(),
    };
    let group = option("group", Some(group).filter(|group| *group != abi::BACKENDS));
    let name = option("name", name);
    let entry = option("entry", entry);
    let sha256 = if sha256 { " --sha256" } else { "" };
    let library = quoted(library);
    let manifest = quoted(manifest);
    format!("devices plugin manifest{group}{name}{entry}{sha256} {library} > {manifest}")
}

/// A path as a word of a shell.
fn quoted(path: &Path) -> String {
    let path = shown_path(path);
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:\\".contains(c);
    match path.chars().all(is_plain) {
        true => path,
        false if cfg!(windows) => format!("\"{path}\""),
        false => format!("'{path}'"),
    }
}
