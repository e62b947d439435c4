//! The command `devices plugin` finds what is wrong with libraries and manifests, and its manifests are
//! accepted.
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{env, fs};

use device_plugin::Plugins;
use device_plugin_tests::library;
use device_registry::device;
use tempfile::TempDir;

/// The command, as this package builds it.
fn tool() -> Command {
    let program = library("openreg_file").with_file_name("device-plugin-tool");
    assert!(program.exists(), "`cargo test -p device-plugin-tests` builds {}", program.display());
    let mut command = Command::new(program);
    command.arg("plugin");
    command
}

/// The exit code and the output of a command. What is written to the standard error comes last.
fn run(command: &mut Command) -> (i32, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
    (status.code().unwrap_or_else(|| panic!("{status}: {text}")), text)
}

fn check(file: &Path) -> (i32, String) {
    run(tool().arg("check").arg(file))
}

/// What is printed of a file with problems.
#[track_caller]
fn problems(file: &Path, count: usize) -> String {
    let (code, text) = check(file);
    let last = if count == 1 { "1 problem\n".to_owned() } else { format!("{count} problems\n") };
    assert!(code == 1 && text.ends_with(&last), "{code}, expected {last}{text}");
    assert_eq!(text.matches("\nproblem: ").count(), count, "{text}");
    text
}

#[track_caller]
fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected {part:?} in:\n{text}");
    }
}

/// A folder, and its path without links.
fn folder() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

/// Copies a library of this package into a folder.
fn copy(name: &str, folder: &Path) -> PathBuf {
    let library = library(name);
    let copy = folder.join(library.file_name().unwrap());
    fs::copy(library, &copy).unwrap();
    copy
}

/// Builds `broken.c`, the library of `acme`, with more arguments for the compiler.
fn build(folder: &Path, arguments: &[&str]) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = folder.join("libacme.so");
    let mut compiler = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args([
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fPIC",
        "-fvisibility=hidden",
        "-shared",
        "-s",
    ]);
    compiler.arg("-I").arg(package.join("../../crates/device-plugin/include")).args(arguments);
    let built = compiler.arg(package.join("tests/tool/broken.c")).arg("-o").arg(&library).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

/// Builds `broken.c`, with the manifest of `acme` beside it.
fn build_with_manifest(folder: &Path, arguments: &[&str]) -> PathBuf {
    let library = build(folder, arguments);
    write_manifest(folder, "acme", &[]);
    library
}

/// Writes a manifest of the library of `acme`, with these texts replaced.
fn write_manifest(folder: &Path, file: &str, changes: &[(&str, &str)]) -> PathBuf {
    let mut text = r#"{"manifest": 1, "group": "device.backends", "name": "acme", "package": "device-acme",
        "version": "1.2.0", "library": "libacme.so", "abi": {"major": 0, "minor": 3},
        "options": [{"name": "level", "description": "a number"}]}"#
        .to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let file = folder.join(format!("{file}.plugin.json"));
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn each_entry_of_a_template_has_the_manifest_that_is_printed_for_it() {
    let (_kept, folder) = folder();
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/custom-backend/c");
    assert!(Command::new("sh").arg(templates.join("build.sh")).arg(&folder).status().unwrap().success());
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    for backend in ["myc", "mycqueue"] {
        let library = folder.join(format!("lib{backend}.so"));
        for (group, file) in
            [("device.backends", backend.to_owned()), ("device.kernels", format!("{backend}_kernels"))]
        {
            let (code, printed) = run(tool().args(["manifest", "--group", group]).arg(&library));
            assert_eq!(code, 0, "{printed}");
            let kept = fs::read_to_string(templates.join(format!("{file}.plugin.json"))).unwrap();
            assert_eq!(json(&printed), json(&kept));
        }
        let output = tool().args(["manifest", "--group", "acme.things"]).arg(&library).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(error, "error: the library offers no entry of `acme.things`\n");
    }
}

