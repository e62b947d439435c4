//! A crate outside of the repository can have entries in files: a group of the tests' own, both sides of
//! which use the public API alone. Its library is `plugins/filler.rs`.

#![cfg(target_os = "linux")]

use std::fs;
use std::process::Command;
use std::sync::Once;

use device_plugin::Plugins;
use device_plugin::group::{FILE_GROUPS, FileEntry, FileGroup, FileGroupDescriptor, FileLibrary};
use device_plugin::interface::{Table, call};
use device_plugin_tests::library;
use device_registry::backend::{BackendError, Fault, Launch, LoadFailure, Options};
use device_registry::registry::{RegisterError, Report};
use device_registry::{Buffer, Device, ErrorChain, device};

#[path = "../plugins/filler_table.rs"]
mod filler_table;

use filler_table::{FILLER_GROUP, FillerTable};

/// What fills memory.
pub trait Filler: Send + Sync {
    /// Fills the first span of a launch.
    fn fill(&self, launch: &Launch<'_>) -> Result<(), BackendError>;

    /// How many values that it has kept with devices were dropped.
    fn dropped(&self) -> usize;
}

entry_points::group! {
    /// Fillers.
    pub static FILLERS: [entry_points::EntryPoint<dyn Filler>];

    /// Their group.
    pub fn fillers() -> Group<dyn Filler> {
        entry_points::Group::new(FILLER_GROUP).noun("filler")
    }
}

struct FillersInFiles;

impl FileGroup for FillersInFiles {
    fn name(&self) -> &'static str {
        FILLER_GROUP
    }

    fn install(&self, entry: FileEntry) -> Result<(), RegisterError> {
        let loaded = entry.clone();
        let load = move |options: &Options| -> Result<Box<dyn Filler>, LoadFailure> {
            let mut table = FillerTable::ZEROED;
            // SAFETY: `filler_table.rs` declares this type for the group.
            let library = unsafe { loaded.load(options, &mut table) }?;
            Ok(Box::new(InFile { library, table }))
        };
        fillers().install(entry.manifest().installed(load))
    }

    fn report(&self) -> Report {
        fillers().report()
    }
}

entry_points::entry_points! {
    /// Fillers in files.
    #[distributed_slice(FILE_GROUPS)]
    static FILLERS_IN_FILES: FileGroupDescriptor =
        FileGroupDescriptor::new("tests_fillers", || Ok(Box::new(FillersInFiles)));
}

/// A filler of a library.
struct InFile {
    library: FileLibrary,
    table: FillerTable,
}

// SAFETY: both functions may be called on any thread, at the same time.
unsafe impl Send for InFile {}
// SAFETY: both functions may be called on any thread, at the same time.
unsafe impl Sync for InFile {}

impl Filler for InFile {
    fn fill(&self, launch: &Launch<'_>) -> Result<(), BackendError> {
        let objects = self.library.launched(launch)?;
        let span = objects.span(launch.spans()[0].as_ref().expect("the buffer is not empty"))?;
        let fill = self.table.fill.expect("the library has it");
        call("to fill", |report| {
            // SAFETY: the objects are of this library and alive during the launch.
            unsafe { fill(self.table.filler, objects.device(), objects.stream(), &span, report) }
        })
    }

    fn dropped(&self) -> usize {
        let dropped = self.table.dropped.expect("the library has it");
        // SAFETY: the filler is of this library.
        unsafe { dropped(self.table.filler) }
    }
}

/// Installs the library with the manifests that `device-plugin` prints for it.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let folder = tempfile::tempdir().expect("there is room").keep();
        let built = library("filler_file");
        let copy = folder.join(built.file_name().unwrap());
        fs::copy(&built, &copy).expect("there is room");
        for (group, entry) in
            [("device.backends", "openreg"), (FILLER_GROUP, "filler"), (FILLER_GROUP, "broken")]
        {
            let mut tool = Command::new(built.with_file_name("device-plugin-tool"));
            let printed = tool
                .args(["plugin", "manifest", "--group", group, "--entry", entry])
                .arg(&copy)
                .output()
                .unwrap();
            assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
            fs::write(folder.join(format!("{entry}.plugin.json")), printed.stdout).expect("there is room");
        }
        fillers().set_option("filler", "byte", "7").expect_err("it is not installed yet");
        let report = Plugins::new().folder(&folder).install().expect("the folder is absolute");
        assert_eq!((report.installed().len(), report.skipped().len()), (3, 0), "{report}");
        let line = format!("\ninstalled `filler` of `{FILLER_GROUP}` (device-plugin-tests 0.1.0 in ");
        assert!(report.to_string().contains(&line), "{report}");
        fillers().set_option("filler", "byte", "7").expect("its manifest has the option");
    });
}

/// Fills a new buffer on a device.
fn filled(device: Device) -> Result<Vec<u8>, String> {
    let filler = fillers().load("filler").unwrap_or_else(|error| panic!("{}", ErrorChain::new(&error)));
    let buffer: Buffer = device.allocate(16).unwrap();
    let stream = device.create_stream().unwrap();
    stream
        .launch(&[&buffer], move |launch| filler.fill(launch))
        .and_then(|()| stream.synchronize())
        .map_err(|error| ErrorChain::new(&error).to_string())?;
    let mut bytes = vec![0; 16];
    buffer.read(0, &mut bytes).unwrap();
    Ok(bytes)
}

#[test]
fn an_entry_of_a_group_of_another_crate_runs_on_the_device_of_its_library() {
    install();
    assert_eq!(filled(device("openreg:1").unwrap()), Ok(vec![7; 16]));
    let error = filled(Device::cpu()).unwrap_err();
    assert!(error.contains("whose backend is not of this library"), "{error}");
    let error = fillers().load("broken").err().expect("it does not load");
    let error = ErrorChain::new(&error).to_string();
    assert!(error.contains("there is no filler"), "{error}");
}

#[test]
fn what_a_kernel_of_a_library_keeps_with_a_device_ends_with_the_device() {
    install();
    let openreg = device("openreg:0").unwrap();
    let fill = || assert_eq!(filled(openreg), Ok(vec![7; 16]));
    let dropped = || fillers().load("filler").unwrap().dropped();
    fill();
    fill();
    assert_eq!(dropped(), 0);
    openreg.close().unwrap();
    assert_eq!(dropped(), 1);
    fill();
    openreg.faults().unwrap().inject(Fault::LoseDevice { nth: 1 }).unwrap();
    openreg.allocate(16).unwrap_err();
    assert_eq!(dropped(), 1);
    openreg.reset().unwrap();
    assert_eq!(dropped(), 2);
    fill();
}
