//! A backend whose queues are threads. Work in a queue lasts until the test opens the queue's gate.
//!
//! Work holds the bytes that it uses, and no handle of the core: memory that is freed or given out too early
//! shows in the bytes.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;

use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, Completion, DeviceDriver, DeviceProperties,
    EventDriver, EventOptions, FillPattern, HostBuffer, HostMemory, LoadFailure, LossReporter, Memory,
    MemoryInfo, MemoryReuse, OpenedDevice, Span, StreamDriver, StreamOptions,
};
use device_registry::{Device, Stream, backends, device};

/// Long enough for a machine under load. No test takes it.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// How many devices there are of each kind.
const OF_A_KIND: usize = 32;

/// How each kind of device uses memory again, and whether its driver has queues.
const KINDS: [(MemoryReuse, bool); 5] = [
    (MemoryReuse::Rounded, true),
    (MemoryReuse::Exact, true),
    (MemoryReuse::Divided { alignment: 256 }, true),
    (MemoryReuse::Never, true),
    (MemoryReuse::Rounded, false),
];

/// What the driver of one device has done. A test has a device of each kind for itself.
pub(crate) struct Plant {
    has_queues: bool,
    allocated: AtomicUsize,
    freed: AtomicUsize,
    in_use: AtomicUsize,
    capacity: AtomicUsize,
    /// In the order in which the queues were created.
    gates: Mutex<Vec<Arc<Gate>>>,
    reporter: Mutex<Option<LossReporter>>,
    /// Whether work has used memory that was freed.
    used_after_free: AtomicBool,
}

impl Plant {
    /// How often the driver has allocated and freed.
    pub(crate) fn calls(&self) -> (usize, usize) {
        (self.allocated.load(Ordering::SeqCst), self.freed.load(Ordering::SeqCst))
    }

    pub(crate) fn has_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Ordering::SeqCst);
    }

    /// A new stream with the gate of its queue, which is open.
    pub(crate) fn stream(&self, device: Device) -> (Stream, Arc<Gate>) {
        let stream = device.create_stream().unwrap();
        (stream, self.gates.lock().unwrap().last().cloned().unwrap_or_default())
    }

    /// Opens the gates of all queues.
    pub(crate) fn open(&self) {
        let gates = self.gates.lock().unwrap().clone();
        gates.iter().for_each(|gate| gate.open());
    }

    pub(crate) fn lose(&self) {
        let reporter = self.reporter.lock().unwrap().clone().unwrap();
        // The driver's own thread reports it.
        thread::spawn(move || reporter.report(BackendError::lost("unplugged"))).join().unwrap();
    }

    #[track_caller]
    pub(crate) fn has_kept_the_rules(&self) {
        assert!(!self.used_after_free.load(Ordering::SeqCst), "work has used memory that was freed");
    }
}

fn plant(ordinal: usize) -> &'static Plant {
    static PLANTS: OnceLock<Vec<Plant>> = OnceLock::new();
    let new = |ordinal: usize| Plant {
        has_queues: KINDS[ordinal / OF_A_KIND].1,
        allocated: AtomicUsize::new(0),
        freed: AtomicUsize::new(0),
        in_use: AtomicUsize::new(0),
        capacity: AtomicUsize::new(usize::MAX),
        gates: Mutex::default(),
        reporter: Mutex::default(),
        used_after_free: AtomicBool::new(false),
    };
    &PLANTS.get_or_init(|| (0..KINDS.len() * OF_A_KIND).map(new).collect())[ordinal]
}

fn of_kind(kind: usize, number: usize) -> (Device, &'static Plant) {
    backends().register(&ORDERED).unwrap();
    let ordinal = kind * OF_A_KIND + number;
    (device(&format!("ordered:{ordinal}")).unwrap(), plant(ordinal))
}

