//! The `--extern NAME=PATH` list that Cargo passes to rustc for the target being built.
//!
//! rustc links a crate of Cargo.toml only if some path names it (the rustc book, "--extern"; rust-lang/cargo#9391).
//! Only this list has the dependencies of the target, with features, target tables, renames and dev-dependencies
//! applied: a renamed dependency has its new name, an optional one is there if its feature is on, and a build-dependency is
//! never there. Crates of the compiler and those marked `noprelude` are skipped. No one guarantees that a procedural macro may read rustc's arguments, hence [`Externs::Unknown`] and
//! `autoload!(only …)`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

/// The crates of this target, if the host process of the macro shows them.
#[derive(Debug, PartialEq)]
pub(crate) enum Externs {
    /// The names in Rust source code, sorted.
    Known(BTreeSet<String>),
    /// An IDE expands the macro. It has no list, and links nothing.
    Ide,
    /// The host is not an IDE and shows no list. Without an error, every plugin would be lost silently.
    Unknown,
}

pub(crate) fn externs() -> Externs {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    if args.is_empty() {
        // musl's start-up code passes no arguments to a shared library, but Linux has them in `/proc`.
        args = proc_self_cmdline();
    }
    match from_args(args, |path| std::fs::read_to_string(path).ok()) {
        // Checked last: a list counts even if the environment looks like an IDE's.
        Externs::Unknown if is_ide(|name| std::env::var_os(name).is_some(), std::env::args_os().next()) => {
            Externs::Ide
        }
        externs => externs,
    }
}

/// rust-analyzer's macro server (RustRover uses it too) refuses to start without this variable.
fn is_ide(is_set: impl Fn(&str) -> bool, program: Option<OsString>) -> bool {
    let program = program.unwrap_or_default();
    let stem = Path::new(&program).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    is_set("RUST_ANALYZER_INTERNALS_DO_NOT_USE") || stem.is_some_and(|stem| stem.starts_with("rust-analyzer"))
}

fn proc_self_cmdline() -> Vec<OsString> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    bytes
        .split(|&byte| byte == 0)
        .filter(|arg| !arg.is_empty())
        .map(|arg| String::from_utf8_lossy(arg).into_owned().into())
        .collect()
}

fn from_args(args: Vec<OsString>, read: impl Fn(&str) -> Option<String>) -> Externs {
    let mut expanded = Vec::new();
    for arg in args {
        // Names are ASCII. The lossy conversion changes only paths, which are not used.
        let arg = arg.to_string_lossy().into_owned();
        // rustc reads one argument per line from `@file`. rustdoc passes the list of doctests that way.
        match arg.strip_prefix('@').and_then(&read) {
            Some(file) => expanded.extend(file.lines().map(str::to_owned)),
            None => expanded.push(arg),
        }
    }

    let mut names = BTreeSet::new();
    let mut seen = false;
    let mut args = expanded.iter();
    while let Some(arg) = args.next() {
        let value =
            if arg == "--extern" { args.next().map(String::as_str) } else { arg.strip_prefix("--extern=") };
        if let Some(value) = value {
            seen = true;
            names.extend(extern_name(value));
        }
    }
    if seen { Externs::Known(names) } else { Externs::Unknown }
}

/// The name in `[options:]NAME=PATH`. `None` for a crate without a path, which is the compiler's own, and for one
/// with the option `noprelude`, which a path `::NAME` cannot reach.
fn extern_name(value: &str) -> Option<String> {
    let (name, _path) = value.split_once('=')?;
    let (options, name) = name.rsplit_once(':').unwrap_or(("", name));
    let reachable = !options.split(',').any(|option| option == "noprelude");
    reachable.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(args: &[&str]) -> Vec<String> {
        match parse(args) {
            Externs::Known(names) => names.into_iter().collect(),
            other => panic!("{other:?}"),
        }
    }

    fn parse(args: &[&str]) -> Externs {
        from_args(args.iter().map(OsString::from).collect(), |path| {
            (path == "list.txt").then(|| "--extern\nin_file=/x/libin_file.rlib\n--edition=2024\n".to_owned())
        })
    }

    #[test]
    fn both_spellings_are_read_and_sorted() {
        let names = known(&["rustc", "--extern", "b=/b.rlib", "--extern=a=/a.rlib", "-L", "x"]);
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn options_are_stripped_and_unreachable_crates_skipped() {
        let names = known(&["rustc", "--extern", "priv:a=/a.rlib", "--extern", "noprelude,priv:b=/b.rlib"]);
        assert_eq!(names, ["a"]);
    }

    #[test]
    fn a_path_may_hold_colons_and_equal_signs() {
        assert_eq!(known(&["rustc", "--extern", r"a=C:\x=y\liba.rlib"]), ["a"]);
    }

    #[test]
    fn argument_files_are_read() {
        assert_eq!(known(&["rustdoc", "@list.txt", "--extern", "a=/a.rlib"]), ["a", "in_file"]);
    }

    #[test]
    fn a_crate_without_a_path_is_the_compilers_own() {
        assert_eq!(known(&["rustc", "--extern", "proc_macro"]), [""; 0]);
    }

    #[test]
    fn no_list_is_not_an_empty_list() {
        assert_eq!(parse(&["server"]), Externs::Unknown);
        assert_eq!(parse(&[]), Externs::Unknown);
    }

    #[test]
    fn an_ide_is_known_by_its_variable_or_its_name() {
        let variable = |name: &str| name == "RUST_ANALYZER_INTERNALS_DO_NOT_USE";
        assert!(is_ide(variable, None));
        assert!(is_ide(|_| false, Some("/opt/rust-analyzer-proc-macro-srv".into())));
        assert!(!is_ide(|_| false, Some("/usr/bin/rustc".into())));
        assert!(!is_ide(|_| false, None));
    }
}
