//! Backends in files on Windows, as far as Wine shows it: a program that links none installs and uses one in
//! Rust and one in C, and `device-plugin` finds what is wrong with others. docs/platforms.md has the results.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs;
use std::path::{Path, PathBuf};

use device_registry_tests::platform::{Windows, compile_c, needed};
use device_registry_tests::{Outcome, Project, run};

const MANIFEST: &str = r#"
[lib]
name = "openreg_file"
crate-type = ["cdylib"]

[[bin]]
name = "@name-program"
path = "src/program.rs"

[[bin]]
name = "@name-suite"
path = "src/suite.rs"

[[bin]]
name = "@name-tool"
path = "@crates/../tests/plugins/probe/tool.rs"

[dependencies]
device-conformance = { path = "@crates/device-conformance" }
device-openreg = { path = "@crates/device-openreg" }
device-plugin = { path = "@crates/device-plugin" }
device-registry = { path = "@crates/device-registry" }
"#;

/// The project, and what runs it.
struct OnWindows {
    windows: Windows,
    project: Project,
}

impl OnWindows {
    /// Builds all that is for Windows. Nothing, if a tool is missing.
    fn new() -> Option<Self> {
        let windows = needed("windows-gnu", Windows::find())?;
        let project = Project::new(
            "windows-plugins",
            MANIFEST,
            &[
                ("src/lib.rs", "device_plugin::export!(device_openreg::OPENREG);\n"),
                ("src/program.rs", include_str!("../../platforms/windows_plugins/program.rs")),
                ("src/suite.rs", include_str!("../../platforms/windows_plugins/suite.rs")),
                ("rude.c", include_str!("../../platforms/windows_plugins/rude.c")),
            ],
        );
        windows.build(&project);
        Some(Self { windows, project })
    }

    /// Compiles a library in C as docs/plugins/c-authors.md says.
    fn compile(&self, source: &Path, library: &Path, more: &[&str]) {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let include = package.join("../crates/device-plugin/include");
        let kernels = package.join("../kernels/device-kernels-plugin/include");
        let [include, kernels, source, library] =
            [&include, &kernels, source, library].map(|path| path.to_str().unwrap());
        let flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-shared", "-pthread"];
        let arguments = [&flags[..], more, &["-I", include, "-I", kernels, source, "-o", library]].concat();
        compile_c(Windows::CC, &self.project, &arguments);
    }

    /// A new folder of the project.
    fn folder(&self, name: &str) -> PathBuf {
        let folder = self.project.folder().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// `program FOLDER DEVICE...`
    #[track_caller]
    fn program(&self, folder: &Path, devices: &[&str]) -> Outcome {
        let mut program = self.windows.command(&self.project, "windows-plugins-program.exe");
        run(program.arg(on_windows(folder)).args(devices).env("MORE", r"C:\windows")).success()
    }

    /// `device-plugin COMMAND FILE`
    #[track_caller]
    fn tool(&self, command: &str, file: &Path) -> Outcome {
        let mut tool = self.windows.command(&self.project, "windows-plugins-tool.exe");
        run(tool.arg(command).arg(on_windows(file)))
    }

    /// Writes the manifest that the tool prints.
    fn write_manifest(&self, library: &Path, name: &str) {
        let printed = self.tool("manifest", library).success();
        fs::write(library.with_file_name(format!("{name}.plugin.json")), printed.stdout).unwrap();
    }
}

/// How a program under Wine sees a path.
fn on_windows(path: &Path) -> String {
    format!("Z:{}", path.to_str().unwrap().replace('/', "\\"))
}

#[test]
#[ignore = "slow, and needs a target: x86_64-pc-windows-gnu, and Wine"]
fn backends_in_files_work_on_windows() {
    let Some(on) = OnWindows::new() else { return };
    let sound = on.folder("sound");
    let [openreg, myc, threads] =
        ["openreg_file.dll", "myc.dll", "libwinpthread-1.dll"].map(|file| sound.join(file));
    fs::copy(on.windows.artifact("openreg_file.dll"), &openreg).unwrap();
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/custom-backend/c");
    on.compile(&templates.join("myc.c"), &myc, &[]);

    a_dll_that_another_one_needs_lies_beside_it(&on, &myc, &threads);
    on.write_manifest(&openreg, "openreg");
    let mycqueue = sound.join("mycqueue.dll");
    on.compile(&templates.join("mycqueue.c"), &mycqueue, &["-static"]);
    on.write_manifest(&mycqueue, "mycqueue");
    let outcome = on.program(&sound, &["openreg:1", "myc:1", "mycqueue:1", "cpu"]);
    let shown = |library: &Path| on_windows(library);
    outcome.shows(&format!("installed `openreg` (device-openreg 0.1.0 in {})\n", shown(&openreg)));
    outcome.shows(&format!("openreg:1 has [1, 2, 3], by {}\n", shown(&openreg)));
    outcome.shows(&format!("myc:1 has [1, 2, 3], by {}\n", shown(&myc)));
    outcome.shows(&format!("mycqueue:1 has [1, 2, 3], by {}\n", shown(&mycqueue)));
    outcome.shows("cpu has [1, 2, 3], by no file\n");
    // Under Wine every program has the rights of an administrator.
    outcome.shows("MORE is skipped: this process has more rights than its user");

    // Long lines are broken between words.
    let page = on.tool("check", &sound).success().stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.ends_with(" no problems found"), "{page}");
    for name in ["openreg", "myc", "mycqueue"] {
        let manifest = shown(&sound.join(format!("{name}.plugin.json")));
        assert!(page.contains(&format!(" manifest {manifest}: `{name}` ")), "{page}");
    }
    assert_eq!(page.matches(" exports device_plugin_v0 interface 0.3 entry ").count(), 3, "{page}");
    assert!(page.contains(" devices 2 here: OpenReg, OpenReg "), "{page}");

