//! Plugins for tests: compiling, installing and using them.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use device_plugin_tests::Manifest;
use device_registry::registry::Switches;
use device_registry::{Device, DeviceError, ErrorChain};

/// Compiles C sources of this folder to a library, with these further arguments.
#[track_caller]
pub(crate) fn compile(name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = folder().join(format!("lib{name}.so"));
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC"])
        .arg("-I")
        .arg(package.join("../../crates/device-plugin/include"))
        .arg(package.join("tests/misbehaving").join(source))
        .arg("-o")
        .arg(&file)
        .args(arguments)
        .output()
        .expect("a C compiler, `cc`");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    file
}

/// Where this test writes its files. Each process has a folder of its own, as a library that is open must not
/// change.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder")).path()
}

/// The folder into which Cargo builds this profile.
pub(crate) fn built() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    test.parent().and_then(Path::parent).expect("a target folder").to_owned()
}

/// A plugin of this package, which Cargo builds beside the tests.
#[track_caller]
pub(crate) fn plug_in(name: &str) -> PathBuf {
    let file = built().join(format!("examples/{DLL_PREFIX}{name}{DLL_SUFFIX}"));
    assert!(
        file.exists(),
        "no {}: with `--test`, Cargo only builds it if `--examples` is there",
        file.display()
    );
    file
}

/// The library of `mistakes.c`.
pub(crate) fn mistakes() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| compile("mistakes", "mistakes.c", &["-fvisibility=hidden", "-pthread"]))
}

/// The only device of the backend of `mistakes.c` that makes a mistake.
pub(crate) fn mistaken(mistake: &str) -> Device {
    let file = mistakes();
    Manifest { file, entry: mistake, package: "mistakes", version: "1.0.0" }.install(mistake)
}

/// The error, with its causes, says exactly this.
#[track_caller]
pub(crate) fn says<T>(result: Result<T, DeviceError>, expected: &str) {
    let error = result.err().expect("an error");
    assert_eq!(ErrorChain::new(&error).to_string(), expected);
}

/// The message of a backend that fails to load, with its end that says how to turn it off; the causes follow
/// on lines of their own.
pub(crate) fn with_remedy(name: &str, message: &str) -> String {
    let (first, causes) = message.split_at(message.find('\n').unwrap_or(message.len()));
    format!("{first}; DEVICE_BACKEND_DISABLE={name} turns it off{causes}")
}

/// `cpu` and a sound plugin work.
#[track_caller]
pub(crate) fn others_work() {
    static OPENREG: OnceLock<Device> = OnceLock::new();
    let openreg = *OPENREG.get_or_init(|| {
        let file = plug_in("openreg_file");
        Manifest { file: &file, entry: "openreg", package: "device-openreg", version: "0.1.0" }
            .install("openreg_file")
    });
    for device in [Device::cpu(), openreg] {
        works(device);
    }
}

/// A device moves bytes to and fro, blocking and in a stream.
#[track_caller]
pub(crate) fn works(device: Device) {
    let buffer = device.allocate(4).unwrap();
    buffer.write(0, b"rust").unwrap();
    let mut read = [0; 4];
    buffer.read(0, &mut read).unwrap();
    assert_eq!(read, *b"rust");
    let stream = device.create_stream().unwrap();
    stream.write(&buffer, 0, b"yeah").unwrap();
    assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), *b"yeah");
}

/// What the program `plugin_probe` prints for these arguments, with only these variables `DEVICE_BACKEND_…`.
#[track_caller]
pub(crate) fn probe(variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut command = Command::new(built().join("examples/plugin_probe"));
    command.args(arguments);
    for variable in Switches::variables("DEVICE_BACKEND") {
        command.env_remove(variable);
    }
    for (suffix, value) in variables {
        command.env(format!("DEVICE_BACKEND_{suffix}"), value);
    }
    let output =
        command.output().expect("the probe starts: with `--test`, Cargo only builds it with `--examples`");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{stdout}{stderr}");
    stdout
}
