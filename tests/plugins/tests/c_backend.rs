//! The backend in C passes the conformance suite: built as its README says, against the header alone, and installed.
//!
//! Arguments are the suite's. Without any, the numbers of outcomes are compared too, so that no check is lost
//! unnoticed. tests/sanitizers.sh sets `CFLAGS`, which go to the C compiler, and preloads a sanitizer's runtime.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use device_conformance::{Suite, process};
use device_plugin::Plugins;
use device_registry::device;
use tempfile::TempDir;

/// How the backend is built, as its README says.
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/custom-backend/c/build.sh");

/// The suite's table, a line for each device: passed, failed, expected to fail, unsupported, skipped. The unsupported
/// checks need fault injection or pinned host memory.
const OUTCOMES: [&str; 2] = ["myc:0 197 0 0 65 0", "myc:1 197 0 0 65 0"];

/// The folder with the backend, for a child.
const FOLDER: &str = "DEVICE_PLUGIN_TESTS_FOLDER";

/// A library that is loaded before the child.
const PRELOAD: &str = "DEVICE_PLUGIN_TESTS_PRELOAD";

fn main() -> ExitCode {
    if !cfg!(target_os = "linux") {
        println!("skipped: the backend in C was built on Linux only");
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
    let report = Plugins::new().folder(folder).install().expect("the folder is absolute");
    assert_eq!(report.installed().len(), 1, "{report}");
    a_kernel_gets_the_address_of_memory();
    Suite::new().backend("myc").run()
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
        // SAFETY: `myc` defines the kind as the address of its memory, which is three bytes that only this kernel uses.
        assert_eq!(unsafe { address.read() }, [1, 2, 3]);
        Ok(())
    });
    launched.and_then(|()| stream.synchronize()).unwrap();
}

/// Runs the suite in a process of its own, whose output can be read. Backends that the environment requires are not in it.
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
    let output = child.arg("--quiet").output().expect("this program starts");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{printed}");
    eprint!("{errors}");
    let rows = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let rows: Vec<_> = rows.filter(|row| row.starts_with("myc:")).collect();
    if !output.status.success() || rows != OUTCOMES {
        eprintln!("error: expected {OUTCOMES:?}, found {rows:?} ({})", output.status);
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