/// Runs a test on a device of each kind that uses memory again and has queues.
pub(crate) fn on_all(number: usize, test: impl Fn(Device, &'static Plant)) {
    for kind in 0..3 {
        let (device, plant) = of_kind(kind, number);
        test(device, plant);
        plant.has_kept_the_rules();
    }
}

/// A device that does not use memory again, and one without queues.
pub(crate) fn others(number: usize) -> [(Device, &'static Plant); 2] {
    [of_kind(3, number), of_kind(4, number)]
}

type Work = Box<dyn FnOnce() + Send>;

/// The gate of a queue: while it is closed, no work begins.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    work: VecDeque<Work>,
    submitted: u64,
    done: u64,
    closed: bool,
    ended: bool,
    /// How many waits of the core for work that is not done have begun.
    waits: usize,
    /// The failure of the work, which the queue reports once.
    failure: Option<BackendError>,
    refuses: bool,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    pub(crate) fn open(&self) {
        self.change(|state| state.closed = false);
    }

    /// The work fails, which the queue reports once, and ends.
    pub(crate) fn fail(&self, error: BackendError) {
        self.change(|state| (state.failure, state.closed) = (Some(error), false));
    }

    /// Whether the driver refuses work from now on.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.change(|state| state.refuses = refuses);
    }

    pub(crate) fn waits(&self) -> usize {
        self.state().waits
    }

    /// Returns when this many waits have begun.
    #[track_caller]
    pub(crate) fn await_waits(&self, waits: usize) {
        let state = self.state();
        let (state, timeout) =
            self.changed.wait_timeout_while(state, LONG, |state| state.waits < waits).unwrap();
        assert!(!timeout.timed_out(), "{} waits have begun, and not {waits}", state.waits);
    }

    fn submit(&self, work: impl FnOnce() + Send + 'static) -> Result<(), BackendError> {
        if self.state().refuses {
            return Err(BackendError::other("the queue takes no work"));
        }
        self.change(|state| {
            state.work.push_back(Box::new(work));
            state.submitted += 1;
        });
        Ok(())
    }

    /// Waits until this many pieces of work are done.
    fn await_done(&self, number: u64) {
        drop(self.changed.wait_while(self.state(), |state| state.done < number).unwrap());
    }

    /// The queue's thread.
    fn run(&self) {
        let idle = |state: &mut State| (state.closed || state.work.is_empty()) && !state.ended;
        loop {
            let mut state = self.changed.wait_while(self.state(), idle).unwrap();
            let Some(work) = state.work.pop_front() else { return };
            drop(state);
            work();
            self.change(|state| state.done += 1);
        }
    }
}

/// The bytes of memory, which outlive it.
struct Bytes {
    bytes: HostMemory,
    freed: AtomicBool,
    plant: &'static Plant,
}

impl Bytes {
    fn is_used(&self) -> &HostMemory {
        if self.freed.load(Ordering::SeqCst) {
            self.plant.used_after_free.store(true, Ordering::SeqCst);
        }
        &self.bytes
    }
}

pub(crate) struct Native(Arc<Bytes>);

impl Memory for Native {}

impl Native {
    /// Writes as native code does, which the core does not see.
    pub(crate) fn write(&self, range: std::ops::Range<usize>, byte: u8) {
        Place(Arc::clone(&self.0), range.clone()).write(&vec![byte; range.len()]);
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        let plant = self.0.plant;
        if self.0.freed.swap(true, Ordering::SeqCst) {
            plant.used_after_free.store(true, Ordering::SeqCst);
        }
        plant.freed.fetch_add(1, Ordering::SeqCst);
        plant.in_use.fetch_sub(self.0.bytes.len(), Ordering::SeqCst);
    }
}

/// Bytes of a span, without a handle of the core.
struct Place(Arc<Bytes>, std::ops::Range<usize>);

impl Place {
    fn of(span: &Span) -> Result<Self, BackendError> {
        Ok(Self(Arc::clone(&span.memory_as::<Native>()?.0), span.range()))
    }

    fn write(&self, source: &[u8]) {
        self.0.is_used().write(self.1.clone()).unwrap().copy_from_slice(source);
    }

    fn read(&self, destination: &mut [u8]) {
        destination.copy_from_slice(&self.0.is_used().read(self.1.clone()).unwrap());
    }

    fn copy_to(&self, destination: &Self) {
        let mut bytes = vec![0; self.1.len()];
        self.read(&mut bytes);
        destination.write(&bytes);
    }
}

struct Ordered;

impl Backend for Ordered {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(KINDS.len() * OF_A_KIND)
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("ordered").with_memory_reuse(KINDS[ordinal / OF_A_KIND].0))
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let reporter = LossReporter::new();
        *plant(ordinal).reporter.lock().unwrap() = Some(reporter.clone());
        Ok(OpenedDevice::new(self, OrderedDevice(plant(ordinal))).with_loss_reporter(reporter))
    }
}

