//! The macros cause no warning in a crate that is strict with itself, and none that forbids `unsafe`.

use std::process::Command;

use device_registry_tests::{Outcome, Project, run};

/// Every lint that users are known to turn on, and those that the expansions would be likely to trip.
const STRICT: &str = "
#![forbid(clippy::wildcard_imports, unsafe_code, unused_imports)]
#![deny(
    warnings,
    future_incompatible,
    let_underscore_drop,
    missing_debug_implementations,
    missing_docs,
    nonstandard_style,
    rust_2018_idioms,
    single_use_lifetimes,
    trivial_casts,
    trivial_numeric_casts,
    unreachable_pub,
    unused,
    unused_crate_dependencies,
    unused_extern_crates,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::absolute_paths,
    clippy::undocumented_unsafe_blocks
)]
";

/// A program and a backend, each with every macro that it would use.
#[track_caller]
fn check(name: &'static str, subcommand: &str) -> Outcome {
    let backend = format!(
        "//! A backend.\n{STRICT}{}",
        r#"
use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};

device_registry::backend::entry_points! {
    /// A backend that is found.
    #[distributed_slice(BACKENDS)]
    pub static STRICT: BackendDescriptor = BackendDescriptor::new("strict", load);

    #[cfg(unix)]
    #[distributed_slice(BACKENDS)]
    static PRIVATE: BackendDescriptor = BackendDescriptor::new("private", || Err(LoadFailure::new("never")));
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Err(LoadFailure::unavailable("it is there to be compiled"))
}
"#
    );
    let main = format!(
        "//! A program.\n{STRICT}{}",
        r#"
device_registry::autoload!();

fn main() {
    println!("{}", device_registry::backends().report());
}
"#
    );
    let manifest = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
@name-backend = { path = "backend" }
"#;
    let backend_manifest = r#"
[package]
name = "@name-backend"
edition = "2024"

[dependencies]
device-registry = { path = "@crates/device-registry" }
"#;
    let project = Project::new(
        name,
        manifest,
        &[("src/main.rs", &main), ("backend/Cargo.toml", backend_manifest), ("backend/src/lib.rs", &backend)],
    );
    run(&mut project.cargo([subcommand, "--workspace"])).success()
}

#[test]
fn the_macros_cause_no_warning_in_a_strict_crate() {
    let outcome = check("lints-rustc", "check");
    assert!(!outcome.stderr.contains("warning"), "{}", outcome.stderr);
}

#[test]
#[ignore = "needs a tool: clippy"]
fn the_macros_cause_no_warning_of_clippy_in_a_strict_crate() {
    let there = Command::new("cargo").args(["clippy", "--version"]).output();
    if there.is_ok_and(|output| output.status.success()) {
        let outcome = check("lints-clippy", "clippy");
        assert!(!outcome.stderr.contains("warning"), "{}", outcome.stderr);
    } else {
        eprintln!("skipped: clippy is not installed: `rustup component add clippy`");
    }
}
