//! Kernels in files pass the suite of kernel sets: the C backends' and `openreg`'s, with the same outcomes as
//! where they are linked.
//!
//! Arguments are the suite's. Without any, the numbers of outcomes are compared too.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use device_kernels_conformance::{Suite, checks};
use device_plugin::Plugins;

mod common;

device_registry::autoload!();

/// The folder with the libraries, and the device, for a child.
const FOLDER: &str = "DEVICE_KERNELS_PLUGIN_TESTS_FOLDER";
const DEVICE: &str = "DEVICE_KERNELS_PLUGIN_TESTS_DEVICE";

fn main() -> ExitCode {
    if !cfg!(target_os = "linux") {
        println!("skipped: the libraries were built on Linux only");
        return ExitCode::SUCCESS;
    }
    if let (Some(folder), Ok(device)) = (env::var_os(FOLDER), env::var(DEVICE)) {
        let report = Plugins::new().folder(&folder).install().expect("the folder is absolute");
        assert_eq!(report.installed().len(), 6, "{report}");
        return Suite::new(&device).run();
    }
    let folder = tempfile::tempdir().expect("there is room");
    common::build_templates(folder.path());
    let library = folder.path().join("libopenreg_file.so");
    fs::copy(common::built("openreg_kernels_file"), &library).expect("cargo has built it");
    for (group, package) in
        [("device.backends", "device-openreg"), ("device.kernels", "device-openreg-kernels")]
    {
        common::manifest(folder.path(), group, "reg", "openreg", package, &library);
    }
    let linked = run(folder.path(), "openreg:1");
    // The templates have three operators of one type.
    let outcomes =
        [run(folder.path(), "myc:1"), run(folder.path(), "mycqueue:1"), run(folder.path(), "reg:1")];
    let counts = |printed: &str| {
        let lines = printed.lines().filter(|line| line.contains(" passed, ") || line.contains(" claimed "));
        lines
            .filter_map(|line| line.split_once(": "))
            .map(|(_, counts)| counts.to_owned())
            .collect::<Vec<_>>()
    };
    if env::args().len() > 1 {
        return if outcomes.iter().all(|(success, _)| *success) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    let [myc, mycqueue, reg] = &outcomes;
    let mut wrong = Vec::new();
    if counts(&reg.1).is_empty() || counts(&reg.1) != counts(&linked.1) {
        wrong.push(format!("expected the outcomes of `openreg` linked, {:?}", counts(&linked.1)));
    }
    for (name, outcome) in [("myc", myc), ("mycqueue", mycqueue)] {
        let counts = counts(&outcome.1);
        if !counts.first().is_some_and(|counts| counts.starts_with(TEMPLATES)) {
            wrong.push(format!("expected {TEMPLATES:?} of {name}, found {counts:?}"));
        }
    }
    let passed = TEMPLATES.split(' ').next().unwrap_or_default();
    let told = format!("{passed} of {} checks", checks().len());
    if !include_str!("../../../examples/custom-backend/c/README.md").contains(&told) {
        wrong.push(format!("examples/custom-backend/c/README.md does not say `{told}`"));
    }
    let failed = outcomes.iter().chain([&linked]).any(|(success, _)| !success);
    wrong.iter().for_each(|wrong| eprintln!("error: {wrong}"));
    if failed || !wrong.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What the suite says of a template. The other checks call operators that it does not have.
const TEMPLATES: &str = "23 passed, 0 failed, ";

/// Runs the suite on a device, in its own process. Returns what it printed.
fn run(folder: &Path, device: &str) -> (bool, String) {
    let program = env::current_exe().expect("this program has a path");
    let mut child = Command::new(program);
    child.env(FOLDER, folder).env(DEVICE, device).args(env::args_os().skip(1));
    if env::args_os().len() == 1 {
        child.arg("--quiet");
    }
    let output = child.output().expect("this program starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{printed}");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    (output.status.success(), printed)
}
