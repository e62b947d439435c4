//! The ways in which build tools other than Cargo call rustc: no plugin is lost without an error.
//!
//! Each test compiles a small framework with two plugins by direct calls of rustc, as such a tool would. Only
//! entry-points itself is built by Cargo.

#![cfg(target_os = "linux")]

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, thread};

use device_registry_tests::{Outcome, Project, run};

const FRAMEWORK: &str = r#"
pub use entry_points::{EntryPoint, Group, LoadFailure, autoload, entry_points};

entry_points::group! {
    pub static FILTERS: [EntryPoint<u8>];
    pub fn filters() -> Group<u8> {
        Group::new("filters").autoload_line("filters::autoload!();")
    }
}

entry_points::entry_points! {
    #[distributed_slice(FILTERS)]
    static INVERT: EntryPoint<u8> = EntryPoint::new("invert", || Ok(Box::new(0)));
}

/// Prints the names, and the report on stderr.
pub fn list() {
    for name in filters().names() {
        println!("{name}");
    }
    eprintln!("{}", filters().report());
}
"#;

const MAIN: &str = "filters::autoload!();\nfn main() { filters::list() }\n";

const ALL: [&str; 3] = ["blur", "invert", "sharpen"];

fn plugin(name: &str) -> String {
    let entry = "filters::entry_points! {
        #[distributed_slice(filters::FILTERS)]
        static POINT: filters::EntryPoint<u8> = filters::EntryPoint::new(NAME, || Ok(Box::new(0)));
    }";
    entry.replace("NAME", &format!("{name:?}"))
}

/// The project that builds entry-points, with that library and those that it depends on.
struct Built {
    project: Project,
    entry_points: PathBuf,
    libraries: Vec<PathBuf>,
}

fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| Built::new("build-tools", ""))
}

/// As [`built`], with the feature `inventory`.
fn built_with_inventory() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| Built::new("build-tools-inventory", ", features = [\"inventory\"]"))
}

impl Built {
    fn new(name: &'static str, features: &str) -> Self {
        let entry_points = format!("entry-points = {{ path = \"@crates/entry-points\"{features} }}\n");
        let manifest = format!("[dependencies]\n{entry_points}");
        let project = Project::new(name, &manifest, &[("src/main.rs", "fn main() {}\n")]);
        let outcome = run(&mut project.cargo(["build", "--message-format", "json"])).success();
        let strings = outcome.stdout.split('"');
        let libraries: Vec<_> = strings.filter(|text| text.ends_with(".rlib")).map(PathBuf::from).collect();
        let is_it = |file: &&PathBuf| file.to_string_lossy().contains("libentry_points-");
        let entry_points = libraries.iter().find(is_it).expect("cargo says which files it built").clone();
        Self { project, entry_points, libraries }
    }

    /// Where rustc finds what entry-points depends on.
    fn dependencies(&self) -> String {
        let folder = self.entry_points.parent().expect("it lies in a folder");
        format!("-Ldependency={}", folder.display())
    }
}

/// A folder with the framework, the plugins and the program, and the flags with which all are compiled.
struct Shape {
    built: &'static Built,
    folder: PathBuf,
    flags: &'static [&'static str],
}

