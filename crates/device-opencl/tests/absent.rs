//! Machines without OpenCL, or with an unusable OpenCL.
#![cfg(target_os = "linux")]

mod child;
#[allow(dead_code, reason = "not every test program needs all of it")]
mod standin;

use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;

use device_conformance::{device_or_skip, process};
use device_registry::backend::{Backend, BackendErrorKind};
use device_registry::registry::LoadError;
use device_registry::{AttributeValue, DeviceError, DeviceKind, backends, device, first_available};

use crate::child::CHILD;

device_registry::autoload!();

/// Runs the test of this name in a process with these variables. Returns whether this is that process.
fn is_here(test: &str, variables: &[(&str, &str)]) -> bool {
    if !process::is_child() {
        CHILD.passes(test, variables);
    }
    process::is_child()
}

/// A folder of a test, with a file in it.
fn folder(test: &str, file: &str, content: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(file), content).unwrap();
    folder
}

/// The reason for which the backend is unavailable, which is not the same as broken; and that nothing else of
/// the program is harmed.
#[track_caller]
fn reason() -> String {
    let error = device("opencl").and_then(|device| device.open()).unwrap_err();
    let failure = load().map(drop).unwrap_err();
    assert!(failure.failure().is_some_and(|failure| failure.is_unavailable()), "{failure}");
    assert!(device("cpu").unwrap().allocate(1).is_ok());
    // The same again, and not some error that the first one has left.
    let again = device("opencl").and_then(|device| device.open()).unwrap_err();
    assert_eq!(error.to_string(), again.to_string());
    format!("{error:#}: {failure}")
}

fn load() -> Result<&'static dyn Backend, LoadError> {
    backends().get("opencl").unwrap().load()
}

#[track_caller]
fn expect(reason: &str, parts: &[&str]) {
    for part in parts {
        assert!(reason.contains(part), "`{part}` is not in: {reason}");
    }
}

#[test]
fn without_a_platform_the_reason_names_the_folder_and_what_to_install() {
    let variables = [("OCL_ICD_VENDORS", "/nonexistent")];
    if is_here("without_a_platform_the_reason_names_the_folder_and_what_to_install", &variables)
        && loader_is_there()
    {
        let parts = ["it has no platform", "OCL_ICD_VENDORS is set to `/nonexistent`", "pocl-opencl-icd"];
        expect(&reason(), &parts);
    }
}

/// Whether this machine has a loader, without which there is no other reason than that.
fn loader_is_there() -> bool {
    let there = device_opencl::OpenClFunctions::open().is_ok();
    if !there {
        eprintln!("skipped: there is not an OpenCL loader here");
    }
    there
}

#[test]
fn a_driver_that_is_not_there_is_no_platform() {
    const NAME: &str = "a_driver_that_is_not_there_is_no_platform";
    let folder = folder(NAME, "gone.icd", "/nonexistent/libgone.so\n");
    if is_here(NAME, &[("OCL_ICD_VENDORS", folder.to_str().unwrap())]) && loader_is_there() {
        expect(&reason(), &["it has no platform", NAME, "pocl-opencl-icd"]);
    }
}

#[test]
fn a_driver_that_is_no_library_is_no_platform() {
    const NAME: &str = "a_driver_that_is_no_library_is_no_platform";
    let driver = folder(NAME, "libtext.so", "this is text").join("libtext.so");
    let folder = folder(NAME, "text.icd", &format!("{}\n", driver.display()));
    if is_here(NAME, &[("OCL_ICD_VENDORS", folder.to_str().unwrap())]) && loader_is_there() {
        expect(&reason(), &["it has no platform", NAME]);
    }
}

