//! The side of the program: kernel sets of libraries.

use std::sync::OnceLock;

use device_kernels::{Call, Coverage, DTypes, KernelSet, kernel_sets};
use device_plugin::group::{FileEntry, FileGroup, FileLibrary};
use device_plugin::interface::{Object, Span, Table, call, take};
use device_registry::Device;
use device_registry::backend::{Backend, BackendError, Launch, LoadFailure, Options};
use device_registry::registry::{RegisterError, Report, isolate};
use entry_points::Entry;
use smallvec::SmallVec;

use crate::abi::{self, Kernel, SetApi};
use crate::backend_of;

/// Kernel sets in files.
pub(crate) struct KernelsInFiles;

impl FileGroup for KernelsInFiles {
    fn name(&self) -> &'static str {
        abi::GROUP
    }

    fn install(&self, entry: FileEntry) -> Result<(), RegisterError> {
        let loaded = entry.clone();
        let load = move |options: &Options| -> Result<Box<dyn KernelSet>, LoadFailure> {
            Ok(Box::new(LoadedSet::load(&loaded, options)?))
        };
        kernel_sets().install(entry.manifest().installed(load))
    }

    fn report(&self) -> Report {
        kernel_sets().report()
    }
}

/// A kernel set of a library.
struct LoadedSet {
    library: FileLibrary,
    /// What the library calls the set.
    entry: String,
    /// The backend that was asked for first, and whether it is of the library.
    backend: OnceLock<(Entry<dyn Backend>, bool)>,
    set: Object,
    coverage: Vec<Coverage>,
    supports: Option<abi::Supports>,
    is_short: Option<abi::IsShort>,
    launch: abi::Launch,
}

// SAFETY: the rules of the interface allow the functions of a set on any thread.
unsafe impl Send for LoadedSet {}
// SAFETY: the rules of the interface allow the functions of a set on any thread, at the same time.
unsafe impl Sync for LoadedSet {}

/// The most rows that are read.
const MOST_KERNELS: usize = 4096;

impl LoadedSet {
    fn load(entry: &FileEntry, options: &Options) -> Result<Self, LoadFailure> {
        let mut loaded = abi::Kernels::ZEROED;
        // SAFETY: the header declares this type for the group.
        let library = unsafe { entry.load(options, &mut loaded) }?;
        let major = abi::MAJOR;
        let minor = abi::MINOR;
        if loaded.major != major {
            return Err(LoadFailure::new(format_args!(
                "expected version {major}.{minor} of the interface of kernels, found {}.{}",
                loaded.major, loaded.minor
            )));
        }
        let wrong =
            |table: &str, error| LoadFailure::new(format_args!("the table `{table}` of the plugin {error}"));
        // SAFETY: the library has loaded the set, and its table is valid forever.
        let api: SetApi = unsafe { take(loaded.api) }.map_err(|error| wrong("dk_set_api", error))?;
        let launch = api.launch.ok_or_else(|| {
            LoadFailure::new("the plugin does not have the function `dk_set_api.launch`, which is required")
        })?;
        let count = api.kernel_count;
        if count > 0 && api.kernels.is_null() {
            return Err(LoadFailure::new(format_args!(
                "`dk_set_api.kernels` is NULL, and `kernel_count` is {count}"
            )));
        }
        if count > MOST_KERNELS {
            return Err(LoadFailure::new(format_args!(
                "`dk_set_api.kernels` has {count} rows; expected at most {MOST_KERNELS}"
            )));
        }
        let row = |at| {
            // SAFETY: the library has as many rows, which are valid forever.
            let kernel = unsafe { take(api.kernels.add(at).read()) };
            coverage(&kernel.map_err(|error| wrong("dk_kernel", error))?)
        };
        let rows: Vec<Option<Coverage>> = (0..count).map(row).collect::<Result<_, _>>()?;

        Ok(Self {
            library,
            entry: entry.manifest().entry().to_owned(),
            backend: OnceLock::new(),
            set: loaded.set,
            coverage: rows.into_iter().flatten().collect(),
            supports: api.supports,
            is_short: api.is_short,
            launch,
        })
    }

    /// Whether the backend of a device is of the library: another one's objects are others. The answer is
    /// kept, as the files may be replaced while the library is open.
    fn has(&self, device: Device) -> bool {
        let backend = device.backend();
        let (first, is_its) = *self.backend.get_or_init(|| (backend, self.is_of_library(backend)));
        if first == backend { is_its } else { self.is_of_library(backend) }
    }

