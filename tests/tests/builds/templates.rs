//! The projects in `templates`: the sources of three are those of `examples/custom-backend`, and each builds
//! and passes its own tests once its placeholders are filled.
//!
//! With the variable `DEVICE_WRITE_TEMPLATES` set, the first test writes those sources.

use std::{env, fs};

use device_registry_tests::{Project, files_in, run, workspace};

/// A template whose sources come from an example, and what takes the place of its names there.
struct Derived {
    template: &'static str,
    example: &'static str,
    /// Pairs: a text of the example, and its placeholder. Of two that overlap, the longer one stands first.
    placeholders: &'static [[&'static str; 2]],
}

const DERIVED: [Derived; 3] = [
    Derived {
        template: "backend",
        example: "device-mycpu",
        placeholders: &[
            ["device-mycpu", "{{project-name}}"],
            ["MYCPU", "{{backend | shouty_snake_case}}"],
            ["mycpu", "{{backend}}"],
        ],
    },
    Derived {
        template: "backend-with-queues",
        example: "device-myqueue",
        placeholders: &[
            ["device-myqueue", "{{project-name}}"],
            ["device_myqueue", "{{crate_name}}"],
            ["MYQUEUE", "{{backend | shouty_snake_case}}"],
            ["myqueue", "{{backend}}"],
            [
                "Read `device-mycpu` first: it explains the parts that every backend has. docs/new-backend.md says what to\n\
                 //! change in a real one, such as where to look for a driver.",
                "README.md says what to change in a real one.",
            ],
        ],
    },
    Derived {
        template: "backend-in-c",
        example: "c",
        placeholders: &[["device-myc", "{{project-name}}"], ["myc", "{{backend}}"]],
    },
];

/// The manifest of a crate in the example names its workspace; a template has none.
fn manifest(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_suffix(".workspace = true") {
        Some(name) => format!("{name} = {{ path = \"{{{{registry}}}}/crates/{name}\" }}\n"),
        None if line == "publish = false" => String::new(),
        None => format!("{line}\n"),
    });
    lines.collect()
}

/// The files that a template takes from its example, each with its path in the template and its text.
fn derived(of: &Derived) -> Vec<(String, String)> {
    let folder = workspace().join("examples/custom-backend").join(of.example);
    let mut derived = Vec::new();
    for file in files_in(&folder) {
        let path = file.strip_prefix(&folder).expect("it lies there").to_str().expect("UTF-8");
        let path = path.replace('\\', "/");
        // The folder in C has a second backend too, and its own page and script.
        let is_of_another = of.example == "c"
            && (path.starts_with("mycqueue") || ["README.md", "build.sh", "faults.h"].contains(&&*path));
        if is_of_another {
            continue;
        }
        let text = fs::read_to_string(&file).expect("it is text").replace("\r\n", "\n");
        let text = if path == "Cargo.toml" { manifest(&text) } else { text };
        let replace = |text: String| {
            let text = of.placeholders.iter().fold(text, |text, [name, to]| text.replace(name, to));
            // The first two braces would be those of a placeholder.
            text.replace("{{{", "{ {{")
        };
        derived.push((replace(path), replace(text)));
    }
    derived
}

/// Does what cargo-generate does with the placeholders that stand here.
fn fill(text: &str, project: &str, backend: &str) -> String {
    let mut parts = text.split("{{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (placeholder, rest) = part.split_once("}}").expect("a placeholder ends");
        let value = match placeholder {
            "project-name" => project.to_owned(),
            "crate_name" => project.replace('-', "_"),
            "backend" => backend.to_owned(),
            "backend | shouty_snake_case" => backend.to_uppercase(),
            "registry" => workspace().display().to_string().replace('\\', "/"),
            other => panic!("{other:?} is no placeholder: {text}"),
        };
        filled = filled + &value + rest;
    }
    assert!(!filled.contains("{%"), "a tag of the template language: {text}");
    filled
}