#[test]
fn without_a_platform_the_reason_says_what_rusticl_needs() {
    const NAME: &str = "without_a_platform_the_reason_says_what_rusticl_needs";
    let folder = folder(NAME, "rusticl.icd", "/nonexistent/libRusticlOpenCL.so.1\n");
    let variables = [("OCL_ICD_VENDORS", folder.to_str().unwrap()), ("RUSTICL_ENABLE", "")];
    if is_here(NAME, &variables) && loader_is_there() {
        expect(
            &reason(),
            &[
                "it has no platform",
                "rusticl.icd` is there, and RUSTICL_ENABLE is not set",
                "RUSTICL_ENABLE=llvmpipe",
            ],
        );
    }
}

#[test]
fn a_variable_that_one_loader_ignores_is_not_given_as_the_cause() {
    const NAME: &str = "a_variable_that_one_loader_ignores_is_not_given_as_the_cause";
    let file = folder(NAME, "gone.icd", "/nonexistent/libgone.so\n").join("gone.icd");
    let variables = [("OCL_ICD_VENDORS", file.to_str().unwrap()), ("OCL_ICD_FILENAMES", "/nonexistent/x.so")];
    if is_here(NAME, &variables) && loader_is_there() {
        expect(
            &reason(),
            &["gone.icd`, a file, which ocl-icd takes", "`/nonexistent/x.so`, which ocl-icd ignores"],
        );
    }
}

#[test]
fn a_loader_that_is_asked_for_and_not_there_is_said() {
    let variables = [("OPENCL_DYLIB_PATH", "/nonexistent/libOpenCL.so;/nonexistent/other.so")];
    if is_here("a_loader_that_is_asked_for_and_not_there_is_said", &variables) {
        let reason = reason();
        expect(
            &reason,
            &["OPENCL_DYLIB_PATH", "`/nonexistent/libOpenCL.so`", "`/nonexistent/other.so`", "unset it"],
        );
    }
}

#[test]
fn an_empty_name_of_a_loader_is_refused_and_not_the_program_itself() {
    const NAME: &str = "an_empty_name_of_a_loader_is_refused_and_not_the_program_itself";
    if !process::is_child() {
        for paths in ["", ";", "libOpenCL.so.1;", ";libOpenCL.so.1", "/nonexistent/libOpenCL.so;;"] {
            CHILD.passes(NAME, &[("OPENCL_DYLIB_PATH", paths)]);
        }
        return;
    }
    let paths = std::env::var("OPENCL_DYLIB_PATH").unwrap();
    let set = format!("OPENCL_DYLIB_PATH is set to `{paths}`, which has an empty name; unset it");
    expect(&reason(), &["no OpenCL loader", &set]);
}

#[test]
fn a_loader_that_is_no_library_is_said_with_what_to_install() {
    const NAME: &str = "a_loader_that_is_no_library_is_said_with_what_to_install";
    // The linker looks here first, and takes what it finds.
    let folder = folder(NAME, "libOpenCL.so.1", "this is text");
    if is_here(NAME, &[("LD_LIBRARY_PATH", folder.to_str().unwrap())]) {
        expect(&reason(), &["no OpenCL loader", "`libOpenCL.so.1`", "ocl-icd-libopencl1"]);
    }
}

#[test]
fn a_library_that_is_no_loader_is_said() {
    // Any library will do that is there on every Linux.
    if is_here("a_library_that_is_no_loader_is_said", &[("OPENCL_DYLIB_PATH", "libc.so.6")]) {
        expect(
            &reason(),
            &[
                "is not an OpenCL loader: it",
                "`clGetPlatformIDs`",
                "OPENCL_DYLIB_PATH is set to `libc.so.6`; unset it",
            ],
        );
    }
}

#[test]
fn a_loader_with_no_platforms_is_unavailable_and_one_that_fails_is_broken() {
    if standin::is_here("a_loader_with_no_platforms_is_unavailable_and_one_that_fails_is_broken") {
        standin::order("refuses", "clGetPlatformIDs:-6");
        let failure = load().map(drop).unwrap_err();
        assert!(failure.to_string().contains("clGetPlatformIDs: CL_OUT_OF_HOST_MEMORY (-6)"), "{failure}");
        assert!(failure.failure().is_some_and(|failure| !failure.is_unavailable()), "{failure}");
    }
}

