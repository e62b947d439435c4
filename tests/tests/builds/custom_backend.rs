//! The example `custom-backend`, a workspace of its own: as it stands in the source tree, and copied out of
//! it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use device_registry_tests::{Outcome, Project, artifacts, files_in, run};

const EXAMPLE: &str = "examples/custom-backend";
const LOCK: &str = include_str!("../../../examples/custom-backend/Cargo.lock");
const ROOT_LOCK: &str = include_str!("../../../Cargo.lock");

/// The line of the program's manifest that adds the first backend.
const BACKEND: &str = "device-mycpu = { path = \"../device-mycpu\" }\n";

/// The backends whose sources are templates.
const BACKENDS: [&str; 3] = ["mycpu", "myfence", "myqueue"];

fn example() -> Project {
    Project::in_source_tree("custom-backend", EXAMPLE)
}

/// Every file of the example, with the time of its last change.
fn files() -> BTreeMap<PathBuf, SystemTime> {
    let files = files_in(example().folder()).into_iter();
    let changed = |file: &PathBuf| fs::metadata(file).and_then(|metadata| metadata.modified());
    files.map(|file| (file.clone(), changed(&file).expect("the file is there"))).collect()
}

/// Cargo in the example's folder, with its lock file as it is. It has to leave the source tree alone.
fn cargo(arguments: &[&str]) -> Outcome {
    let before = files();
    let outcome = run(example().cargo(["--locked", "--quiet"]).args(arguments));
    assert_eq!(files(), before, "{arguments:?} changes files in {EXAMPLE}");
    outcome
}

#[test]
fn the_program_prints_a_tensor_on_the_device_that_its_argument_names() {
    let mycpu = cargo(&["run", "--", "mycpu"]).success();
    assert_eq!(mycpu.stdout, "tensor([1, 2, 3], device='mycpu:0')\n");
    assert_eq!(mycpu.stderr, "", "it builds without warnings");
    assert_eq!(cargo(&["run", "--", "mycpu:0"]).success().stdout, mycpu.stdout);
    assert_eq!(cargo(&["run", "--", "cpu"]).success().stdout, "tensor([1, 2, 3])\n");
    for device in ["myfence:1", "myqueue:0", "myqueue:1"] {
        let printed = cargo(&["run", "--", device]).success().stdout;
        assert_eq!(printed, format!("tensor([1, 2, 3], device='{device}')\n"));
    }
}

