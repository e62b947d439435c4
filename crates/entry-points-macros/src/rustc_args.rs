//! The `--extern NAME=PATH` list that Cargo passes to rustc for the target being built.
//!
//! rustc links a crate of Cargo.toml only if some path names it (the rustc book, "--extern";
//! rust-lang/cargo#9391). Only this list has the dependencies of the target, with features, target tables,
//! renames and dev-dependencies applied: a renamed dependency has its new name, an optional one is there if
//! its feature is on, and a build-dependency is never there. The compiler's own crates are skipped. No one
//! guarantees that a procedural macro may read rustc's arguments, hence [`Externs::Unknown`] and
//! `autoload!(only …)`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// How rustc lets a program name one of its crates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reach {
    /// By the path `::NAME`.
    Path,
    /// Only by `extern crate NAME`, because of the option `noprelude`.
    ExternCrate,
}

/// The crates of this target, by their names in Rust source code.
pub(crate) type Names = BTreeMap<String, Reach>;

/// The crates of this target, if the host process of the macro shows them.
#[derive(Debug, PartialEq)]
pub(crate) enum Externs {
    Known(Names),
    /// An IDE expands the macro. It has no list, and links nothing.
    Ide,
    /// The host is not an IDE, and shows no list or only a part of it, for this reason. Without an error,
    /// plugins would be lost silently.
    Unknown(String),
}

/// The compiler's own crates. rustc finds them without a path, and Cargo's `-Zbuild-std` passes them with
/// `noprelude`.
const SYSROOT: &[&str] = &[
    "alloc",
    "compiler_builtins",
    "core",
    "panic_abort",
    "panic_unwind",
    "proc_macro",
    "std",
    "sysroot",
    "test",
    "unwind",
];

pub(crate) fn externs() -> Externs {
    let args = args();
    if is_ide(&args, |name| std::env::var_os(name).is_some()) {
        return Externs::Ide;
    }
    expanded(&args, read_again).map_or_else(Externs::Unknown, |args| listed(&args))
}

/// What rustc makes of the crate, as far as its arguments say it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// No other crate can depend on it.
    Final,
    /// Only other crates use it.
    Library,
    /// Both, or an attribute in its source says it.
    Unknown,
}

pub(crate) fn kind() -> Kind {
    arguments().map_or(Kind::Unknown, |args| kind_of(&args))
}

/// The name of the crate. Other build tools than Cargo do not set `CARGO_CRATE_NAME`.
pub(crate) fn crate_name() -> Option<String> {
    let args = arguments()?;
    values(&args, "--crate-name").last().map(str::to_owned)
}

/// Whether the crate is built as a test, so that it has `cfg(test)`.
pub(crate) fn is_test() -> bool {
    arguments().is_some_and(|args| has_cfg_test(&args))
}

/// The arguments, unless some of them cannot be read.
fn arguments() -> Option<Vec<String>> {
    expanded(&args(), read_again).ok()
}

fn args() -> Vec<String> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    if args.is_empty() {
        // musl's start-up code passes no arguments to a shared library, but Linux has them in `/proc`.
        args = proc_self_cmdline();
    }
    // Names of crates are UTF-8. The lossy conversion changes only paths: an argument file with such a path
    // is an error.
    args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

fn proc_self_cmdline() -> Vec<OsString> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    bytes
        .split(|&byte| byte == 0)
        .filter(|arg| !arg.is_empty())
        .map(|arg| String::from_utf8_lossy(arg).into_owned().into())
        .collect()
}

/// Whether this is rust-analyzer's macro server, which RustRover uses too. It refuses to start without the
/// variable, and passes it on to any compiler that it starts. A compiler has at least one argument: its
/// input.
fn is_ide(args: &[String], is_set: impl Fn(&str) -> bool) -> bool {
    let program = args.first().map(|program| Path::new(program).file_stem().unwrap_or_default());
    let is_named = program.is_some_and(|stem| stem.to_string_lossy().starts_with("rust-analyzer"));
    is_named || (args.len() == 1 && is_set("RUST_ANALYZER_INTERNALS_DO_NOT_USE"))
}

/// The text of an argument file, which rustc has read before. A pipe is empty now, or blocks.
fn read_again(path: &str) -> Result<String, String> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err("it is not a regular file".to_owned()),
        Ok(_) => match std::fs::read_to_string(path) {
            // So is a file behind `/dev/stdin` on some systems, or one that its wrapper has cut since.
            Ok(text) if text.is_empty() => Err("it is empty now".to_owned()),
            read => read.map_err(|error| error.to_string()),
        },
        Err(error) => Err(error.to_string()),
    }
}

