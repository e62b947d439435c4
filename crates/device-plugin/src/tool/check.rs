//! `devices plugin check`: the content of libraries and their manifests, and the mistakes in them.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use entry_points::message::{shown, shown_path};

use crate::abi;
use crate::file::files::canonical;
use crate::file::manifest::Manifest;
use crate::install::examine::{Examined, examine, is_manifest, manifests, read_manifest};
use crate::tool::arguments::{Check, How, Opening};
use crate::tool::contents::{self, Contents};
use crate::tool::page::{Level, Page, summary};
use crate::tool::process::{self, Devices, Entry, Failed, Seen, State};
use crate::tool::{compare, describe};

/// How many other symbols are listed.
const SYMBOLS: usize = 8;

/// How many lines of what a library printed are shown.
const PRINTED: usize = 8;

/// Checks files and prints what was found. Returns whether all is well.
///
/// # Errors
///
/// If it cannot be written.
pub fn run(check: &Check, output: &mut dyn Write) -> io::Result<bool> {
    let mut shared = HashSet::new();
    let mut done = HashSet::new();
    let mut problems = 0;
    for file in &check.files {
        let mut pages = Vec::new();
        if file.is_dir() {
            pages.extend(check_folder(file, check.opening, &mut done));
        } else if is_manifest(file) {
            pages.extend(check_manifest(file, check.opening, &mut done));
        } else {
            pages.push(check_library(file, None, check.opening));
        }
        for page in pages {
            writeln!(output, "{}", page.finish(&mut shared, &mut problems))?;
            output.flush()?;
        }
    }
    writeln!(output, "{}", summary(problems))?;
    Ok(problems == 0)
}

/// Checks the libraries of all manifests in a folder.
fn check_folder(folder: &Path, opening: Opening, done: &mut HashSet<PathBuf>) -> Vec<Page> {
    let mut page = Page::new(shown_path(folder));
    match manifests(folder) {
        Err(error) => page.problem(format!("cannot read the folder `{}`: {error}", shown_path(folder)), ""),
        Ok(files) if files.is_empty() => page.problem(
            format!("`{}` has no manifests; expected files such as `acme.plugin.json`", shown_path(folder)),
            "",
        ),
        Ok(files) => {
            let pages: Vec<_> = files.iter().filter_map(|file| check_manifest(file, opening, done)).collect();
            return pages.into_iter().chain(check_names(&files, page)).collect();
        }
    }
    vec![page]
}

/// Looks for manifests of different libraries that have one name. Manifests of one library are on its page.
fn check_names(files: &[PathBuf], mut page: Page) -> Option<Page> {
    let manifests: Vec<Manifest> = files.iter().filter_map(|file| read(file).ok().flatten()).collect();
    let mut found = false;
    for (at, manifest) in manifests.iter().enumerate() {
        let names = |of: &Manifest| (of.group() == manifest.group(), of.name() == manifest.name());
        let first = manifests[..at].iter().find(|first| names(first) == (true, true));
        if let Some(first) = first.filter(|first| first.library() != manifest.library()) {
            let [first, second] = [first, manifest].map(|manifest| shown_path(manifest.file()));
            let name = manifest.name();
            page.problem(
                format!("`{first}` and `{second}` have one name, `{name}`: a program uses the first"),
                "give one of them another `name`, and `entry` as the name in its library",
            );
            found = true;
        }
    }
    found.then_some(page)
}

/// Reads a manifest for any group whose entries this interface has: whose library is one for programs with
/// this crate.
fn read(file: &Path) -> Result<Option<Manifest>, String> {
    // What is wrong with its owner is found with the library.
    let known = read_manifest(file, true, None)?;
    let says = if known.is_none() { compare::says(file) } else { None };
    match says {
        Some((group, library)) if examine(&library, true).is_ok_and(|file| file.kind.is_ok()) => {
            read_manifest(file, true, Some(&group))
        }
        _ => Ok(known),
    }
}