#[test]
fn a_platform_that_is_broken_hides_no_other() {
    if standin::is_here("a_platform_that_is_broken_hides_no_other") {
        assert_eq!(load().unwrap().device_count().unwrap(), 3);
        device("opencl:2").unwrap().allocate(1).unwrap();
    }
}

#[test]
fn threads_that_ask_at_once_see_the_same_devices() {
    if standin::is_here("threads_that_ask_at_once_see_the_same_devices") {
        load().unwrap();
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            let counts: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        load().unwrap().device_count().unwrap()
                    })
                })
                .collect();
            assert_eq!(counts.into_iter().map(|count| count.join().unwrap()).collect::<Vec<_>>(), [3; 8]);
        });
    }
}

#[test]
fn if_all_platforms_are_broken_their_error_is_told() {
    if standin::is_here("if_all_platforms_are_broken_their_error_is_told") {
        standin::order("platforms", "Broken");
        let error = device("opencl:0").and_then(|device| device.open()).unwrap_err();
        assert!(error.to_string().contains("clGetDeviceIDs"), "{error}");
        assert!(error.to_string().contains("(-9999)"), "{error}");
    }
}

#[test]
fn a_platform_without_devices_hides_no_failure_of_another() {
    if standin::is_here("a_platform_without_devices_hides_no_failure_of_another") {
        standin::order("platforms", "Empty,Broken");
        let error = load().unwrap().device_count().unwrap_err();
        expect(&error.to_string(), &["clGetDeviceIDs", "(-9999)"]);
        // With a device there is no failure.
        standin::order("mended", "1");
        assert_eq!(load().unwrap().device_count().unwrap(), 1);
    }
}

#[test]
fn platforms_without_devices_are_unavailable_until_they_have_some() {
    const NAME: &str = "platforms_without_devices_are_unavailable_until_they_have_some";
    if standin::is_here(NAME) {
        standin::order("platforms", "Empty,Nothing");
        let backend = load().unwrap();
        let parts = ["`Empty`, `Nothing`", "POCL_DEVICES", "RUSTICL_ENABLE", "cache folder"];
        let error = backend.device_count().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Unavailable);
        expect(&error.to_string(), &parts);
        let error = device("opencl").and_then(|device| device.allocate(1)).unwrap_err();
        expect(&format!("{error:#}"), &parts);
        standin::order("mended", "1");
        assert_eq!(backend.device_count().unwrap(), 1);
        device("opencl").unwrap().allocate(1).unwrap();
    }
}

#[test]
fn devices_are_sorted_by_platform_and_know_where_they_are() {
    if standin::is_here("devices_are_sorted_by_platform_and_know_where_they_are") {
        let known = [0, 1, 2].map(|ordinal| {
            let properties = device(&format!("opencl:{ordinal}")).unwrap().properties().unwrap();
            (properties.name, properties.uuid.is_some(), properties.pci.unwrap().to_string())
        });
        let expected = [("Alpha 1", true, "3b"), ("Alpha 2", false, "3c"), ("Zeta 1", false, "3d")];
        let expected = expected.map(|(name, uuid, bus)| (name.to_owned(), uuid, format!("0000:{bus}:00.0")));
        assert_eq!(known, expected);
        let uuid = device("opencl@uuid=01020304-0506-0708-090a-0b0c0d0e0f10").unwrap();
        assert_eq!(uuid.properties().unwrap().name, "Alpha 1");
    }
}

