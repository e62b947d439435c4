//! A backend of a library.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_registry::backend::{
    Api, AttributeValue, Backend, BackendError, DeviceKind, DeviceProperties, DeviceUuid, LoadFailure,
    LossReporter, MemoryReuse, OpenedDevice, Presence, Version,
};
use parking_lot::Mutex;

use crate::abi::{self, Failure, Loss, Object, Properties, Str, Table};
use crate::load::device::LoadedDriver;
use crate::load::library::{Library, Setting};
use crate::load::report::{self, call, error, made};
use crate::load::tables::Tables;

pub(crate) struct LoadedBackend {
    tables: &'static Tables,
    /// The ordinals of the devices that are open.
    open: Arc<Mutex<BTreeSet<usize>>>,
    /// The highest count of devices that the library has returned.
    count: AtomicUsize,
    /// What the library reports losses with. They are never freed: a thread of the library may still report
    /// when a device is long closed, or did not open.
    losses: Mutex<Vec<&'static LossReporter>>,
}

impl LoadedBackend {
    /// Its functions.
    pub(crate) fn tables(&self) -> &Tables {
        self.tables
    }

    /// Checks that the library has a device of this ordinal. The core has done so, but any code may call a
    /// [`Backend`].
    fn check(&self, ordinal: usize) -> Result<(), BackendError> {
        if ordinal < self.count.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.device_count()? {
            count if ordinal < count => Ok(()),
            count => {
                Err(BackendError::invalid(format_args!("there is no device {ordinal}: there are {count}")))
            }
        }
    }

    /// Loads a backend of a library, with these options: name, value, and the variable that sets it, or
    /// nothing.
    ///
    /// # Errors
    ///
    /// The library's own, and an error for tables that cannot be used.
    pub(crate) fn load(
        library: &'static Library,
        name: &str,
        options: &[Setting<'_>],
    ) -> Result<Self, LoadFailure> {
        let mut loaded = abi::Backend::ZEROED;
        let mut reported = None;
        match library.load(name, options, &mut loaded, &mut reported)? {
            abi::OK => {
                // SAFETY: the library has loaded the backend, and its tables are valid forever.
                let tables = unsafe { Tables::read(library, name, &loaded) }?;
                Ok(Self {
                    tables: Box::leak(Box::new(tables)),
                    open: Arc::default(),
                    count: AtomicUsize::new(0),
                    losses: Mutex::default(),
                })
            }
            status => Err(report::failure(status, reported)),
        }
    }
}

/// The claim to a device, from its opening to its close or reset. The rules of the interface promise a
/// library that none is open twice, and any code may call [`Backend::open`].
pub(crate) struct Claim {
    open: Arc<Mutex<BTreeSet<usize>>>,
    ordinal: usize,
}

impl Claim {
    pub(crate) fn new(open: &Arc<Mutex<BTreeSet<usize>>>, ordinal: usize) -> Result<Self, BackendError> {
        if !open.lock().insert(ordinal) {
            return Err(BackendError::invalid(format_args!(
                "the device {ordinal} is open already; it can be opened again after a close or a reset"
            )));
        }
        Ok(Self { open: Arc::clone(open), ordinal })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.open.lock().remove(&self.ordinal);
    }
}

/// A function of the table, or the error for one that the library does not have.
macro_rules! function {
    ($self:ident.$name:ident, $what:literal) => {
        match $self.tables.backend.$name {
            Some(function) => function,
            None => return Err(BackendError::unsupported($what)),
        }
    };
}

impl Backend for LoadedBackend {
    fn device_count(&self) -> Result<usize, BackendError> {
        let device_count = function!(self.device_count, "counting devices");
        let mut count = 0;
        // SAFETY: the backend is never freed, and the place and the report are valid during the call.
        call("counting devices", |report| unsafe { device_count(self.tables.object, &mut count, report) })?;
        // Seldom: a change of an atomic number takes as long as the call.
        if count > self.count.load(Ordering::Relaxed) {
            self.count.fetch_max(count, Ordering::Relaxed);
        }
        Ok(count)
    }

