//! The quickstart as its readers use it: its own source, with and without the line that brings the backend
//! along.

use std::process::Command;

use device_registry::registry::Switches;
use device_registry_tests::{Outcome, Project, artifacts, run};

const MAIN: &str = include_str!("../../../examples/quickstart/src/main.rs");

/// The dependencies of the example, but for its backend.
const DEPENDENCIES: &str = "
[dependencies]
clap = { version = \"4.6\", default-features = false, features = [\"derive\", \"error-context\", \"help\", \"std\", \"usage\"] }
device-registry = { path = \"@crates/device-registry\" }
device-tensor = { path = \"@crates/device-tensor\" }
";

const BACKEND: &str = "device-openreg = { path = \"@crates/device-openreg\" }\n";

fn quickstart(project: &Project, arguments: &[&str]) -> Outcome {
    run(program(project).args(arguments))
}

fn program(project: &Project) -> Command {
    let build = run(&mut project.cargo(["build", "--quiet"]));
    assert!(build.status.success(), "{build:?}");
    let program = artifacts().join("debug").join(project.folder().file_name().expect("a project has a name"));
    let mut command = Command::new(program);
    for variable in Switches::variables("DEVICE_BACKEND") {
        command.env_remove(variable);
    }
    command
}

#[test]
fn no_source_line_names_a_backend() {
    assert!(!MAIN.contains("openreg"));
}

#[test]
fn the_line_in_the_manifest_is_all_that_brings_the_backend_along() {
    let with = format!("{DEPENDENCIES}{BACKEND}");
    let project = Project::new("quickstart-line", &with, &[("src/main.rs", MAIN)]);
    let device = ["--device", "openreg"];

    let with_backend = quickstart(&project, &device).success();
    assert_eq!(with_backend.stdout, "tensor([1, 2, 3], device='openreg:0')\n");

    project.write_manifest(DEPENDENCIES);
    let without = quickstart(&project, &device).failure();
    assert_eq!(without.status.code(), Some(1));
    assert_eq!(without.stdout, "");
    without.shows("no backend called `openreg` is linked into this program");
    without.shows("cpu   device-registry  0.1.0    built in");
    without.shows("so `device-openreg` in this program's Cargo.toml would add it");
    assert_eq!(quickstart(&project, &[]).success().stdout, "tensor([1, 2, 3])\n");

    project.write_manifest(&with);
    assert_eq!(quickstart(&project, &device).success().stdout, with_backend.stdout);

    // With the backend.
    assert_eq!(quickstart(&project, &[]).success().stdout, "tensor([1, 2, 3])\n");
    let second = quickstart(&project, &["--device", "openreg:1"]).success();
    assert_eq!(second.stdout, "tensor([1, 2, 3], device='openreg:1')\n");
    let numbers = quickstart(&project, &["--device", "openreg:1", "0.5", "-2", "3.25"]).success();
    assert_eq!(numbers.stdout, "tensor([ 0.5000, -2.0000,  3.2500], device='openreg:1')\n");
    let third = quickstart(&project, &["--device", "openreg:2"]).failure();
    third.shows("unknown device index 2: `openreg` has 2 devices (`openreg:0` to `openreg:1`)");

    // Its standard output is the tensor alone.
    let mistyped = run(program(&project).args(device).env("DEVICE_BACKEND_DISABLE", "openrg")).success();
    assert_eq!(mistyped.stdout, with_backend.stdout);
    assert_eq!(
        mistyped.stderr,
        "note: the pattern `openrg` in DEVICE_BACKEND_DISABLE=openrg matches nothing\n"
    );
    assert_eq!(with_backend.stderr, "");

    let list = quickstart(&project, &["--list"]).success();
    let row =
        list.lines().into_iter().find(|line| line.contains("openreg")).expect("it is listed").to_owned();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["openreg", "device-openreg", "0.1.0", "linked"]);
    let probe = quickstart(&project, &["--list", "--probe"]).success();
    assert!(probe.lines().iter().any(|line| line.trim_start().starts_with("openreg:1 ")), "{}", probe.stdout);
    assert!(probe.stdout.contains("loaded in"), "{}", probe.stdout);
}
