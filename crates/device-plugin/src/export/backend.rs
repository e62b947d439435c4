//! Backends: loading one, and its devices before they are open.

use std::ptr;

use device_registry::backend::{
    Backend, BackendDescriptor, BackendError, DeviceProperties, LoadFailure, MemoryReuse,
};
use device_registry::plugin::{self, PluginDevice};
use device_registry::{AttributeValue, BackendErrorKind, DeviceKind, Version};

use crate::abi::{
    self, BackendApi, Loss, Object, OptionSetting, Properties, Receive, Report, Status, Str, Table, TooLong,
};
use crate::export::device::DEVICE_API;
use crate::export::event::EVENT_API;
use crate::export::exported::{EXPORTED, Exported};
use crate::export::report::{guard, status, with_failure};
use crate::export::stream::STREAM_API;

static BACKEND_API: BackendApi = BackendApi {
    device_count: Some(device_count),
    presence: Some(presence),
    properties: Some(properties),
    open: Some(open),
    ..BackendApi::ZEROED
};

/// A backend that was loaded. It is never dropped.
struct Loaded {
    backend: Box<dyn Backend>,
    name: &'static str,
}

pub(crate) unsafe extern "C" fn load(
    name: Str,
    options: *const *const OptionSetting,
    option_count: usize,
    backend: *mut abi::Backend,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes text, options, a place and a report that are valid during the call.
    unsafe {
        guard(report, || {
            let name = name.text().map_err(BackendError::invalid)?;
            let descriptor = find(&name)?;
            let settings = settings(options, option_count)?;
            let loaded = plugin::load(descriptor, &borrowed(&settings)).map_err(failure)?;
            let loaded = Box::leak(Box::new(Loaded { backend: loaded, name: descriptor.name() }));
            write_backend(backend, ptr::from_ref(loaded).cast_mut().cast())
        })
    }
}

/// The descriptor of an exported backend. The library has others, such as `cpu`, which are not the program's
/// business.
fn find(name: &str) -> Result<&'static BackendDescriptor, BackendError> {
    let exported: &Exported =
        EXPORTED.get().ok_or_else(|| BackendError::invalid("the library was not started"))?;
    let found = exported.descriptors.iter().find(|descriptor| descriptor.name() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = exported.descriptors.iter().map(|descriptor| descriptor.name()).collect();
        BackendError::invalid(format_args!(
            "the library exports no backend `{name}`; it exports {}",
            names.join(", ")
        ))
    })
}

/// Loads an entry of another group.
pub(crate) unsafe extern "C" fn load_entry(
    group: Str,
    name: Str,
    options: *const *const OptionSetting,
    option_count: usize,
    table: Object,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes texts, options, a table and a report that are valid during the call.
    unsafe {
        guard(report, || {
            let group = group.text().map_err(BackendError::invalid)?;
            let name = name.text().map_err(BackendError::invalid)?;
            let entries = EXPORTED.get().map_or(&[][..], |exported| exported.entries);
            let entry = entries.iter().find(|entry| entry.group() == group && entry.name() == name);
            let entry = entry.ok_or_else(|| {
                BackendError::invalid(format_args!("the library exports no entry `{name}` of `{group}`"))
            })?;
            let settings = settings(options, option_count)?;
            entry.load(&borrowed(&settings), table).map_err(failure)
        })
    }
}

type Owned = (String, String, Option<String>);

fn borrowed(settings: &[Owned]) -> Vec<plugin::Setting<'_>> {
    settings.iter().map(|(name, value, variable)| (&**name, &**value, variable.as_deref())).collect()
}

