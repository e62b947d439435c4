//! C programs that use a Rust library: backends are found in there too.
//!
//! rustc links a `cdylib` itself, and keeps what is registered. A `staticlib` is linked by a C linker, which
//! takes from the archive only the object files that something refers to. So there it matters where
//! `autoload!` stands: the object file it is in has to be needed for another reason, such as a function that
//! C calls.

#![cfg(target_os = "linux")]

use std::path::PathBuf;

use device_registry_tests::{Outcome, Project, artifacts, run};

/// The function that the C programs call: prints the name of each backend that loads, and the error for an
/// unknown name.
const EXPORTED: &str = r#"
#[unsafe(no_mangle)]
pub extern "C" fn print_backends() {
    for (entry, loaded) in device_registry::backends().load_all() {
        match loaded {
            Ok(_) => println!("{}", entry.name()),
            Err(error) => println!("{}: {error}", entry.name()),
        }
    }
    if let Err(error) = device_registry::backends().load("unknown") {
        eprintln!("{error}");
    }
}
"#;

const DYNAMIC_MAIN: &str = r#"
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    void (*print)(void) = library ? (void (*)(void))dlsym(library, "print_backends") : NULL;
    if (!print) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    print();
    return 0;
}
"#;

const STATIC_MAIN: &str = "
void print_backends(void);

int main(void) {
    print_backends();
    return 0;
}
";

/// A library with two ways of registering: device-alpha by the block, device-bare by linkme's attribute.
fn library(name: &'static str, kind: &str, files: &[(&str, &str)]) -> Project {
    let manifest = format!(
        r#"
[lib]
crate-type = ["{kind}"]

[dependencies]
device-registry = {{ path = "@crates/device-registry" }}
device-alpha = {{ path = "@fixtures/device-alpha" }}
device-bare = {{ path = "@fixtures/device-bare" }}
"#
    );
    Project::new(name, &manifest, files)
}

const BLOCK: [&str; 3] = ["alpha", "alpha_deep", "cpu"];
const BLOCK_AND_BARE: [&str; 6] = ["alpha", "alpha_deep", "bare", "bare_inner", "bare_outer", "cpu"];

const DEBUG: &[&str] = &["build"];
const RELEASE: &[&str] = &["build", "--release"];

/// Builds the library with these arguments of cargo's; returns where it lies.
#[track_caller]
fn built(project: &Project, build: &[&str], extension: &str) -> PathBuf {
    let _ = run(&mut project.cargo(build)).success();
    let profile = if build.contains(&"--release") { "release" } else { "debug" };
    let name = project.name().replace('-', "_");
    artifacts().join(profile).join(format!("lib{name}.{extension}"))
}

/// Compiles and links `main.c` of the project with these arguments, and runs the program.
#[track_caller]
fn run_c(project: &Project, link: &[&str], arguments: &[PathBuf]) -> Outcome {
    let program = project.folder().join("main");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = project.command(compiler);
    command.args(["main.c", "-o"]).arg(&program).args(link);
    let _ = run(&mut command).success();
    run(project.command(program).args(arguments)).success()
}

#[track_caller]
fn run_dynamic(project: &Project, build: &[&str]) -> Outcome {
    let library = built(project, build, "so");
    run_c(project, &["-ldl"], &[library])
}

