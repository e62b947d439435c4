//! A fake driver. Its work waits at gates that the test opens, fails when the test says so, and is counted.
//! Each test has devices of its own.

mod device;
mod queue;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use device_registry::backend::{
    Backend, BackendDescriptor, BackendError, Completion, DeviceProperties, HostBuffer, LossReporter, Memory,
    OpenedDevice,
};
use device_registry::{Device, Stream, backends, device};

pub(crate) use self::device::{FakeMemory, Handle};
pub(crate) use self::queue::Queue;
use crate::LONG;

/// How many devices each of the two backends counts. No test uses those that no test has created.
const DEVICES: usize = 1000;

/// A moment at which a test can fail the driver, or run code of its own within it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The device is being opened, and a loss can be reported.
    Open,
    /// A piece of work has passed the gate: a call, one in a queue, or a wait for a queue.
    Work,
    /// A queue gets work.
    Submit,
    /// An event of a queue is recorded.
    Record,
    /// A queue is flushed.
    Flush,
    /// A queue is queried.
    Query,
    /// An allocation finds the device full.
    Full,
    /// Memory is freed.
    Free,
}

type Hook = Box<dyn FnOnce() -> Result<(), BackendError> + Send>;

/// A test's control over a device, and what its driver has done.
pub(crate) struct Control {
    has_queues: bool,
    properties: DeviceProperties,
    state: Mutex<State>,
    changed: Condvar,
    allocated: AtomicUsize,
    freed: AtomicUsize,
    in_use: AtomicUsize,
    pinned: AtomicUsize,
    /// Whether work has used memory that was freed.
    used_after_free: AtomicBool,
    /// How many bytes the device has.
    pub(crate) capacity: AtomicUsize,
    pub(crate) cannot_reset: AtomicBool,
    /// Queues begin no work before they are flushed.
    pub(crate) batches: AtomicBool,
    /// How many flushes of queues began work.
    pub(crate) batches_begun: AtomicUsize,
    /// Queues only fill multiples of this length.
    pub(crate) fills_multiples_of: AtomicUsize,
    /// A queue fails with the event that it waits for. Otherwise it runs the work behind the wait.
    pub(crate) waits_fail: AtomicBool,
    /// Reads in queues are accepted, and kept for the test to finish.
    pub(crate) holds_reads: AtomicBool,
    /// A queue's `read` returns when the read is finished.
    pub(crate) waits_for_reads: AtomicBool,
    /// How many percent of the time that passes pass on the device's clock.
    pub(crate) clock_percent: AtomicU32,
    /// The driver keeps a reference to the memory that it allocates.
    pub(crate) holds_memory: AtomicBool,
    /// How many threads are submitting to a queue, and the most that there were.
    submitting: AtomicUsize,
    pub(crate) most_submitting: AtomicUsize,
    /// Queues that are not dropped, now and when the device was closed.
    pub(crate) live_queues: AtomicUsize,
    pub(crate) queues_at_close: AtomicUsize,
}

#[derive(Default)]
struct State {
    closed: bool,
    hooks: Vec<(Moment, Hook)>,
    log: Vec<&'static str>,
    reporter: Option<LossReporter>,
    held_reads: Vec<(Completion, HostBuffer)>,
    held_memory: Vec<Arc<dyn Memory>>,
    /// In the order in which they were created.
    queues: Vec<Arc<Queue>>,
}

