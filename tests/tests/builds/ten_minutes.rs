//! `docs/ten-minutes.md`, done step by step: what it shows is what is printed. The page is written for Linux.

#![cfg(target_os = "linux")]

use std::fs;

use device_registry_tests::{Project, artifacts, run, workspace};

/// A block of code of the page: its language and its text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let parts = page.split("\n```").collect::<Vec<_>>();
    // The texts between the blocks alternate with them.
    parts.iter().skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// Whether a line was printed, in which `…` stands for any text.
fn is_printed(printed: &str, line: &str) -> bool {
    printed.lines().any(|mut rest| {
        line.split('…').all(|part| {
            let found = rest.find(part);
            rest = found.map_or(rest, |at| &rest[at + part.len()..]);
            found.is_some()
        })
    })
}

#[test]
fn the_page_prints_what_it_shows() {
    let page = fs::read_to_string(workspace().join("docs/ten-minutes.md")).expect("it is there");
    let blocks = blocks(&page);
    let project = Project::new("ten-minutes", "", &[("src/main.rs", "fn main() {}")]);
    let has_driver = device_registry::is_available("opencl");
    let (mut has_installed, mut compared, mut outcome) = (false, 0, None);
    for (language, text) in blocks {
        match language {
            "toml" => project.write_manifest(&text.replace("../device-registry/crates", "@crates")),
            "rust" => project.write("src/main.rs", text),
            "sh" if text.starts_with("sudo apt-get install ") => has_installed = true,
            "sh" if text.starts_with("cargo new ") => {}
            "sh" => {
                let (variables, arguments) = text.split_once("cargo run").expect("it runs the program");
                let arguments = arguments.trim().trim_start_matches("-q");
                let build = run(&mut project.cargo(["build", "--quiet"]));
                assert!(build.status.success(), "{build:?}");
                let mut program = project.command(artifacts().join("debug").join(project.name()));
                program.env_remove("DEVICE_DEFAULT");
                if let Some((name, value)) = variables.trim().split_once('=') {
                    program.env(name, value.trim_matches('\''));
                }
                if !has_installed {
                    // A machine without drivers.
                    program.env("OCL_ICD_VENDORS", "/nonexistent");
                }
                let arguments = arguments.trim().trim_start_matches("-- ");
                program.args(Some(arguments.trim_matches('\'')).filter(|list| !list.is_empty()));
                outcome = Some(run(&mut program));
            }
            "text" if has_installed && !has_driver => {
                eprintln!("skipped: this machine has no driver for OpenCL");
            }
            "text" => {
                let outcome = outcome.take().expect("a command stands before what it prints");
                let printed = format!("{}{}", outcome.stdout, outcome.stderr);
                for line in text.lines() {
                    assert!(is_printed(&printed, line), "{}: {line:?} in {printed}", outcome.command);
                }
                compared += 1;
            }
            other => panic!("a block in {other}"),
        }
    }
    assert!(compared >= if has_driver { 6 } else { 3 }, "{compared} outputs were compared");
}

#[test]
fn three_dots_stand_for_any_text() {
    let printed = "Error: a\n  b: the driver is not here; install it\n";
    assert!(is_printed(printed, "  b: …; install it") && is_printed(printed, "Error: a"));
    assert!(!is_printed(printed, "  b: …; remove it") && !is_printed(printed, "Error: b"));
}
