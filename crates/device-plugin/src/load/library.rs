//! Libraries, each opened once and never closed.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use device_registry::backend::LoadFailure;
use device_registry::registry::isolate;
use entry_points::OnceLoad;
use entry_points::message::shown_path;
use parking_lot::Mutex;

use crate::abi::{self, Host, Plugin, Report, Status, Str, Table};
use crate::file::manifest::Manifest;
use crate::load::host;
use crate::load::report::{Reported, failure, status};

/// A library that is open. It stays open until the process ends: its threads, its thread-locals and its
/// functions may be in use anywhere.
#[derive(Debug)]
pub(crate) struct Library {
    file: PathBuf,
    plugin: Plugin,
    entries: Vec<LibraryEntry>,
}

/// A thing that a library offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LibraryEntry {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) package: String,
    pub(crate) version: String,
    /// The lowest minor version of the interface with which it works.
    pub(crate) requires: u32,
    /// The names of its options, with their descriptions.
    pub(crate) options: Vec<(String, String)>,
}

// SAFETY: the table does not change, and the rules of the interface allow its function on any thread.
unsafe impl Send for Library {}
// SAFETY: the table does not change, and the rules of the interface allow its function on any thread, at the
// same time.
unsafe impl Sync for Library {}

/// The function that a library exports.
type Start = unsafe extern "C" fn(host: *const Host, report: *const Report) -> *const Plugin;

/// One attempt at a time opens a library. One that needs itself, such as by a logger that uses it, is an
/// error.
type Cell = OnceLoad<Library, LoadFailure>;

/// The libraries that were opened, or that a thread opens now, by their paths. No other code runs under the
/// lock.
static LIBRARIES: Mutex<BTreeMap<PathBuf, &'static Cell>> = Mutex::new(BTreeMap::new());

