//! Libraries with kernels, in folders of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The backends in C of `examples/custom-backend`.
pub(crate) fn templates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/custom-backend/c")
}

/// Builds the backends in C as their README says.
#[allow(dead_code, reason = "not every test uses it")]
pub(crate) fn build_templates(folder: &Path) {
    let status = Command::new("sh").arg(templates().join("build.sh")).arg(folder).status();
    assert!(status.expect("there is a shell").success());
}

/// Compiles a file of `libraries` into a folder.
#[allow(dead_code, reason = "not every test uses it")]
pub(crate) fn compile(source: &str, folder: &Path) -> PathBuf {
    let library = folder.join(format!("lib{source}.so"));
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("cc")
        .args(["-std=c11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-I"])
        .arg(package.join("../../crates/device-plugin/include"))
        .arg("-I")
        .arg(package.join("include"))
        .arg("-I")
        .arg(templates())
        .arg(package.join(format!("tests/libraries/{source}.c")))
        .arg("-o")
        .arg(&library)
        .status();
    assert!(status.expect("there is a C compiler").success());
    library
}

/// A library that cargo has built beside the test program.
#[allow(dead_code, reason = "not every test uses it")]
pub(crate) fn built(name: &str) -> PathBuf {
    let program = env::current_exe().expect("this program has a path");
    let examples = program.parent().and_then(Path::parent).expect("target/debug/deps").join("examples");
    examples.join(format!("lib{name}.so"))
}

/// Writes a manifest.
#[allow(dead_code, reason = "not every test uses it")]
pub(crate) fn manifest(folder: &Path, group: &str, name: &str, entry: &str, package: &str, library: &Path) {
    let text = format!(
        r#"{{"manifest": 1, "group": "{group}", "name": "{name}", "entry": "{entry}",
            "package": "{package}", "version": "0.1.0", "library": "{}",
            "abi": {{"major": 0, "minor": 3}}}}"#,
        library.display()
    );
    let file = folder.join(format!("{name}-{}.plugin.json", group.replace('.', "-")));
    fs::write(file, text).expect("there is room");
}
