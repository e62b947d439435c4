//! A small Cargo project, outside of the source tree, on the workspace's crates.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::{env, fs, io};

use parking_lot::Mutex;

/// The rest of a `main.rs` below the `autoload!` line: prints the name of each backend that loads, one a
/// line.
pub const LIST: &str = "
fn main() {
    for (entry, loaded) in device_registry::backends().load_all() {
        match loaded {
            Ok(_) => println!(\"{}\", entry.name()),
            Err(error) => println!(\"{}: {error}\", entry.name()),
        }
    }
}
";

/// A Cargo project that a test writes, builds and runs.
///
/// All projects share one target folder, so that their dependencies are built once for all of them and stay
/// built for the next run. It lies under the system's temporary folder, or where `DEVICE_REGISTRY_TESTS_DIR`
/// says. Cargo locks it, so that tests may run at the same time; a project's name is also the name of its
/// package, and no two projects may have one name, because they would overwrite each other's programs.
///
/// In every file, `@name` is the project's name, and `@crates`, `@examples` and `@fixtures` are the folders
/// of the workspace's crates, of its examples and of the fixtures.
#[derive(Clone, Debug)]
pub struct Project {
    name: &'static str,
    folder: PathBuf,
}

/// The outcome of a command.
#[derive(Debug)]
pub struct Outcome {
    /// The command, as a shell would show it.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Project {
    /// Writes the project: a manifest of a `[package]` that says only what it has to, a `[workspace]`, and
    /// `manifest` below; and `files`, each a path and its text.
    ///
    /// # Panics
    ///
    /// If a file cannot be written, or another project has the name.
    #[must_use]
    #[track_caller]
    pub fn new(name: &'static str, manifest: &str, files: &[(&str, &str)]) -> Self {
        static NAMES: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
        assert!(NAMES.lock().insert(name), "two projects are called {name}");
        let project = Self { name, folder: base().join("projects").join(name) };
        // Resolves to the versions that the workspace was built with: those are there, offline.
        let lock = read(&workspace().join("Cargo.lock"));
        let mut texts = vec![("Cargo.lock", lock), ("Cargo.toml", project.manifest(manifest))];
        texts.extend(files.iter().map(|(path, text)| (*path, project.fill(text))));

        // Files of an earlier version of the test would join the project, as Cargo discovers targets.
        let expected: BTreeSet<PathBuf> = texts.iter().map(|(path, _)| project.folder.join(path)).collect();
        for file in files_in(&project.folder) {
            if !expected.contains(&file) {
                done(fs::remove_file(&file), &file);
            }
        }
        for (path, text) in texts {
            project.write_filled(path, &text);
        }
        project
    }

    /// A project that is part of the source tree already, at `path` below the repository's root. Nothing is
    /// written to it: what Cargo builds goes to the target folder of all projects.
    #[must_use]
    pub fn in_source_tree(name: &'static str, path: &str) -> Self {
        Self { name, folder: workspace().join(path) }
    }

    fn manifest(&self, rest: &str) -> String {
        self.fill(&format!(
            "[package]\nname = \"@name\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n{rest}"
        ))
    }

    fn fill(&self, text: &str) -> String {
        // Slashes need no escape in a TOML string, on any system.
        let path = |path: PathBuf| path.display().to_string().replace('\\', "/");
        text.replace("@name", self.name)
            .replace("@crates", &path(workspace().join("crates")))
            .replace("@examples", &path(workspace().join("examples")))
            .replace("@fixtures", &path(workspace().join("tests/fixtures")))
    }

    /// Writes one file anew.
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    #[track_caller]
    pub fn write(&self, path: &str, text: &str) {
        self.write_filled(path, &self.fill(text));
    }

    /// Writes the manifest anew; `manifest` is as in [`new`](Self::new).
    ///
    /// # Panics
    ///
    /// If it cannot be written.
    #[track_caller]
    pub fn write_manifest(&self, manifest: &str) {
        self.write_filled("Cargo.toml", &self.manifest(manifest));
    }

    #[track_caller]
    fn write_filled(&self, path: &str, text: &str) {
        let file = self.folder.join(path);
        if let Some(folder) = file.parent() {
            done(fs::create_dir_all(folder), folder);
        }
        // Cargo builds again what looks newer than its last build.
        if fs::read_to_string(&file).is_ok_and(|old| old == text) {
            return;
        }
        done(fs::write(&file, text), &file);
    }

    /// The name of the project and of its package.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The folder that the project's manifest is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// `cargo --offline …` in the project's folder, with nothing of the environment that the cargo outside of
    /// it, its flags or the switches have set. Give it to [`run`].
    #[must_use]
    pub fn cargo<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = self.command(cargo);
        command.arg("--offline").args(arguments);
        command
    }

    /// A command in the project's folder, with the environment of [`cargo`](Self::cargo).
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder);
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy();
            let of_cargo = name.starts_with("CARGO") && name != "CARGO_HOME";
            let flags = ["RUSTFLAGS", "RUSTDOCFLAGS", "RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"];
            if of_cargo || flags.contains(&&*name) || name.contains("DEVICE_BACKEND_") {
                command.env_remove(&*name);
            }
        }
        command
            .env("CARGO_TARGET_DIR", artifacts())
            // Costs time and room. Nothing else differs from what a user has: an incremental build has more
            // object files for the linker to lose.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .env("CARGO_TERM_COLOR", "never")
            .env("RUST_BACKTRACE", "0");
        command
    }
}

