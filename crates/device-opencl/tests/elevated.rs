//! A process with more rights than its user obeys no variable that names a library, a folder or a driver.
#![cfg(target_os = "linux")]

mod child;

use device_conformance::process;
use device_registry::{backends, device_count};

use crate::child::CHILD;

device_registry::autoload!();

/// Prints what the backend logs.
struct Printer;

impl log::Log for Printer {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        println!("{}", record.args());
    }

    fn flush(&self) {}
}

/// What a process prints that lists the devices of OpenCL: their number, or why there are none.
fn list() {
    log::set_logger(&Printer).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    match backends().load("opencl") {
        Ok(_) => println!("devices: {:?}", device_count("opencl")),
        Err(error) => println!("no devices: {error}"),
    }
}

/// What an elevated process prints with this variable; `None` where there can be none.
fn printed(test: &str, variable: Option<&str>) -> Option<String> {
    let output = process::again_elevated(test, |child| {
        CHILD.apply(child).envs(variable.map(|name| (name, "/nonexistent/library.so")))
    })?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn last_line(printed: &str) -> &str {
    printed.lines().find(|line| line.contains("devices: ")).expect("it prints its devices")
}

#[test]
fn an_elevated_process_ignores_the_users_loader_and_says_so() {
    if process::is_child() {
        return if process::is_elevated() {
            list()
        };
    }
    let test = "an_elevated_process_ignores_the_users_loader_and_says_so";
    let (Some(without), Some(with)) = (printed(test, None), printed(test, Some("OPENCL_DYLIB_PATH"))) else {
        return;
    };
    let expected = "OPENCL_DYLIB_PATH is ignored: this process has more rights than its user, whose environment must not \
                    name files";
    assert!(with.contains(expected), "{with}");
    assert!(last_line(&with).starts_with(last_line(&without)), "{with}; without: {without}");
}

#[test]
fn an_elevated_process_opens_no_loader_that_would_obey_its_user() {
    if process::is_child() {
        return if process::is_elevated() {
            list()
        };
    }
    let test = "an_elevated_process_opens_no_loader_that_would_obey_its_user";
    for variable in [
        "OCL_ICD_VENDORS",
        "OPENCL_VENDOR_PATH",
        "OCL_ICD_FILENAMES",
        "OPENCL_LAYERS",
        "OPENCL_LAYER_PATH",
        "POCL_CACHE_DIR",
    ] {
        let Some(printed) = printed(test, Some(variable)) else { return };
        let expected =
            format!("OpenCL is not used while {variable} is set: this process has more rights than");
        assert!(last_line(&printed).contains(&expected), "{printed}");
    }
}
