//! Tests that run once more in their own process, on the simulated driver of `tests/simulated_driver`,
//! on what is left of it, or on this machine's.
#![allow(dead_code, reason = "not every test program needs all of it")]

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use device_conformance::process::{self, Environment};
use tempfile::TempDir;

/// Without orders to the simulated driver.
const CHILD: Environment = Environment::without(&["SIMULATED_CUDA_*"]);

/// The simulated driver, which is built as an example, beside this program.
pub(crate) fn simulated_driver() -> PathBuf {
    let program = env::current_exe().expect("the test has a file");
    let profile = program.parent().and_then(Path::parent).expect("it lies in target/<profile>/deps");
    let library = profile.join("examples").join("libcuda.so");
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified());
    let sources =
        fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/simulated_driver")).expect("they are there");
    let newest =
        sources.map(|entry| changed(&entry.expect("it is there").path()).expect("it has a time")).max();
    assert!(
        changed(&library).is_ok_and(|built| newest.is_some_and(|newest| newest <= built)),
        "{} is not there, or is older than its sources: `cargo test -p device-cuda` makes it, but not with `--test`; \
         `cargo build -p device-cuda --example cuda` does",
        library.display()
    );
    library
}

/// The folder that it is in.
pub(crate) fn simulated() -> PathBuf {
    simulated_driver().parent().expect("it is in a folder").to_owned()
}

/// A folder in which whatever file the driver's library is looked for in is there, and is none. The loader
/// then does not try others, so a machine with a driver looks like one without.
pub(crate) fn no_driver() -> TempDir {
    let folder = TempDir::new().expect("there is room");
    let names = ["cuda", "nvcuda"].into_iter().flat_map(device_cuda::cudarc::get_lib_name_candidates);
    names.for_each(|name| fs::write(folder.path().join(name), "no library").expect("there is room"));
    folder
}

/// A folder with a simulated driver that lacks this function: the library with another name in its place.
pub(crate) fn driver_without(function: &str) -> TempDir {
    let mut library = fs::read(simulated_driver()).expect("it can be read");
    let wanted = [b"\0", function.as_bytes(), b"\0"].concat();
    let places: Vec<_> = (0..library.len() - wanted.len())
        .filter(|&place| library[place] == 0 && library[place..].starts_with(&wanted))
        .collect();
    assert!(!places.is_empty(), "it has no `{function}`");
    places.into_iter().for_each(|place| library[place + 1] = b'x');
    let folder = TempDir::new().expect("there is room");
    fs::write(folder.path().join("libcuda.so"), library).expect("there is room");
    folder
}

/// This program, to be run with the driver's library looked for in `folder` first.
pub(crate) fn program(folder: Option<&Path>) -> Command {
    let mut program = process::program();
    prepare(&mut program, folder);
    program
}

/// Runs the test of this name once more, with these additional variables.
pub(crate) fn again(test: &str, folder: Option<&Path>, variables: &[(&str, &str)]) -> Output {
    process::again(test, |child| prepare(child, folder).envs(variables.iter().copied()))
}

/// The same, and fails if the test does.
pub(crate) fn passes(test: &str, folder: Option<&Path>, variables: &[(&str, &str)]) {
    process::passes(test, |child| prepare(child, folder).envs(variables.iter().copied()));
}

/// Has the driver's library looked for in `folder` first, and takes away what the environment says to
/// drivers.
fn prepare<'a>(child: &'a mut Command, folder: Option<&Path>) -> &'a mut Command {
    if let Some(folder) = folder {
        let before = env::var_os("LD_LIBRARY_PATH").filter(|path| !path.is_empty());
        let folders: Vec<_> = [folder.as_os_str().to_owned()].into_iter().chain(before).collect();
        child.env("LD_LIBRARY_PATH", folders.join(OsStr::new(":"))).env_remove("CUDA_VISIBLE_DEVICES");
    }
    CHILD.apply(child)
}
