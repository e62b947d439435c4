//! Not public API. The crate `device-plugin` exports a backend from a shared library by these functions. In
//! such a library, this copy of the core has no open devices: the program's core checks each call, and this
//! one makes the values that a driver gets.

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use entry_points::message::panic_message;
use entry_points::{LoadFailure, OptionOrigin, Switches};

use crate::backend::{
    Allocation, Backend, BackendDescriptor, BackendError, Completion, DeviceDriver, DeviceValues,
    FillPattern, Finish, Freed, HostBuffer, Launch, LossReporter, Memory, OpenedDevice, Owner, Parts,
    Presence, Span, StreamDriver, Watched, backends,
};
use crate::device::Device;
use crate::runtime::device_use;
use crate::runtime::fork::Process;
use crate::runtime::isolation::drop_isolated;
pub use crate::runtime::validation::report_broken_rule;

/// An option of a backend: its name, its value, and the variable that sets it, if not the program.
pub type Setting<'a> = (&'a str, &'a str, Option<&'a str>);

/// Registers a descriptor in this copy, so that its devices have names. This comes before any look-up, as the
/// first one settles the switches. The environment has no effect on them: the program's switches count.
///
/// # Errors
///
/// If the name cannot be registered.
pub fn register(descriptor: &'static BackendDescriptor) -> Result<(), LoadFailure> {
    // It fails where this was done before, with the same switches.
    let _ = backends().configure(Switches::default());
    Ok(backends().register(descriptor)?)
}

