//! Every object of a driver is dropped, however its device ends, and wherever and whenever a program drops
//! its handle. What queued work uses is dropped after the queue.

use std::collections::BTreeMap;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, Completion, DeviceDriver, DeviceProperties,
    EventDriver, EventOptions, HostBuffer, Launch, LossReporter, Memory, MemoryInfo, MemoryReuse,
    OpenedDevice, Span, StreamDriver, StreamOptions,
};
use device_registry::{Buffer, Device, Event, Stream, backends, device};

/// How many objects of each kind exist.
static LEDGER: Mutex<BTreeMap<&str, usize>> = Mutex::new(BTreeMap::new());

/// Whether queued work is done.
static DONE: AtomicBool = AtomicBool::new(true);

/// Whether a queue was dropped after something that its unfinished work uses.
static FREED_EARLY: AtomicBool = AtomicBool::new(false);

/// A lock of the backend.
static OWN: Mutex<()> = Mutex::new(());

/// Whether memory was dropped by a thread that holds the lock of the backend.
static DROPPED_UNDER_LOCK: AtomicBool = AtomicBool::new(false);

/// Whether the next wait for a queue returns because of a loss.
static LOSES_IN_WAIT: AtomicBool = AtomicBool::new(false);

static REPORTER: Mutex<Option<LossReporter>> = Mutex::new(None);

/// An entry of the ledger.
struct Object(&'static str);

impl Object {
    fn new(kind: &'static str) -> Self {
        *LEDGER.lock().unwrap().entry(kind).or_default() += 1;
        Self(kind)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        *LEDGER.lock().unwrap().get_mut(self.0).unwrap() -= 1;
    }
}

struct Counting;

/// The devices use freed memory again in different ways.
const REUSE: [MemoryReuse; 4] = [
    MemoryReuse::Never,
    MemoryReuse::Exact,
    MemoryReuse::Divided { alignment: 256 },
    MemoryReuse::Large { from: 4096 },
];

impl Backend for Counting {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(REUSE.len())
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let properties = DeviceProperties::new("counting").with_memory_reuse(REUSE[ordinal]);
        Ok(properties.with_pinned_memory(true))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        // A backend may use devices of others.
        let own = OWN.lock().unwrap();
        drop(Device::cpu().allocate(1).unwrap());
        drop(own);
        let reporter = LossReporter::new();
        *REPORTER.lock().unwrap() = Some(reporter.clone());
        Ok(OpenedDevice::new(self, CountingDevice).with_loss_reporter(reporter))
    }
}

struct CountingDevice;

struct CountedMemory {
    _object: Object,
    freed: Arc<AtomicBool>,
}

impl Memory for CountedMemory {}

impl Drop for CountedMemory {
    fn drop(&mut self) {
        self.freed.store(true, Ordering::SeqCst);
        if OWN.try_lock().is_err() {
            DROPPED_UNDER_LOCK.store(true, Ordering::SeqCst);
        }
    }
}

impl DeviceDriver for CountingDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, _options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(CountedMemory { _object: Object::new("memory"), freed: Arc::default() }))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        let mut bytes = vec![0; len];
        let start = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the vector has `len` initialised bytes there, does not move them with itself, and is only
        // dropped.
        Ok(unsafe { HostBuffer::from_raw_parts(start, len, (bytes, Object::new("host memory"))) })
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        Ok(Box::new(CountingQueue { _object: Object::new("queue"), used: Mutex::default() }))
    }

    fn reset(&self) -> Result<(), BackendError> {
        Ok(())
    }
}

struct CountingQueue {
    _object: Object,
    /// What its work uses, until the core knows that the work is done.
    used: Mutex<Vec<Used>>,
}

struct Used(Arc<AtomicBool>, Weak<HostBuffer>);

impl CountingQueue {
    fn is_done(&self) -> bool {
        let done = DONE.load(Ordering::SeqCst);
        if done {
            self.used.lock().unwrap().clear();
        }
        done
    }
}

impl Drop for CountingQueue {
    fn drop(&mut self) {
        let is_freed = |used: &Used| used.0.load(Ordering::SeqCst) || used.1.strong_count() == 0;
        if !self.is_done() && self.used.lock().unwrap().iter().any(is_freed) {
            FREED_EARLY.store(true, Ordering::SeqCst);
        }
    }
}

impl StreamDriver for CountingQueue {
    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        let freed = Arc::clone(&destination.memory_as::<CountedMemory>()?.freed);
        self.used.lock().unwrap().push(Used(freed, Arc::downgrade(source)));
        Ok(())
    }

    fn read(
        &self,
        _source: &Span,
        destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        completion.finish(Ok(destination));
        Ok(())
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        Ok(())
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        Ok(Box::new(CountingEvent(Object::new("event"))))
    }

    fn query(&self) -> Result<bool, BackendError> {
        Ok(self.is_done())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        if LOSES_IN_WAIT.swap(false, Ordering::SeqCst) {
            let reporter = REPORTER.lock().unwrap().clone().unwrap();
            reporter.report(BackendError::lost("unplugged"));
            return Ok(());
        }
        self.used.lock().unwrap().clear();
        Ok(())
    }
}