/// The arguments, with those in argument files: rustc reads one in each line of `@FILE`. rustdoc passes the
/// list of doctests that way.
fn expanded(args: &[String], read: impl Fn(&str) -> Result<String, String>) -> Result<Vec<String>, String> {
    let mut expanded = Vec::new();
    for arg in args {
        let Some(path) = arg.strip_prefix('@') else {
            expanded.push(arg.clone());
            continue;
        };
        let text = match path.strip_prefix("shell:") {
            Some(_) => Err("it has the syntax of a shell".to_owned()),
            None => read(path),
        };
        let text = text.map_err(|why| format!("the argument file `{arg}` cannot be read again: {why}"))?;
        expanded.extend(text.lines().map(str::to_owned));
    }
    Ok(expanded)
}

/// The values of an option: `VALUE` of `OPTION VALUE` and of `OPTION=VALUE`.
fn values<'a>(args: &'a [String], option: &str) -> impl Iterator<Item = &'a str> {
    let mut args = args.iter();
    std::iter::from_fn(move || {
        while let Some(arg) = args.next() {
            match arg.strip_prefix(option) {
                Some("") => return args.next().map(String::as_str),
                Some(rest) if rest.starts_with('=') => return Some(&rest[1..]),
                _ => {}
            }
        }
        None
    })
}

fn listed(args: &[String]) -> Externs {
    let names: Names = values(args, "--extern").filter_map(extern_name).collect();
    // The line itself comes from a crate, so that a list without any is not complete.
    if names.is_empty() {
        return Externs::Unknown("the compiler shows no `--extern` list".to_owned());
    }
    Externs::Known(names)
}

fn has_cfg_test(args: &[String]) -> bool {
    // Cargo passes the second one for a test without a harness.
    args.iter().any(|arg| arg == "--test") || values(args, "--cfg").any(|cfg| cfg == "test")
}

fn kind_of(args: &[String]) -> Kind {
    // From edition 2024 on, rustdoc compiles doctests as modules of one library, and makes one program of it.
    let is_doctests = |arg: &String| {
        Path::new(arg).file_name().is_some_and(|name| name.to_string_lossy().starts_with("doctest_bundle_"))
    };
    if has_cfg_test(args) || args.iter().any(is_doctests) {
        return Kind::Final;
    }
    let types = values(args, "--crate-type").flat_map(|types| types.split(','));
    let (libraries, others): (Vec<_>, Vec<_>) =
        types.partition(|one| matches!(*one, "lib" | "rlib" | "dylib"));
    match (libraries.is_empty(), others.is_empty()) {
        (true, false) => Kind::Final,
        (false, true) => Kind::Library,
        _ => Kind::Unknown,
    }
}

