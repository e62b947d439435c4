//! The `--extern NAME=PATH` list that Cargo hands to rustc for exactly the target being built.
//!
//! rustc only *offers* a crate that stands in Cargo.toml; it links the crate when some path names it
//! (the rustc book, "--extern"; rust-lang/cargo#9391). The list is the one place that knows what this target
//! depends on, with features, target tables, renames and dev-dependencies already decided. No one promises
//! that a procedural macro may read its host's arguments, hence [`Externs::Unknown`] and `autoload!(only …)`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

/// What the host process says about the crates of this target.
#[derive(Debug, PartialEq)]
pub(crate) enum Externs {
    /// Names as the source code would write them, sorted.
    Known(BTreeSet<String>),
    /// An IDE expands the macro; it has no list, and nothing is linked.
    Ide,
    /// The host is no IDE and shows no list: saying nothing would lose every plugin in silence.
    Unknown,
}

pub(crate) fn externs() -> Externs {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    if args.is_empty() {
        // A shared library gets no arguments from musl's start-up code; Linux has them all the same.
        args = proc_self_cmdline();
    }
    match from_args(args, |path| std::fs::read_to_string(path).ok()) {
        // Asked last: a list is a list, whatever stands in the environment.
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
        // Names are ASCII; a path that is not Unicode may lose its bytes here without harm.
        let arg = arg.to_string_lossy().into_owned();
        // rustc reads one argument a line from `@file`; rustdoc passes its doctests' list that way.
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

/// The name in `[options:]NAME=PATH`; none for an entry without a path (a crate of the compiler's own) and for
/// one outside the prelude (`noprelude`), which no `::NAME` path could reach.
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
