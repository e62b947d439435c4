//! The backends in C pass the conformance suite: built as their README says, against the header alone, and
//! installed.
//!
//! Arguments are the suite's. Without any, the numbers of outcomes are compared too, so that no check is lost
//! unnoticed. tests/sanitizers.sh sets `CFLAGS`, which go to the C compiler, and preloads a sanitizer's
//! runtime.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use device_conformance::{Suite, process};
use device_plugin::Plugins;
use device_registry::{Fault, device};
use tempfile::TempDir;

/// How the backends are built, as their README says.
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/custom-backend/c/build.sh");

const README: &str = include_str!("../../../examples/custom-backend/c/README.md");

/// The suite's table for the second of two equal devices: passed, failed, expected to fail, unsupported,
/// skipped. The unsupported checks need pinned host memory, and on `myc` fault injection. On `mycqueue` they
/// need to know how much memory is free, and one needs a queue of the core's.
const OUTCOMES: [&str; 2] = ["myc:1 204 0 0 67 0", "mycqueue:1 261 0 0 10 0"];

/// The folder with the backends, for a child.
const FOLDER: &str = "DEVICE_PLUGIN_TESTS_FOLDER";

/// A library that is loaded before the child.
const PRELOAD: &str = "DEVICE_PLUGIN_TESTS_PRELOAD";

fn main() -> ExitCode {
    if !cfg!(target_os = "linux") {
        println!("skipped: the backends in C were built on Linux only");
        return ExitCode::SUCCESS;
    }
    match env::var_os(FOLDER) {
        Some(folder) => run_suite(folder.into()),
        None => {
            let folder = TempDir::new().expect("there is room");
            build(folder.path());
            run_child(folder.path())
        }
    }
}

fn build(folder: &Path) {
    let status = Command::new("sh").arg(BUILD).arg(folder).status().expect("there is a shell");
    assert!(status.success(), "{BUILD}: {status}");
}

fn run_suite(folder: PathBuf) -> ExitCode {
    let report = Plugins::new().folder(&folder).install().expect("the folder is absolute");
    assert_eq!(report.installed().len(), 2, "{report}");
    a_device_is_open_under_one_name(&folder);
    a_queue_that_waits_for_a_lost_peer_fails_without_a_loss();
    a_kernel_gets_the_address_of_memory();
    Suite::new().backend("myc").backend("mycqueue").run()
}

/// A manifest may give a backend a second name, and both are in use. They must not share a device that each
/// of them closes.
fn a_device_is_open_under_one_name(folder: &Path) {
    for backend in ["myc", "mycqueue"] {
        let second = TempDir::new().expect("there is room");
        let manifest = format!(
            r#"{{"manifest": 1, "group": "device.backends", "name": "{backend}_too", "entry": "{backend}",
                "package": "device-{backend}", "version": "0.1.0", "library": "{}/lib{backend}.so",
                "abi": {{"major": 0, "minor": 3}}}}"#,
            folder.display()
        );
        let file = second.path().join(format!("{backend}_too.plugin.json"));
        fs::write(file, manifest).expect("there is room");
        Plugins::new().folder(second.path()).install().expect("the folder is absolute");
        let [first, second] = [format!("{backend}:0"), format!("{backend}_too:0")].map(|name| device(&name));
        let (first, second) = (first.expect("it is installed"), second.expect("it is installed"));
        first.open().unwrap();
        let error = second.open().expect_err("one device is open twice").to_string();
        assert!(error.contains("the device is open already"), "{error}");
        first.close().unwrap();
        second.open().unwrap();
        second.close().unwrap();
    }
}

/// The suite's checks of such waits hold the event back on the host, which then waits in the place of the
/// queue.
fn a_queue_that_waits_for_a_lost_peer_fails_without_a_loss() {
    let [lost, peer] = ["mycqueue:0", "mycqueue:1"].map(|name| device(name).expect("it is installed"));
    let (buffer, there) = (lost.allocate(4).unwrap(), peer.allocate(4).unwrap());
    let (stream, waiting) = (lost.create_stream().unwrap(), peer.create_stream().unwrap());
    there.write(0, &[3; 4]).unwrap();
    lost.faults().unwrap().inject(Fault::Stall { nth: 1 }).unwrap();
    stream.fill(&buffer, .., &[1]).unwrap();
    waiting.wait_event(&stream.record().unwrap()).unwrap();
    waiting.write(&there, 0, vec![4; 4]).unwrap();
    lost.faults().unwrap().inject(Fault::Unplug).unwrap();
    let error = waiting.synchronize().expect_err("the event has failed").to_string();
    assert!(error.contains("the work before an event that this queue waits for has failed"), "{error}");
    assert!(lost.is_lost() && !peer.is_lost());
    let mut found = [0; 4];
    there.read(0, &mut found).unwrap();
    assert_eq!(found, [3; 4], "the work behind the wait was not skipped");
    lost.reset().unwrap();
}

/// The suite knows no kind of native handles.
fn a_kernel_gets_the_address_of_memory() {
    let device = device("myc:1").expect("it is installed");
    let (buffer, stream) = (device.allocate(3).unwrap(), device.create_stream().unwrap());
    buffer.write(0, &[1, 2, 3]).unwrap();
    let launched = stream.launch(&[&buffer], |launch| {
        let span = launch.spans()[0].as_ref().expect("the buffer has bytes");
        assert!(span.native_handle("other.kind").is_err());
        let address = span.native_handle("host.pointer")? as *const [u8; 3];
        // SAFETY: `myc` defines the kind as the address of its memory, which is three bytes that only this
        // kernel uses.
        assert_eq!(unsafe { address.read() }, [1, 2, 3]);
        Ok(())
    });
    launched.and_then(|()| stream.synchronize()).unwrap();
}

/// Runs the suite in a process of its own, whose output can be read. Backends that the environment requires
/// are not in it.
fn run_child(folder: &Path) -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let mut child = process::program();
    child.env(FOLDER, folder).args(&arguments);
    if let Some(library) = env::var_os(PRELOAD) {
        child.env("LD_PRELOAD", library);
    }
    if !arguments.is_empty() {
        let status = child.status().expect("this program starts");
        return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let output = child.args(["--quiet", ":1::"]).output().expect("this program starts");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{printed}");
    eprint!("{errors}");
    let rows = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let rows: Vec<_> =
        rows.filter(|row| ["myc:1 ", "mycqueue:1 "].iter().any(|name| row.starts_with(name))).collect();
    if !output.status.success() || rows != OUTCOMES {
        eprintln!("error: expected {OUTCOMES:?}, found {rows:?} ({})", output.status);
        return ExitCode::FAILURE;
    }
    let missing: Vec<_> = OUTCOMES.iter().flat_map(|row| missing_in_readme(row)).collect();
    if !missing.is_empty() {
        eprintln!("error: examples/custom-backend/c/README.md has no {missing:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// What the README should say of a row of [`OUTCOMES`], and does not.
fn missing_in_readme(row: &str) -> Vec<String> {
    let (name, numbers) = row.split_once(":1 ").expect("it is of the second device");
    let numbers: Vec<u32> =
        numbers.split(' ').map(|number| number.parse().expect("it is a number")).collect();
    let (passed, unsupported, all) = (numbers[0], numbers[3], numbers.iter().sum::<u32>());
    let expected = [format!("| `{name}` | {passed} | {unsupported} | "), format!("of the {all} checks")];
    expected.into_iter().filter(|text| !README.contains(text)).collect()
}