/// # Safety
///
/// The options are valid.
unsafe fn settings(options: *const *const OptionSetting, count: usize) -> Result<Vec<Owned>, BackendError> {
    (0..count)
        .map(|at| {
            // SAFETY: the caller promises that there are `count` pointers to options.
            let option = unsafe { abi::take(options.add(at).read()) };
            let option = option.map_err(|error| BackendError::invalid(format_args!("an option {error}")))?;
            // SAFETY: the caller promises that the texts are valid.
            let [name, value, variable] =
                [option.name, option.value, option.variable].map(|text| unsafe { text.text() });
            let too_long = |error: TooLong| BackendError::invalid(format_args!("an option: {error}"));
            let name = name.map_err(too_long)?;
            let value = value.map_err(too_long)?;
            let variable = variable.map_err(too_long)?;
            let variable = (!variable.is_empty()).then(|| variable.into_owned());
            Ok((name.into_owned(), value.into_owned(), variable))
        })
        .collect()
}

/// A failure to load, as an error with the same chain of causes.
fn failure(failure: LoadFailure) -> BackendError {
    let kind = if failure.is_unavailable() { BackendErrorKind::Unavailable } else { BackendErrorKind::Other };
    crate::chain::error(kind, failure.messages())
}

/// # Safety
///
/// The place begins with the program's size of it, and has that size.
unsafe fn write_backend(place: *mut abi::Backend, backend: Object) -> Result<(), BackendError> {
    let loaded = abi::Backend {
        backend,
        backend_api: &BACKEND_API,
        device_api: &DEVICE_API,
        stream_api: &STREAM_API,
        event_api: &EVENT_API,
        ..abi::Backend::ZEROED
    };
    // SAFETY: the caller promises that the place is valid.
    unsafe { abi::put(place, loaded) }
        .map_err(|error| BackendError::invalid(format_args!("the place for the backend {error}")))
}

/// # Safety
///
/// The object is from [`load`].
unsafe fn loaded<'a>(backend: Object) -> &'a Loaded {
    // SAFETY: the caller promises that `load` has made it; it is never freed.
    unsafe { &*backend.cast::<Loaded>() }
}

unsafe extern "C" fn device_count(backend: Object, count: *mut usize, report: *const Report) -> Status {
    // SAFETY: the program passes a backend of this library, a place and a report that are valid.
    unsafe {
        guard(report, || {
            count.write(loaded(backend).backend.device_count()?);
            Ok(())
        })
    }
}

unsafe extern "C" fn presence(backend: Object, ordinal: usize, report: *const Report) -> Status {
    let mut absent = false;
    // SAFETY: the program passes a backend of this library and a valid report.
    let status = unsafe {
        guard(report, || match plugin::refusal(loaded(backend).backend.presence(ordinal)?) {
            Some((reason, is_absent)) => {
                // The error of a lost device is of the kind that says so.
                absent = is_absent;
                Err(reason)
            }
            None => Ok(()),
        })
    };
    if absent { abi::ABSENT } else { status }
}

unsafe extern "C" fn properties(
    backend: Object,
    ordinal: usize,
    context: Object,
    receive: Receive,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a backend of this library, its own function with its argument, and a valid
    // report.
    unsafe {
        guard(report, || {
            let properties = loaded(backend).backend.properties(ordinal)?;
            let texts = Texts::of(&properties);
            let described = describe(&properties, &texts);
            if let Some(receive) = receive {
                receive(context, &described);
            }
            Ok(())
        })
    }
}

/// The properties that the interface passes as text but the contract does not.
pub(crate) struct Texts {
    pci: Option<String>,
    api_version: Option<String>,
    compute_capability: Option<String>,
    native_dtypes: Option<String>,
    attributes: String,
}

impl Texts {
    pub(crate) fn of(properties: &DeviceProperties) -> Self {
        let version = |version: Version| version.to_string();
        let dtypes = |names: &Vec<String>| match &names[..] {
            [] => "none".to_owned(),
            some => some.join(","),
        };
        let attribute = |(name, value): (&str, &AttributeValue)| match value {
            AttributeValue::Text(text) => format!("{name}:{}", text.replace(['\r', '\n'], " ")),
            other => format!("{name}={other}"),
        };
        Self {
            pci: properties.pci.map(|pci| pci.to_string()),
            api_version: properties.api.as_ref().and_then(|api| api.version).map(version),
            compute_capability: properties.compute_capability.map(version),
            native_dtypes: properties.native_dtypes.as_ref().map(dtypes),
            attributes: properties.attributes.iter().map(attribute).collect::<Vec<_>>().join("\n"),
        }
    }
}