    what_is_no_sound_library_is_the_error_of_its_backend(&on, &openreg);
    what_a_library_does_to_the_tool_is_a_finding(&on);
    their_first_devices_pass_the_conformance_suite(&on, &sound);
}

/// The C backend needs the DLL of mingw's threads. The folder of the project is on the `PATH`.
fn a_dll_that_another_one_needs_lies_beside_it(on: &OnWindows, myc: &Path, threads: &Path) {
    let name = threads.file_name().unwrap();
    let found = run(on.project.command(Windows::CC).arg("-print-file-name=libwinpthread-1.dll")).success();
    fs::copy(found.stdout.trim(), on.project.folder().join(name)).expect("mingw-w64 has it");
    let refused = on.tool("manifest", myc).failure();
    refused.shows(&format!("cannot open the library {}: ", on_windows(myc)));
    refused.shows("(os error 126); a DLL that it needs is neither beside it nor in System32");
    on.tool("check", myc).failure().shows("libwinpthread-1.dll\n");

    fs::rename(on.project.folder().join(name), threads).unwrap();
    on.write_manifest(myc, "myc");
}

fn what_is_no_sound_library_is_the_error_of_its_backend(on: &OnWindows, openreg: &Path) {
    let broken = on.folder("broken");
    let add = |name: &str, library: &[u8]| {
        fs::write(broken.join(format!("{name}.dll")), library).unwrap();
        let manifest = format!(
            r#"{{"manifest": 1, "group": "device.backends", "name": "{name}", "package": "device-{name}",
                "version": "1.0.0", "library": "{name}.dll", "abi": {{"major": 0, "minor": 3}}}}"#
        );
        fs::write(broken.join(format!("{name}.plugin.json")), manifest).unwrap();
    };
    let library = fs::read(openreg).unwrap();
    // `Machine` is behind the signature, whose place is at 0x3c: arm64 for x86_64.
    let mut other = library.clone();
    let machine = u32::from_le_bytes(other[0x3c..0x40].try_into().unwrap()) as usize + 4;
    other[machine..machine + 2].copy_from_slice(&[0x64, 0xaa]);
    add("text", b"not a library\r\n");
    add("other", &other);
    add("cut", &library[..1 << 16]);
    add("empty", &fs::read(on.project.folder().join("bcryptprimitives.dll")).unwrap());
    fs::copy(openreg, broken.join("openreg_file.dll")).unwrap();
    fs::copy(openreg.with_file_name("openreg.plugin.json"), broken.join("openreg.plugin.json")).unwrap();

    let ours = "a library of Windows (PE) for x86_64";
    let reasons = [
        ("text", format!("is a text that begins with `not a library`; expected {ours}")),
        ("other", format!("is a library of Windows (PE) for aarch64; expected {ours}")),
        ("cut", "was copied in part: it has 65536 bytes, and its sections end at ".to_owned()),
        ("empty", "has no backend in it: it does not export `device_plugin_v0`".to_owned()),
    ];
    let devices = [&reasons.each_ref().map(|(name, _)| *name)[..], &["openreg"]].concat();
    let outcome = on.program(&broken, &devices);
    let page = on.tool("check", &broken).failure();
    for (name, reason) in reasons {
        let library = on_windows(&broken.join(format!("{name}.dll")));
        let start = format!(
            "{name}: backend `{name}` (device-{name} 1.0.0 in {library}) failed to load: `{library}` "
        );
        outcome.shows(&(start + &reason));
        page.shows(&format!("\nproblem: `{library}` {reason}"));
    }
    outcome.shows("openreg has [1, 2, 3], by ");
    page.shows("\n4 problems\n");
}

fn what_a_library_does_to_the_tool_is_a_finding(on: &OnWindows) {
    let rude = on.folder("rude").join("rude.dll");
    on.compile(&on.project.folder().join("rude.c"), &rude, &["-static"]);
    let page = on.tool("check", &rude).failure();
    page.shows("\nproblem: the library ended the process while the library was opened (exit code: 7)\n");
    page.shows("\n  printed   on the standard error\n");
    // SEM_FAILCRITICALERRORS and SEM_NOGPFAULTERRORBOX.
    page.shows("\n  printed   dialogs that are off: 3\n");
}

fn their_first_devices_pass_the_conformance_suite(on: &OnWindows, folder: &Path) {
    let mut suite = on.windows.command(&on.project, "windows-plugins-suite.exe");
    // The second devices are used where a check needs two.
    suite
        .args(["--quiet", ":0::"])
        .env("FOLDER", on_windows(folder))
        .env("DEVICE_CONFORMANCE_TIME_LIMIT", "120");
    let outcome = run(&mut suite).success();
    for device in ["myc:0", "mycqueue:0", "openreg:0"] {
        let row = outcome.lines().into_iter().find(|line| line.starts_with(device));
        let numbers: Vec<u32> =
            row.into_iter().flat_map(str::split_whitespace).skip(1).filter_map(|n| n.parse().ok()).collect();
        // Passed, failed, expected to fail, unsupported, skipped.
        assert!(matches!(numbers[..], [passed, 0, 0, _, 0] if passed > 190), "{device}: {row:?}");
    }
}
