//! No driver, a broken one, and what the environment asks for: each in its own process.

#![cfg(target_os = "linux")]

mod child;

use std::fs;
use std::path::{Path, PathBuf};

use device_conformance::process;
use device_registry::registry::LoadError;
use device_registry::{DeviceError, device};

use crate::child::CHILD;

device_registry::autoload!();

const ERROR: &str = "the error: ";

/// What the child does: uses a device, and prints why it cannot.
fn tell() {
    let device = device("wgpu").unwrap();
    match device.open() {
        Ok(()) => println!("opened: {}", device.properties().unwrap()),
        Err(DeviceError::Backend(error)) => {
            let unavailable = matches!(error, LoadError::Unavailable { .. });
            println!("{ERROR}{} {error}", if unavailable { "unavailable:" } else { "broken:" });
        }
        Err(error) => println!("{ERROR}other: {error}"),
    }
}

/// What the child of this test prints of its error, or else of its device.
fn reason(test: &str, variables: &[(&str, &str)]) -> String {
    let output = CHILD.again(test, variables);
    let (printed, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {printed} {complaints}", output.status);
    assert!(!complaints.contains("panicked"), "{complaints}");
    let line = printed.lines().find_map(|line| line.split_once(ERROR).or(line.split_once("opened: ")));
    line.unwrap_or_else(|| panic!("it printed nothing: {printed}")).1.to_owned()
}

fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&directory).unwrap();
    directory
}

#[test]
fn without_a_driver_it_is_unavailable_and_says_what_was_tried_and_what_to_install() {
    if process::is_child() {
        return tell();
    }
    for name in ["VK_ICD_FILENAMES", "VK_DRIVER_FILES"] {
        let reason = reason(
            "without_a_driver_it_is_unavailable_and_says_what_was_tried_and_what_to_install",
            // An older loader knows the first name only, and a newer one prefers the second.
            &[("VK_ICD_FILENAMES", "/nonexistent"), (name, "/nonexistent")],
        );
        assert!(reason.starts_with("unavailable: "), "{reason}");
        for part in [
            "no adapter was found through `vulkan`",
            "`mesa-vulkan-drivers`",
            &format!("{name} is `/nonexistent`"),
        ] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
        assert!(!reason.contains("WGPU_BACKEND"), "it is not set: {reason}");
    }
}

#[test]
fn a_driver_that_names_a_library_that_does_not_exist_is_none() {
    if process::is_child() {
        return tell();
    }
    let manifest = directory("no_library").join("none.json");
    let icd = r#"{ "library_path": "/nonexistent/libvulkan_none.so", "api_version": "1.3.0" }"#;
    fs::write(&manifest, format!(r#"{{ "file_format_version": "1.0.0", "ICD": {icd} }}"#)).unwrap();
    let manifest = manifest.to_str().unwrap();
    let reason = reason(
        "a_driver_that_names_a_library_that_does_not_exist_is_none",
        &[("VK_ICD_FILENAMES", manifest), ("VK_DRIVER_FILES", manifest)],
    );
    assert!(reason.starts_with("unavailable: ") && reason.contains(manifest), "{reason}");
}

#[test]
fn a_loader_that_cannot_be_opened_is_named() {
    if process::is_child() {
        return tell();
    }
    let directory = directory("no_loader");
    for name in ["libvulkan.so.1", "libvulkan.so"] {
        fs::write(directory.join(name), "no library").unwrap();
    }
    let reason = reason(
        "a_loader_that_cannot_be_opened_is_named",
        &[("LD_LIBRARY_PATH", directory.to_str().unwrap())],
    );
    assert!(reason.starts_with("unavailable: "), "{reason}");
    assert!(
        reason.contains("Vulkan's loader cannot be opened (") && reason.contains("libvulkan.so"),
        "{reason}"
    );
}

#[test]
fn an_interface_that_nobody_knows_is_an_error_that_lists_those_there_are() {
    if process::is_child() {
        return tell();
    }
    let reason = reason(
        "an_interface_that_nobody_knows_is_an_error_that_lists_those_there_are",
        &[("WGPU_BACKEND", "nonsense")],
    );
    assert!(reason.starts_with("broken: "), "{reason}");
    assert!(
        reason.contains("found `nonsense`") && reason.contains("`vulkan`, `metal`, `dx12`, `gl`"),
        "{reason}"
    );
}

#[test]
fn an_empty_choice_of_interfaces_is_none() {
    if process::is_child() {
        return tell();
    }
    let test = "an_empty_choice_of_interfaces_is_none";
    let nowhere = ["VK_ICD_FILENAMES", "VK_DRIVER_FILES"].map(|name| (name, "/nonexistent"));
    let reason = reason(test, &[("WGPU_BACKEND", ""), nowhere[0], nowhere[1]]);
    assert!(
        reason.starts_with("unavailable: ") && reason.contains("no adapter was found through `vulkan`"),
        "{reason}"
    );
    assert!(!reason.contains("WGPU_BACKEND"), "no variable is set: {reason}");
}

#[test]
fn an_interface_of_another_system_is_unavailable() {
    if process::is_child() {
        return tell();
    }
    let reason = reason("an_interface_of_another_system_is_unavailable", &[("WGPU_BACKEND", "metal,dx12")]);
    assert!(
        reason.starts_with("unavailable: ") && reason.contains("expected one of `vulkan`, `gl`"),
        "{reason}"
    );
}

#[test]
fn opengl_is_there_when_it_is_asked_for_and_only_then() {
    if process::is_child() {
        return tell();
    }
    let test = "opengl_is_there_when_it_is_asked_for_and_only_then";
    let asked = reason(test, &[("WGPU_BACKEND", "gl")]);
    // Whether the machine has it is not known here.
    assert!(
        asked.contains("OpenGL")
            || asked.contains("no adapter was found through `gl`, which WGPU_BACKEND chooses"),
        "{asked}"
    );
    assert!(!asked.contains("Vulkan"), "{asked}");
    assert!(!reason(test, &[]).contains("OpenGL"));
}
