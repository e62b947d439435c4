//! A machine without a driver, with one that does not start, and with one that is too old: a reason and no
//! panic. The drivers are simulated, or no libraries at all, so that it is the same with and without a GPU.
#![cfg(target_os = "linux")]

use std::path::Path;

use device_conformance::process;
use device_registry::registry::LoadError;
use device_registry::{BackendErrorKind, backends, device};

mod child;

device_registry::autoload!();

/// What asking for the backend comes to in a child: whether it is unavailable rather than broken, and the
/// reason.
fn asked(test: &str, folder: &Path, variables: &[(&str, &str)]) -> (bool, String) {
    if process::is_child() {
        match backends().load("cuda") {
            Err(LoadError::Unavailable { failure, .. }) => eprintln!("<unavailable>{failure}"),
            Err(LoadError::Failed { failure, .. }) => eprintln!("<failed>{}", failure.messages().join(": ")),
            other => panic!("{:?}", other.map(|backend| backend.device_count())),
        }
        std::process::exit(0);
    }
    let output = child::again(test, Some(folder), variables);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{printed}");
    let (kind, reason) = printed.split_once('<').and_then(|(_, said)| said.split_once('>')).unwrap();
    (kind == "unavailable", reason.trim_end().to_owned())
}

/// The unavailable backend's reason.
fn reason(test: &str, folder: &Path, variables: &[(&str, &str)]) -> String {
    let (unavailable, reason) = asked(test, folder, variables);
    assert!(unavailable, "{variables:?}: {reason}");
    reason
}

/// Only the parent prepares a child's folder.
fn unless_child<T>(make: impl FnOnce() -> T) -> Option<T> {
    (!process::is_child()).then(make)
}

#[test]
fn without_a_driver_it_says_what_was_tried_and_what_to_install() {
    let folder = unless_child(child::no_driver);
    let folder = folder.as_ref().map_or(Path::new(""), |folder| folder.path());
    let reason = reason("without_a_driver_it_says_what_was_tried_and_what_to_install", folder, &[]);
    for part in ["libcuda.so.1", "install the NVIDIA driver, 470", "the CUDA toolkit is not needed"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
}

#[test]
fn a_driver_that_is_too_old_is_named_with_what_it_lacks() {
    const TEST: &str = "a_driver_that_is_too_old_is_named_with_what_it_lacks";
    for function in ["cuDeviceGetUuid_v2", "cuLaunchHostFunc", "cuEventElapsedTime"] {
        let folder = unless_child(|| child::driver_without(function));
        let folder = folder.as_ref().map_or(Path::new(""), |folder| folder.path());
        let reason = reason(TEST, folder, &[]);
        assert!(reason.contains(&format!("no `{function}`")) && reason.contains("470"), "{reason}");
    }
}

#[test]
fn a_driver_that_cannot_be_used_here_says_what_to_do() {
    const TEST: &str = "a_driver_that_cannot_be_used_here_says_what_to_do";
    for (code, name, advice) in [
        ("34", "CUDA_ERROR_STUB_LIBRARY", "the stub of the CUDA toolkit in place of"),
        ("46", "CUDA_ERROR_DEVICE_UNAVAILABLE", "another process has exclusive use"),
        ("100", "CUDA_ERROR_NO_DEVICE", "the NVIDIA driver is installed and finds no device"),
        ("101", "CUDA_ERROR_INVALID_DEVICE", "finds no usable device"),
        ("802", "CUDA_ERROR_SYSTEM_NOT_READY", "a service that the driver needs is not running"),
        ("803", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart the machine"),
        ("804", "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility"),
        ("805", "CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS"),
    ] {
        let reason = reason(TEST, &child_folder(), &[("SIMULATED_CUDA_INIT", code)]);
        for part in [name, advice, "`cuInit`"] {
            assert!(reason.contains(part), "{code}: {part}: {reason}");
        }
        assert!(!reason.contains("CUDA_VISIBLE_DEVICES"), "it is not set: {reason}");
    }
}

#[test]
fn devices_that_a_variable_hides_are_not_installed_in_vain() {
    const TEST: &str = "devices_that_a_variable_hides_are_not_installed_in_vain";
    let variables = [("SIMULATED_CUDA_INIT", "100"), ("CUDA_VISIBLE_DEVICES", "none of them")];
    let reason = reason(TEST, &child_folder(), &variables);
    assert!(reason.contains("CUDA_VISIBLE_DEVICES is `none of them`"), "{reason}");
}

/// A code that this version knows, one that says nothing, and one that no version knows: a Rust enum of codes
/// would be undefined behaviour then.
#[test]
fn a_driver_that_does_not_start_is_broken_whatever_its_code() {
    const TEST: &str = "a_driver_that_does_not_start_is_broken_whatever_its_code";
    for (code, part) in [
        ("2", "does not start: `cuInit` returned CUDA_ERROR_OUT_OF_MEMORY (2)"),
        (
            "999",
            "the kernel module nvidia-uvm is loaded, and that /dev/nvidia-uvm exists: `cuInit` returned error 999",
        ),
        ("54321", "does not start: `cuInit` returned error 54321, which this driver has no name for"),
    ] {
        let (unavailable, reason) = asked(TEST, &child_folder(), &[("SIMULATED_CUDA_INIT", code)]);
        assert!(!unavailable && reason.contains(part), "{reason}");
        assert_eq!(reason.contains("nvidia-uvm"), code == "999", "{reason}");
    }
}

/// The driver starts and one device is another process's: the error comes when it is opened, and the backend
/// is there.
#[test]
fn a_device_that_another_process_has_for_itself_is_unavailable() {
    const TEST: &str = "a_device_that_another_process_has_for_itself_is_unavailable";
    if !process::is_child() {
        let variables = [("SIMULATED_CUDA_REFUSE", "cuDevicePrimaryCtxRetain:46@1")];
        return child::passes(TEST, Some(&child::simulated()), &variables);
    }
    let error = device("cuda:0").unwrap().allocate(16).unwrap_err();
    let kind = error.backend_error().map(|error| error.kind());
    assert_eq!(kind, Some(BackendErrorKind::Unavailable), "{error}");
    for part in
        ["another process has exclusive use", "CUDA_ERROR_DEVICE_UNAVAILABLE (46)", "nvidia-smi -c DEFAULT"]
    {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    // It may be free a moment later, and the other one is free all the time.
    device("cuda:1").unwrap().allocate(16).unwrap();
    device("cuda:0").unwrap().allocate(16).unwrap();
}

/// Where the simulated driver is, for the parent.
fn child_folder() -> std::path::PathBuf {
    unless_child(child::simulated).unwrap_or_default()
}
