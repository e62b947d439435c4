//! Two of what there should be one of. Two versions of device-registry would split the registry without a
//! word: that is refused, by Cargo or else by the compiler. Two crates with a slice of one name both work.

use std::path::Path;

use device_registry_tests::{LIST, Outcome, Project, files_in, run};

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\"");
const LINKS: &str = "links = \"device_registry\"\n";

/// The workspace's library crates once more, as version 0.9.0, below the folder `other` of a project.
fn other_version() -> Vec<(String, String)> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = package.parent().unwrap_or(package);
    let read = |file: &Path| std::fs::read_to_string(file).expect("the workspace's sources can be read");

    let manifest = read(&workspace.join("Cargo.toml"));
    let members = manifest.find("members = [").expect("it is a workspace");
    let end = members + manifest[members..].find(']').expect("the list has an end");
    let manifest = format!("{}members = [{}", &manifest[..members], &manifest[end..]);
    let mut files = vec![("other/Cargo.toml".to_owned(), manifest.replace(VERSION, "0.9.0\""))];
    for name in ["device-registry", "entry-points", "entry-points-macros"] {
        for file in files_in(&workspace.join("crates").join(name)) {
            let path = file.strip_prefix(workspace).expect("it lies below");
            files.push((format!("other/{}", path.display()), read(&file)));
        }
    }
    files
}

/// A program on this version of device-registry, with a backend that was built for the other one.
fn program_with_a_backend_for(name: &'static str, mut other: Vec<(String, String)>) -> Project {
    // It says what went wrong in its report, and finds what it can.
    let main = format!(
        "device_registry::autoload!();\n{}",
        LIST.replace(
            "fn main() {",
            "fn main() {\n    eprintln!(\"{}\", device_registry::backends().report());"
        )
    );
    let backend = include_str!("../../fixtures/device-beta/src/lib.rs");
    other.extend(
        [
            (
                "backend/Cargo.toml",
                "[package]\nname = \"@name-backend\"\nedition = \"2024\"\n\n[dependencies]\n\
                 device-registry = { path = \"../other/crates/device-registry\" }\n",
            ),
            ("backend/src/lib.rs", backend),
            ("src/main.rs", &main),
        ]
        .map(|(path, text)| (path.to_owned(), text.to_owned())),
    );
    // Continues `[workspace]`. Otherwise the other version would be a member of this workspace, and inherit
    // from it.
    let manifest = r#"
exclude = ["other"]

[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
@name-backend = { path = "backend" }
"#;
    let files: Vec<_> = other.iter().map(|(path, text)| (&**path, &**text)).collect();
    Project::new(name, manifest, &files)
}

fn edit(files: &mut [(String, String)], path: &str, from: &str, to: &str) {
    let (_, text) = files.iter_mut().find(|(at, _)| at == path).expect("the file is part of the workspace");
    assert!(text.contains(from), "{path} has no {from:?}");
    *text = text.replace(from, to);
}

fn build(project: &Project) -> Outcome {
    run(&mut project.cargo(["run", "--quiet"]))
}

#[test]
fn cargo_refuses_two_versions_of_device_registry() {
    let project = program_with_a_backend_for("versions-cargo", other_version());
    let outcome = build(&project).failure();
    outcome.shows("Only one package in the dependency graph may specify the same links value");
    outcome.shows("links to `device_registry`");
}

#[test]
fn a_backend_for_another_version_does_not_compile() {
    // As far as Cargo knows, they have nothing to do with each other.
    let mut other = other_version();
    edit(&mut other, "other/crates/device-registry/Cargo.toml", LINKS, "");
    let project = program_with_a_backend_for("versions-rustc", other);
    let outcome = build(&project).failure();
    outcome.shows("error[E0308]: mismatched types");
    outcome.shows("src/main.rs:1:1");
    outcome.shows("there are multiple different versions of crate `entry_points` in the dependency graph");
}

#[track_caller]
fn two_versions_are_reported(name: &'static str, cargo: &[&str]) {
    let mut other = other_version();
    edit(&mut other, "other/crates/device-registry/Cargo.toml", LINKS, "");
    let package = "entry-points = { path = \"crates/entry-points\", version = \"=0.9.0\" }";
    edit(&mut other, "other/Cargo.toml", package, "entry-points = { path = \"@crates/entry-points\" }");
    let project = program_with_a_backend_for(name, other);
    let outcome = run(&mut project.cargo(cargo)).success();
    // linkme knows both slices by one name, and panics if it reads one; `autoload!` does not need them.
    assert_eq!(outcome.lines(), ["alpha", "alpha_deep", "cpu"]);
    let backend = format!("{}_backend", name.replace('-', "_"));
    outcome.shows(&format!(
        "the entry points of {backend} were declared for another build of `device_registry`"
    ));
    outcome.shows("two versions of one framework are in this program; see `cargo tree -d`");
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
}

#[test]
fn two_versions_on_one_entry_points_are_reported() {
    two_versions_are_reported("versions-shared", &["run", "--quiet"]);
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn two_versions_are_reported_where_a_panic_would_end_the_program() {
    two_versions_are_reported(
        "versions-abort",
        &["run", "--quiet", "--config", "profile.dev.panic=\"abort\""],
    );
}

#[test]
fn another_crate_may_have_a_slice_of_the_same_name() {
    let manifest = r#"
[dependencies]
device-registry = { path = "@crates/device-registry" }
device-alpha = { path = "@fixtures/device-alpha" }
versions-namesake = { path = "namesake" }
linkme = "0.3"
"#;
    let namesake =
        "[package]\nname = \"versions-namesake\"\nedition = \"2024\"\n\n[dependencies]\nlinkme = \"0.3\"\n";
    let main = r#"
        device_registry::autoload!();

        #[linkme::distributed_slice(versions_namesake::BACKENDS)]
        static MINE: &str = "mine";

        fn main() {
            let ours: Vec<_> = device_registry::backends().names().collect();
            println!("{} {}", ours.join(" "), versions_namesake::BACKENDS.join(" "));
        }
    "#;
    let project = Project::new(
        "versions-slices",
        manifest,
        &[
            ("namesake/Cargo.toml", namesake),
            ("namesake/src/lib.rs", "#[linkme::distributed_slice]\npub static BACKENDS: [&'static str];\n"),
            ("src/main.rs", main),
        ],
    );
    assert_eq!(build(&project).success().lines(), ["alpha alpha_deep cpu mine"]);
}
