//! The process that opens a library. It writes what it finds as steps, a line each, so that its end says
//! where it came to.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use device_registry::BackendErrorKind;
use device_registry::backend::{Backend, BackendError, DeviceProperties, LoadFailure, MemoryReuse};
use serde_json::{Value, json};

use crate::abi;
use crate::chain;
use crate::load::{Library, LibraryEntry, LoadedBackend};
use crate::tool::arguments::How;

/// What a step begins with. Where the library prints to the same place, its lines do not.
pub(super) const STEP: &str = "device-plugin step ";

/// How many devices are asked for their names.
const DEVICES: usize = 16;

/// What the header allows.
const MOST_DEVICES: usize = 1 << 16;
const LARGEST_ALIGNMENT: usize = 1 << 20;

/// Opens a library and writes the steps.
///
/// # Errors
///
/// If nothing reads them.
pub(super) fn run(file: &Path, how: How) -> io::Result<()> {
    #[cfg(windows)]
    crash_without_a_dialog();
    let mut steps = Steps(output()?);
    // SAFETY: the user of the command names the file as a library that keeps the rules, and the parent has
    // found its symbol.
    match unsafe { Library::open(file) } {
        Ok(library) => inspect(library, how, &mut steps)?,
        Err(failure) => steps.write(json!({"step": "refused", "message": text(&failure)}))?,
    }
    steps.write(json!({"step": "end"}))
}

fn inspect(library: &'static Library, how: How, steps: &mut Steps) -> io::Result<()> {
    let (major, minor) = library.interface();
    let entries: Vec<_> = library.entries().iter().map(entry).collect();
    steps.write(json!({"step": "opened", "major": major, "minor": minor, "entries": entries}))?;
    let backends = library.entries().iter().enumerate().filter(|(_, entry)| entry.group == abi::BACKENDS);
    for (at, entry) in backends.filter(|_| how == How::Load) {
        steps.write(json!({"step": "loading", "at": at}))?;
        let backend = match LoadedBackend::load(library, &entry.name, &[]) {
            Ok(backend) => backend,
            Err(failure) => {
                let message = text(&failure);
                let unavailable = failure.is_unavailable();
                let failed =
                    json!({"step": "failed", "at": at, "message": message, "unavailable": unavailable});
                steps.write(failed)?;
                continue;
            }
        };
        let tables = backend.tables();
        let tables = json!({
            "backend": functions(&tables.backend.functions()),
            "device": functions(&tables.device.functions()),
            "stream": functions(&tables.stream.functions()),
            "event": functions(&tables.event.functions()),
        });
        steps.write(json!({"step": "loaded", "at": at, "tables": tables}))?;
        steps.write(match devices(&backend) {
            Ok((count, names)) => json!({"step": "devices", "at": at, "count": count, "names": names}),
            Err(error) => {
                let unavailable = error.kind() == BackendErrorKind::Unavailable;
                let message = error_text(&error);
                json!({"step": "devices_failed", "at": at, "message": message, "unavailable": unavailable})
            }
        })?;
    }
    Ok(())
}

fn entry(entry: &LibraryEntry) -> Value {
    let LibraryEntry { group, name, package, version, requires, options } = entry;
    json!({
        "group": group,
        "name": name,
        "package": package,
        "version": version,
        "requires": requires,
        "options": options,
    })
}

/// The names of the functions that are there.
fn functions(functions: &[(&'static str, bool)]) -> Vec<&'static str> {
    functions.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name).collect()
}

/// How many devices there are, and the names of the first.
fn devices(backend: &LoadedBackend) -> Result<(usize, Vec<String>), BackendError> {
    let count = backend.device_count()?;
    check_count(count)?;
    let name = |ordinal| {
        let properties = backend.properties(ordinal)?;
        check_alignments(&properties)?;
        Ok(properties.name.to_string())
    };
    Ok((count, (0..count.min(DEVICES)).map(name).collect::<Result<_, BackendError>>()?))
}

/// What programs refuse of a count: device strings can name no more.
fn check_count(count: usize) -> Result<(), BackendError> {
    if count <= MOST_DEVICES {
        return Ok(());
    }
    Err(BackendError::invalid(format_args!(
        "programs refuse the number of devices: expected at most {MOST_DEVICES}, found {count}"
    )))
}

/// What programs refuse of properties.
fn check_alignments(properties: &DeviceProperties) -> Result<(), BackendError> {
    let memory = match properties.memory_reuse {
        MemoryReuse::Divided { alignment } => alignment,
        _ => 1,
    };
    for (of, alignment) in [("copy", properties.copy_alignment), ("memory reuse", memory)] {
        if !alignment.is_power_of_two() || alignment > LARGEST_ALIGNMENT {
            return Err(BackendError::invalid(format_args!(
                "programs refuse the {of} alignment: expected a power of two of at most {LARGEST_ALIGNMENT} bytes, found \
                 {alignment}"
            )));
        }
    }
    Ok(())
}

fn text(failure: &LoadFailure) -> String {
    failure.messages().join(": ")
}

fn error_text(error: &BackendError) -> String {
    let causes = error.source().map(chain::texts).unwrap_or_default();
    [vec![error.message().to_owned()], causes].concat().join(": ")
}

/// Where the steps go.
struct Steps(File);

impl Steps {
    fn write(&mut self, step: Value) -> io::Result<()> {
        // The line that a library may have begun ends first.
        self.0.write_all(format!("\n{STEP}{step}\n").as_bytes())?;
        self.0.flush()
    }
}

/// Windows otherwise opens a dialog where the library crashes, or a DLL is missing, and waits until it is
/// closed.
#[cfg(windows)]
fn crash_without_a_dialog() {
    const SEM_FAILCRITICALERRORS: u32 = 1;
    const SEM_NOGPFAULTERRORBOX: u32 = 2;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        safe fn GetErrorMode() -> u32;
        safe fn SetErrorMode(mode: u32) -> u32;
    }

    SetErrorMode(GetErrorMode() | SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX);
}

/// What was the standard output of this process. From now on, the library prints to the standard error.
#[cfg(unix)]
fn output() -> io::Result<File> {
    use std::os::fd::AsFd;

    let output = io::stdout().as_fd().try_clone_to_owned()?;
    // SAFETY: both are open descriptors of this process, and `dup2` replaces the first at once.
    if unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(output.into())
}

/// The standard output of this process. The library prints to it too: each C runtime in the process has its
/// own copy of the handle, so it cannot be replaced for all.
#[cfg(windows)]
fn output() -> io::Result<File> {
    use std::os::windows::io::AsHandle;
    Ok(io::stdout().as_handle().try_clone_to_owned()?.into())
}

#[cfg(not(any(unix, windows)))]
fn output() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_alignments_that_programs_refuse_are_errors() {
        assert!(check_count(0).is_ok() && check_count(65536).is_ok());
        let error = check_count(usize::MAX).unwrap_err();
        assert!(error.message().contains("expected at most 65536, found "), "{error}");
        let device = || DeviceProperties::new("a device");
        assert!(check_alignments(&device()).is_ok());
        for wrong in [0, 3, 1 << 21] {
            let error = check_alignments(&device().with_copy_alignment(wrong)).unwrap_err();
            assert!(error.message().starts_with("programs refuse the copy alignment: "), "{error}");
            let divided = MemoryReuse::Divided { alignment: wrong };
            let error = check_alignments(&device().with_memory_reuse(divided)).unwrap_err();
            assert!(error.message().starts_with("programs refuse the memory reuse alignment: "), "{error}");
        }
    }
}
