//! Plugins and programs that are built differently: profiles, linkers, compilers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::copies::{exported, foreign_bindings};

/// A project with the plugin `openreg` as its library and the program `plugin_probe`.
struct Project {
    folder: PathBuf,
    target: PathBuf,
}

impl Project {
    /// Writes it. Two projects of one name share what they build.
    fn new(name: &str) -> Self {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("builds");
        let (folder, target) = (base.join(name), base.join(format!("{name}-target")));
        fs::create_dir_all(&folder).unwrap();
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let crates = tests.join("../../crates");
        let (tests, crates) = (tests.display(), crates.display());
        let manifest = format!(
            r#"[package]
name = "builds"
version = "0.1.0"
edition = "2024"

[workspace]

[lib]
path = "{tests}/plugins/openreg.rs"
crate-type = ["cdylib"]

[[bin]]
name = "plugin_probe"
path = "{tests}/probe/main.rs"

[dependencies]
device-openreg.path = "{crates}/device-openreg"
device-plugin.path = "{crates}/device-plugin"
device-plugin-tests.path = "{tests}"
device-registry.path = "{crates}/device-registry"
libc = "0.2"
log = "0.4"
"#
        );
        // The versions that the workspace has: those are there without a network.
        fs::copy(format!("{tests}/../../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        let file = folder.join("Cargo.toml");
        if fs::read_to_string(&file).ok().as_ref() != Some(&manifest) {
            fs::write(&file, manifest).unwrap();
        }
        Self { folder, target }
    }

    /// A toolchain's cargo in this project, with nothing of the environment that the cargo outside of it has
    /// set.
    ///
    /// It never runs a proxy of rustup. Some dependencies have a `rust-toolchain.toml`, for which a proxy
    /// installs what the toolchain lacks: several at once have left a broken toolchain to the whole machine.
    fn cargo(&self, cargo: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let of_cargo = text.starts_with("CARGO") && text != "CARGO_HOME";
            let flags = ["RUSTFLAGS", "RUSTDOCFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"];
            if of_cargo || flags.contains(&&*text) || text.contains("DEVICE_BACKEND_") {
                command.env_remove(&name);
            }
        }
        command
            .current_dir(&self.folder)
            .args(arguments)
            .args(["--offline", "--quiet"])
            .env("RUSTC", cargo.with_file_name("rustc"))
            .env("RUSTUP_AUTO_INSTALL", "0")
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }

    /// The plugin of a profile.
    fn plug_in(&self, profile: &str) -> String {
        self.target.join(profile).join("libbuilds.so").display().to_string()
    }

    /// The program of a profile.
    fn program(&self, profile: &str) -> PathBuf {
        self.target.join(profile).join("plugin_probe")
    }
}

/// The cargo of this toolchain, which lies beside its compiler.
fn cargo() -> PathBuf {
    let cargo = PathBuf::from(std::env::var_os("CARGO").expect("Cargo runs this test"));
    assert!(cargo.with_file_name("rustc").is_file(), "no rustc beside {}", cargo.display());
    cargo
}

/// The cargos of the other toolchains that rustup has, each with its version. Installs nothing.
fn other_cargos() -> BTreeMap<String, PathBuf> {
    let stdout = |command: &mut Command| {
        let output =
            command.env("RUSTUP_AUTO_INSTALL", "0").output().ok().filter(|output| output.status.success());
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    };
    let version = |cargo: &Path| stdout(Command::new(cargo).arg("--version"));
    let toolchains = stdout(Command::new("rustup").args(["toolchain", "list", "--quiet"]));
    let cargos = toolchains
        .lines()
        .map(|toolchain| stdout(Command::new("rustup").args(["which", "--toolchain", toolchain, "cargo"])));
    let mut others: BTreeMap<_, _> = cargos
        .filter(|cargo| !cargo.is_empty())
        .map(|cargo| (version(Path::new(&cargo)), cargo.into()))
        .collect();
    others.remove(&version(&cargo()));
    others
}

#[track_caller]
fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The program works with the plugin beside its linked `openreg`.
#[track_caller]
fn work_together(program: &Path, plug_in: &str) {
    let install = format!("install=reg:openreg:{plug_in}");
    let output = succeeds(Command::new(program).args([&install, "use=reg", "use=openreg"]));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "reg: \"yust\"\nopenreg: \"yust\"\n");
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn release_and_debug_work_together() {
    let project = Project::new("profiles");
    succeeds(&mut project.cargo(&cargo(), &["build"]));
    succeeds(&mut project.cargo(&cargo(), &["build", "--release"]));
    for (program, plug_in) in [("debug", "release"), ("release", "debug"), ("release", "release")] {
        work_together(&project.program(program), &project.plug_in(plug_in));
    }
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn a_plug_in_that_aborts_on_a_panic_does_not_compile() {
    let project = Project::new("abort");
    let output = project
        .cargo(&cargo(), &["check", "--lib"])
        .env("CARGO_PROFILE_DEV_PANIC", "abort")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it compiles");
    assert!(
        errors.contains(
            "error: a backend in a file needs `panic = \"unwind\"`: with \"abort\", its panics would end the program"
        ),
        "{errors}"
    );
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
fn a_plug_in_of_another_compiler_works() {
    let project = Project::new("profiles");
    succeeds(&mut project.cargo(&cargo(), &["build"]));
    let others = other_cargos();
    if others.is_empty() {
        println!("skipped: rustup has no other toolchain");
    }
    for (at, (version, other)) in others.iter().enumerate() {
        println!("built by {version}");
        let theirs = Project::new(&format!("by-another-{at}"));
        succeeds(&mut theirs.cargo(other, &["build", "--lib"]));
        work_together(&project.program("debug"), &theirs.plug_in("debug"));
    }
}

#[test]
#[ignore = "slow: builds all dependencies anew"]
#[cfg(target_env = "gnu")]
fn no_symbol_of_a_plug_in_binds_to_a_program_that_exports_its_own() {
    const BFD: [&str; 2] = ["-C", "link-arg=-fuse-ld=bfd"];
    let project = Project::new("linkers");
    let build = |of: &[&str], flags: &[&str], built: &str, name: &str| {
        succeeds(project.cargo(&cargo(), &[&["rustc"], of].concat()).arg("--").args(flags));
        let copy = project.target.join(name);
        fs::copy(project.target.join("debug").join(built), &copy).unwrap();
        copy
    };
    let plug_ins = [
        build(&["--lib"], &[], "libbuilds.so", "libby_default_file.so"),
        build(&["--lib"], &BFD, "libbuilds.so", "libby_bfd_file.so"),
    ];
    let exports = ["-C", "link-arg=-rdynamic"];
    let programs = [
        build(&["--bin", "plugin_probe"], &exports, "plugin_probe", "program_by_default"),
        build(&["--bin", "plugin_probe"], &[exports, BFD].concat(), "plugin_probe", "program_by_bfd"),
    ];
    for plug_in in &plug_ins {
        for (name, is_protected) in exported(&fs::read(plug_in).unwrap()) {
            assert!(name == "device_plugin_v0" || is_protected, "{}: `{name}`", plug_in.display());
        }
        for program in &programs {
            let exported = exported(&fs::read(program).unwrap());
            assert!(exported.iter().any(|(name, _)| name.contains("linkme")), "{exported:?}");
            work_together(program, &plug_in.display().to_string());
            assert_eq!(foreign_bindings(program, plug_in), [""; 0]);
        }
    }
}