struct CountingEvent(#[expect(dead_code, reason = "its drop counts")] Object);

impl EventDriver for CountingEvent {
    fn query(&self) -> Result<bool, BackendError> {
        Ok(DONE.load(Ordering::SeqCst))
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn elapsed_since(&self, _start: &dyn EventDriver) -> Result<Duration, BackendError> {
        Ok(Duration::ZERO)
    }
}

static COUNTING: BackendDescriptor = BackendDescriptor::new("counting", || Ok(Box::new(Counting)));

/// What a program holds of a device: one handle of each kind.
type Handles = (Stream, Buffer, Buffer, Event, HostBuffer);

fn handles(device: Device) -> Handles {
    let stream = device.create_stream().unwrap();
    // No handle of the default stream is left: the device ends it.
    device.default_stream().unwrap().write(&device.allocate(16).unwrap(), 0, vec![7; 16]).unwrap();
    let (used, unused) = (stream.allocate(4096).unwrap(), device.allocate(4096).unwrap());
    stream.write(&used, 0, vec![7; 4096]).unwrap();
    let kernel = |launch: &Launch<'_>| {
        launch.keep(Object::new("kept value"));
        Ok(())
    };
    stream.launch(&[&unused], kernel).unwrap();
    let event = stream.record().unwrap();
    let pinned = device.allocate_host(16).unwrap();
    assert!(pinned.is_pinned());
    (stream, used, unused, event, pinned)
}

#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Reset,
    Loss,
}

fn end(device: Device, end: End) {
    if let End::Close = end {
        return device.close().unwrap();
    }
    let reporter = REPORTER.lock().unwrap().clone().unwrap();
    thread::spawn(move || reporter.report(BackendError::lost("unplugged"))).join().unwrap();
    if let End::Reset = end {
        device.reset().unwrap();
    }
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Thread,
    HostCall,
    Waker,
}

/// Drops the handles when a task is woken.
struct Drops(Mutex<Option<Handles>>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        let handles = self.0.lock().unwrap().take();
        drop(handles);
    }
}

fn drop_in(place: Place, handles: Handles) {
    let cpu = Device::cpu().create_stream().unwrap();
    match place {
        Place::Thread => drop(handles),
        Place::HostCall => {
            cpu.host_call(move || drop(handles)).unwrap();
            cpu.synchronize().unwrap();
        }
        Place::Waker => {
            let (release, released) = std::sync::mpsc::channel::<()>();
            cpu.host_call(move || released.recv().unwrap()).unwrap();
            let buffer = Device::cpu().allocate(1).unwrap();
            let mut read = pin!(cpu.read(&buffer, ..).unwrap());
            let drops = Arc::new(Drops(Mutex::new(Some(handles))));
            let waker = Waker::from(Arc::clone(&drops));
            assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            release.send(()).unwrap();
            cpu.synchronize().unwrap();
            assert!(matches!(read.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(_))));
            assert!(drops.0.lock().unwrap().is_none());
        }
    }
}

/// Waits until nothing is left. Threads of streams end by themselves, and calls of another device drop the
/// rest.
fn nothing_is_left(case: &str) {
    let start = Instant::now();
    loop {
        drop(Device::cpu().allocate(1).unwrap());
        let left: Vec<_> = LEDGER.lock().unwrap().iter().map(|(kind, left)| (*kind, *left)).collect();
        if left.iter().all(|(_, left)| *left == 0) {
            return assert_eq!(left.len(), 5, "{left:?}");
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{case}: {left:?}");
        thread::yield_now();
    }
}

/// One test at a time has the ledger.
static TESTS: Mutex<()> = Mutex::new(());

fn device_of(ordinal: usize) -> Device {
    backends().register(&COUNTING).unwrap();
    device(&format!("counting:{ordinal}")).unwrap()
}

#[test]
fn every_object_is_dropped_however_its_device_ends() {
    let _alone = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    for (ordinal, reuse) in REUSE.iter().enumerate() {
        let device = device_of(ordinal);
        for how in [End::Close, End::Reset, End::Loss] {
            for place in [Place::Thread, Place::HostCall, Place::Waker] {
                for before in [true, false] {
                    for done in [true, false] {
                        let case = format!("{reuse:?}, {how:?}, {place:?}, before: {before}");
                        DONE.store(done, Ordering::SeqCst);
                        let handles = handles(device);
                        if let End::Close = how {
                            // After a loss, host memory of work that is not known to be done is leaked.
                            let (stream, used, ..) = &handles;
                            stream.write(used, 0, device.allocate_host(16).unwrap()).unwrap();
                        }
                        if before {
                            drop_in(place, handles);
                            end(device, how);
                        } else {
                            end(device, how);
                            drop_in(place, handles);
                        }
                        nothing_is_left(&format!("{case}, done: {done}"));
                        assert!(!FREED_EARLY.load(Ordering::SeqCst), "{case}: work uses freed memory");
                        if let End::Loss = how {
                            device.reset().unwrap();
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_an_ended_device_has_left_is_not_dropped_within_a_call_of_its_backend() {
    let _alone = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    // The memory of unfinished work is deferred once more, behind its queue.
    DONE.store(false, Ordering::SeqCst);
    let (first, second) = (device_of(0), device_of(1));
    second.close().unwrap();
    let handles = handles(first);
    end(first, End::Reset);
    drop_in(Place::HostCall, handles);
    assert!(LEDGER.lock().unwrap()["memory"] > 0, "the test proves nothing");
    // It uses the device `cpu` while it holds its lock.
    second.open().unwrap();
    assert!(!DROPPED_UNDER_LOCK.load(Ordering::SeqCst));
    nothing_is_left("after the open");
    second.close().unwrap();
}

#[test]
fn a_wait_that_returns_because_of_a_loss_frees_nothing_that_work_uses() {
    let _alone = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    DONE.store(false, Ordering::SeqCst);
    let device = device_of(0);
    let handles = handles(device);
    LOSES_IN_WAIT.store(true, Ordering::SeqCst);
    handles.0.synchronize().unwrap_err();
    drop(handles);
    assert!(!FREED_EARLY.load(Ordering::SeqCst), "work uses freed memory");
    nothing_is_left("after the loss");
    device.reset().unwrap();
}