    /// The error for a manifest that gives kernels to another backend of the same library, whose objects they
    /// would misread.
    #[cold]
    fn misled(&self, device: Device, backend: &str) -> BackendError {
        BackendError::invalid(format_args!(
            "the kernels `{}` of the library {} are for its backend `{}`, and `{device}` is a device of its backend \
             `{backend}`: set `name` in the manifest of the kernels to the name that the program has for the backend \
             of the kernels",
            self.entry,
            self.library.file().display(),
            backend_of(&self.entry)
        ))
    }

    fn is_of_library(&self, backend: Entry<dyn Backend>) -> bool {
        let own = self.library.file();
        let file = backend.file().and_then(|file| file.canonicalize().ok());
        let is_its = file.as_deref() == Some(own);
        if let Some(file) = file.filter(|_| !is_its) {
            let name = backend.name();
            let file = file.display();
            let own = own.display();
            let _ = isolate(|| {
                log::warn!("the kernels in {own} are not used for `{name}`, whose backend is in {file}");
            });
        }
        is_its
    }
}

/// A row of the library. `None` for one with a flag that this side does not know, as a flag is a limit.
pub(crate) fn coverage(kernel: &Kernel) -> Result<Option<Coverage>, LoadFailure> {
    // SAFETY: the library's texts are valid forever.
    let name = unsafe { kernel.name.text() };
    let name = name.map_err(|error| LoadFailure::new(format_args!("the name of a kernel: {error}")))?;
    if kernel.flags & !(abi::CONTIGUOUS | abi::ARRAYS_ONLY) != 0 {
        let _ = isolate(|| {
            log::warn!(
                "the kernel `{name}` of a library is not used: this program does not know its flags {:#x}",
                kernel.flags
            );
        });
        return Ok(None);
    }
    let limit = |limit: usize| if limit == 0 { usize::MAX } else { limit };
    let mut coverage = Coverage::of(name.into_owned())
        .max_rank(limit(kernel.max_rank))
        .max_elements(limit(kernel.max_elements));
    if kernel.dtypes != 0 {
        let has = |number: u32| kernel.dtypes & (1 << number) != 0;
        let types: DTypes =
            abi::DTYPES.iter().filter(|(_, number)| has(*number)).map(|(dtype, _)| *dtype).collect();
        coverage = coverage.dtypes(types);
    }
    if kernel.flags & abi::CONTIGUOUS != 0 {
        coverage = coverage.contiguous();
    }
    if kernel.flags & abi::ARRAYS_ONLY != 0 {
        coverage = coverage.arrays_only();
    }
    Ok(Some(coverage))
}

impl KernelSet for LoadedSet {
    fn coverage(&self, _device: Device) -> Vec<Coverage> {
        self.coverage.clone()
    }

    fn supports(&self, device: Device, call: &Call) -> bool {
        if !self.coverage.iter().any(|coverage| coverage.covers(call)) || !self.has(device) {
            return false;
        }
        let ordinal = device.resolve().index().map_or(0, usize::from);
        let Some(supports) = self.supports else { return true };
        // SAFETY: the set is valid forever, and the call during the function.
        crate::call::with(call, &[], |call| unsafe { supports(self.set, ordinal, call) } != 0)
    }

    fn is_short(&self, call: &Call) -> bool {
        match self.is_short {
            // SAFETY: the set is valid forever, and the call during the function.
            Some(is_short) => crate::call::with(call, &[], |call| unsafe { is_short(self.set, call) } != 0),
            None => call.is_short(),
        }
    }

    fn launch(&self, of: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let objects = self.library.launched(launch)?;
        if objects.backend() != backend_of(&self.entry) {
            return Err(self.misled(launch.device(), objects.backend()));
        }
        let mut spans = SmallVec::<[Span; 4]>::new();
        for span in launch.spans() {
            let span = span.as_ref().ok_or_else(|| BackendError::invalid("an array of the call is empty"))?;
            spans.push(objects.span(span)?);
        }
        crate::call::with(of, &spans, |of| {
            call("the kernel", |report| {
                // SAFETY: the objects are of this library and alive during the launch, and the call and the
                // report during the function.
                unsafe { (self.launch)(self.set, objects.device(), objects.stream(), of, report) }
            })
        })
    }
}