#[track_caller]
fn run_static(project: &Project, build: &[&str], whole_archive: bool) -> Outcome {
    let library = built(project, build, "a").display().to_string();
    let whole = ["-Wl,--whole-archive", &*library, "-Wl,--no-whole-archive"];
    let library = if whole_archive { &whole[..] } else { &whole[1..2] };
    // What `rustc --print native-static-libs` prints on Linux.
    let system = ["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];
    run_c(project, &[&["-Wl,--gc-sections"], library, &system].concat(), &[])
}

#[track_caller]
fn a_cdylib_has_its_backends(name: &'static str, build: &[&str]) {
    let autoload = format!("device_registry::autoload!();\n{EXPORTED}");
    let project = library(name, "cdylib", &[("src/lib.rs", &autoload), ("main.c", DYNAMIC_MAIN)]);
    assert_eq!(run_dynamic(&project, build).lines(), BLOCK_AND_BARE);

    project.write("src/lib.rs", EXPORTED);
    assert_eq!(run_dynamic(&project, build).lines(), ["cpu"]);
}

#[test]
fn a_cdylib_that_a_c_program_loads_has_its_backends() {
    a_cdylib_has_its_backends("c-cdylib", DEBUG);
}

#[test]
#[ignore = "slow: an optimised build of all dependencies"]
fn an_optimised_cdylib_has_its_backends_too() {
    a_cdylib_has_its_backends("c-cdylib-release", RELEASE);
}

#[track_caller]
fn a_staticlib_has_what_blocks_registered(name: &'static str, build: &[&str]) {
    let autoload = format!("device_registry::autoload!();\n{EXPORTED}");
    let project = library(name, "staticlib", &[("src/lib.rs", &autoload), ("main.c", STATIC_MAIN)]);
    // Nothing in the archive refers to what linkme's bare attribute registered in another crate.
    assert_eq!(run_static(&project, build, false).lines(), BLOCK);
    assert_eq!(run_static(&project, build, true).lines(), BLOCK_AND_BARE);

    // Naming the crates is not enough here: it makes them part of the archive, and no more.
    let by_hand = format!("extern crate device_alpha as _;\nextern crate device_bare as _;\n{EXPORTED}");
    project.write("src/lib.rs", &by_hand);
    assert_eq!(run_static(&project, build, false).lines(), ["cpu"]);
}

#[test]
fn a_staticlib_in_a_c_program_has_what_blocks_registered() {
    a_staticlib_has_what_blocks_registered("c-staticlib", DEBUG);
}

#[test]
#[ignore = "slow: an optimised build of all dependencies"]
fn an_optimised_staticlib_has_what_blocks_registered_too() {
    a_staticlib_has_what_blocks_registered("c-staticlib-release", RELEASE);
}

/// `autoload!` in lib.rs, and what C calls in another module.
#[track_caller]
fn apart(name: &'static str) -> Project {
    library(
        name,
        "staticlib",
        &[
            ("src/lib.rs", "device_registry::autoload!();\nmod exported;\n"),
            ("src/exported.rs", EXPORTED),
            ("main.c", STATIC_MAIN),
        ],
    )
}

#[test]
fn a_staticlib_with_autoload_in_a_module_that_c_does_not_call_reports_that_it_has_no_backends() {
    let project = apart("c-apart");
    // An incremental build has one object file for each module, and C needs only the other one.
    let outcome = run_static(&project, DEBUG, false);
    assert_eq!(outcome.lines(), ["cpu"]);
    outcome.shows("no `autoload!` line is found");
    outcome.shows("in a staticlib, in the module of a function that C calls");

    assert_eq!(run_static(&project, DEBUG, true).lines(), BLOCK_AND_BARE);

    project.write("src/exported.rs", &format!("device_registry::autoload!();\n{EXPORTED}"));
    assert_eq!(run_static(&project, DEBUG, false).lines(), BLOCK);
}

#[test]
#[ignore = "slow: an optimised build of all dependencies"]
fn an_optimised_staticlib_with_autoload_in_a_module_that_c_does_not_call_is_never_silent() {
    // With 0.1 kB of code, rustc puts both modules into one object file, and all backends are found. That is
    // rustc's choice. The promise is only that missing backends are reported.
    let project = apart("c-apart-release");
    let outcome = run_static(&project, RELEASE, false);
    if outcome.lines() != BLOCK {
        assert_eq!(outcome.lines(), ["cpu"]);
        outcome.shows("no `autoload!` line is found");
    }
    assert_eq!(run_static(&project, RELEASE, true).lines(), BLOCK_AND_BARE);
}

#[test]
#[ignore = "slow: an optimised build of all dependencies"]
fn a_staticlib_with_fat_lto_has_everything_wherever_autoload_stands() {
    let project = apart("c-fat");
    let build = ["build", "--release", "--config", "profile.release.lto=\"fat\""];
    // One object file holds the whole library.
    assert_eq!(run_static(&project, &build, false).lines(), BLOCK_AND_BARE);
}

/// A `staticlib` that depends on device-alpha through a library with an `autoload!` line, and through a
/// facade that re-exports device-beta by name.
#[track_caller]
fn a_staticlib_has_the_backends_of_its_libraries(name: &'static str, build: &[&[&str]]) {
    let manifest = r#"
[lib]
crate-type = ["staticlib"]

[dependencies]
device-registry = { path = "@crates/device-registry" }
@name-bundle = { path = "bundle" }
@name-facade = { path = "facade" }
"#;
    let library = |name: &str, backend: &str| {
        format!(
            "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[dependencies]\n\
             device-registry = {{ path = \"@crates/device-registry\" }}\n\
             {backend} = {{ path = \"@fixtures/{backend}\" }}\n"
        )
    };
    let project = Project::new(
        name,
        manifest,
        &[
            ("bundle/Cargo.toml", &library("@name-bundle", "device-alpha")),
            ("bundle/src/lib.rs", "device_registry::autoload!();\n"),
            ("facade/Cargo.toml", &library("@name-facade", "device-beta")),
            ("facade/src/lib.rs", "device_registry::autoload!();\npub use device_beta as beta;\n"),
            ("src/lib.rs", &format!("device_registry::autoload!();\n{EXPORTED}")),
            ("main.c", STATIC_MAIN),
        ],
    );
    for build in build {
        let outcome = run_static(&project, build, false);
        assert_eq!(outcome.lines(), ["alpha", "alpha_deep", "beta", "cpu"], "{build:?}");
    }
}

#[test]
fn a_staticlib_has_the_backends_of_a_library_with_a_line_of_its_own() {
    let units = |units: &'static str| ["build", "--config", units];
    a_staticlib_has_the_backends_of_its_libraries(
        "c-bundle",
        &[DEBUG, &units("profile.dev.codegen-units=16")[..], &units("profile.dev.incremental=false")],
    );
}

#[test]
#[ignore = "slow: an optimised build of all dependencies"]
fn an_optimised_staticlib_has_the_backends_of_a_library_with_a_line_of_its_own() {
    let units = |units: &'static str| ["build", "--release", "--config", units];
    a_staticlib_has_the_backends_of_its_libraries(
        "c-bundle-release",
        &[
            RELEASE,
            &units("profile.release.codegen-units=1")[..],
            &units("profile.release.codegen-units=256"),
        ],
    );
}
