//! The macros' errors at compile time.

use device_registry_tests::{Project, run};

const MANIFEST: &str = "
[dependencies]
device-registry = { path = \"@crates/device-registry\" }
";

/// Enough for a backend; each mistake is added to it.
const BACKEND: &str = "
use device_registry::backend::{BACKENDS, Backend, BackendDescriptor, LoadFailure};

pub fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Err(LoadFailure::unavailable(\"never\"))
}

fn main() {
    let _ = BACKENDS;
}
";

/// Each mistake, and a part of what is said about it.
const MISTAKES: &[(&str, &str)] = &[
    (
        "device_registry::backend::entry_points! { pub static X: BackendDescriptor = BackendDescriptor::new(\"x\", load); }",
        "expected `#[distributed_slice(GROUP)]` on each entry point, found `pub`",
    ),
    (
        "device_registry::backend::entry_points! { #[distributed_slice] pub static X: BackendDescriptor = BackendDescriptor::new(\"x\", load); }",
        "expected the group, as in `distributed_slice(GROUP)`",
    ),
    (
        "device_registry::backend::entry_points! { #[distributed_slice(BACKENDS)] pub const X: BackendDescriptor = BackendDescriptor::new(\"x\", load); }",
        "expected `static`, found `const`",
    ),
    (
        "device_registry::backend::entry_points! { #[distributed_slice(BACKENDS)] static X: BackendDescriptor = BackendDescriptor::new(\"x\", load) }",
        "expected `;` after the value of the static",
    ),
    (
        "device_registry::backend::entry_points! { #[distributed_slice(BACKENDS)] static X: BackendDescriptor = BackendDescriptor::new(\"My-GPU\", load); }",
        "invalid name of an entry point: expected 1 to 32 bytes of a-z, 0-9 and _",
    ),
    (
        "mod inner { use super::*; device_registry::backend::entry_points! { #[distributed_slice(BACKENDS)] static X: BackendDescriptor = BackendDescriptor::new(\"x\", load); } }",
        "must be at the root of the crate, where `autoload!` looks for it; in a test or a program, pass the \
         plugin to the group's `register` instead, or `include!` the file at the root",
    ),
    (
        "device_registry::backend::entry_points! { #[distributed_slice(BACKENDS)] static X: BackendDescriptor = BackendDescriptor::new(\"x\", || Ok(Box::new(7))); }",
        "the trait `device_registry::backend::Backend` is not implemented for",
    ),
    ("device_registry::autoload!(onyl device_a);", "expected `only a, b` or `except a, b`, found `onyl`"),
    ("device_registry::autoload!(only device-a);", "expected the name of a crate with underscores"),
    ("device_registry::autoload!(only device_a device_b);", "expected `,`, found `device_b`"),
    ("device_registry::autoload!(only device_a);", "no external crate `device_a`"),
];

#[test]
fn each_mistake_is_an_error_at_its_own_line() {
    let project = Project::new("macro-errors", MANIFEST, &[("src/main.rs", BACKEND)]);
    let check = || run(&mut project.cargo(["check", "--quiet"]));
    let _ = check().success();
    for (mistake, error) in MISTAKES {
        project.write("src/main.rs", &format!("{BACKEND}\n{mistake}\n"));
        let outcome = check().failure();
        outcome.shows(error);
        // At the user's own line, not somewhere in a macro.
        outcome.shows("--> src/main.rs:12:");
    }
}

#[test]
fn errors_call_the_users_crates_by_their_names() {
    // `autoload!` names every crate once more, and rustc could call it by that name.
    let mistake = "device_registry::autoload!();\nfn wrong() -> device_registry::Device { 7 }";
    let project =
        Project::new("macro-names", MANIFEST, &[("src/main.rs", &format!("{BACKEND}\n{mistake}\n"))]);
    let outcome = run(&mut project.cargo(["check", "--quiet"])).failure();
    outcome.shows("expected `Device`, found integer");
    assert!(!outcome.stderr.contains("_::"), "{}", outcome.stderr);
}