#[test]
fn a_printed_manifest_installs_its_backend() {
    let (_kept, folder) = folder();
    let library = copy("openreg_file", &folder);
    let (code, manifest) = run(tool().args(["manifest", "--name", "printed", "--sha256"]).arg(&library));
    assert_eq!(code, 0, "{manifest}");
    let fields: Vec<_> =
        manifest.lines().filter_map(|line| line.strip_prefix("  \"")?.split('"').next()).collect();
    let expected =
        ["manifest", "group", "name", "entry", "package", "version", "library", "abi", "options", "sha256"];
    assert_eq!(fields, expected);
    fs::write(folder.join("printed.plugin.json"), manifest).unwrap();

    let report = Plugins::new().folder(&folder).install().unwrap();
    assert_eq!(report.installed().len(), 1, "{report}");
    device_registry::backends().set_option("printed", "devices", "3").unwrap();
    let buffer = device("printed:2").unwrap().allocate(4).unwrap();
    buffer.write(0, b"text").unwrap();
    let mut read = [0; 4];
    buffer.read(0, &mut read).unwrap();
    assert_eq!(&read, b"text");

    let (code, text) = check(&library);
    assert_eq!(code, 0, "{text}");
    assert!(text.ends_with("\nno problems found\n"), "{text}");
    let facts = [
        "  size      ",
        "  kind      a shared library for this system and processor\n",
        "  owner     only root and this user can change it\n",
        "  exports   device_plugin_v0",
        "libc.so.6",
        "  interface 0.3\n",
        "  entry     `openreg` of device.backends, device-openreg 0.1.0\n",
        "  options   devices, memory, ",
        "  devices   2 here: OpenReg, OpenReg\n",
        "  stream    the required functions, fill, ",
        "    no extension: there are no functions beyond the interface\n",
        "/printed.plugin.json: `printed`\n",
    ];
    assert_contains(&text, &facts);
    // By its manifest and by its folder, it is the same.
    assert_eq!(check(&folder.join("printed.plugin.json")).1, text);
    assert_eq!(check(&folder).1, text);
}