/// The name in `[options:]NAME[=PATH]`, unless it is one of the compiler's own crates.
fn extern_name(value: &str) -> Option<(String, Reach)> {
    let (name, path) = value.split_once('=').map_or((value, None), |(name, path)| (name, Some(path)));
    let (options, name) = name.rsplit_once(':').unwrap_or(("", name));
    let reach =
        if options.split(',').any(|option| option == "noprelude") { Reach::ExternCrate } else { Reach::Path };
    let is_own = SYSROOT.contains(&name) && (path.is_none() || reach == Reach::ExternCrate);
    (!is_own).then(|| (name.to_owned(), reach))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(args: &[&str]) -> Vec<String> {
        args.iter().map(|&arg| arg.to_owned()).collect()
    }

    fn parse(args: &[&str]) -> Externs {
        let expanded = expanded(&owned(args), |path| match path {
            "list.txt" => Ok("--extern\nin_file=/x/libin_file.rlib\n--edition=2024\n".to_owned()),
            _ => Err("gone".to_owned()),
        });
        expanded.map_or_else(Externs::Unknown, |args| listed(&args))
    }

    fn known(args: &[&str]) -> Names {
        match parse(args) {
            Externs::Known(names) => names,
            other => panic!("{other:?}"),
        }
    }

    fn names(args: &[&str]) -> Vec<String> {
        known(args).into_keys().collect()
    }

    #[test]
    fn both_spellings_are_read_and_sorted() {
        let names = names(&["rustc", "--extern", "b=/b.rlib", "--extern=a=/a.rlib", "-L", "x"]);
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn options_are_stripped_and_say_how_the_crate_is_reached() {
        let names = known(&["rustc", "--extern", "priv:a=/a.rlib", "--extern", "noprelude,priv:b=/b.rlib"]);
        assert_eq!(names, [("a".to_owned(), Reach::Path), ("b".to_owned(), Reach::ExternCrate)].into());
    }

    #[test]
    fn a_path_may_hold_colons_and_equal_signs() {
        assert_eq!(names(&["rustc", "--extern", r"a=C:\x=y\liba.rlib"]), ["a"]);
    }

    #[test]
    fn argument_files_are_read() {
        assert_eq!(names(&["rustdoc", "@list.txt", "--extern", "a=/a.rlib"]), ["a", "in_file"]);
    }

    #[test]
    fn an_argument_file_that_cannot_be_read_again_leaves_the_list_unknown() {
        for file in ["@/dev/fd/63", "@shell:list.txt"] {
            let Externs::Unknown(why) = parse(&["rustc", file, "--extern", "a=/a.rlib"]) else {
                panic!("{file}");
            };
            assert!(why.starts_with(&format!("the argument file `{file}` cannot be read again: ")), "{why}");
        }
        let folder = std::env::temp_dir();
        assert_eq!(read_again(&folder.to_string_lossy()), Err("it is not a regular file".to_owned()));
        assert!(read_again(&folder.join("no-such-arguments").to_string_lossy()).is_err());
    }

    #[test]
    fn a_crate_without_a_path_is_linked_unless_it_is_the_compilers_own() {
        assert_eq!(
            names(&["rustc", "--extern", "proc_macro", "--extern", "priv:a", "--extern=b"]),
            ["a", "b"]
        );
        // Cargo's `-Zbuild-std` passes them like this.
        assert_eq!(names(&["rustc", "--extern=a", "--extern", "noprelude:core=/x/libcore.rmeta"]), ["a"]);
        // A dependency may have the name of one.
        assert_eq!(names(&["rustc", "--extern", "test=/x/libtest-1.rlib"]), ["test"]);
    }

    #[test]
    fn no_list_is_not_an_empty_list() {
        for args in [&["rustc", "main.rs"][..], &["rustc", "--extern", "proc_macro", "main.rs"], &[]] {
            assert_eq!(parse(args), Externs::Unknown("the compiler shows no `--extern` list".to_owned()));
        }
    }

    #[test]
    fn an_ide_is_known_by_its_name_or_by_its_variable_and_no_arguments() {
        let is_ide = |args: &[&str], set: bool| {
            super::is_ide(&owned(args), |name| set && name == "RUST_ANALYZER_INTERNALS_DO_NOT_USE")
        };
        assert!(is_ide(&["/opt/native-helper"], true));
        assert!(is_ide(&["/opt/rust-analyzer-proc-macro-srv", "--format", "json"], false));
        assert!(is_ide(&["rust-analyzer.exe", "proc-macro"], true));
        for compiler in ["/usr/bin/rustc", "rustdoc", "/x/clippy-driver", "a-wrapper"] {
            assert!(!is_ide(&[compiler, "src/main.rs"], true), "{compiler}");
        }
        assert!(!is_ide(&["rustc"], false));
        assert!(!is_ide(&[], true), "arguments that cannot be read say nothing");
    }

    #[test]
    fn the_kind_of_a_crate_is_that_of_all_its_types() {
        for (args, expected) in [
            (&["rustc", "--crate-type", "lib"][..], Kind::Library),
            (&["rustc", "--crate-type=rlib,dylib"], Kind::Library),
            (&["rustc", "--crate-type=cdylib,rlib"], Kind::Unknown),
            (&["rustc", "--crate-type=staticlib", "--crate-type", "dylib"], Kind::Unknown),
            (&["rustc", "--crate-type", "bin"], Kind::Final),
            (&["rustc", "--crate-type=proc-macro"], Kind::Final),
            (&["rustc", "--crate-type", "cdylib", "--crate-type", "staticlib"], Kind::Final),
            (&["rustc", "main.rs"], Kind::Unknown),
            (&["rustc", "--test", "lib.rs"], Kind::Final),
            (&["rustc", "--cfg", "test", "tests/own_harness.rs"], Kind::Final),
            (&["rustdoc", "--crate-type=lib", "/tmp/doctests/doctest_bundle_2024.rs"], Kind::Final),
        ] {
            assert_eq!(kind_of(&owned(args)), expected, "{args:?}");
        }
    }
}