#[test]
fn errors_for_wrong_devices_list_what_there_is() {
    let unknown = cargo(&["run", "--", "mygpu"]).failure();
    assert_eq!((unknown.status.code(), &*unknown.stdout), (Some(1), ""));
    unknown.shows("error: no backend called `mygpu` is linked into this program");
    unknown.shows("mycpu    device-mycpu     0.1.0    linked");
    unknown.shows("myfence  device-myfence   0.1.0    linked");
    unknown.shows("myqueue  device-myqueue   0.1.0    linked");
    cargo(&["run", "--", "mycpu:1"]).failure().shows("unknown device index 1: `mycpu` has 1 device");
    for arguments in [&["run"][..], &["run", "--", "cpu", "mycpu"]] {
        let usage = cargo(arguments).failure();
        assert_eq!((usage.status.code(), &*usage.stdout), (Some(2), ""));
        usage.shows("usage: tensor-app DEVICE");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn backends_in_files_are_used_as_the_readme_says() {
    let folder = artifacts().join("custom-backend-plugins");
    fs::create_dir_all(&folder).expect("there is room");
    let path = folder.to_str().expect("the temporary folder has a name in UTF-8");
    let _ = run(example().command("sh").args(["c/build.sh", path])).success();
    let built = cargo(&["build", "-p", "device-mycpu-file"]).success();
    assert_eq!(built.stderr, "", "it builds without warnings");
    let copy = |from: PathBuf| {
        let name = from.file_name().expect("it is a file");
        fs::copy(&from, folder.join(name)).expect("it was built");
    };
    copy(artifacts().join("debug/libdevice_mycpu_file.so"));
    copy(example().folder().join("device-mycpu-file/mycpu_file.plugin.json"));

    for device in ["myc:0", "myc:1", "mycqueue:1", "mycpu_file:0"] {
        let printed = cargo(&["run", "--", device, "--plugins", path]).success().stdout;
        assert_eq!(printed, format!("tensor([1, 2, 3], device='{device}')\n"));
    }
    let unknown = cargo(&["run", "--", "mygpu", "--plugins", path]).failure();
    unknown.shows("custom-backend-plugins (5 manifests)");
    cargo(&["run", "--", "myc"]).failure().shows("no backend called `myc` is linked");
}

#[test]
fn its_own_tests_pass() {
    // Of two equal devices, the second runs the suite.
    let skips = ["--skip", "myfence:0::", "--skip", "myqueue:0::"];
    let outcome = cargo(&[&["test", "--", "--format", "pretty"], &skips[..]].concat()).success();
    outcome.shows("test it_has_one_device ... ok");
    outcome.shows("test a_panic_in_queued_work_is_an_error_and_the_stream_recovers ... ok");
    outcome.shows("test a_thousand_copies_with_an_event_each_are_few_submissions ... ok");
    for device in ["mycpu:0", "myfence:1", "myqueue:1"] {
        for test in [
            "memory::round_trip",
            "copies::copy_within_at_every_place",
            "threads::copies_in_opposite_directions",
            "programs::of_several_streams",
        ] {
            let line = format!("test {device}::{test} ");
            let passed =
                outcome.lines().into_iter().any(|of| of.starts_with(&line) && of.ends_with("... ok"));
            assert!(passed, "{device}::{test} should have passed: {outcome:?}");
        }
    }
}

#[test]
fn no_source_line_of_the_program_names_a_backend() {
    let sources = files_in(&example().folder().join("tensor-app/src"));
    assert!(!sources.is_empty());
    for file in sources {
        let source = fs::read_to_string(&file).expect("it is text");
        for backend in BACKENDS {
            assert!(!source.contains(backend), "{} names `{backend}`", file.display());
        }
    }
}

/// The guide for authors of backends.
const GUIDE: &str = include_str!("../../../docs/new-backend.md");

#[test]
fn the_guide_quotes_the_templates() {
    let sources = BACKENDS.map(|backend| files_in(&example().folder().join(format!("device-{backend}"))));
    let sources = sources.iter().flatten().filter(|file| file.extension().is_some_and(|of| of == "rs"));
    let text: String = sources.map(|file| fs::read_to_string(file).expect("it is text")).collect();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let blocks: Vec<_> =
        GUIDE.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    for line in blocks.into_iter().flat_map(str::lines) {
        assert!(line.trim().is_empty() || lines.contains(&line.trim()), "no template has the line `{line}`");
    }
}

/// A copy elsewhere, with other paths to the workspace's crates, and `line` in place of the program's
/// [`BACKEND`].
fn copy(name: &'static str, line: &str) -> Project {
    let paths = [
        "Cargo.toml",
        "Cargo.lock",
        "device-mycpu/Cargo.toml",
        "device-mycpu/src/lib.rs",
        "device-mycpu/tests/conformance.rs",
        "device-mycpu-file/Cargo.toml",
        "device-mycpu-file/src/lib.rs",
        "device-myfence/Cargo.toml",
        "device-myfence/src/lib.rs",
        "device-myfence/src/hardware.rs",
        "device-myfence/src/memory.rs",
        "device-myfence/src/stream.rs",
        "device-myfence/tests/conformance.rs",
        "device-myqueue/Cargo.toml",
        "device-myqueue/src/lib.rs",
        "device-myqueue/src/event.rs",
        "device-myqueue/src/memory.rs",
        "device-myqueue/src/stream.rs",
        "device-myqueue/tests/conformance.rs",
        "tensor-app/Cargo.toml",
        "tensor-app/src/main.rs",
    ];
    let texts = paths.map(|path| {
        let text = fs::read_to_string(example().folder().join(path)).expect("it is part of the example");
        let text = text.replace("../../crates", "@crates");
        let text = if path.starts_with("tensor-app") { text.replace(BACKEND, line) } else { text };
        // The name of the program too, which is a file in the target folder of all projects.
        text.replace("name = \"tensor-app\"", "name = \"@name\"")
    });
    let files: Vec<_> = paths.into_iter().zip(texts.iter().map(String::as_str)).collect();
    // The example's manifest and lock file come after those that every project has, and stay.
    Project::new(name, "", &files)
}

#[test]
fn a_copy_elsewhere_needs_other_paths_and_no_other_change() {
    // Sorted as `tensor-app` is, or the lock file would not be as Cargo writes it.
    let project = copy("tensor-app-copy", BACKEND);
    let outcome = run(&mut project.cargo(["--locked", "run", "--quiet", "--", "mycpu"])).success();
    assert_eq!(outcome.stdout, "tensor([1, 2, 3], device='mycpu:0')\n");
}

#[test]
fn without_its_line_in_the_manifest_the_backend_is_not_there() {
    let project = copy("tensor-app-gone", "");
    let outcome = run(&mut project.cargo(["run", "--quiet", "--", "mycpu"])).failure();
    assert_eq!(outcome.status.code(), Some(1));
    outcome.shows("no backend called `mycpu` is linked into this program");
    outcome.shows("so `device-mycpu` in this program's Cargo.toml would add it");
}

/// The packages of a lock file that come from a registry: name, version, and where from.
fn fetched(lock: &str) -> Vec<[&str; 3]> {
    lock.split("[[package]]\n")
        .skip(1)
        .filter_map(|package| {
            let value = |key| package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            Some([value("name")?, value("version")?, value("source")?])
        })
        .collect()
}

#[test]
fn both_lock_files_have_the_same_versions() {
    let (ours, root) = (fetched(LOCK), fetched(ROOT_LOCK));
    assert!(!ours.is_empty(), "the lock file is not understood:\n{LOCK}");
    for package in ours {
        let [name, version, _] = package;
        let there: Vec<_> = root.iter().filter(|[other, ..]| *other == name).collect();
        assert!(
            there.contains(&&package),
            "{EXAMPLE}/Cargo.lock has {name} {version}, and the Cargo.lock of the repository has {there:?}. Only what \
             the latter has is there in a build without a network: after `cargo update` in one of them, copy \
             Cargo.lock to {EXAMPLE} and run `cargo metadata` there, which drops what is not needed"
        );
    }
}