/// Checks the library of a manifest, unless that is done. The page of a library has its other manifests too.
fn check_manifest(file: &Path, opening: Opening, done: &mut HashSet<PathBuf>) -> Option<Page> {
    match read(file) {
        Ok(Some(manifest)) => {
            let library = canonical(manifest.library()).unwrap_or_else(|_| manifest.library().into());
            done.insert(library).then(|| check_library(manifest.library(), Some(&manifest), opening))
        }
        Ok(None) => {
            let mut page = Page::new(shown_path(file));
            page.find(Level::Note, format!("`{}` is for another group", shown_path(file)), "");
            Some(page)
        }
        Err(reason) => {
            let mut page = Page::new(shown_path(file));
            let file = canonical(file).unwrap_or_else(|_| file.into());
            page.shared_problem(compare::skipped(&file, &reason));
            Some(page)
        }
    }
}

fn check_library(library: &Path, manifest: Option<&Manifest>, opening: Opening) -> Page {
    let file = match examine(library, opening.any_owner) {
        Ok(file) => file,
        Err(reason) => {
            let mut page = Page::new(shown_path(library));
            let by = manifest.map(|manifest| format!(", which `{}` names", shown_path(manifest.file())));
            page.problem(reason + &by.unwrap_or_default(), "");
            return page;
        }
    };
    let mut page = Page::new(shown_path(&file.path));
    page.fact("size", format_args!("{} bytes", with_commas(file.len)));
    if file.kind.is_ok() {
        page.fact("kind", "a shared library for this system and processor");
    }
    let owner = match &file.trust {
        Ok(()) if opening.any_owner || cfg!(not(unix)) => "not checked",
        Ok(()) => "only root and this user can change it",
        Err(_) => "other users can change it",
    };
    page.fact("owner", owner);
    if let Some(contents) = contents::read(&file.path).filter(|_| file.kind.is_ok()) {
        show_contents(&contents, &mut page);
    }
    let mut is_opened = true;
    for refused in [&file.trust, &file.kind].into_iter().filter_map(|check| check.as_ref().err()) {
        page.problem(refused, "");
        is_opened = false;
    }
    let seen =
        if is_opened { process::inspect(&file.path, How::Load, opening.limit) } else { Seen::default() };
    if is_opened {
        show_seen(&seen, opening.limit, &mut page);
    } else {
        page.fact("opened", "no: programs refuse it");
    }
    // With a library that others can change, a manifest in the same folder has the same problem.
    let opening = Opening { any_owner: opening.any_owner || file.trust.is_err(), ..opening };
    let given = manifest.map(Manifest::file);
    let found = compare::manifests_of(&file, given, opening, &mut page);
    show_link(&file, manifest, &mut page);
    compare::compare(&found, &seen, &file, &mut page);
    page
}

/// Shows the path by which a manifest names its library, if it leads through links.
fn show_link(file: &Examined, manifest: Option<&Manifest>, page: &mut Page) {
    if let Some(manifest) = manifest.filter(|manifest| manifest.library() != file.path) {
        page.fact("link", shown_path(manifest.library()));
    }
}

fn show_contents(contents: &Contents, page: &mut Page) {
    if !contents.needs.is_empty() {
        page.fact("needs", contents.needs.join(", "));
    }
    let (linkme, others): (Vec<_>, Vec<_>) =
        contents.exports.iter().partition(|export| export.is_of_linkme());
    let mut exports = vec![abi::SYMBOL.to_owned()];
    if !linkme.is_empty() {
        exports.push(format!("bounds of sections of `linkme` ({})", linkme.len()));
    }
    exports.extend(others.iter().take(SYMBOLS).map(|export| shown(&export.name)));
    if let Some(more @ 1..) = others.len().checked_sub(SYMBOLS) {
        exports.push(format!("{more} more"));
    }
    page.fact("exports", exports.join(", "));
    if !others.is_empty() {
        let count = match others.len() {
            1 => "a symbol".to_owned(),
            many => format!("{many} symbols"),
        };
        page.find(
            Level::Note,
            format!("the library exports {count} that no program uses"),
            if cfg!(windows) {
                "in C and C++, mark for export only what `device_plugin.h` does, and link without `--export-all-symbols`"
            } else {
                "in C and C++, hide what is not marked for export: `-fvisibility=hidden`"
            },
        );
    }
    if let Some(export) = linkme.iter().find(|export| export.is_interposable) {
        page.find(
            Level::Warning,
            format!(
                "the library exports `{}` with the default visibility: a program that exports the same name could give \
                 the library its own list of backends",
                shown(&export.name)
            ),
            "link with the linker that rustc chooses, or with a version script that exports only `device_plugin_v0`",
        );
    }
    for folder in &contents.search_path {
        show_search_path(folder, page);
    }
    if contents.has_debug_symbols {
        page.find(
            Level::Note,
            "the library has symbols for debuggers, which may take most of its size",
            "the command `strip`, or `strip = true` in the profile of Cargo.toml",
        );
    }
}