struct OrderedDevice(&'static Plant);

impl DeviceDriver for OrderedDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let (plant, len) = (self.0, options.len);
        let free = plant.capacity.load(Ordering::SeqCst) - plant.in_use.load(Ordering::SeqCst);
        if len > free {
            return Err(BackendError::out_of_memory(len as u64, Some(free as u64)));
        }
        let bytes = HostMemory::zeroed(len)?;
        plant.allocated.fetch_add(1, Ordering::SeqCst);
        plant.in_use.fetch_add(len, Ordering::SeqCst);
        Ok(Arc::new(Native(Arc::new(Bytes { bytes, freed: AtomicBool::new(false), plant }))))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        Place::of(destination)?.write(source);
        Ok(())
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        Place::of(source)?.read(destination);
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        Place::of(source)?.copy_to(&Place::of(destination)?);
        Ok(())
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        if !self.0.has_queues {
            return Err(BackendError::unsupported("queues"));
        }
        let gate = Arc::<Gate>::default();
        self.0.gates.lock().unwrap().push(Arc::clone(&gate));
        let runs = Arc::clone(&gate);
        thread::spawn(move || runs.run());
        Ok(Box::new(GatedQueue(gate)))
    }

    fn reset(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

struct GatedQueue(Arc<Gate>);

impl Drop for GatedQueue {
    fn drop(&mut self) {
        // The core keeps it until its work is done. Otherwise the device is lost, and does no more.
        let mut rest = VecDeque::new();
        self.0.change(|state| {
            state.ended = true;
            rest = std::mem::take(&mut state.work);
        });
        drop(rest);
    }
}

/// The native handle of a queue.
pub(crate) struct NativeQueue(Arc<Gate>);

impl NativeQueue {
    /// Submits a kernel that fills the bytes.
    pub(crate) fn submit(&self, span: &Span, byte: u8) -> Result<(), BackendError> {
        let place = Place::of(span)?;
        self.0.submit(move || place.write(&vec![byte; place.1.len()]))
    }
}

impl StreamDriver for GatedQueue {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(NativeQueue(Arc::clone(&self.0))))
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        let (place, source) = (Place::of(destination)?, Arc::downgrade(source));
        self.0.submit(move || {
            let source = source.upgrade().expect("the core keeps it until the work is done");
            place.write(&source);
        })
    }

    fn read(
        &self,
        source: &Span,
        mut destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        let place = Place::of(source)?;
        self.0.submit(move || {
            place.read(&mut destination);
            completion.finish(Ok(destination));
        })
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        let (from, to) = (Place::of(source)?, Place::of(destination)?);
        self.0.submit(move || from.copy_to(&to))
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.copy(source, destination)
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        // The core then derives it from writes and copies.
        if destination.len() % 2 == 1 {
            return Err(BackendError::unsupported("filling an odd length"));
        }
        let mut bytes = vec![0; destination.len()];
        pattern.fill(&mut bytes);
        let place = Place::of(destination)?;
        self.0.submit(move || place.write(&bytes))
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        let number = self.0.state().submitted;
        Ok(Box::new(Recorded { gate: Arc::clone(&self.0), number }))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        let Recorded { gate, number } = event.downcast_ref::<Recorded>()?;
        let (gate, number) = (Arc::clone(gate), *number);
        self.0.submit(move || gate.await_done(number))
    }

    fn query(&self) -> Result<bool, BackendError> {
        let mut state = self.0.state();
        if state.done < state.submitted {
            return Ok(false);
        }
        state.failure.take().map_or(Ok(true), Err)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let mut submitted = 0;
        self.0.change(|state| {
            submitted = state.submitted;
            state.waits += usize::from(state.done < submitted);
        });
        self.0.await_done(submitted);
        self.0.state().failure.take().map_or(Ok(()), Err)
    }
}

struct Recorded {
    gate: Arc<Gate>,
    number: u64,
}

impl EventDriver for Recorded {
    fn query(&self) -> Result<bool, BackendError> {
        Ok(self.gate.state().done >= self.number)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.gate.await_done(self.number);
        Ok(())
    }

    fn elapsed_since(&self, _start: &dyn EventDriver) -> Result<Duration, BackendError> {
        Ok(Duration::ZERO)
    }
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(Ordered))
}

static ORDERED: BackendDescriptor = BackendDescriptor::new("ordered", load);
