//! Programs are kept on disk for the next process. Each case has processes of its own, which print their
//! counts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use device_conformance::process;
use device_kernels::{Binary, DType, Operand, run};
use device_opencl_kernels::compilations;
use tempfile::TempDir;

device_registry::autoload!();

const VARIABLE: &str = "DEVICE_PROGRAM_CACHE";

/// Adds and multiplies on the device, and prints what was compiled and said.
#[test]
fn child_that_adds_and_multiplies() {
    if !process::is_child() {
        return;
    }
    Lines::start();
    if std::env::var_os("SAY_IF_ELEVATED").is_some() && !process::is_elevated() {
        return;
    }
    let device = device_registry::device("opencl").unwrap();
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(40).unwrap();
    let line = Operand::new(&buffer, DType::F32, [10]).unwrap();
    buffer.write(0, &[0; 40]).unwrap();
    for (operator, by, result) in [(Binary::Add, 2.0, 2_f32), (Binary::Mul, 3.0, 6.0)] {
        if let Err(error) = run(&stream, operator, &[line, by.into()], &[line]) {
            println!("error: {error:?}");
            return;
        }
        let bytes = stream.read(&buffer, ..).unwrap().wait().unwrap();
        assert!(bytes.chunks_exact(4).all(|x| x == result.to_ne_bytes()), "{operator:?}");
    }
    println!("compiled {}", compilations());
}

/// Writes what is logged to the standard output.
struct Lines;

impl Lines {
    fn start() {
        log::set_logger(&Self).unwrap();
        log::set_max_level(log::LevelFilter::Debug);
    }
}

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if ["device_opencl_kernels", "device_generated_kernels"]
            .iter()
            .any(|of| record.target().starts_with(of))
        {
            println!("{}: {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

/// What a process prints with this value of the variable.
fn printed(value: impl AsRef<std::ffi::OsStr>) -> String {
    let output: Output = process::again("child_that_adds_and_multiplies", |child| child.env(VARIABLE, value));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

fn compiled(folder: &Path) -> (usize, String) {
    let printed = printed(folder);
    let count = printed.lines().find_map(|line| line.strip_prefix("compiled ")).expect(&printed);
    let count = count.parse().unwrap();
    assert_eq!(printed.matches("INFO: compiled a program of opencl in ").count(), count, "{printed}");
    (count, printed)
}

/// An empty folder, if there is a device.
fn folder() -> Option<TempDir> {
    device_conformance::device_or_skip("opencl")?;
    Some(tempfile::tempdir().unwrap())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_second_process_compiles_nothing() {
    let Some(folder) = folder() else { return };
    let place = folder.path().join("new");
    assert_eq!(compiled(&place).0, 2);
    assert_eq!(files(&place).len(), 2, "two programs, and no unfinished file");
    let (count, printed) = compiled(&place);
    assert_eq!(count, 0, "{printed}");
    assert!(printed.contains("DEBUG: made a program from "), "{printed}");
}

#[test]
fn a_torn_or_foreign_file_is_replaced() {
    let Some(folder) = folder() else { return };
    compiled(folder.path());
    let paths = files(folder.path());
    let [one, other] = [&paths[0], &paths[1]].map(|path| fs::read(path).unwrap());
    // One is torn, and the other a whole file of another program.
    fs::write(&paths[0], &one[..one.len() / 2]).unwrap();
    fs::write(&paths[1], &one).unwrap();
    let (count, printed) = compiled(folder.path());
    assert_eq!(count, 2);
    assert!(printed.contains("is not used, and made again: it is not whole"), "{printed}");
    assert!(printed.contains("is not used, and made again: it is of another driver or text"), "{printed}");
    assert_ne!(fs::read(&paths[1]).unwrap(), one);
    assert!(fs::read(&paths[0]).unwrap().len() >= one.len().min(other.len()) / 2);
    assert_eq!(compiled(folder.path()).0, 0);
}

/// A new version of a driver might refuse a binary and still say that it is the old version.
#[test]
fn a_binary_that_the_driver_refuses_is_replaced() {
    let Some(folder) = folder() else { return };
    compiled(folder.path());
    for path in files(folder.path()) {
        device_generated_kernels::replace_program(&path, b"no program of this driver");
    }
    let (count, printed) = compiled(folder.path());
    assert_eq!(count, 2);
    assert!(printed.contains("is not used, and made again: the driver refuses it"), "{printed}");
    assert_eq!(compiled(folder.path()).0, 0);
}

#[test]
fn two_processes_at_once_share_a_folder() {
    let Some(folder) = folder() else { return };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| compiled(folder.path()));
        }
    });
    assert_eq!(files(folder.path()).len(), 2);
    assert_eq!(compiled(folder.path()).0, 0);
}

#[test]
fn a_folder_that_cannot_be_written_costs_a_line() {
    let Some(folder) = folder() else { return };
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let (count, printed) = compiled(&file.join("folder"));
    assert_eq!(count, 2);
    assert_eq!(printed.matches("DEBUG: compiled programs are not kept in ").count(), 1, "{printed}");
}

#[test]
fn the_variable_turns_it_off_and_a_wrong_value_is_an_error() {
    let Some(_folder) = folder() else { return };
    for _ in 0..2 {
        assert!(printed("0").contains("compiled 2"));
    }
    let printed = printed("kept");
    let expected = "invalid DEVICE_PROGRAM_CACHE: expected 0, 1 or the absolute path of a folder, found";
    assert!(printed.contains(expected), "{printed}");
}

/// A binary is code, and the user of such a process chooses the folder.
#[cfg(unix)]
#[test]
fn an_elevated_process_uses_no_file() {
    let Some(folder) = folder() else { return };
    assert_eq!(compiled(folder.path()).0, 2);
    let before: Vec<_> = files(folder.path()).iter().map(|path| fs::read(path).unwrap()).collect();
    // The backend refuses an elevated process in which these name folders.
    const CHILD: process::Environment = process::Environment::without(&["OCL_*", "OPENCL_*", "POCL_*"]);
    let elevated = process::again_elevated("child_that_adds_and_multiplies", |child| {
        CHILD.apply(child).env(VARIABLE, folder.path()).env("SAY_IF_ELEVATED", "1")
    });
    let Some(elevated) = elevated else { return };
    let printed = String::from_utf8_lossy(&elevated.stdout);
    if printed.contains("is not elevated") {
        return;
    }
    // The driver may fail to compile there: PoCL cannot write its own files.
    assert!(!printed.contains("made a program from"), "{printed}");
    assert!(
        printed.contains("DEBUG: compiled programs are not kept: this process has more rights"),
        "{printed}"
    );
    let after: Vec<_> = files(folder.path()).iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(before, after);
}