impl Shape {
    /// Compiles `filters`, `blur` and `sharpen`.
    #[track_caller]
    fn new(name: &str, flags: &'static [&'static str]) -> Self {
        Self::on(built(), name, flags)
    }

    #[track_caller]
    fn on(built: &'static Built, name: &str, flags: &'static [&'static str]) -> Self {
        let shape = Self { built, folder: built.project.folder().join("target").join(name), flags };
        // What an earlier run left would be found through `-L`.
        let _ = fs::remove_dir_all(&shape.folder);
        fs::create_dir_all(&shape.folder).expect("the folder can be made");
        shape.write("main.rs", MAIN);
        shape.lib("filters", FRAMEWORK, &[]);
        shape.lib("blur", &plugin("blur"), &["filters"]);
        shape.lib("sharpen", &plugin("sharpen"), &["filters"]);
        shape
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).expect("the file can be written");
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.built.project.command(program.as_ref());
        command.current_dir(&self.folder);
        command
    }

    /// rustc with the flags of this shape. Dependencies of dependencies are found by their folder.
    fn rustc(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("rustc");
        command.arg("--edition=2024").args(self.flags).args(arguments);
        command.arg(self.built.dependencies());
        command.arg("-Ldependency=.");
        command
    }

    /// Compiles a library.
    #[track_caller]
    fn lib(&self, name: &str, source: &str, externs: &[&str]) {
        self.write(&format!("{name}.rs"), source);
        let file = format!("{name}.rs");
        let mut command = self.rustc(&["--crate-type=rlib", "--crate-name", name, &file]);
        if name == "filters" {
            command.arg(format!("--extern=entry_points={}", self.built.entry_points.display()));
        }
        command.args(externs.iter().flat_map(|name| with_path(name)));
        let _ = run(&mut command).success();
    }

    /// Compiles `main.rs` with these arguments, and runs the program.
    #[track_caller]
    fn main(&self, arguments: &[&str]) -> Outcome {
        let _ = run(&mut self.rustc(&[&["main.rs"], arguments].concat())).success();
        self.run()
    }

    #[track_caller]
    fn run(&self) -> Outcome {
        run(&mut self.command(self.folder.join("main"))).success()
    }
}

fn with_path(name: &str) -> [String; 2] {
    ["--extern".to_owned(), format!("{name}=lib{name}.rlib")]
}

const FILTERS: &str = "--extern=filters=libfilters.rlib";
const BLUR: &str = "--extern=blur=libblur.rlib";
const SHARPEN: &str = "--extern=sharpen=libsharpen.rlib";

/// What rustc prints if the macro finds no list, or only a part of it.
const ERROR: &str = "`autoload!` cannot find the dependencies of this target";

#[test]
fn crates_given_without_a_path_are_linked() {
    let shape = Shape::new("pathless", &[]);
    let named = ["-L", ".", "--extern", "filters", "--extern=blur", "--extern", "sharpen"];
    assert_eq!(shape.main(&named).lines(), ALL);
    // rustc takes the compiler's own for granted, and so does the line.
    let own = ["--extern", "std", "--extern=proc_macro"];
    assert_eq!(shape.main(&[&own[..], &[FILTERS, BLUR]].concat()).lines(), ["blur", "invert"]);

    // rustdoc passes on what it gets: on the command line, or for merged doctests in a file.
    let doctest = "filters::autoload!();\nfn main() { assert!(filters::filters().get(\"blur\").is_some()); }";
    // From edition 2024 on, the line of one doctest serves all.
    let without_line = doctest.replace("filters::autoload!();", "");
    for (edition, second) in [("--edition=2021", doctest), ("--edition=2024", &*without_line)] {
        shape.write("documented.rs", &format!("/*!\n```\n{doctest}\n```\n\n```\n{second}\n```\n*/\n"));
        let mut command = shape.command("rustdoc");
        command.args(["--test", "documented.rs", edition]).args(&named[..5]);
        command.args(["-L", "."]).arg(shape.built.dependencies());
        run(&mut command).success().shows("2 passed");
    }
}

#[test]
fn a_line_that_no_program_would_find_is_an_error_of_the_library() {
    let shape = Shape::new("nested", &[]);
    let library = ["bundle.rs", "--crate-type=rlib", FILTERS, SHARPEN];
    shape.write("bundle.rs", &format!("mod inner {{ {BUNDLE} }}"));
    let outcome = run(&mut shape.rustc(&library)).failure();
    outcome.shows("in a library, `autoload!` must be at the root of the crate");
    shape.write("bundle.rs", &format!("{BUNDLE}\n{BUNDLE}"));
    run(&mut shape.rustc(&library)).failure().shows("the name `__AUTOLOADED` is defined multiple times");
}

