//! The conformance suite has the same outcomes on a backend from a file as on the same backend linked: on
//! `openreg`, on `cuda` with the simulated driver, and on `opencl`.

// Links the backends of this package's dev-dependencies.
device_registry::autoload!();

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::{env, fs};

use device_conformance::{Suite, process};
use device_plugin::Plugins;
use device_plugin_tests::{PLUGINS, Plugin, install_copy, library};
use tempfile::TempDir;

/// What a child runs the suite on.
const BACKEND: &str = "DEVICE_PLUGIN_TESTS_BACKEND";

/// The folder with the plugins.
const FOLDER: &str = "DEVICE_PLUGIN_TESTS_FOLDER";

fn main() -> ExitCode {
    let Ok(backend) = env::var(BACKEND) else { return compare_all() };
    let folder = env::var_os(FOLDER).expect("the parent sets it");
    let report = Plugins::new().folder(folder).install().expect("the folder is absolute");
    assert_eq!(report.installed().len(), PLUGINS.len(), "{report}");
    Suite::new().backend(backend.leak()).run()
}

/// Runs the tests of this file.
fn compare_all() -> ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    let folder = folder();
    let path = folder.path().to_owned();
    let trials = PLUGINS.map(|plugin| {
        let path = path.clone();
        libtest_mimic::Trial::test(format!("{}::has_the_same_outcomes", plugin.name), move || {
            compare(plugin, &path).map_err(Into::into)
        })
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// A folder with the plugins, and the simulated driver of `cuda` in another one below it.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("there is room");
    for plugin in PLUGINS {
        install_copy(folder.path(), plugin, &in_file(plugin));
    }
    fs::create_dir(drivers(folder.path())).expect("there is room");
    fs::copy(library("simulated_cuda"), drivers(folder.path()).join("libcuda.so")).expect("there is room");
    folder
}

fn drivers(folder: &Path) -> std::path::PathBuf {
    folder.join("drivers")
}

/// The name of the backend in a file. The linked one has its own name, in the same program.
fn in_file(plugin: Plugin) -> String {
    format!("{}_file", plugin.name)
}

fn compare(plugin: Plugin, folder: &Path) -> Result<(), String> {
    let [linked, loaded] =
        [plugin.name.to_owned(), in_file(plugin)].map(|backend| outcomes(plugin, &backend, folder));
    let (linked, loaded) = (linked?, loaded?);
    let differences: Vec<_> = linked
        .iter()
        .filter(|&(check, outcome)| loaded.get(check) != Some(outcome))
        .map(|(check, outcome)| format!("{check}: linked {outcome}, loaded {:?}", loaded.get(check)))
        .collect();
    if !differences.is_empty() || linked.len() != loaded.len() {
        let (name, linked, loaded) = (plugin.name, linked.len(), loaded.len());
        return Err(format!("{name}: {linked} checks linked, {loaded} loaded\n{}", differences.join("\n")));
    }
    let passed = linked.values().filter(|outcome| *outcome == "ok").count();
    println!("{}: {passed} passed, {} ignored, linked and loaded", plugin.name, linked.len() - passed);
    Ok(())
}

/// Runs the suite on a backend. The outcome of each check, by its device's index and its name.
fn outcomes(plugin: Plugin, backend: &str, folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let mut child: Command = process::program();
    child.env(BACKEND, backend).env(FOLDER, folder);
    if plugin.name != "opencl" {
        // The two devices are equal. On the second, an index that is lost on the way changes what a check
        // sees.
        child.args(["--skip", ":0::"]);
    }
    if plugin.name == "cuda" {
        child.env("LD_LIBRARY_PATH", drivers(folder)).env_remove("CUDA_VISIBLE_DEVICES");
    }
    // Only `opencl` may lack a driver.
    let required = env::var("DEVICE_CONFORMANCE_REQUIRE").unwrap_or_default();
    if plugin.name != "opencl" || required.split(',').any(|name| name == plugin.name) {
        child.env("DEVICE_CONFORMANCE_REQUIRE", backend);
    }
    let Output { status, stdout, stderr } = child.output().expect("this program starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    if !status.success() {
        return Err(format!("the suite failed on {backend}: {status}\n{stdout}\n{stderr}"));
    }
    let outcomes: BTreeMap<_, _> = stdout
        .lines()
        .filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "))
        .filter_map(|(check, outcome)| {
            let check = check.trim().strip_prefix(backend)?;
            Some((check.to_owned(), outcome.split_whitespace().next()?.to_owned()))
        })
        .collect();
    if outcomes.is_empty() {
        return Err(format!("the suite on {backend} printed no check:\n{stdout}\n{stderr}"));
    }
    Ok(outcomes)
}
