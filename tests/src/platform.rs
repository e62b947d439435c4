//! What the tests of other platforms need: compilers, standard libraries and Wine.
//!
//! A tool that is not there is no failure: the test says `skipped`, what is missing, and passes. Name the
//! platforms that have to be there, as in `DEVICE_REGISTRY_REQUIRE_PLATFORMS=mold,wasm32`, and it fails
//! instead. `tests/install-platforms.sh` installs them on Debian 12, Miri only where rustup has it, and
//! `tests/processors.sh install` those of other processors.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Project, artifacts, run};

/// Why a test of a platform cannot run, or what it needs in order to run.
pub type Needed<T> = Result<T, String>;

/// Unwraps what the test needs. Without it, the test ends: skipped, or failed if the platform is required.
///
/// # Panics
///
/// If the platform is required, and something is missing.
#[track_caller]
pub fn needed<T>(platform: &str, needed: Needed<T>) -> Option<T> {
    let missing = match needed {
        Ok(tools) => return Some(tools),
        Err(missing) => missing,
    };
    let required = env::var("DEVICE_REGISTRY_REQUIRE_PLATFORMS").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name.trim() == platform),
        "{platform} is required, and {missing}"
    );
    // `println!` would be captured, and shown only when a test fails.
    let _ = writeln!(std::io::stderr(), "skipped: {missing}");
    None
}

/// Whether a program is there, which a package of Debian's has.
///
/// # Errors
///
/// If it is not, with what to do.
pub fn is_there(program: &str, package: &str) -> Needed<()> {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if found {
        Ok(())
    } else {
        Err(format!("{program} is not installed: install {package}, or run {}", installer(program)))
    }
}

/// What installs a program, or the standard library for a target.
fn installer(tool: &str) -> &'static str {
    let is_for_a_processor = ["s390x", "i686", "aarch64", "riscv64"].iter().any(|name| tool.contains(name));
    if is_for_a_processor { "`bash tests/processors.sh install`" } else { "tests/install-platforms.sh" }
}

/// Runs a C compiler, or a tool like one, in the folder of a project.
///
/// # Panics
///
/// If it fails.
#[track_caller]
pub fn compile_c(compiler: &str, project: &Project, arguments: &[&str]) {
    let _ = run(project.command(compiler).args(arguments)).success();
}

/// How to build for a target: by the toolchain in use, or by Debian's, which builds the standard library
/// first.
#[derive(Clone, Copy, Debug)]
pub enum Toolchain {
    /// rustup has added the standard library.
    Rustup,
    /// The standard library is built from Debian's sources with Debian's compiler.
    Debian,
}

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

impl Toolchain {
    /// The toolchain that has, or can build, the standard library of a target.
    ///
    /// # Errors
    ///
    /// If there is none, with what to do.
    pub fn with(target: &str) -> Needed<Self> {
        let folder = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
        let folder = folder.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        if folder.is_ok_and(|folder| !folder.is_empty() && Path::new(&folder).is_dir()) {
            return Ok(Self::Rustup);
        }
        let sources = Path::new("/usr/lib/rustlib/src/rust/library/Cargo.lock");
        if Path::new(DEBIAN_RUSTC).exists() && sources.exists() {
            return Ok(Self::Debian);
        }
        Err(format!(
            "the standard library for {target} is not installed: `rustup target add {target}`, or run {}",
            installer(target)
        ))
    }

    /// `cargo SUBCOMMAND --target TARGET`
    #[must_use]
    pub fn cargo(self, project: &Project, subcommand: &str, target: &str) -> Command {
        let mut command = project.cargo([subcommand, "--quiet", "--target", target]);
        if let Self::Debian = self {
            command
                .arg("-Zbuild-std=std,panic_abort")
                .env("RUSTC", DEBIAN_RUSTC)
                .env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_TARGET_DIR", debian_artifacts());
        }
        command
    }

    /// The target folder that it builds to.
    #[must_use]
    pub fn artifacts(self) -> PathBuf {
        match self {
            Self::Rustup => artifacts(),
            Self::Debian => debian_artifacts(),
        }
    }
}

/// Another compiler, another target folder.
fn debian_artifacts() -> PathBuf {
    artifacts().with_file_name("target-debian")
}

/// Builds programs for Windows by mingw-w64, and runs them under Wine.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    toolchain: Toolchain,
    wine: &'static str,
}

impl Windows {
    const TARGET: &str = "x86_64-pc-windows-gnu";

    /// The C compiler.
    pub const CC: &str = "x86_64-w64-mingw32-gcc";

    /// Looks for the tools.
    ///
    /// # Errors
    ///
    /// If one is not there, with what to do.
    pub fn find() -> Needed<Self> {
        let toolchain = Toolchain::with(Self::TARGET)?;
        is_there(Self::CC, "gcc-mingw-w64-x86-64")?;
        // Debian does not put it on the path.
        let wine = ["wine64", "wine", "/usr/lib/wine/wine64"];
        let wine = wine.into_iter().find(|wine| is_there(wine, "wine64").is_ok());
        let missing = "Wine is not installed: install wine64, or run tests/install-platforms.sh";
        Ok(Self { toolchain, wine: wine.ok_or(missing)? })
    }

    /// Builds all of a project.
    ///
    /// # Panics
    ///
    /// If it does not build.
    #[track_caller]
    pub fn build(self, project: &Project) {
        // Rust's standard library imports from a DLL that Wine 8 lacks.
        project.write("bcryptprimitives.c", include_str!("../platforms/bcryptprimitives.c"));
        let library = ["-shared", "-O2", "-o", "bcryptprimitives.dll", "bcryptprimitives.c", "-ladvapi32"];
        compile_c(Self::CC, project, &library);
        let _ = run(&mut self.toolchain.cargo(project, "build", Self::TARGET)).success();
    }

    /// A program or library that was built.
    #[must_use]
    pub fn artifact(self, file: &str) -> PathBuf {
        self.toolchain.artifacts().join(Self::TARGET).join("debug").join(file)
    }

    /// Runs a program that was built. The folder of the project is on its `PATH`, and no other one that is
    /// not the system's.
    #[must_use]
    pub fn command(self, project: &Project, program: &str) -> Command {
        let mut command = project.command(self.wine);
        command
            .arg(self.artifact(program))
            .env("WINEPREFIX", artifacts().with_file_name("wine"))
            .env("WINEDEBUG", "-all")
            .env("WINEPATH", project.folder());
        command
    }
}