/// The files of a template, as a user gets them.
fn generated(template: &str, project: &str, backend: &str) -> Vec<(String, String)> {
    let folder = workspace().join("templates").join(template);
    let files = files_in(&folder).into_iter().filter_map(|file| {
        let path = file.strip_prefix(&folder).expect("it lies there").to_str().expect("UTF-8");
        let text = fs::read_to_string(&file).expect("it is text");
        let path = fill(&path.replace('\\', "/"), project, backend);
        (path != "cargo-generate.toml").then(|| (path, fill(&text, project, backend)))
    });
    files.collect()
}

/// Writes a project from a template. Its backend has another name than the example's.
fn project(template: &str, name: &'static str, backend: &str) -> Project {
    let files = generated(template, name, backend);
    let files: Vec<_> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
    Project::new(name, "", &files)
}

#[test]
fn the_sources_are_those_of_the_examples() {
    for of in &DERIVED {
        let folder = workspace().join("templates").join(of.template);
        for (path, text) in derived(of) {
            let file = folder.join(&path);
            if env::var_os("DEVICE_WRITE_TEMPLATES").is_some() {
                fs::create_dir_all(file.parent().expect("it lies in the folder")).expect("there is room");
                fs::write(&file, &text).expect("there is room");
            }
            let found = fs::read_to_string(&file).unwrap_or_default().replace("\r\n", "\n");
            assert!(
                found == text,
                "{} is not what {} has: DEVICE_WRITE_TEMPLATES=1 writes it",
                file.display(),
                of.example
            );
        }
    }
}

/// A type or a function that has the name of the backend does not compile if that is `span`, `device` or
/// `mod`. The `static` is in capitals, which nothing else is but `BACKENDS`.
#[test]
fn the_name_of_a_backend_is_no_name_in_its_source() {
    for of in &DERIVED {
        for (path, text) in derived(of).iter().filter(|(path, _)| path.ends_with(".rs")) {
            for line in text.lines() {
                let code = line.split("//").next().unwrap_or_default();
                for (at, _) in code.match_indices("{{backend") {
                    let before = &code[..at];
                    assert!(before.ends_with('"') || before.ends_with("pub static "), "{path}: {line}");
                }
            }
        }
    }
}

#[test]
fn a_program_prints_a_tensor_and_passes_its_tests() {
    let project = project("program", "from-a-template", "");
    let printed = |list: &str| run(&mut project.cargo(["run", "--quiet", "--", list]));
    assert_eq!(printed("*:gpu,openreg:1").success().stdout, "tensor([1, 2, 3], device='openreg:1')\n");
    let unknown = printed("opnreg").failure();
    unknown.shows("no backend called `opnreg` is linked into this program");
    run(&mut project.cargo(["test", "--quiet"])).success().shows("test result: ok. 1 passed");
}

#[test]
#[ignore = "slow: two builds, and the suite on both"]
fn a_backend_passes_its_tests_under_a_name_of_its_own() {
    for (template, name, backend) in
        [("backend", "device-acme-one", "memory"), ("backend-with-queues", "device-acme-two", "acme_gpu")]
    {
        let project = project(template, name, backend);
        let outcome = run(&mut project.cargo(["test", "--", "--format", "pretty"])).success();
        outcome.shows(&format!("test {backend}:0::memory::round_trip"));
        assert!(!outcome.stderr.contains("warning"), "{}", outcome.stderr);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_backend_in_c_is_used_from_its_file() {
    let project = project("backend-in-c", "device-acme-three", "acme_c");
    let folder = project.folder().join("plugins");
    fs::create_dir_all(&folder).expect("there is room");
    let path = folder.to_str().expect("UTF-8");
    let _ = run(project.command("sh").args(["build.sh", path])).success();
    let example = Project::in_source_tree("custom-backend", "examples/custom-backend");
    let arguments = ["--locked", "run", "--quiet", "--", "acme_c:1", "--plugins", path];
    let printed = run(&mut example.cargo(arguments)).success().stdout;
    assert_eq!(printed, "tensor([1, 2, 3], device='acme_c:1')\n");
    // The next test run begins without it: what `Project` finds here is a part of the project.
    fs::remove_dir_all(&folder).expect("it was written");
}