/// Where the system looks for what the library needs.
fn show_search_path(folder: &str, page: &mut Page) {
    let shown = shown(folder);
    let beside_library = folder.starts_with("$ORIGIN") || folder.starts_with("${ORIGIN}");
    if Path::new(folder).is_absolute() {
        page.find(
            Level::Warning,
            format!("what the library needs is looked for in `{shown}` (RUNPATH), which other machines may not have"),
            "link without `-rpath`, or with one that begins with `$ORIGIN`, the folder of the library",
        );
    } else if !beside_library {
        page.problem(
            format!(
                "what the library needs is looked for in `{shown}` (RUNPATH), below the current directory"
            ),
            "link without `-rpath`, or with one that begins with `$ORIGIN`, the folder of the library",
        );
    }
}

fn show_seen(seen: &Seen, limit: Duration, page: &mut Page) {
    if let Some((major, minor)) = seen.interface {
        page.fact("interface", format_args!("{major}.{minor}"));
        if compare::offered(&seen.entries).next().is_none() {
            page.problem("the library offers no backend", "");
        }
    }
    for (at, entry) in seen.entries.iter().enumerate() {
        let is_twice = seen.entries[..at].iter().any(|earlier| {
            (&earlier.says.group, &earlier.says.name) == (&entry.says.group, &entry.says.name)
        });
        if is_twice {
            page.problem(format!("the library offers `{}` twice", shown(&entry.says.name)), "");
        }
        show_entry(entry, page);
    }
    if let Some(refused) = &seen.refused {
        page.problem(refused, "");
    }
    if let Some((message, help)) = seen.end.describe(limit) {
        page.problem(message, help);
    }
    let printed: Vec<_> = seen.printed.lines().filter(|line| !line.trim().is_empty()).collect();
    for line in &printed[printed.len().saturating_sub(PRINTED)..] {
        let line: String = line.chars().take(256).flat_map(char::escape_debug).collect();
        page.fact("printed", line);
    }
}

fn show_entry(entry: &Entry, page: &mut Page) {
    let says = &entry.says;
    let [group, name, package, version] =
        [&says.group, &says.name, &says.package, &says.version].map(|text| shown(text));
    page.fact("entry", format_args!("`{name}` of {group}, {package} {version}"));
    if !says.options.is_empty() {
        let names: Vec<_> = says.options.iter().map(|(name, _)| shown(name)).collect();
        page.fact("options", names.join(", "));
    }
    let failed = |failed: &Failed, what: &str, page: &mut Page| match failed {
        Failed { message, unavailable: true } => {
            page.fact("devices", format_args!("unavailable here: {}", escaped(message)));
        }
        Failed { message, .. } => {
            page.problem(format!("backend `{name}`: {what}: {}", escaped(message)), "");
        }
    };
    match &entry.state {
        State::Unknown => {}
        State::Failed(failure) => failed(failure, "cannot load", page),
        State::Loaded(tables) => {
            for (name, line) in describe::functions(tables) {
                page.fact(name, line);
            }
        }
    }
    match &entry.devices {
        Devices::Unknown => {}
        Devices::Failed(failure) => failed(failure, "cannot list its devices", page),
        Devices::Known(0, _) => page.fact("devices", "none here"),
        Devices::Known(count, names) => {
            let names: Vec<_> = names.iter().map(|name| shown(name)).collect();
            let more = if *count > names.len() as u64 { ", …" } else { "" };
            page.fact("devices", format_args!("{count} here: {}{more}", names.join(", ")));
        }
    }
}

/// A message of the library, for one line.
fn escaped(message: &str) -> String {
    message.chars().flat_map(|c| if c.is_control() { c.escape_debug().collect() } else { vec![c] }).collect()
}

fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_groups_of_three() {
        for (number, text) in [(7, "7"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(with_commas(number), text);
        }
    }
}