#[test]
fn of_several_backends_in_a_library_the_user_chooses_one() {
    let (_kept, folder) = folder();
    let library = copy("two_file", &folder);
    let (code, text) = run(tool().arg("manifest").arg(&library));
    let message = "error: the library offers 2 backends: choose one with `--entry`: `openreg`, `cuda`\n";
    assert_eq!((code, &*text), (2, message));
    let (code, text) = run(tool().args(["manifest", "--entry", "opencl"]).arg(&library));
    let message = "error: the library offers no backend `opencl`; it offers `openreg`, `cuda`\n";
    assert_eq!((code, &*text), (2, message));
    let (code, manifest) = run(tool().args(["manifest", "--entry", "cuda"]).arg(&library));
    assert_eq!(code, 0, "{manifest}");
    assert_contains(&manifest, &[r#""name": "cuda""#, r#""package": "device-cuda""#]);

    // One manifest is enough: the other backend may be left out on purpose.
    assert_contains(
        &problems(&library, 2),
        &["no manifest in the folder of the library names its backend `cuda`"],
    );
    fs::write(folder.join("cuda.plugin.json"), manifest).unwrap();
    let (code, text) = check(&library);
    assert_eq!(code, 0, "{text}");
    let note = "\nnote: no manifest in the folder of the library names its backend `openreg`\n  help: devices plugin \
                manifest --entry openreg ";
    assert_contains(&text, &[note]);
}

#[test]
fn a_backend_without_its_driver_is_no_problem() {
    let (_kept, folder) = folder();
    let library = copy("opencl_file", &folder);
    let (_, manifest) = run(tool().arg("manifest").arg(&library));
    fs::write(folder.join("opencl.plugin.json"), manifest).unwrap();
    let (code, text) = run(tool().arg("check").arg(&folder).env("OCL_ICD_VENDORS", "/nonexistent"));
    assert_eq!(code, 0, "{text}");
    assert_contains(&text, &["  devices   unavailable here: "]);
}

#[test]
fn what_a_library_does_to_its_process_is_a_finding() {
    let (_kept, folder) = folder();
    for (arguments, message) in [
        ("-DCONSTRUCTOR=abort()", "ended the process while the library was opened (signal: 6 (SIGABRT))"),
        ("-DCONSTRUCTOR=exit(3)", "ended the process while the library was opened (exit status: 3)"),
        ("-DCONSTRUCTOR=exit(0)", "ended the process while the library was opened (exit status: 0)"),
        ("-DLOAD=abort()", "ended the process while the backend `acme` was loaded (signal: 6 (SIGABRT))"),
        ("-DLOAD=atexit(abort)", "ended the process while the process ended (signal: 6 (SIGABRT))"),
    ] {
        let library = build_with_manifest(&folder, &[arguments]);
        let text = problems(&library, 1);
        assert_contains(&text, &[message, "\n  help: a program that uses it ends in the same way"]);
        if arguments.contains("CONSTRUCTOR") {
            assert_contains(&text, &["  printed   in the constructor\n"]);
            let (code, text) = run(tool().arg("manifest").arg(&library));
            assert_eq!(code, 1, "{text}");
            assert_contains(&text, &[message]);
        }
    }
}

#[test]
fn a_library_that_hangs_is_ended_after_the_time_limit() {
    let (_kept, folder) = folder();
    let library = build_with_manifest(&folder, &["-DCONSTRUCTOR=for(;;)"]);
    let start = Instant::now();
    let (code, text) = run(tool().args(["check", "--time-limit", "0.5"]).arg(&library));
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(code, 1, "{text}");
    assert_contains(
        &text,
        &["\nproblem: 0.5 seconds were over while the library was opened\n", "\n1 problem\n"],
    );
}

#[test]
fn what_a_library_prints_is_not_part_of_a_manifest() {
    let (_kept, folder) = folder();
    let library = build(&folder, &["-DCONSTRUCTOR=puts(\"device-plugin step {}\")"]);
    let (code, text) = run(tool().arg("manifest").arg(&library));
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("{\n") && text.ends_with("}\n"), "{text}");
}

#[test]
fn a_wrong_table_is_named() {
    let (_kept, folder) = folder();
    let text = problems(&build_with_manifest(&folder, &["-DNO_READ"]), 1);
    assert_contains(
        &text,
        &[
            "problem: backend `acme`: cannot load: the plugin does not have the function `dp_device_api.read`, which is",
        ],
    );
    let text = problems(&build_with_manifest(&folder, &["-DMAJOR=7"]), 1);
    assert_contains(&text, &["problem: expected version 0 of the interface, found 7.3"]);
    let (code, text) = check(&build_with_manifest(&folder, &[]));
    assert_eq!(code, 0, "{text}");
    let lines = [
        "  no presence: all devices count as present\n",
        "  no create_stream: the program runs a thread for each stream\n",
        "  devices   none here\n",
    ];
    assert_contains(&text, &lines);
    assert!(!text.contains("note: "), "{text}");
}

#[test]
fn a_file_that_is_no_library_is_not_opened() {
    let (_kept, folder) = folder();
    let file = folder.join("libacme.so");
    fs::write(&file, "INPUT(-lacme)\n").unwrap();
    assert_contains(
        &problems(&file, 1),
        &["is a text that begins with `INPUT(-lacme)`; expected", "  opened    no"],
    );
    copy("simulated_cuda", &folder);
    let text = problems(&folder.join("libsimulated_cuda.so"), 1);
    assert_contains(&text, &["has no backend in it: it does not export `device_plugin_v0`"]);
    let text = problems(&folder.join("absent.so"), 1);
    assert_contains(&text, &["problem: cannot open `", "absent.so`: No such file"]);
    let text = problems(&folder, 1);
    assert_contains(&text, &["has no manifests; expected files such as `acme.plugin.json`"]);
}

#[test]
fn a_library_that_others_can_change_is_opened_only_on_request() {
    let (_kept, folder) = folder();
    let library = build_with_manifest(&folder, &["-DCONSTRUCTOR=abort()"]);
    fs::set_permissions(&library, PermissionsExt::from_mode(0o666)).unwrap();
    let text = problems(&library, 1);
    assert_contains(
        &text,
        &["can be written to by others (mode 666)", "  opened    no: programs refuse it\n"],
    );
    let (code, text) = run(tool().arg("manifest").arg(&library));
    assert_eq!(code, 1, "{text}");
    assert_contains(&text, &["can be written to by others (mode 666)"]);
    let (_, text) = run(tool().args(["check", "--trust-any-owner"]).arg(&library));
    assert_contains(&text, &["  owner     not checked\n", "ended the process while the library was opened"]);
}

#[test]
fn a_difference_between_manifest_and_library_has_the_command_that_mends_it() {
    let (_kept, folder) = folder();
    let library = build(&folder, &[]);
    let text = problems(&library, 1);
    let (library_path, manifest) = (library.display(), folder.join("acme.plugin.json"));
    let command = format!("\n  help: devices plugin manifest {library_path} > {}\n", manifest.display());
    assert_contains(
        &text,
        &["problem: no manifest in the folder of the library names its backend `acme`", &command],
    );
    let zeros = "0".repeat(64);
    let digest = format!(r#""abi": {{"major": 0, "minor": 0}}, "sha256": "{zeros}""#);
    let changes = [
        ("1.2.0", "1.3.0"),
        ("device-acme", "acme"),
        (r#""abi": {"major": 0, "minor": 3}"#, &digest),
        (r#""level""#, r#""levels""#),
    ];
    write_manifest(&folder, "acme", &changes);
    let text = problems(&library, 6);
    let path = manifest.display();
    for difference in [
        format!("the `package` in `{path}` is `acme`; the library has `device-acme`\n"),
        format!("the `version` in `{path}` is `1.3.0`; the library has `1.2.0`\n"),
        format!("the `abi` in `{path}` is `0.0`; the library has `0.3`\n"),
        format!("`{path}` does not have the option `level` of the library\n"),
        format!("`{path}` has the option `levels`, which the library does not have\n"),
        format!("the `sha256` in `{path}` is {zeros}; the library has "),
    ] {
        assert_contains(&text, &[&format!("problem: {difference}")]);
    }
    let command =
        format!("\n  help: devices plugin manifest --sha256 {library_path} > {}\n", manifest.display());
    assert_eq!(text.matches(&command).count(), 6, "{text}");

    write_manifest(&folder, "acme", &[(r#""acme""#, r#""ecma""#), ("a number", "a digit")]);
    let text = problems(&library, 1);
    let renamed = "acme.plugin.json` is `ecma`; the library offers `acme`\n  help: devices plugin manifest --name ecma /";
    assert_contains(&text, &["problem: the `name` in `", renamed]);
    write_manifest(&folder, "acme", &[("a number", "a digit")]);
    assert_contains(
        &problems(&library, 1),
        &["problem: the option `level` in `", "` has another description in the library\n"],
    );
}

/// Copies `myc`, which has kernels too, into a folder, with the manifests of the template.
fn copy_with_kernels(folder: &Path) -> PathBuf {
    let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/custom-backend/c");
    assert!(Command::new("sh").arg(templates.join("build.sh")).arg(folder).status().unwrap().success());
    for of_another in ["libmycqueue.so", "mycqueue.plugin.json", "mycqueue_kernels.plugin.json"] {
        fs::remove_file(folder.join(of_another)).unwrap();
    }
    folder.join("libmyc.so")
}

#[test]
fn manifests_of_kernels_are_compared_as_those_of_backends_are() {
    let (_kept, folder) = folder();
    let library = copy_with_kernels(&folder);
    let kernels = folder.join("myc_kernels.plugin.json");
    let sound = fs::read_to_string(&kernels).unwrap();
    // By its manifests and by its folder, it is the same.
    let (code, text) = check(&library);
    assert!(code == 0 && text.ends_with("\nno problems found\n") && !text.contains("note: "), "{text}");
    assert_contains(
        &text,
        &["myc_kernels.plugin.json: `myc` of device.kernels\n", "myc.plugin.json: `myc`\n"],
    );
    assert_eq!((check(&kernels).1, check(&folder).1), (text.clone(), text));

    let name = r#""name": "myc""#;
    let digest = format!(r#""sha256": "{}", {name}"#, "0".repeat(64));
    let (path, library_path) = (kernels.display(), library.display());
    let command =
        format!("\n  help: devices plugin manifest --group device.kernels {library_path} > {path}\n");
    let with_digest = command.replace("device.kernels /", "device.kernels --sha256 /");
    for (from, to, problem, help) in [
        ("0.1.0", "0.0.9", "the `version` in `PATH` is `0.0.9`; the library has `0.1.0`", &*command),
        ("device-myc", "my_c", "the `package` in `PATH` is `my_c`; the library has `device-myc`", &command),
        (r#""minor": 3"#, r#""minor": 1"#, "the `abi` in `PATH` is `0.1`; the library has `0.3`", &command),
        (name, &digest, "the `sha256` in `PATH` is 0000", &with_digest),
        (
            name,
            r#""name": "cym""#,
            "the `name` in `PATH` is `cym`; the library offers `myc`",
            " --name cym /",
        ),
        (name, r#""name": "Myc""#, "programs skip the manifest `PATH`: `name` is `\"Myc\"`", ""),
        (
            "device.kernels",
            "device.kernel",
            "the `group` in `PATH` is `device.kernel`; the library offers entries of `device.backends`, \
             `device.kernels`",
            "",
        ),
    ] {
        assert!(sound.contains(from), "{from}");
        fs::write(&kernels, sound.replace(from, to)).unwrap();
        for file in [&library, &kernels, &folder] {
            let text = problems(file, 1);
            let problem = format!("\nproblem: {}", problem.replace("PATH", &path.to_string()));
            assert_contains(&text, &[&problem, help]);
        }
    }
    fs::remove_file(&kernels).unwrap();
    let (code, text) = check(&library);
    let note = "\nnote: no manifest in the folder of the library names its entry `myc` of `device.kernels`";
    assert!(code == 0, "{text}");
    assert_contains(&text, &[note, &command]);
}

#[test]
fn two_manifests_of_kernels_with_one_name_are_a_problem() {
    let (_kept, folder) = folder();
    let library = copy_with_kernels(&folder);
    let kernels = fs::read_to_string(folder.join("myc_kernels.plugin.json")).unwrap();
    let second = folder.join("second.plugin.json");
    fs::write(&second, &kernels).unwrap();
    let expected = "second.plugin.json` and `";
    assert_contains(&problems(&library, 1), &[expected, "myc_kernels.plugin.json` are both called `myc`"]);
    fs::copy(&library, folder.join("libother.so")).unwrap();
    fs::write(&second, kernels.replace("libmyc.so", "libother.so")).unwrap();
    // The other library has no manifest for its backend.
    let text = problems(&folder, 2);
    assert_contains(&text, &["second.plugin.json` have one name, `myc`: a program uses the first"]);
}

#[test]
fn two_manifests_with_one_name_are_a_problem() {
    let (_kept, folder) = folder();
    let library = build_with_manifest(&folder, &[]);
    write_manifest(&folder, "other", &[]);
    for file in [&library, &folder] {
        let text = problems(file, 1);
        assert_contains(&text, &["other.plugin.json` and `", "acme.plugin.json` are both called `acme`"]);
    }
}

#[test]
fn two_libraries_with_one_name_are_a_problem_of_their_folder() {
    let (_kept, folder) = folder();
    let library = build_with_manifest(&folder, &[]);
    fs::copy(&library, folder.join("libother.so")).unwrap();
    write_manifest(&folder, "other", &[("libacme.so", "libother.so")]);
    let text = problems(&folder, 1);
    let expected = "other.plugin.json` have one name, `acme`: a program uses the first";
    assert_contains(&text, &["acme.plugin.json` and `", expected]);
    assert_eq!(check(&library).0, 0);
}

#[test]
fn a_manifest_that_programs_skip_is_a_problem_once() {
    let (_kept, folder) = folder();
    let library = build_with_manifest(&folder, &[]);
    let wrong = write_manifest(&folder, "wrong", &[(r#""name": "acme""#, r#""name": "Acme""#)]);
    let other =
        write_manifest(&folder, "other", &[("libacme.so", "libother.so"), (r#""acme""#, r#""Other""#)]);
    let reason =
        format!("problem: programs skip the manifest `{}`: `name` is `\"Acme\"`; expected", wrong.display());
    assert_contains(&problems(&library, 1), &[&reason]);
    assert_contains(&problems(&wrong, 1), &[&reason]);
    let text = problems(&folder, 2);
    assert_contains(&text, &[&reason, &format!("programs skip the manifest `{}`", other.display())]);
    // One that is no JSON could be of this library.
    fs::remove_file(other).unwrap();
    fs::write(&wrong, "{").unwrap();
    assert_contains(&problems(&library, 1), &["it is not JSON: EOF"]);
    fs::write(&wrong, r#"{"group": "codec.decoders"}"#).unwrap();
    assert_eq!(check(&library).0, 0);
    let missing = write_manifest(&folder, "missing", &[("libacme.so", "absent.so")]);
    let text = problems(&missing, 1);
    assert_contains(
        &text,
        &["problem: cannot open `", "absent.so`: No such file", "missing.plugin.json` names\n"],
    );
}

#[test]
fn what_a_library_exports_and_where_it_looks_for_others_is_shown() {
    let (_kept, folder) = folder();
    let library = build_with_manifest(&folder, &["-fvisibility=default", "-Wl,-rpath,lib:/opt/lib:$ORIGIN"]);
    let text = problems(&library, 1);
    let parts = [
        "problem: what the library needs is looked for in `lib` (RUNPATH), below the current directory\n",
        "warning: what the library needs is looked for in `/opt/lib` (RUNPATH), which other machines may not have\n",
    ];
    assert_contains(&text, &parts);
    assert!(!text.contains("`$ORIGIN` (RUNPATH)"), "{text}");
    let (code, text) = check(&build_with_manifest(&folder, &["-DEXPORTED=acme_version"]));
    assert_eq!(code, 0, "{text}");
    let note = "note: the library exports a symbol that no program uses\n";
    assert_contains(&text, &["  exports   device_plugin_v0, acme_version\n", note]);
    assert!(!text.contains("warning: "), "{text}");
    let (code, text) = check(&build_with_manifest(&folder, &["-DEXPORTED=__start_linkme_ENTRIES"]));
    assert_eq!(code, 0, "{text}");
    let warning = "warning: the library exports `__start_linkme_ENTRIES` with the default visibility";
    assert_contains(&text, &[warning, "  exports   device_plugin_v0, bounds of sections of `linkme` (1)\n"]);
}
