//! The side of the library: a kernel set of this crate's own kind behind the C interface.

use std::ptr;

use device_kernels::{Coverage, KernelSet, KernelSetDescriptor};
use device_plugin::interface::{
    ExportedEntry, Object, Report, Status, Str, Table, guard, launch as launched, put,
};
use device_registry::Device;
use device_registry::backend::{BackendError, LoadFailure};
use device_registry::plugin::{self, Setting};
use device_registry::registry::{OptionOrigin, isolate};

use crate::abi::{self, Kernel, SetApi};
use crate::{backend_of, call};

/// A kernel set that a library exports, beside its backends:
///
/// ```
/// # mod device_acme {
/// #     use device_registry::backend::{BackendDescriptor, LoadFailure};
/// #     pub static ACME: BackendDescriptor = BackendDescriptor::new("acme", || Err(LoadFailure::new("")));
/// # }
/// # mod device_acme_kernels {
/// #     use device_kernels::KernelSetDescriptor;
/// #     use device_registry::backend::LoadFailure;
/// #     pub static ACME: KernelSetDescriptor = KernelSetDescriptor::new("acme", || Err(LoadFailure::new("")));
/// # }
/// use device_kernels_plugin::KernelSetInFile;
///
/// device_plugin::export!(device_acme::ACME; KernelSetInFile(&device_acme_kernels::ACME));
/// # fn main() {}
/// ```
///
/// A set whose [`coverage`](KernelSet::coverage) or [`supports`](KernelSet::supports) opens its device opens
/// it once more, in the library.
pub struct KernelSetInFile(pub &'static KernelSetDescriptor);

impl ExportedEntry for KernelSetInFile {
    fn group(&self) -> &'static str {
        abi::GROUP
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn package(&self) -> Option<&'static str> {
        self.0.package()
    }

    fn version(&self) -> Option<&'static str> {
        self.0.version()
    }

    fn options(&self) -> Vec<(&'static str, &'static str)> {
        self.0.options().iter().map(|option| (option.name(), option.description())).collect()
    }

    unsafe fn load(&self, options: &[Setting<'_>], table: Object) -> Result<(), LoadFailure> {
        let settings = options.iter().map(|&(name, value, variable)| {
            let origin = variable.map_or(OptionOrigin::Program, |name| OptionOrigin::Variable(name.into()));
            (name, value, origin)
        });
        let set = entry_points::load_with(self.0, settings)?;
        let exported = Exported { backend: backend_of(self.0.name()), set };
        let device = exported.device(0).ok_or_else(|| {
            LoadFailure::new(format_args!(
                "the library has kernels for the backend `{}`, which it does not export",
                exported.backend
            ))
        })?;
        let coverage = exported.set.coverage(device);
        let rows: Vec<*const Kernel> = coverage.iter().map(|one| ptr::from_ref(row(one))).collect();
        let rows: &'static [*const Kernel] = rows.leak();
        let api: &'static SetApi = Box::leak(Box::new(SetApi {
            kernels: rows.as_ptr(),
            kernel_count: rows.len(),
            supports: Some(supports),
            is_short: Some(is_short),
            launch: Some(launch),
            ..SetApi::ZEROED
        }));
        let loaded = abi::Kernels {
            major: abi::MAJOR,
            minor: abi::MINOR,
            set: ptr::from_mut(Box::leak(Box::new(exported))).cast(),
            api,
            ..abi::Kernels::ZEROED
        };
        // SAFETY: the caller promises that it is the place for a table of this group.
        unsafe { put(table.cast::<abi::Kernels>(), loaded) }
            .map_err(|error| LoadFailure::new(format_args!("the place for the kernels {error}")))
    }
}

/// A kernel set that was loaded. It is never dropped.
struct Exported {
    backend: &'static str,
    set: Box<dyn KernelSet>,
}

impl Exported {
    fn device(&self, ordinal: usize) -> Option<Device> {
        plugin::device(self.backend, ordinal)
    }
}

/// A row of the table. It is never freed.
pub(crate) fn row(coverage: &Coverage) -> &'static Kernel {
    let limit = |limit: usize| if limit == usize::MAX { 0 } else { limit };
    let types = coverage.types().iter().fold(0, |types, dtype| types | 1 << abi::number_of(dtype));
    let flag = |is_so: bool, flag: u32| if is_so { flag } else { 0 };
    let name: &'static str = coverage.operator().to_owned().leak();
    Box::leak(Box::new(Kernel {
        name: Str::of(name),
        max_rank: limit(coverage.limits().max_rank),
        max_elements: limit(coverage.limits().max_elements),
        dtypes: types,
        flags: flag(coverage.limits().contiguous, abi::CONTIGUOUS)
            | flag(coverage.limits().arrays_only, abi::ARRAYS_ONLY),
        ..Kernel::ZEROED
    }))
}

/// # Safety
///
/// The object is from [`KernelSetInFile::load`].
unsafe fn exported<'a>(set: Object) -> &'a Exported {
    // SAFETY: the caller promises that `load` has made it; it is never freed.
    unsafe { &*set.cast::<Exported>() }
}

/// The answer to a question about a call. One that this side does not have, or a panic, is a no.
fn answer(question: impl FnOnce() -> Result<bool, BackendError>) -> u32 {
    match isolate(question) {
        Ok(Ok(answer)) => answer.into(),
        Ok(Err(error)) => {
            let _ = isolate(|| log::debug!("a call has no kernel here: {error}"));
            0
        }
        Err(panic) => {
            let _ = isolate(|| log::error!("a panic of a kernel set that was asked: {}", panic.message()));
            0
        }
    }
}

unsafe extern "C" fn supports(set: Object, ordinal: usize, of: *const abi::Call) -> u32 {
    answer(|| {
        // SAFETY: the program passes a set of this library, and a call that is valid.
        let (exported, (call, _)) = unsafe { (exported(set), call::read(of)?) };
        Ok(exported.device(ordinal).is_some_and(|device| exported.set.supports(device, &call)))
    })
}

unsafe extern "C" fn is_short(set: Object, of: *const abi::Call) -> u32 {
    answer(|| {
        // SAFETY: the program passes a set of this library, and a call that is valid.
        let (exported, (call, _)) = unsafe { (exported(set), call::read(of)?) };
        Ok(exported.set.is_short(&call))
    })
}

unsafe extern "C" fn launch(
    set: Object,
    device: Object,
    stream: Object,
    of: *const abi::Call,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a set, a device and a stream of this library, a call with memory of it, and
    // a valid report.
    unsafe {
        guard(report, || {
            let (call, spans) = call::read(of)?;
            launched(device, stream, &spans, |launch| exported(set).set.launch(&call, launch))
        })
    }
}
