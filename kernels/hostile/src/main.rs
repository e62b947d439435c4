//! Safe code that breaks the rules of backends and kernels: each attempt is an error with text, and no other
//! backend is harmed.
//!
//! Nothing here says `unsafe`, so a crash, or a report of a sanitizer, is a defect of the code that is
//! attacked.
#![forbid(unsafe_code)]

mod devices;
mod handles;
mod kernels;
mod lengths;
mod properties;

use std::fmt::Display;
use std::path::Path;
use std::process::{Command, ExitCode};

use device_plugin::Plugins;
use device_registry::{Device, backends, device};
use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;

device_registry::autoload!();

/// How the backends in C are built.
const BUILD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/custom-backend/c/build.sh");

fn main() -> ExitCode {
    // The libraries stay open as long as the process.
    let folder = TempDir::new().expect("there is room");
    install_libraries(folder.path());
    let tests = [devices::tests(), handles::tests(), kernels::tests(), lengths::tests(), properties::tests()];
    let trials = tests.into_iter().flatten().map(|(name, test)| {
        Trial::test(name, move || {
            test();
            for device in victims() {
                works(device);
            }
            Ok(())
        })
    });
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials.collect());
    conclusion.exit_code()
}

/// A test: its name, and what it does.
type Test = (&'static str, fn());

/// Installs the two backends in C, which are opened as two files.
fn install_libraries(folder: &Path) {
    if cfg!(not(target_os = "linux")) {
        return println!("skipped: the backends in C were built on Linux only");
    }
    match Command::new("sh").arg(BUILD).arg(folder).status() {
        Ok(status) if status.success() => {
            let report = Plugins::new().folder(folder).install().expect("the folder is absolute");
            assert_eq!(report.installed().len(), 2, "{report}");
        }
        failed => println!("skipped: the backends in C do not build: {failed:?}"),
    }
}

/// The first device of each backend that works here and that is not one of these tests.
fn victims() -> Vec<Device> {
    let names = ["cpu", "openreg", "opencl", "myc", "mycqueue"].into_iter();
    let victims: Vec<_> = names
        .filter(|name| backends().get(name).is_some_and(|backend| backend.load().is_ok()))
        .filter_map(|name| device(&format!("{name}:0")).ok().filter(|device| device.open().is_ok()))
        .collect();
    assert!(victims.len() >= 2, "there is nothing to harm");
    victims
}

/// Asserts that a device writes, copies and reads bytes.
fn works(device: Device) {
    let bytes: Vec<u8> = (0..4099_u32).map(|at| (at % 251) as u8).collect();
    let from = device.allocate(bytes.len()).unwrap();
    let to = device.allocate(bytes.len()).unwrap();
    from.write(0, &bytes).unwrap();
    to.copy_from(&from).unwrap();
    let mut found = vec![0; bytes.len()];
    to.read(0, &mut found).unwrap();
    assert!(found == bytes, "{device} has other bytes");
}

/// Asserts that an attempt is an error whose text has this part.
#[track_caller]
fn refused<T>(attempt: Result<T, impl Display>, part: &str) {
    let Err(error) = attempt else { panic!("expected an error with `{part}`") };
    let text = error.to_string();
    assert!(text.contains(part), "expected `{part}` in `{text}`");
}

/// Implements [`Backend`](device_registry::backend::Backend) for a type with a number of devices, their
/// properties, and how one is opened.
macro_rules! hostile_backend {
    ($name:ident, $count:expr, |$ordinal:ident| $properties:expr, |$this:ident, $opened:ident| $open:expr) => {
        impl ::device_registry::backend::Backend for $name {
            fn device_count(&self) -> Result<usize, ::device_registry::backend::BackendError> {
                Ok($count)
            }

            fn properties(
                &self,
                $ordinal: usize,
            ) -> Result<
                ::device_registry::backend::DeviceProperties,
                ::device_registry::backend::BackendError,
            > {
                $properties
            }

            fn open(
                &self,
                $opened: usize,
            ) -> Result<::device_registry::backend::OpenedDevice, ::device_registry::backend::BackendError>
            {
                let $this = self;
                $open
            }
        }
    };
}
pub(crate) use hostile_backend;