#[test]
fn crates_outside_of_the_extern_prelude_are_linked() {
    let shape = Shape::new("noprelude", &[]);
    let unstable = ["-Zunstable-options", FILTERS, BLUR, "--extern=noprelude:sharpen=libsharpen.rlib"];
    let mut command = shape.rustc(&[&["main.rs"], &unstable[..]].concat());
    let _ = run(command.env("RUSTC_BOOTSTRAP", "1")).success();
    assert_eq!(shape.run().lines(), ALL);
}

#[test]
fn arguments_in_a_file_are_read() {
    let shape = Shape::new("params", &[]);
    shape.write("main.params", &format!("{BLUR}\r\n--extern\r\nsharpen=libsharpen.rlib\r\n"));
    assert_eq!(shape.main(&[FILTERS, "@main.params"]).lines(), ALL);
}

#[test]
fn arguments_in_a_pipe_are_an_error_since_they_cannot_be_read_twice() {
    let shape = Shape::new("pipe", &[]);
    // As `rustc @<(…)` and wrappers do. An IDE's variable makes no IDE of rustc.
    for variable in ["UNUSED", "RUST_ANALYZER_INTERNALS_DO_NOT_USE"] {
        for (outside, inside) in [(FILTERS, format!("{BLUR}\n")), ("-g", format!("{FILTERS}\n{BLUR}\n"))] {
            let mut command = shape.rustc(&["main.rs", outside, "@/dev/stdin"]);
            command.env(variable, "1").stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().expect("rustc can be started");
            let mut pipe = child.stdin.take().expect("it is piped");
            pipe.write_all(inside.as_bytes()).expect("rustc reads it");
            drop(pipe);
            let output = child.wait_with_output().expect("rustc ends");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{variable} {outside}: {stderr}");
            assert!(stderr.contains(ERROR), "{variable} {outside}: {stderr}");
            assert!(
                stderr.contains("`@/dev/stdin` cannot be read again: it is not a regular file"),
                "{stderr}"
            );
        }
    }
}