impl Library {
    /// The library in a file, which is opened if it is not. Blocks while another thread opens it. A failure
    /// is not kept.
    ///
    /// # Errors
    ///
    /// If the system cannot open it, or if it is not a plugin of this version.
    ///
    /// # Safety
    ///
    /// The file is a library that keeps the rules of `device_plugin.h`, and its path is canonical.
    pub(crate) unsafe fn open(file: &Path) -> Result<&'static Self, LoadFailure> {
        let cell: &'static Cell = {
            let mut libraries = LIBRARIES.lock();
            let new = || -> &'static Cell { Box::leak(Box::new(Cell::forgetting_failures())) };
            libraries.entry(file.to_owned()).or_insert_with(new)
        };
        cell.get_or_load(
            ("libraries", &shown_path(file)),
            // SAFETY: the caller promises that the file is such a library.
            || unsafe { Self::open_now(file) },
            |interrupted| LoadFailure::new(format_args!("the library {}: {interrupted}", shown_path(file))),
        )
    }

    /// # Safety
    ///
    /// The same as for [`open`](Self::open).
    unsafe fn open_now(file: &Path) -> Result<Self, LoadFailure> {
        // SAFETY: the caller promises that the file is a library whose code may run, and the symbol is a
        // function of this type by the rules of the interface.
        let start: Start = unsafe { symbol(file, abi::SYMBOL) }?;
        // A logger is the program's code, and its panic would fail the load.
        let _ = isolate(|| log::debug!("opened the library {}", file.display()));
        let host = host::table(file);
        let mut reported: Option<Reported> = None;
        let mut plugin = std::ptr::null();
        status(&mut reported, |report| {
            // SAFETY: the table is valid forever, and the report during the call.
            plugin = unsafe { start(host, report) };
            abi::OK
        });
        if plugin.is_null() {
            return Err(match reported {
                Some(reported) => failure(abi::OTHER, Some(reported)),
                None => LoadFailure::new(format_args!(
                    "`{}` of the plugin returned NULL without a message",
                    abi::SYMBOL
                )),
            });
        }
        // SAFETY: the library has returned a table that is valid forever.
        let plugin = unsafe { abi::take(plugin) }
            .map_err(|error| LoadFailure::new(format_args!("the table `dp_plugin` of the plugin {error}")))?;
        if plugin.major != abi::MAJOR {
            return Err(LoadFailure::new(format_args!(
                "expected version {} of the interface, found {}.{}",
                abi::MAJOR,
                plugin.major,
                plugin.minor
            )));
        }
        // SAFETY: what a library returns is valid forever.
        let entries = unsafe { entries(&plugin) }?;
        Ok(Self { file: file.to_owned(), plugin, entries })
    }

    /// The version of the interface that the library was built with.
    pub(crate) fn interface(&self) -> (u32, u32) {
        (self.plugin.major, self.plugin.minor)
    }

    /// Its path.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// What it offers.
    pub(crate) fn entries(&self) -> &[LibraryEntry] {
        &self.entries
    }

    /// Checks that it offers what a manifest says.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub(crate) fn check(&self, manifest: &Manifest) -> Result<(), LoadFailure> {
        let name = manifest.entry();
        let package = manifest.package();
        let version = manifest.version();
        let mut of_group = self.entries.iter().filter(|entry| entry.group == manifest.group());
        let Some(entry) = of_group.clone().find(|entry| entry.name == name) else {
            let names: Vec<_> = of_group.by_ref().map(|entry| format!("`{}`", entry.name)).collect();
            let names = match &names[..] {
                [] if manifest.group() == abi::BACKENDS => "no backend".to_owned(),
                [] => format!("no entry of `{}`", manifest.group()),
                _ => format!(
                    "{}: set `entry` in the manifest to that, and `name` as you like",
                    names.join(", ")
                ),
            };
            return Err(LoadFailure::new(format_args!(
                "the manifest is for the entry `{name}`, and the library {} offers {names}",
                self.file.display()
            )));
        };
        if entry.requires > abi::MINOR {
            let major = abi::MAJOR;
            let minor = abi::MINOR;
            return Err(LoadFailure::new(format_args!(
                "the entry `{name}` of the library {} requires version {major}.{} of the interface; this program has \
                 {major}.{minor}, so it has to be built with a later `device-plugin`",
                self.file.display(),
                entry.requires
            )));
        }
        if entry.package == package && entry.version == version {
            return Ok(());
        }
        Err(LoadFailure::new(format_args!(
            "the manifest is of {package} {version}, and the library {} of {} {}: print a new manifest with \
             `devices plugin manifest`",
            self.file.display(),
            entry.package,
            entry.version
        )))
    }

    /// Calls the function that loads a backend.
    pub(crate) fn load(
        &self,
        name: &str,
        options: &[Setting<'_>],
        backend: &mut abi::Backend,
        reported: &mut Option<Reported>,
    ) -> Result<Status, LoadFailure> {
        let load = self.plugin.load.ok_or_else(|| without_function("load"))?;
        let options = settings(options);
        let pointers: Vec<*const abi::OptionSetting> = options.iter().map(std::ptr::from_ref).collect();
        // SAFETY: the library keeps the rules, and the texts, the options, the place and the report are valid
        // during the call.
        Ok(status(reported, |report| unsafe {
            load(Str::of(name), pointers.as_ptr(), pointers.len(), backend, report)
        }))
    }

    /// Calls the function that loads an entry of another group than backends, which fills the table.
    ///
    /// # Errors
    ///
    /// The library's own, and if it does not have the function.
    ///
    /// # Safety
    ///
    /// The table is of the type that the header of the group declares for the function.
    pub(crate) unsafe fn load_entry<T: Table>(
        &self,
        group: &str,
        name: &str,
        options: &[Setting<'_>],
        table: &mut T,
    ) -> Result<(), LoadFailure> {
        let load = self.plugin.load_entry.ok_or_else(|| without_function("load_entry"))?;
        let options = settings(options);
        let pointers: Vec<*const abi::OptionSetting> = options.iter().map(std::ptr::from_ref).collect();
        let table: *mut T = table;
        // SAFETY: the first field of a table is its size. The library writes no more than that.
        unsafe { table.cast::<usize>().write(size_of::<T>()) };
        let table = table.cast();
        let mut reported = None;
        // SAFETY: the library keeps the rules, the caller promises the type of the table, and the texts, the
        // options, the table and the report are valid during the call.
        let status = status(&mut reported, |report| unsafe {
            load(Str::of(group), Str::of(name), pointers.as_ptr(), pointers.len(), table, report)
        });
        if status == abi::OK { Ok(()) } else { Err(failure(status, reported)) }
    }
}

/// The value of an option: its name, the value, and the variable that sets it, or nothing.
pub(crate) type Setting<'a> = (&'a str, &'a str, &'a str);

fn settings(options: &[Setting<'_>]) -> Vec<abi::OptionSetting> {
    let setting = |&(name, value, variable): &Setting<'_>| abi::OptionSetting {
        name: Str::of(name),
        value: Str::of(value),
        variable: Str::of(variable),
        ..abi::OptionSetting::ZEROED
    };
    options.iter().map(setting).collect()
}

fn without_function(name: &str) -> LoadFailure {
    LoadFailure::new(format_args!(
        "the plugin does not have the function `dp_plugin.{name}`, which is required"
    ))
}