impl Control {
    fn new(has_queues: bool, properties: DeviceProperties) -> Self {
        Self {
            has_queues,
            properties,
            state: Mutex::default(),
            changed: Condvar::new(),
            allocated: AtomicUsize::new(0),
            freed: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            pinned: AtomicUsize::new(0),
            used_after_free: AtomicBool::new(false),
            capacity: AtomicUsize::new(usize::MAX),
            cannot_reset: AtomicBool::new(false),
            batches: AtomicBool::new(false),
            batches_begun: AtomicUsize::new(0),
            fills_multiples_of: AtomicUsize::new(1),
            waits_fail: AtomicBool::new(false),
            holds_reads: AtomicBool::new(false),
            waits_for_reads: AtomicBool::new(false),
            clock_percent: AtomicU32::new(100),
            holds_memory: AtomicBool::new(false),
            submitting: AtomicUsize::new(0),
            most_submitting: AtomicUsize::new(0),
            live_queues: AtomicUsize::new(0),
            queues_at_close: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    /// Waits for what the driver does soon.
    #[track_caller]
    fn wait_until(&self, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waits = self.changed.wait_timeout_while(self.state(), LONG, |state| !is_so(state));
        let (state, timeout) = waits.unwrap();
        assert!(!timeout.timed_out(), "the driver has got these calls only: {:?}", state.log);
        state
    }

    /// Closes the gate of the device: no work begins, neither of blocking calls nor in queues.
    pub(crate) fn close(&self) {
        self.change(|state| state.closed = true);
    }

    pub(crate) fn open(&self) {
        self.change(|state| state.closed = false);
    }

    /// Opens the gates of all queues.
    pub(crate) fn open_queues(&self) {
        let queues = self.state().queues.clone();
        queues.iter().for_each(|queue| queue.open());
    }

    /// Runs at the next such moment that no earlier call has taken.
    pub(crate) fn on(&self, moment: Moment, run: impl FnOnce() + Send + 'static) {
        let hook = || {
            run();
            Ok(())
        };
        self.change(|state| state.hooks.push((moment, Box::new(hook))));
    }

    pub(crate) fn fail_at(&self, moment: Moment, error: BackendError) {
        self.change(|state| state.hooks.push((moment, Box::new(|| Err(error)))));
    }

    /// The next piece of work fails.
    pub(crate) fn fail(&self, error: BackendError) {
        self.fail_at(Moment::Work, error);
    }

    fn reach(&self, moment: Moment) -> Result<(), BackendError> {
        let hook = self.change(|state| {
            let at = state.hooks.iter().position(|hook| hook.0 == moment)?;
            Some(state.hooks.remove(at).1)
        });
        hook.map_or(Ok(()), |run| run())
    }

    /// At the beginning of each piece of work.
    fn begin(&self) -> Result<(), BackendError> {
        drop(self.changed.wait_while(self.state(), |state| state.closed).unwrap());
        self.reach(Moment::Work)
    }

    fn submit(&self, call: &'static str) -> Result<(), BackendError> {
        let now = self.submitting.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_submitting.fetch_max(now, Ordering::SeqCst);
        thread::yield_now();
        self.submitting.fetch_sub(1, Ordering::SeqCst);
        self.note(call);
        self.reach(Moment::Submit)
    }

    fn note(&self, call: &'static str) {
        self.change(|state| state.log.push(call));
    }

    /// The calls to the driver since this function was last called.
    pub(crate) fn log(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state().log)
    }

    /// Waits until the driver has got this call, and removes it and earlier ones from the log.
    #[track_caller]
    pub(crate) fn await_call(&self, call: &str) {
        let mut state = self.wait_until(|state| state.log.contains(&call));
        let at = state.log.iter().position(|found| *found == call).unwrap();
        state.log.drain(..=at);
    }

    /// The oldest read that is held.
    #[track_caller]
    pub(crate) fn held_read(&self) -> (Completion, HostBuffer) {
        self.state().held_reads.remove(0)
    }

    pub(crate) fn release_memory(&self) {
        let held = self.change(|state| std::mem::take(&mut state.held_memory));
        drop(held);
    }

    /// The queue that was created last.
    pub(crate) fn queue(&self) -> Option<Arc<Queue>> {
        self.state().queues.last().cloned()
    }

    /// A new stream with its queue, whose gate is open.
    pub(crate) fn stream(&'static self, device: Device) -> (Stream, Arc<Queue>) {
        let stream = device.create_stream().unwrap();
        (stream, self.queue().unwrap_or_else(|| Queue::new(self)))
    }

    /// How often the driver has allocated and freed device memory.
    pub(crate) fn calls(&self) -> (usize, usize) {
        (self.allocated.load(Ordering::SeqCst), self.freed.load(Ordering::SeqCst))
    }

    /// How many pieces of device memory and of pinned host memory are not freed.
    pub(crate) fn live(&self) -> usize {
        let (allocated, freed) = self.calls();
        allocated - freed + self.pinned.load(Ordering::SeqCst)
    }

    /// How many bytes of device memory are not freed.
    pub(crate) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::SeqCst)
    }

    /// What the driver reports the loss of the device with, since it was last opened.
    pub(crate) fn reporter(&self) -> LossReporter {
        self.state().reporter.clone().expect("it was opened")
    }

    /// The driver's own thread reports a loss.
    pub(crate) fn report(&self, error: BackendError) {
        let reporter = self.reporter();
        thread::spawn(move || reporter.report(error)).join().unwrap();
    }

    #[track_caller]
    pub(crate) fn has_kept_the_rules(&self) {
        assert!(!self.used_after_free.load(Ordering::SeqCst), "work has used memory that was freed");
    }
}