#[test]
fn arguments_in_a_file_that_is_deleted_early_are_an_error() {
    /// Of Linux on most processors.
    const O_NONBLOCK: i32 = 0o4000;
    let shape = Shape::new("deleted", &[]);
    let _ = run(shape.command("mkfifo").arg("main.params")).success();
    let mut command = shape.rustc(&["main.rs", FILTERS, "@main.params"]);
    let outcome = thread::scope(|scope| {
        let rustc = scope.spawn(move || run(&mut command));
        // Opens when rustc has, which has read all of it only when the file is gone.
        let path = shape.folder.join("main.params");
        let mut file = loop {
            match fs::OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&path) {
                Ok(file) => break file,
                Err(error) if rustc.is_finished() => panic!("rustc has not opened the pipe: {error}"),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        fs::remove_file(&path).expect("the pipe can be deleted");
        file.write_all(BLUR.as_bytes()).expect("rustc reads it");
        drop(file);
        rustc.join().expect("rustc ends")
    });
    outcome.failure().shows(ERROR);
}

#[test]
fn a_program_may_forbid_every_lint_that_an_expansion_could_cause() {
    let shape = Shape::new("forbid", &[]);
    // Not `nonstandard_style`, which inventory's expansion allows.
    let forbid = "#![forbid(unused, unused_imports, dead_code, unsafe_code, missing_docs, unreachable_pub)]\n\
                  #![forbid(rust_2018_idioms, unused_qualifications)]\n#![deny(warnings)]\n";
    shape.write("bundle.rs", &format!("//! A library.\n{forbid}{BUNDLE}"));
    let library = ["bundle.rs", "--crate-type=rlib", FILTERS, SHARPEN];
    let bundle = "--extern=bundle=libbundle.rlib";
    let outcome = run(&mut shape.rustc(&library)).success();
    assert_eq!(outcome.stderr, "");
    shape.write("main.rs", &format!("//! A program.\n{forbid}{MAIN}"));
    let outcome = run(&mut shape.rustc(&["main.rs", FILTERS, BLUR, bundle])).success();
    assert_eq!(outcome.stderr, "");
    assert_eq!(shape.run().lines(), ALL);
}

#[test]
fn no_list_at_all_is_an_error() {
    let shape = Shape::new("no-list", &[]);
    let by_hand = format!("extern crate filters; extern crate blur;\n{MAIN}");
    shape.write("main.rs", &by_hand);
    let outcome = run(&mut shape.rustc(&["main.rs", "-L", "."])).failure();
    outcome.shows(ERROR);
    outcome.shows("the compiler shows no `--extern` list");
    // What the error says to do.
    shape.write("main.rs", &by_hand.replace("autoload!()", "autoload!(only blur, filters)"));
    assert_eq!(shape.main(&["-L", "."]).lines(), ["blur", "invert"]);
}

/// Runs its arguments. With the variable `PIPED`, one crate of the list is in a pipe.
const WRAPPER: &str = r#"#!/usr/bin/env bash
args=() piped=()
while (($#)); do
    if [[ $PIPED && $1 == --extern && $2 == blur=* ]]; then
        piped+=("$1" "$2")
        shift
    else
        args+=("$1")
    fi
    shift
done
if ((${#piped[@]})); then
    exec "${args[@]}" @<(printf '%s\n' "${piped[@]}")
fi
exec "${args[@]}"
"#;

#[test]
fn a_wrapper_around_rustc_loses_nothing_and_one_that_passes_a_pipe_is_an_error() {
    let package = |name: &str, rest: &str| {
        format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[dependencies]\n{rest}")
    };
    let plugin_toml = package("blur", "filters = { path = \"../filters\" }\n");
    let project = Project::new(
        "build-tools-wrapper",
        "[dependencies]\nfilters = { path = \"filters\" }\nblur = { path = \"blur\" }\n",
        &[
            (
                "filters/Cargo.toml",
                &package("filters", "entry-points = { path = \"@crates/entry-points\" }\n"),
            ),
            ("filters/src/lib.rs", FRAMEWORK),
            ("blur/Cargo.toml", &plugin_toml),
            ("blur/src/lib.rs", &plugin("blur")),
            ("src/main.rs", MAIN),
            ("wrapper", WRAPPER),
        ],
    );
    let wrapper = project.folder().join("wrapper");
    let _ = run(project.command("chmod").arg("+x").arg(&wrapper)).success();
    let cargo = |piped: &str| {
        // Cargo does not know that the wrapper reads the variable.
        let _ = run(&mut project.cargo(["clean", "--quiet", "--package", "build-tools-wrapper"])).success();
        let mut command = project.cargo(["run", "--quiet"]);
        run(command.env("RUSTC_WORKSPACE_WRAPPER", &wrapper).env("PIPED", piped))
    };
    assert_eq!(cargo("").success().lines(), ["blur", "invert"]);
    cargo("1").failure().shows(ERROR);
}

/// A library that links `sharpen`.
const BUNDLE: &str = "filters::autoload!();";

#[test]
fn a_library_with_a_line_keeps_its_plugins_when_a_c_compiler_links_the_rlibs() {
    for (name, flags) in [
        ("cc-debug", &["-Cincremental=incremental"][..]),
        ("cc-release", &["-Copt-level=3"]),
        ("cc-units", &["-Copt-level=3", "-Ccodegen-units=256"]),
    ] {
        let shape = Shape::new(name, flags);
        shape.lib("bundle", BUNDLE, &["filters", "sharpen"]);
        shape.write(
            "app.rs",
            &MAIN.replace("fn main()", "#[unsafe(no_mangle)] pub extern \"C\" fn print_filters()"),
        );
        let app = ["app.rs", "--crate-type=rlib", FILTERS, BLUR, "--extern=bundle=libbundle.rlib"];
        let _ = run(&mut shape.rustc(&app)).success();
        // The standard library, and what rustc adds when it links.
        shape.write("std.rs", "");
        let _ = run(&mut shape.rustc(&["std.rs", "--crate-type=staticlib"])).success();
        shape.write("main.c", "void print_filters(void); int main(void) { print_filters(); return 0; }");
        let mut command = shape.command("cc");
        command.args(["main.c", "-o", "main", "-Wl,--gc-sections", "-Wl,--start-group", "libapp.rlib"]);
        command.args(["libfilters.rlib", "libblur.rlib", "libsharpen.rlib", "libbundle.rlib"]);
        command.args(&shape.built.libraries).args(["libstd.a", "-Wl,--end-group"]);
        command.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]);
        let _ = run(&mut command).success();
        assert_eq!(shape.run().lines(), ALL, "{name}");
    }
}

#[test]
fn a_framework_in_a_shared_library_says_so_and_with_inventory_a_program_finds_its_plugins() {
    for (built, expected) in [(built(), None), (built_with_inventory(), Some(ALL))] {
        let shape = Shape::on(built, "dylib", &["-Cprefer-dynamic"]);
        // One shared library with the framework in it, which re-exports the framework.
        shape.write("shared.rs", "pub use filters::*;");
        let _ = run(&mut shape.rustc(&["shared.rs", "--crate-type=dylib", FILTERS])).success();
        let shared = ["--extern=shared=libshared.so", "-Clink-arg=-Wl,-rpath,$ORIGIN"];
        shape.write("main.rs", &MAIN.replace("filters::", "shared::"));
        let standard = run(shape.command("rustc").args(["--print", "target-libdir"])).success();
        let rpath = format!("-Clink-arg=-Wl,-rpath,{}", standard.stdout.trim());
        let outcome = shape.main(&[&shared[..], &[BLUR, SHARPEN, &rpath]].concat());
        match expected {
            Some(all) => {
                assert_eq!(outcome.lines(), all);
                outcome.shows("`entry-points` is in another shared library than an `autoload!` line");
            }
            None => {
                assert_eq!(outcome.lines(), ["invert"]);
                outcome.shows("where there is one, `entry-points` is in another shared library");
                outcome.shows("turn on the feature `inventory`");
            }
        }

        // The same, where the shared library has a line of its own: that of the program is missing.
        let shape = Shape::on(built, "dylib-line", &["-Cprefer-dynamic"]);
        shape.write("shared.rs", "pub use filters::*; filters::autoload!(only blur);");
        let _ = run(&mut shape.rustc(&["shared.rs", "--crate-type=dylib", FILTERS, BLUR])).success();
        shape.write("main.rs", &MAIN.replace("filters::", "shared::"));
        let outcome = shape.main(&[&shared[..], &[SHARPEN, &rpath]].concat());
        if let Some(all) = expected {
            assert_eq!(outcome.lines(), all);
        } else {
            assert_eq!(outcome.lines(), ["blur", "invert"]);
            outcome.shows("no line of the program itself is found");
            outcome.shows("turn on the feature `inventory`");
        }

        // One plugin as a shared library, which holds the framework as well.
        let shape = Shape::on(built, "dylib-plugin", &["-Cprefer-dynamic"]);
        let _ = run(&mut shape.rustc(&["blur.rs", "--crate-type=dylib", FILTERS])).success();
        let blur = "--extern=blur=libblur.so";
        let outcome = shape.main(&[FILTERS, blur, SHARPEN, "-Clink-arg=-Wl,-rpath,$ORIGIN", &rpath]);
        if let Some(all) = expected {
            assert_eq!(outcome.lines(), all);
        } else {
            assert_eq!(outcome.lines(), ["blur", "invert"]);
            outcome.shows("turn on the feature `inventory`");
        }
    }
}