/// # Safety
///
/// The plugin's table is valid.
unsafe fn entries(plugin: &Plugin) -> Result<Vec<LibraryEntry>, LoadFailure> {
    let refused = |error| LoadFailure::new(format_args!("an entry of the plugin {error}"));
    if plugin.entries.is_null() && plugin.entry_count > 0 {
        return Err(refused(abi::TableError::Null));
    }
    (0..plugin.entry_count)
        .map(|at| {
            // SAFETY: the caller promises that there are as many pointers to entries.
            let entry = unsafe { abi::take(plugin.entries.add(at).read()) }.map_err(refused)?;
            // SAFETY: the caller promises that the texts are valid.
            let text = |text: Str| match unsafe { text.text() } {
                Ok(text) => Ok(text.into_owned()),
                Err(error) => Err(LoadFailure::new(format_args!("an entry: {error}"))),
            };
            let count = if entry.options.is_null() { 0 } else { entry.option_count };
            let options = (0..count).map(|at| {
                // SAFETY: the caller promises that there are as many pointers to options.
                let option = unsafe { abi::take(entry.options.add(at).read()) }.map_err(refused)?;
                Ok((text(option.name)?, text(option.description)?))
            });
            Ok(LibraryEntry {
                group: text(entry.group)?,
                name: text(entry.name)?,
                package: text(entry.package)?,
                version: text(entry.version)?,
                requires: entry.requires_minor,
                options: options.collect::<Result<_, LoadFailure>>()?,
            })
        })
        .collect()
}

/// Opens a library, permanently, and finds a symbol in it.
///
/// # Safety
///
/// The library's constructors may run, and the symbol is of the type.
#[cfg(unix)]
unsafe fn symbol<T: Copy>(file: &Path, name: &str) -> Result<T, LoadFailure> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

    // Its symbols serve nothing else, all of them are found now or opening fails, and no `dlclose` unloads
    // it.
    let flags = RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE;
    // SAFETY: the caller promises that its constructors may run.
    let library = unsafe { Library::open(Some(file), flags) }.map_err(|error| cannot_open(file, error))?;
    // SAFETY: the caller promises the type.
    let symbol = unsafe { library.get::<T>(name) }.map(|symbol| *symbol);
    std::mem::forget(library);
    symbol.map_err(|error| without_symbol(file, name, error))
}

/// Opens a library, permanently, and finds a symbol in it.
///
/// # Safety
///
/// The library's constructors may run, and the symbol is of the type.
#[cfg(windows)]
unsafe fn symbol<T: Copy>(file: &Path, name: &str) -> Result<T, LoadFailure> {
    use libloading::os::windows::{LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR, LOAD_LIBRARY_SEARCH_SYSTEM32, Library};

    // What it needs itself lies beside it, or is the system's.
    let flags = LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_SYSTEM32;
    // SAFETY: the caller promises that its constructors may run.
    let library =
        unsafe { Library::load_with_flags(file, flags) }.map_err(|error| cannot_open(file, error))?;
    library.pin().map_err(|error| cannot_open(file, error))?;
    // SAFETY: the caller promises the type.
    let symbol = unsafe { library.get::<T>(name) }.map(|symbol| *symbol);
    std::mem::forget(library);
    symbol.map_err(|error| without_symbol(file, name, error))
}

#[cfg(not(any(unix, windows)))]
unsafe fn symbol<T: Copy>(file: &Path, _name: &str) -> Result<T, LoadFailure> {
    Err(cannot_open(file, std::io::Error::from(std::io::ErrorKind::Unsupported)))
}

fn cannot_open(file: &Path, error: impl Error + 'static) -> LoadFailure {
    // The error of `libloading` itself only has the name of the system's function, and the system's begins
    // with the path.
    let text = error.source().unwrap_or(&error).to_string();
    let file = file.display().to_string();
    let reason = text.strip_prefix(&file).map_or(&*text, |rest| rest.trim_start_matches(": "));
    // ERROR_MOD_NOT_FOUND, though the file itself is there.
    let help = if cfg!(windows) && text.ends_with("(os error 126)") {
        "; a DLL that it needs is neither beside it nor in System32, and no other folder is searched: \
         `devices plugin check` lists those that it needs"
    } else {
        ""
    };
    LoadFailure::new(format_args!("cannot open the library {file}: {reason}{help}"))
}

fn without_symbol(file: &Path, name: &str, error: impl Error + 'static) -> LoadFailure {
    let reason = error.source().unwrap_or(&error);
    LoadFailure::new(format_args!("{} is no plugin: it does not export `{name}`: {reason}", file.display()))
}