#[test]
fn a_platform_is_chosen_by_its_name() {
    if standin::is_here("a_platform_is_chosen_by_its_name") {
        let zeta = device("opencl:2").unwrap();
        assert_eq!(device("opencl@platform=zeta").unwrap(), zeta);
        assert_eq!(device("opencl@name=Zeta 1").unwrap(), zeta);
        let listed = first_available("opencl@platform=Omega,opencl@platform=Zeta,cpu").unwrap();
        assert_eq!(listed.device, zeta);
        let excluded = first_available("*:gpu,!opencl@platform=Alpha,!*@name=x,cpu");
        assert!(excluded.is_err(), "a selector is of one backend");
        assert_eq!(first_available("*:gpu,!opencl@platform=Alpha,cpu").unwrap().device, zeta);
        let error = device("opencl@platform=Alpha").unwrap_err().to_string();
        expect(
            &error,
            &["matches 2 devices of `opencl`; write an index", "\n  opencl:1  Alpha 2, nobody, Alpha 7"],
        );
        let error = device("opencl@platform=rusticl").unwrap_err().to_string();
        expect(&error, &["matches none of the devices", "\n  opencl:2  Zeta 1, nobody, Zeta 7"]);
    }
}

#[test]
fn a_device_of_every_type_is_a_processor_and_no_gpu() {
    if standin::is_here("a_device_of_every_type_is_a_processor_and_no_gpu") {
        // Default, processor, GPU and accelerator, as of Oclgrind.
        standin::order("types", "15");
        assert_eq!(device("opencl:0").unwrap().properties().unwrap().kind, DeviceKind::Cpu);
        assert_eq!(first_available("*:gpu,cpu").unwrap().device.to_string(), "cpu");
    }
}

#[test]
fn a_device_of_a_real_platform_is_found_by_a_part_of_its_driver() {
    const NAME: &str = "a_device_of_a_real_platform_is_found_by_a_part_of_its_driver";
    if !is_here(NAME, &[]) {
        return;
    }
    let Some(first) = device_or_skip("opencl") else { return };
    // PoCL's is `Portable Computing Language 3.1+debian`.
    let driver = first.properties().unwrap().driver.unwrap();
    let word = driver.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap().to_uppercase();
    match device(&format!("opencl@platform={word}")) {
        Ok(found) => assert_eq!(found, first.resolve(), "{driver}"),
        // A machine may have several devices of one platform.
        Err(error) => expect(&error.to_string(), &["devices of `opencl`; write", &driver]),
    }
}

#[test]
fn an_attribute_of_0_is_unknown() {
    if standin::is_here("an_attribute_of_0_is_unknown") {
        let [known, unknown] =
            ["opencl:0", "opencl:1"].map(|name| device(name).unwrap().properties().unwrap().attributes);
        for (name, number) in [("clock_mhz", 1500), ("cache_bytes", 1 << 18), ("memory_alignment_bytes", 128)]
        {
            assert_eq!(known.get(name), Some(&AttributeValue::Integer(number)), "{name}");
            assert_eq!(unknown.get(name), None, "{name}");
        }
    }
}

#[test]
fn a_device_that_is_too_old_is_listed_and_says_what_is_needed() {
    if standin::is_here("a_device_that_is_too_old_is_listed_and_says_what_is_needed") {
        standin::order("version", "OpenCL 1.1 of long ago");
        let old = device("opencl:2").unwrap();
        assert_eq!(old.properties().unwrap().name, "Zeta 1");
        let DeviceError::Call { error, call: "open", .. } = old.open().unwrap_err() else {
            panic!("another error")
        };
        assert_eq!(error.kind(), BackendErrorKind::Unsupported);
        expect(&error.to_string(), &["OpenCL 1.1", "need 1.2"]);
    }
}

#[test]
fn a_device_that_cannot_be_used_now_can_be_used_later() {
    if standin::is_here("a_device_that_cannot_be_used_now_can_be_used_later") {
        standin::order("unavailable", "1");
        let busy = device("opencl:0").unwrap();
        let DeviceError::Call { error, .. } = busy.open().unwrap_err() else { panic!("another error") };
        assert_eq!(error.kind(), BackendErrorKind::Unavailable);
        standin::order("unavailable", "");
        busy.open().unwrap();
    }
}
