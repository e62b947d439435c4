//! Files that are no plugin, or whose start goes wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use device_plugin_tests::Manifest;

use crate::support::{compile, folder, mistakes, others_work, plug_in, says, with_remedy};

/// A backend of this file does not load: the message after
/// `backend NAME (PACKAGE VERSION in FILE) failed to load: `.
#[track_caller]
fn does_not_load(manifest: &Manifest<'_>, reason: &str) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("library_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let Manifest { file, package, version, .. } = *manifest;
    let device = manifest.install(&name);
    let place = format!("{package} {version} in {}", file.display());
    let message = format!("backend `{name}` ({place}) failed to load: {reason}");
    says(device.open(), &with_remedy(&name, &message));
    others_work();
}

/// The entry of `start.c`.
fn started(file: &Path) -> Manifest<'_> {
    Manifest { file, entry: "started", package: "starts", version: "1.0.0" }
}

/// The library of `start.c` with a macro.
#[track_caller]
fn start(with: &str) -> PathBuf {
    let name = with.to_lowercase().replace('=', "_");
    compile(&name, "start.c", &[&format!("-D{with}"), "-fvisibility=hidden"])
}

#[track_caller]
fn does_not_start(with: &str, reason: &str) {
    does_not_load(&started(&start(with)), reason);
}

#[test]
fn a_library_without_the_function_is_no_plug_in() {
    for (with, reason) in [
        (
            "NO_SYMBOL",
            "has no backend in it: it does not export `device_plugin_v0`, as a library with `device_plugin::export!` does",
        ),
        (
            "LATER_SYMBOL",
            "is built for another version of the interface: it exports `device_plugin_v1`, and this program needs \
             `device_plugin_v0`",
        ),
    ] {
        let file = start(with);
        does_not_load(&started(&file), &format!("`{}` {reason}", file.display()));
    }
}

#[test]
fn another_major_version_is_an_error() {
    does_not_start("LATER_MAJOR", "expected version 0 of the interface, found 3.3");
}

#[test]
fn a_library_that_cannot_work_says_why() {
    does_not_start("REFUSES", "the licence is missing\ncaused by: the key is under the mat");
    does_not_start("REFUSES_SILENTLY", "`device_plugin_v0` of the plugin returned NULL without a message");
}

#[test]
fn a_table_of_the_library_with_a_size_that_none_has_is_an_error() {
    for size in [0, 1, 8, 12, 4097] {
        does_not_start(
            &format!("SIZE={size}"),
            &format!(
                "the table `dp_plugin` of the plugin has a `struct_size` of {size}, which no table can have: expected the size of the struct in bytes, as by `sizeof`"
            ),
        );
    }
}

#[test]
fn a_table_that_ends_before_the_entries_offers_nothing() {
    let file = start("SIZE=16");
    let shown = file.display();
    does_not_load(
        &started(&file),
        &format!("the manifest is for the entry `started`, and the library {shown} offers no backend"),
    );
}

#[test]
fn entries_that_cannot_be_read_are_an_error() {
    does_not_start("NULL_ENTRIES", "an entry of the plugin is null");
    does_not_start("NULL_ENTRY", "an entry of the plugin is null");
    does_not_start(
        "ODD_ENTRY",
        "an entry of the plugin has a `struct_size` of 13, which no table can have: expected the size of the struct in bytes, as by `sizeof`",
    );
}

#[test]
fn options_that_are_null_are_none_and_a_missing_load_is_an_error() {
    does_not_start(
        "NULL_OPTIONS",
        "the plugin does not have the function `dp_plugin.load`, which is required",
    );
}

#[test]
fn an_entry_that_the_library_does_not_have_is_an_error() {
    for with in ["STRANGER", "NO_ENTRIES"] {
        let file = start(with);
        let shown = file.display();
        does_not_load(
            &started(&file),
            &format!("the manifest is for the entry `started`, and the library {shown} offers no backend"),
        );
    }
}

#[test]
fn only_what_a_library_exports_can_be_loaded() {
    // The library has its own copy of `cpu`.
    let file = plug_in("openreg_file");
    let shown = file.display();
    does_not_load(
        &Manifest { file: &file, entry: "cpu", package: "device-registry", version: "0.1.0" },
        &format!(
            "the manifest is for the entry `cpu`, and the library {shown} offers `openreg`: set `entry` in the manifest to \
             that, and `name` as you like"
        ),
    );
}

#[test]
fn a_manifest_of_another_package_or_version_is_an_error() {
    let file = mistakes();
    for (package, version) in [("errors", "1.0.0"), ("mistakes", "1.0.1")] {
        does_not_load(
            &Manifest { file, entry: "sound", package, version },
            &format!(
                "the manifest is of {package} {version}, and the library {} of mistakes 1.0.0: print a new manifest \
                 with `devices plugin manifest`",
                file.display()
            ),
        );
    }
}

#[test]
fn a_file_that_is_not_there_cannot_be_opened() {
    let file = folder().join("libnowhere.so");
    let error = started(&file).install("nowhere").open().unwrap_err().to_string();
    let expected = format!("cannot open `{}`, which the manifest `", file.display());
    assert!(error.contains(&expected), "{error}");
    assert!(
        error.contains(
            "nowhere.plugin.json` names: No such file or directory (os error 2); DEVICE_BACKEND_DISABLE="
        ),
        "{error}"
    );
    others_work();
}

#[test]
fn a_file_that_is_no_library_is_not_opened() {
    let text = "This is not a library, but its text is long enough for a header.";
    for (name, content, what) in [
        ("text", text, format!("is a text that begins with `{text}`")),
        ("archive", "!<arch>\n", "is a static library".to_owned()),
    ] {
        let file = folder().join(format!("lib{name}.so"));
        fs::write(&file, content).unwrap();
        let expected = "expected a shared library of Linux or BSD (ELF) for x86_64";
        does_not_load(&started(&file), &format!("`{}` {what}; {expected}", file.display()));
    }
}

#[test]
fn a_half_copied_library_is_not_opened() {
    let whole = fs::read(mistakes()).unwrap();
    let file = folder().join("libhalf.so");
    fs::write(&file, &whole[..100]).unwrap();
    does_not_load(
        &started(&file),
        &format!(
            "`{}` is damaged or was copied in part: Invalid ELF program header size or alignment",
            file.display()
        ),
    );
}

#[test]
fn a_symbol_that_is_not_found_is_named_before_any_code_runs() {
    let file = start("UNRESOLVED");
    let shown = file.display();
    does_not_load(
        &started(&file),
        &format!("cannot open the library {shown}: undefined symbol: a_function_that_no_library_has"),
    );
}

#[test]
fn a_library_that_another_one_needs_is_named() {
    let needed = compile("needed", "start.c", &["-DNO_SYMBOL"]);
    let needed_path = needed.to_str().unwrap();
    let file = compile("needs", "start.c", &["-DNO_ENTRIES", "-Wl,--no-as-needed", needed_path]);
    fs::remove_file(&needed).unwrap();
    let shown = file.display();
    does_not_load(
        &started(&file),
        &format!(
            "cannot open the library {shown}: {needed_path}: cannot open shared object file: No such file or \
             directory"
        ),
    );
}