pub(crate) fn describe(properties: &DeviceProperties, texts: &Texts) -> Properties {
    let text = |text: Option<&str>| text.map_or(Str::empty(), Str::cut);
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    let (memory_reuse, memory_reuse_alignment, memory_reuse_from) = match properties.memory_reuse {
        MemoryReuse::Exact => (abi::REUSE_EXACT, 0, 0),
        MemoryReuse::Rounded => (abi::REUSE_ROUNDED, 0, 0),
        MemoryReuse::Large { from } => (abi::REUSE_LARGE, 0, from),
        // A number that does not fit is invalid, as is every number above 1 MiB.
        MemoryReuse::Divided { alignment } => {
            (abi::REUSE_DIVIDED, u32::try_from(alignment).unwrap_or(u32::MAX), 0)
        }
        _ => (abi::REUSE_NEVER, 0, 0),
    };
    Properties {
        name: Str::cut(&properties.name),
        vendor: text(properties.vendor.as_deref()),
        driver: text(properties.driver.as_deref()),
        pci: text(texts.pci.as_deref()),
        uuid: properties.uuid.map_or([0; 16], |uuid| *uuid.as_bytes()),
        kind: match properties.kind {
            DeviceKind::Cpu => abi::KIND_CPU,
            DeviceKind::Gpu => abi::KIND_GPU,
            DeviceKind::IntegratedGpu => abi::KIND_INTEGRATED_GPU,
            DeviceKind::Accelerator => abi::KIND_ACCELERATOR,
            DeviceKind::Simulated => abi::KIND_SIMULATED,
            _ => abi::KIND_OTHER,
        },
        flags: flag(!properties.concurrent_streams, abi::SERIAL_STREAMS)
            | flag(!properties.timed_events, abi::NO_TIMED_EVENTS)
            | flag(properties.pinned_memory, abi::PINNED_MEMORY),
        total_memory: properties.total_memory.unwrap_or(0),
        largest_allocation: properties.largest_allocation.unwrap_or(0),
        // 0 means 1 in the interface, and is invalid in the contract.
        copy_alignment: if properties.copy_alignment == 0 { 3 } else { properties.copy_alignment },
        memory_reuse,
        memory_reuse_alignment,
        memory_reuse_from,
        driver_version: text(properties.driver_version.as_deref()),
        api: text(properties.api.as_ref().map(|api| &*api.name)),
        api_version: text(texts.api_version.as_deref()),
        compute_capability: text(texts.compute_capability.as_deref()),
        native_dtypes: text(texts.native_dtypes.as_deref()),
        attributes: text(Some(&texts.attributes)),
        ..Properties::ZEROED
    }
}

/// How the program learns of a loss.
struct ProgramLoss(Loss);

// SAFETY: any thread may report a loss, several at once.
unsafe impl Send for ProgramLoss {}
// SAFETY: any thread may report a loss, several at once.
unsafe impl Sync for ProgramLoss {}

impl ProgramLoss {
    fn report(&self, error: &BackendError) {
        debug_assert_eq!(status(error.kind()), abi::LOST);
        if let Some(report) = self.0.report {
            // SAFETY: the program's context is valid forever, and the failure during the call.
            with_failure(error, |failure| unsafe { report(self.0.context, failure) });
        }
    }
}

unsafe extern "C" fn open(
    backend: Object,
    ordinal: usize,
    loss: *const Loss,
    device: *mut Object,
    report: *const Report,
) -> Status {
    // SAFETY: the program passes a backend of this library, and a loss, a place and a report that are valid.
    unsafe {
        guard(report, || {
            let loaded = loaded(backend);
            let loss = ProgramLoss(loss.read());
            let opened = loaded.backend.open(ordinal)?;
            let opened = PluginDevice::new(loaded.name, &*loaded.backend, ordinal, opened, move |error| {
                loss.report(&error);
            })?;
            device.write(ptr::from_ref(opened).cast_mut().cast());
            Ok(())
        })
    }
}
