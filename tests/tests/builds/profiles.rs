//! No way of building a program loses a backend: neither optimisation across crates, nor leaving out what
//! nothing refers to, nor stripping.

use device_registry_tests::{LIST, Project, run};

/// Builds a program with this `[profile.release]`; it has to find what blocks and linkme's attribute
/// registered, at the root of a crate and deep in its modules.
#[track_caller]
fn keeps_every_backend(name: &'static str, profile: &str) {
    let manifest = format!(
        r#"
[dependencies]
device-registry = {{ path = "@crates/device-registry" }}
device-alpha = {{ path = "@fixtures/device-alpha" }}
device-bare = {{ path = "@fixtures/device-bare" }}

[profile.release]
{profile}
"#
    );
    let main = format!("device_registry::autoload!();\n{LIST}");
    let project = Project::new(name, &manifest, &[("src/main.rs", &main)]);
    let outcome = run(&mut project.cargo(["run", "--quiet", "--release"])).success();
    assert_eq!(outcome.lines(), ["alpha", "alpha_deep", "bare", "bare_inner", "bare_outer", "cpu"]);
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn a_release_build_keeps_every_backend() {
    keeps_every_backend("profile-release", "");
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn thin_lto_keeps_every_backend() {
    keeps_every_backend("profile-lto-thin", "lto = \"thin\"");
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn fat_lto_keeps_every_backend() {
    keeps_every_backend("profile-lto-fat", "lto = \"fat\"");
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn a_single_codegen_unit_keeps_every_backend() {
    keeps_every_backend("profile-one-unit", "codegen-units = 1");
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn many_codegen_units_keep_every_backend() {
    keeps_every_backend("profile-many-units", "codegen-units = 256\nincremental = true");
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn optimising_for_size_keeps_every_backend() {
    keeps_every_backend("profile-size", "opt-level = \"z\"");
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn stripping_keeps_every_backend() {
    keeps_every_backend("profile-strip", "strip = \"symbols\"");
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn aborting_on_panic_keeps_every_backend() {
    keeps_every_backend("profile-abort", "panic = \"abort\"");
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn all_of_it_at_once_keeps_every_backend() {
    keeps_every_backend(
        "profile-extremes",
        "opt-level = \"z\"\nlto = \"fat\"\ncodegen-units = 1\nstrip = \"symbols\"\npanic = \"abort\"",
    );
}
