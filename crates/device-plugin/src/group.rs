//! Other groups whose entries may be in files, such as kernel sets.

use std::error::Error;
use std::ffi::c_void;
use std::fmt;
use std::path::Path;
use std::ptr;

use device_registry::backend::{BackendError, Launch, LoadFailure, Options, Span};
use device_registry::registry::{RegisterError, Report};
use entry_points::{EntryPoint, LoadError};

use crate::abi::{self, Table};
use crate::file::checked::open_checked;
use crate::file::manifest::{Groups, Manifest};
use crate::load::{self, Library};

/// A group whose entries [`Plugins::install`](crate::Plugins::install) finds in files, besides backends.
///
/// The crate that defines what the group's entries are in C, in its own header, registers it. A line in
/// Cargo.toml is then enough for programs, as for backends. `device-kernels-plugin` does so for kernel sets,
/// and any crate may for what it defines: [`interface`](crate::interface) has what it needs of the C
/// interface.
///
/// ```rust,standalone_crate
/// use device_plugin::group::{FILE_GROUPS, FileEntry, FileGroup, FileGroupDescriptor};
/// use device_plugin::interface::Table;
/// use device_registry::registry::{RegisterError, Report};
/// # use device_registry::backend::LoadFailure;
///
/// # #[repr(C)]
/// # #[derive(Clone, Copy)]
/// # struct FilterTable { struct_size: usize, run: Option<unsafe extern "C" fn()> }
/// # // SAFETY: it is `repr(C)` and begins with `struct_size`, and any bits are a value of the other field.
/// # unsafe impl Table for FilterTable {}
/// # pub trait Filter: Send + Sync {}
/// # struct InFile { table: FilterTable, library: device_plugin::group::FileLibrary }
/// # impl Filter for InFile {}
/// # entry_points::group! {
/// #     /// Filters.
/// #     pub static FILTERS: [entry_points::EntryPoint<dyn Filter>];
/// #     /// Their group.
/// #     pub fn filters() -> Group<dyn Filter> { entry_points::Group::new("acme.filters") }
/// # }
/// struct FiltersInFiles;
///
/// impl FileGroup for FiltersInFiles {
///     fn name(&self) -> &'static str {
///         "acme.filters"
///     }
///
///     fn install(&self, entry: FileEntry) -> Result<(), RegisterError> {
///         let loaded = entry.clone();
///         filters().install(entry.manifest().installed(move |options| {
///             let mut table = FilterTable::ZEROED;
///             // SAFETY: the header of this group declares this type for the table.
///             let library = unsafe { loaded.load(options, &mut table) }?;
///             Ok(Box::new(InFile { table, library }) as Box<dyn Filter>)
///         }))
///     }
///
///     fn report(&self) -> Report {
///         filters().report()
///     }
/// }
///
/// entry_points::entry_points! {
///     /// Filters in files.
///     #[distributed_slice(FILE_GROUPS)]
///     pub static FILTERS_IN_FILES: FileGroupDescriptor =
///         FileGroupDescriptor::new("acme_filters", || Ok(Box::new(FiltersInFiles)));
/// }
/// # fn main() {}
/// ```
pub trait FileGroup: Send + Sync {
    /// The name of the group, which manifests have as `group`, such as `device.kernels`.
    fn name(&self) -> &'static str;

    /// Installs an entry, whose manifest was read. No library is opened: that is left to the first use of the
    /// entry.
    ///
    /// # Errors
    ///
    /// If the group does not accept it. The report of the installation then has the reason.
    fn install(&self, entry: FileEntry) -> Result<(), RegisterError>;

    /// The report of the group, which has the states of its entries.
    fn report(&self) -> Report;
}

/// A [`FileGroup`] as constant data. Its name has underscores where the group's has dots: if the group does
/// not load, the reports of [`Plugins::install`](crate::Plugins::install) say so for its manifests.
pub type FileGroupDescriptor = EntryPoint<dyn FileGroup>;

entry_points::group! {
    /// The distributed slice that groups register in.
    pub static FILE_GROUPS: [FileGroupDescriptor];

    /// The group `device.file_groups`: the groups whose entries may be in files. Variables with the prefix
    /// `DEVICE_FILE_GROUPS` switch its entries on and off. Manifests for a group that is off are skipped.
    pub fn file_groups() -> Group<dyn FileGroup> {
        entry_points::Group::new("device.file_groups")
            .noun("file group")
            .switches("DEVICE_FILE_GROUPS")
            .autoload_line("device_registry::autoload!();")
    }
}