impl Outcome {
    /// The outcome, which has to be a success.
    ///
    /// # Panics
    ///
    /// If it is not one, with all that the command wrote.
    #[track_caller]
    #[must_use]
    pub fn success(self) -> Self {
        assert!(self.status.success(), "{}", self.transcript());
        self
    }

    /// The outcome, which has to be a failure.
    ///
    /// # Panics
    ///
    /// If it is not one, with all that the command wrote.
    #[track_caller]
    #[must_use]
    pub fn failure(self) -> Self {
        assert!(!self.status.success(), "it should fail: {}", self.transcript());
        self
    }

    /// The lines of the standard output.
    #[must_use]
    pub fn lines(&self) -> Vec<&str> {
        self.stdout.lines().collect()
    }

    /// Both outputs hold this text somewhere.
    ///
    /// # Panics
    ///
    /// If neither does, with all that the command wrote.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        assert!(
            self.stdout.contains(text) || self.stderr.contains(text),
            "{text:?} should be in the output of {}",
            self.transcript()
        );
    }

    fn transcript(&self) -> String {
        format!(
            "`{}`, which ended with {}\n--- stdout\n{}\n--- stderr\n{}",
            self.command, self.status, self.stdout, self.stderr
        )
    }
}

/// Runs a command to its end.
///
/// # Panics
///
/// If it cannot be started.
#[must_use]
#[track_caller]
pub fn run(command: &mut Command) -> Outcome {
    let shown = format!("{command:?}");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => panic!("{shown} cannot be started: {error}"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Outcome {
        // Debug shows the variables too, which all of them share.
        command: shown
            .split_once("--offline")
            .map_or(shown.clone(), |(_, arguments)| format!("cargo{arguments}").replace('"', "")),
        status: output.status,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

/// The target folder of all projects.
#[must_use]
pub fn artifacts() -> PathBuf {
    base().join("target")
}

/// Outside of the source tree, and one for each copy of it: two checkouts do not share what they build.
fn base() -> PathBuf {
    if let Some(folder) = env::var_os("DEVICE_REGISTRY_TESTS_DIR") {
        // Cargo runs in the project's folder, and would look for a relative one there.
        return std::path::absolute(&folder).unwrap_or_else(|_| folder.into());
    }
    let mut hasher = DefaultHasher::new();
    workspace().hash(&mut hasher);
    env::temp_dir().join(format!("device-registry-tests-{:016x}", hasher.finish()))
}

/// The folder of this repository.
#[must_use]
pub fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// All files below a folder.
#[must_use]
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[track_caller]
fn read(file: &Path) -> String {
    done(fs::read_to_string(file), file)
}

#[track_caller]
fn done<T>(result: io::Result<T>, path: &Path) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}