    fn presence(&self, ordinal: usize) -> Result<Presence, BackendError> {
        let Some(presence) = self.tables.backend.presence else { return Ok(Presence::Present) };
        self.check(ordinal)?;
        let mut reported = None;
        // SAFETY: the library has a device of this ordinal, and the report is valid during the call.
        let status =
            report::status(&mut reported, |report| unsafe { presence(self.tables.object, ordinal, report) });
        match status {
            abi::OK => Ok(Presence::Present),
            abi::ABSENT => Ok(Presence::Absent(error(abi::ABSENT, reported, "presence"))),
            abi::LOST => Ok(Presence::Lost(error(abi::LOST, reported, "presence"))),
            status => Err(error(status, reported, "presence")),
        }
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let properties = function!(self.properties, "properties");
        self.check(ordinal)?;
        let mut received: Received = None;
        let context = std::ptr::from_mut(&mut received).cast();
        // SAFETY: the library has a device of this ordinal, and the context and the report are valid during
        // the call.
        call("properties", |report| unsafe {
            properties(self.tables.object, ordinal, context, Some(receive), report)
        })?;
        let none = || Err(BackendError::other("the plugin gave no properties"));
        received.unwrap_or_else(none)
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let open = function!(self.open, "opening a device");
        self.check(ordinal)?;
        let claim = Claim::new(&self.open, ordinal)?;
        let reporter = LossReporter::new();
        let kept: &'static LossReporter = Box::leak(Box::new(reporter.clone()));
        self.losses.lock().push(kept);
        let context: Object = std::ptr::from_ref(kept).cast_mut().cast();
        let loss = Loss { context, reserved: 0, report: Some(report_loss) };
        let mut device = std::ptr::null_mut();
        // SAFETY: the library has a device of this ordinal, and the loss, the place and the report are valid
        // during the call.
        call("opening a device", |report| unsafe {
            open(self.tables.object, ordinal, &loss, &mut device, report)
        })?;
        let device = made(device, "device")?;
        // SAFETY: the library has opened the device.
        let driver = unsafe { LoadedDriver::new(self.tables, device, claim) };
        let opened = OpenedDevice::new(self, driver).with_loss_reporter(reporter);
        // SAFETY: the library's native handles are what their kinds' owners document: the rules of the
        // interface say so, and the program trusted the library with everything else when it opened the file.
        Ok(unsafe { opened.with_native_handles() })
    }
}

unsafe extern "C" fn report_loss(context: Object, failure: *const Failure) {
    // SAFETY: `open` has made the context of a reporter that is never freed.
    let reporter = unsafe { &*context.cast::<LossReporter>() };
    // SAFETY: the library passes a failure that is null or valid during the call.
    let reported = (!failure.is_null()).then(|| unsafe { report::read(failure) });
    reporter.report(error(abi::LOST, reported, "the device"));
}

type Received = Option<Result<DeviceProperties, BackendError>>;

unsafe extern "C" fn receive(context: Object, properties: *const Properties) {
    // SAFETY: the library passes the context of `properties`, during that call.
    let received = unsafe { &mut *context.cast::<Received>() };
    // SAFETY: the library passes properties that are valid during this call.
    let read = catch_unwind(AssertUnwindSafe(|| unsafe { read(properties) }));
    *received = Some(read.unwrap_or_else(|panic| {
        std::mem::forget(panic);
        Err(BackendError::other("reading the properties of the plugin panicked"))
    }));
}

/// # Safety
///
/// The properties are null or valid.
unsafe fn read(properties: *const Properties) -> Result<DeviceProperties, BackendError> {
    // SAFETY: the caller promises it.
    let read = unsafe { abi::take(properties) };
    let read = read
        .map_err(|error| BackendError::other(format_args!("the plugin's table `dp_properties` {error}")))?;
    let text = |text: Str, field| {
        // SAFETY: the caller promises that the texts are valid. One that is too long is not read.
        match unsafe { text.text() } {
            // SAFETY: the caller promises that the texts are valid.
            Ok(_) => Ok(unsafe { text.shown() }),
            Err(error) => Err(BackendError::other(format_args!("`dp_properties.{field}`: {error}"))),
        }
    };
    let name = text(read.name, "name")?;
    let vendor = text(read.vendor, "vendor")?;
    let driver = text(read.driver, "driver")?;
    let pci = text(read.pci, "pci")?;
    let alignment = read.memory_reuse_alignment as usize;
    let mut properties = DeviceProperties::new(name)
        .with_kind(match read.kind {
            abi::KIND_CPU => DeviceKind::Cpu,
            abi::KIND_GPU => DeviceKind::Gpu,
            abi::KIND_INTEGRATED_GPU => DeviceKind::IntegratedGpu,
            abi::KIND_ACCELERATOR => DeviceKind::Accelerator,
            abi::KIND_SIMULATED => DeviceKind::Simulated,
            _ => DeviceKind::Other,
        })
        .with_uuid(DeviceUuid::from_bytes(read.uuid))
        .with_copy_alignment(if read.copy_alignment == 0 { 1 } else { read.copy_alignment })
        .with_concurrent_streams(read.flags & abi::SERIAL_STREAMS == 0)
        .with_timed_events(read.flags & abi::NO_TIMED_EVENTS == 0)
        .with_pinned_memory(read.flags & abi::PINNED_MEMORY != 0)
        .with_memory_reuse(match read.memory_reuse {
            abi::REUSE_EXACT => MemoryReuse::Exact,
            abi::REUSE_ROUNDED => MemoryReuse::Rounded,
            abi::REUSE_DIVIDED => MemoryReuse::Divided { alignment },
            abi::REUSE_LARGE => MemoryReuse::Large { from: read.memory_reuse_from },
            _ => MemoryReuse::Never,
        });
    if !vendor.is_empty() {
        properties = properties.with_vendor(vendor);
    }
    if !driver.is_empty() {
        properties = properties.with_driver(driver);
    }
    if !pci.is_empty() {
        let invalid =
            |error| BackendError::other("the plugin gave an invalid PCI address").with_source(error);
        properties = properties.with_pci(pci.parse().map_err(|error| invalid(Box::new(error)))?);
    }
    if read.total_memory != 0 {
        properties = properties.with_total_memory(read.total_memory);
    }
    if read.largest_allocation != 0 {
        properties = properties.with_largest_allocation(read.largest_allocation);
    }
    let version = |written: Str, field| match text(written, field)? {
        none if none.is_empty() => Ok(None),
        some => some.parse::<Version>().map(Some).map_err(|error| {
            BackendError::other(format_args!("`dp_properties.{field}`")).with_source(Box::new(error))
        }),
    };
    let driver_version = text(read.driver_version, "driver_version")?;
    if !driver_version.is_empty() {
        properties = properties.with_driver_version(driver_version);
    }
    let api = text(read.api, "api")?;
    let api_version = version(read.api_version, "api_version")?;
    if !api.is_empty() {
        let api = Api::new(api);
        properties = properties.with_api(match api_version {
            Some(version) => api.with_version(version),
            None => api,
        });
    }
    properties.compute_capability = version(read.compute_capability, "compute_capability")?;
    match &*text(read.native_dtypes, "native_dtypes")? {
        "" => {}
        "none" => properties = properties.with_native_dtypes([""; 0]),
        names => properties = properties.with_native_dtypes(names.split(',').map(str::trim)),
    }
    text(read.attributes, "attributes")?;
    // SAFETY: the caller promises that the texts are valid.
    let attributes = unsafe { read.attributes.shown_lines() };
    attributes.lines().try_fold(properties, |properties, line| {
        let (name, value) = attribute(line).ok_or_else(|| {
            BackendError::other(format_args!(
                "`dp_properties.attributes`: expected `name=number`, `name=true`, `name=false` or `name:text`, \
                 found {line:?}"
            ))
        })?;
        Ok(properties.with_attribute(name, value))
    })
}

/// A line of `dp_properties.attributes`.
fn attribute(line: &str) -> Option<(&str, AttributeValue)> {
    let (name, value) = line.split_at(line.find(['=', ':'])?);
    let value = match (value.split_at(1), &value[1..]) {
        ((":", text), _) => text.into(),
        (_, "true") => true.into(),
        (_, "false") => false.into(),
        (_, number) => number.parse::<i64>().ok()?.into(),
    };
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use device_registry::backend::samples;

    use super::*;
    use crate::export::backend::{Texts, describe};

    #[track_caller]
    fn expect_the_same_behind_the_interface(properties: &DeviceProperties) {
        let texts = Texts::of(properties);
        let described = describe(properties, &texts);
        // SAFETY: the properties and what they point to live until the end of the function.
        assert_eq!(unsafe { read(&raw const described) }.unwrap(), *properties);
    }

    #[test]
    fn every_property_passes_the_interface() {
        expect_the_same_behind_the_interface(&DeviceProperties::new("a device"));
        expect_the_same_behind_the_interface(&samples::filled_properties());
        for kind in samples::device_kinds() {
            expect_the_same_behind_the_interface(&DeviceProperties::new("a device").with_kind(kind));
        }
        for reuse in samples::memory_reuses() {
            expect_the_same_behind_the_interface(&DeviceProperties::new("a device").with_memory_reuse(reuse));
        }
        expect_the_same_behind_the_interface(&DeviceProperties::new("a device").with_api(Api::new("Metal")));
        expect_the_same_behind_the_interface(&DeviceProperties::new("a device").with_native_dtypes([""; 0]));
    }

    #[test]
    fn properties_of_an_earlier_version_of_the_interface_are_read() {
        let properties = samples::filled_properties();
        let texts = Texts::of(&properties);
        let mut described = describe(&properties, &texts);
        described.struct_size = std::mem::offset_of!(Properties, driver_version);
        // SAFETY: the properties and what they point to live until the end of the function.
        let read = unsafe { read(&raw const described) }.unwrap();
        assert_eq!((&*read.name, read.driver_version, read.api), ("a name", None, None));
        assert!(read.compute_capability.is_none() && read.native_dtypes.is_none());
        assert!(read.attributes.is_empty());
    }

    #[test]
    fn a_text_of_the_wrong_form_is_an_error_that_names_the_field() {
        let properties = DeviceProperties::new("a device");
        let texts = Texts::of(&properties);
        let of = |change: &dyn Fn(&mut Properties)| {
            let mut described = describe(&properties, &texts);
            change(&mut described);
            // SAFETY: the properties and what they point to live until the end of the function.
            unsafe { read(&raw const described) }
        };
        for bad in [
            "units",
            "units=",
            "units=many",
            "units=1.5",
            "=1\nunits",
            "a=1\n\nb=2",
            "units=18446744073709551616",
        ] {
            let error = of(&|described| described.attributes = Str::of(bad)).unwrap_err();
            assert!(error.message().starts_with("`dp_properties.attributes`: expected"), "{bad}: {error}");
        }
        for bad in ["9", "nine", "9.0.1"] {
            let error = of(&|described| described.compute_capability = Str::of(bad)).unwrap_err();
            assert_eq!(error.message(), "`dp_properties.compute_capability`", "{bad}");
        }
        // A name that is not valid is left out, as of a backend in Rust.
        let read = of(&|described| described.attributes = Str::of("Units=1\nunits=2\nisa:a=b:c")).unwrap();
        let all: Vec<_> = read.attributes.iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!((all.join(", ").as_str(), read.attributes.left_out()), ("units 2, isa a=b:c", 1));
        let flood: Vec<_> = (0..4000).map(|number| format!("a{number}=1")).collect();
        let flood = flood.join("\n");
        let read = of(&|described| described.attributes = Str::of(&flood)).unwrap();
        assert_eq!((read.attributes.len(), read.attributes.left_out()), (64, 3936));
    }
}