/// Runs the `load` function of a descriptor, with these options. The descriptor is registered in this copy,
/// so that its devices have names. The environment has no effect on this: the program's switches count.
///
/// # Errors
///
/// The function's own, and an error for an option that the backend does not have.
pub fn load(
    descriptor: &'static BackendDescriptor,
    settings: &[Setting<'_>],
) -> Result<Box<dyn Backend>, LoadFailure> {
    register(descriptor)?;
    let options = settings.iter().map(|&(name, value, variable)| {
        (name, value, variable.map_or(OptionOrigin::Program, |name| OptionOrigin::Variable(name.into())))
    });
    entry_points::load_with(descriptor, options)
}

/// The device of a backend that [`load`] has registered by its name, whether it is open or not.
pub fn device(name: &str, ordinal: usize) -> Option<Device> {
    Some(Device::of_backend(backends().get(name)?, Some(u16::try_from(ordinal).ok()?)))
}

/// A device that a backend of this library has opened. It is never dropped, as a library is never unloaded.
pub struct PluginDevice {
    device: Device,
    driver: Box<dyn DeviceDriver>,
    has_native_handles: bool,
    report_loss: Box<dyn Fn(BackendError) + Send + Sync>,
    process: Process,
    values: DeviceValues,
}

impl PluginDevice {
    /// Takes over a device that `backend` has opened, which [`load`] has registered by its name, and reports
    /// its loss by a function.
    ///
    /// # Errors
    ///
    /// If another backend has opened the device.
    ///
    /// # Panics
    ///
    /// Panics if there is no such backend.
    pub fn new(
        name: &str,
        backend: &dyn Backend,
        ordinal: usize,
        opened: OpenedDevice,
        report_loss: impl Fn(BackendError) + Send + Sync + 'static,
    ) -> Result<&'static Self, BackendError> {
        let Parts { driver, loss_reporter, has_native_handles } = opened.into_parts(backend)?;
        let entry = backends().get(name).expect("`load` has registered the backend");
        let device = Device::of_backend(entry, u16::try_from(ordinal).ok());
        let report_loss = Box::new(report_loss);
        let process = Process::current();
        let values = DeviceValues::default();
        let this: &'static Self =
            Box::leak(Box::new(Self { device, driver, has_native_handles, report_loss, process, values }));
        loss_reporter.iter().for_each(|reporter: &LossReporter| reporter.connect(this));
        Ok(this)
    }

    /// The driver.
    ///
    /// # Safety
    ///
    /// The caller keeps what the core guarantees to a driver: see [`DeviceDriver`].
    pub unsafe fn driver(&self) -> &dyn DeviceDriver {
        &*self.driver
    }

    /// Drops what kernels keep with the device, before the driver ends it.
    pub fn end_values(&self) {
        drop_isolated(self.device, self.values.end());
    }

    /// Whether the backend has declared native handles that are numbers.
    pub fn has_native_handles(&self) -> bool {
        self.has_native_handles
    }

    /// Runs a kernel as the core does, and returns what it keeps, even if it panics. Without a stream, its
    /// work is then done.
    pub fn launch(
        &'static self,
        stream: Option<&dyn StreamDriver>,
        spans: &[Option<Span>],
        kernel: impl FnOnce(&Launch<'_>) -> Result<(), BackendError>,
    ) -> (Result<(), BackendError>, Vec<Box<dyn Any + Send>>) {
        let launch = Launch::new(self, spans, &*self.driver, stream);
        // Native work that a kernel submitted before it panicked may still use the values that it has kept.
        let outcome = catch_unwind(AssertUnwindSafe(|| device_use::forbid(|| kernel(&launch))));
        let outcome = outcome.unwrap_or_else(|panic| {
            Err(BackendError::other(format_args!("the kernel panicked: {}", panic_message(panic))))
        });
        (outcome, launch.into_kept())
    }

    /// Takes over memory that the driver has allocated, and drops it with its last span.
    pub fn own(&'static self, memory: Arc<dyn Memory>, len: usize) -> PluginMemory {
        PluginMemory(Arc::new(Allocation::new(self, memory, len, None, None, 0)))
    }
}

impl Owner for PluginDevice {
    fn device(&self) -> Device {
        self.device
    }

    fn has_native_handles(&self) -> bool {
        self.has_native_handles
    }

    fn values(&self) -> &DeviceValues {
        &self.values
    }

    fn free(&'static self, memory: Arc<dyn Memory>, _freed: Freed) {
        if self.process.is_current() {
            drop_isolated(self.device, memory);
        } else {
            std::mem::forget(memory);
        }
    }

    fn while_open(&self, query: &mut dyn FnMut()) -> Result<(), BackendError> {
        // The program's core has checked it.
        query();
        Ok(())
    }

    fn drop_value(&self, value: Box<dyn Any + Send>) {
        drop_isolated(self.device, value);
    }

    fn lose(&'static self, error: BackendError) {
        if self.process.is_current() {
            (self.report_loss)(error);
        }
    }
}

/// Memory of a [`PluginDevice`].
pub struct PluginMemory(Arc<Allocation>);

impl PluginMemory {
    /// A pointer that owns it.
    pub fn into_raw(self) -> *const () {
        Arc::into_raw(self.0).cast()
    }

    /// The memory behind a pointer of [`into_raw`](Self::into_raw).
    ///
    /// # Safety
    ///
    /// The pointer is from `into_raw`, and this is its last use.
    #[inline]
    pub unsafe fn from_raw(pointer: *const ()) -> Self {
        // SAFETY: the caller promises that `Arc::into_raw` returned the pointer, and that it owns one
        // reference.
        Self(unsafe { Arc::from_raw(pointer.cast()) })
    }

    /// The native handle of a kind, if the driver has one.
    pub fn native_handle(&self, kind: &str) -> Option<u64> {
        let span = Span::new(&self.0, 0..self.0.len).filter(|_| self.0.has_native_handles())?;
        span.memory().native_handle(kind)
    }

    /// A range of the memory behind a pointer; `None` if it is empty or does not lie inside. The memory is
    /// not counted for it, which saves a tenth of a short call: the caller must not use the result longer
    /// than the memory, and never drops it.
    ///
    /// # Safety
    ///
    /// The pointer is from [`into_raw`](Self::into_raw), and the memory lives for as long as the result.
    #[inline]
    pub unsafe fn span(pointer: *const (), offset: usize, len: usize) -> Option<ManuallyDrop<Span>> {
        // SAFETY: the caller promises that the memory lives, and this handle of it is never dropped.
        let memory = ManuallyDrop::new(unsafe { Self::from_raw(pointer) });
        let end = offset.checked_add(len).filter(|&end| len > 0 && end <= memory.0.len)?;
        // SAFETY: neither the copy nor the original is dropped: both are inside `ManuallyDrop`.
        let allocation = unsafe { std::ptr::read(&memory.0) };
        Some(ManuallyDrop::new(Span::of_memory(allocation, offset..end)))
    }
}

/// The error of a device that cannot be used, and whether it is absent. Here the compiler finds a new state;
/// another crate would take it for a known one.
pub fn refusal(presence: Presence) -> Option<(BackendError, bool)> {
    match presence {
        Presence::Present => None,
        Presence::Absent(reason) => Some((reason, true)),
        Presence::Lost(reason) => Some((reason, false)),
    }
}

/// A pattern of a fill; `None` if it does not have a valid length.
pub fn fill_pattern(bytes: &[u8]) -> Option<FillPattern> {
    FillPattern::new(bytes)
}

/// The source of a queued write, for a library, which says when it no longer reads it. Under the validating
/// layer it is a copy, which is then overwritten although the core still has the source.
pub fn library_source(source: &Arc<HostBuffer>) -> Arc<HostBuffer> {
    match source.as_guarded().map(|bytes| bytes.again()) {
        Some(Ok(copy)) => Arc::new(HostBuffer::guarded(copy)),
        _ => Arc::clone(source),
    }
}

/// Takes back bytes that [`HostBuffer::from_raw_parts`] has made with an owner of type `T`, or returns the
/// buffer.
///
/// # Errors
///
/// The buffer, if it has another owner.
pub fn into_owner<T: Any + Send + Sync>(buffer: HostBuffer) -> Result<T, HostBuffer> {
    buffer.into_owner()
}

/// The program's end of a queued read. Neither function unwinds.
pub trait ReadEnd: Send + Sync + 'static {
    /// The driver has finished the read, or has dropped it: `None`. Called once.
    fn finish(&self, outcome: Option<Result<HostBuffer, BackendError>>);

    /// Called to find out whether the program has the result.
    fn watch(&self) -> Arc<dyn Fn() -> bool + Send + Sync>;
}

/// A completion for a driver, of a read that ends in the program.
pub fn completion(end: impl ReadEnd) -> Completion {
    Completion::new(Arc::new(Read(end)))
}

struct Read<E>(E);

impl<E: ReadEnd> Finish for Read<E> {
    fn call(&self) -> &'static str {
        "read"
    }

    fn finish(self: Arc<Self>, result: Result<HostBuffer, BackendError>) {
        self.0.finish(Some(result));
    }

    fn watched(&self) -> Arc<dyn Watched> {
        Arc::new(WatchedRead(self.0.watch()))
    }

    fn drop_unfinished(self: Arc<Self>) {
        self.0.finish(None);
    }
}

struct WatchedRead(Arc<dyn Fn() -> bool + Send + Sync>);

impl Watched for WatchedRead {
    fn is_finished(&self) -> bool {
        (self.0)()
    }
}