type Devices = Mutex<Vec<&'static Control>>;

/// The devices without queues, and those with queues.
static CREATED: [Devices; 2] = [const { Mutex::new(Vec::new()) }; 2];

static BACKENDS: [BackendDescriptor; 2] = [
    BackendDescriptor::new("plain", || Ok(Box::new(Fake(&CREATED[0])))),
    BackendDescriptor::new("queued", || Ok(Box::new(Fake(&CREATED[1])))),
];

/// A new device. Its driver has only blocking calls, or queues of its own.
pub(crate) fn create(has_queues: bool, properties: DeviceProperties) -> (Device, &'static Control) {
    let kind = usize::from(has_queues);
    backends().register(&BACKENDS[kind]).unwrap();
    let control = &*Box::leak(Box::new(Control::new(has_queues, properties)));
    let mut created = CREATED[kind].lock().unwrap();
    created.push(control);
    let ordinal = created.len() - 1;
    drop(created);
    (device(&format!("{}:{ordinal}", BACKENDS[kind].name())).unwrap(), control)
}

pub(crate) fn properties() -> DeviceProperties {
    DeviceProperties::new("fake").with_largest_allocation(1 << 40).with_pinned_memory(true)
}

/// A device whose driver has only blocking calls.
pub(crate) fn plain() -> (Device, &'static Control) {
    create(false, properties())
}

/// A device whose driver has queues of its own, which run asynchronously.
pub(crate) fn queued() -> (Device, &'static Control) {
    create(true, properties())
}

/// One of each kind.
pub(crate) fn both() -> [(Device, &'static Control); 2] {
    [plain(), queued()]
}

/// One of each kind that copies in words of four bytes, and has no timed events.
pub(crate) fn in_words() -> [(Device, &'static Control); 2] {
    [false, true].map(|queues| create(queues, properties().with_copy_alignment(4).with_timed_events(false)))
}

struct Fake(&'static Devices);

impl Fake {
    fn control(&self, ordinal: usize) -> Result<&'static Control, BackendError> {
        let created = self.0.lock().unwrap();
        created.get(ordinal).copied().ok_or_else(|| BackendError::unavailable("no test has created it"))
    }
}

impl Backend for Fake {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(DEVICES)
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(self.control(ordinal)?.properties.clone())
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let control = self.control(ordinal)?;
        control.note("open");
        let reporter = LossReporter::new();
        control.change(|state| state.reporter = Some(reporter.clone()));
        control.reach(Moment::Open)?;
        Ok(OpenedDevice::new(self, device::FakeDevice::new(control)).with_loss_reporter(reporter))
    }
}