/// The groups that are linked, on, and load.
fn usable() -> impl Iterator<Item = &'static dyn FileGroup> {
    file_groups().iter().filter_map(|entry| entry.load().ok())
}

/// The groups as manifests need to know them: those that are linked, on, and load.
pub(crate) const IN_FILES: Groups = Groups { names: || usable().map(FileGroup::name).collect(), failure_of };

/// The group with a name.
pub(crate) fn named(name: &str) -> Option<&'static dyn FileGroup> {
    usable().find(|group| group.name() == name)
}

fn failure_of(name: &str) -> Option<String> {
    let entry = file_groups().get(&name.replace('.', "_"))?;
    match entry.load() {
        Ok(_) | Err(LoadError::Disabled { .. }) => None,
        Err(error) => {
            let causes = std::iter::successors(error.source(), |error| (*error).source());
            Some(match &causes.map(ToString::to_string).collect::<Vec<_>>()[..] {
                [] => error.to_string(),
                causes => format!("{error} (caused by: {})", causes.join(": ")),
            })
        }
    }
}

/// An entry of a [`FileGroup`] in a file, whose manifest was read.
#[derive(Clone, Debug)]
pub struct FileEntry {
    manifest: Manifest,
    any_owner: bool,
}

impl FileEntry {
    pub(crate) fn new(manifest: Manifest, any_owner: bool) -> Self {
        Self { manifest, any_owner }
    }

    /// What the manifest says.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Checks the library as for a backend, opens it if it is not open, and calls its function `load_entry`,
    /// which fills `table`. Blocks while another thread opens the same library. A library that is open stays
    /// so until the process ends.
    ///
    /// # Errors
    ///
    /// If the library may not be opened, cannot be opened, does not offer what the manifest says, or its
    /// entry does not load.
    ///
    /// # Safety
    ///
    /// `T` is the type that the header of the group declares for the table.
    pub unsafe fn load<T: Table>(
        &self,
        options: &Options,
        table: &mut T,
    ) -> Result<FileLibrary, LoadFailure> {
        open_checked(&self.manifest, self.any_owner, |checked| {
            // SAFETY: a file in a folder that the program names is code that the program trusts, like the
            // code that is linked into it, and by its symbol it promises to keep the rules of the interface.
            // The checks rule out files of other users. The caller promises the type of the table.
            unsafe { load::open_entry(&checked, options, table) }.map(FileLibrary)
        })
    }
}

/// A library that is open.
#[derive(Clone, Copy)]
pub struct FileLibrary(&'static Library);

impl FileLibrary {
    /// The library, as an absolute path without links, by which it was opened.
    #[must_use]
    pub fn file(&self) -> &'static Path {
        self.0.file()
    }

    /// The library's own objects of a launch, which its functions get.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the device is not of a backend of this library.
    pub fn launched<'a>(&self, launch: &'a Launch<'_>) -> Result<LaunchObjects<'a>, BackendError> {
        let foreign = || {
            BackendError::unsupported(format_args!(
                "work of {} on `{}`, whose backend is not of this library",
                self.0.file().display(),
                launch.device()
            ))
        };
        let device: &load::LoadedDevice = launch.driver_as().map_err(|_| foreign())?;
        if !device.is_of(self.0) {
            return Err(foreign());
        }
        let stream =
            launch.stream_as::<load::LoadedQueue>().map_or(ptr::null_mut(), load::LoadedQueue::object);
        Ok(LaunchObjects { device, stream })
    }
}

impl fmt::Debug for FileLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileLibrary").field(&self.0.file()).finish()
    }
}

/// The objects of a launch on a device of a library, valid within the launch.
#[derive(Clone, Copy, Debug)]
pub struct LaunchObjects<'a> {
    device: &'a load::LoadedDevice,
    stream: *mut c_void,
}

impl LaunchObjects<'_> {
    /// The open device.
    #[must_use]
    pub fn device(&self) -> *mut c_void {
        self.device.object()
    }

    /// What the library itself calls the backend of the device. A library may have several backends, whose
    /// objects differ.
    #[must_use]
    pub fn backend(&self) -> &str {
        self.device.entry()
    }

    /// The queue, or null if the backend has no queues.
    #[must_use]
    pub fn stream(&self) -> *mut c_void {
        self.stream
    }

    /// A span of the launch, as the library's functions get it.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if its memory is not of this library.
    pub fn span(&self, span: &Span) -> Result<abi::Span, BackendError> {
        self.device.span(span)
    }
}
