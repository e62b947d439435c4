//! Two backends that a test controls: `plain` has only blocking calls, `queued` has queues of its own, which
//! run asynchronously. Each test takes devices that no other test uses.

use std::any::Any;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, Completion, DeviceDriver, DeviceProperties,
    EventDriver, EventOptions, FillPattern, HostBuffer, HostMemory, Memory, MemoryInfo, OpenedDevice, Span,
    StreamDriver, StreamOptions, open_windows,
};
use device_registry::{Device, backends, device};

const DEVICES: usize = 200;

/// Every device from this one on copies in words of four bytes, and has no timed events.
const IN_WORDS: usize = 190;

/// A test's control over a device: faults to inject, and a log of calls.
#[derive(Default)]
pub(crate) struct Control {
    /// Work waits while it is closed.
    gate: Mutex<bool>,
    opened: Condvar,
    /// The next piece of work fails with it.
    failure: Mutex<Option<BackendError>>,
    /// The next call that submits to a queue is refused with it.
    refusal: Mutex<Option<BackendError>>,
    /// Reads are accepted and forgotten.
    pub(crate) forgets_reads: AtomicBool,
    /// Reads are accepted, and their completions dropped unfinished.
    pub(crate) gives_up_reads: AtomicBool,
    pub(crate) can_reset: AtomicBool,
    /// Queues begin no work before they are flushed.
    pub(crate) batches: AtomicBool,
    /// How many flushes of queues began work.
    pub(crate) batches_begun: AtomicUsize,
    /// The next flushes fail with these.
    flush_failures: Mutex<Vec<BackendError>>,
    /// A queue has no fill.
    pub(crate) has_no_fill: AtomicBool,
    /// The next query of a queue fails with it.
    query_failure: Mutex<Option<BackendError>>,
    /// How many threads are submitting to a queue, and the most that there were.
    submitting: AtomicUsize,
    pub(crate) most_submitting: AtomicUsize,
    /// Memory that is not freed.
    pub(crate) live: AtomicUsize,
    /// Queues that are not dropped.
    pub(crate) queues: AtomicUsize,
    /// How many there were when the device was closed.
    pub(crate) queues_at_close: AtomicUsize,
    /// Allocation fails while this many allocations are live; 0 is no limit.
    pub(crate) at_most: AtomicUsize,
    /// Called once, within the next query of a queue.
    on_query: Hook,
    /// Called once, when the next event of a queue is recorded.
    on_record: Hook,
    /// Called once, when the next memory is dropped.
    on_drop: Hook,
    /// Reads are accepted, and kept here for the test to finish.
    pub(crate) holds_reads: AtomicBool,
    held_reads: Mutex<Vec<(Completion, HostBuffer)>>,
    log: Mutex<Vec<String>>,
}

type Hook = Mutex<Option<Box<dyn FnOnce() + Send>>>;

impl Control {
    pub(crate) fn close(&self) {
        *self.gate.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.gate.lock().unwrap() = false;
        self.opened.notify_all();
    }

    pub(crate) fn fail(&self, error: BackendError) {
        *self.failure.lock().unwrap() = Some(error);
    }

    pub(crate) fn refuse(&self, error: BackendError) {
        *self.refusal.lock().unwrap() = Some(error);
    }

    /// The calls to the driver since this function was last called.
    pub(crate) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    fn note(&self, call: &str) {
        self.log.lock().unwrap().push(call.into());
    }

    /// At the beginning of each piece of work.
    fn begin(&self) -> Result<(), BackendError> {
        let gate = self.gate.lock().unwrap();
        drop(self.opened.wait_while(gate, |closed| *closed).unwrap());
        self.failure.lock().unwrap().take().map_or(Ok(()), Err)
    }

    pub(crate) fn fail_query(&self, error: BackendError) {
        *self.query_failure.lock().unwrap() = Some(error);
    }

    pub(crate) fn fail_flush(&self, error: BackendError) {
        self.flush_failures.lock().unwrap().push(error);
    }

    pub(crate) fn on_query(&self, run: impl FnOnce() + Send + 'static) {
        *self.on_query.lock().unwrap() = Some(Box::new(run));
    }

    pub(crate) fn on_record(&self, run: impl FnOnce() + Send + 'static) {
        *self.on_record.lock().unwrap() = Some(Box::new(run));
    }

    pub(crate) fn on_drop(&self, run: impl FnOnce() + Send + 'static) {
        *self.on_drop.lock().unwrap() = Some(Box::new(run));
    }

    /// The oldest read that is held.
    pub(crate) fn held_read(&self) -> (Completion, HostBuffer) {
        self.held_reads.lock().unwrap().remove(0)
    }

    fn submit(&self, call: &str) -> Result<(), BackendError> {
        let now = self.submitting.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_submitting.fetch_max(now, Ordering::SeqCst);
        std::thread::yield_now();
        self.submitting.fetch_sub(1, Ordering::SeqCst);
        self.note(call);
        self.refusal.lock().unwrap().take().map_or(Ok(()), Err)
    }
}

type Controls = Vec<&'static Control>;

fn controls() -> Controls {
    (0..DEVICES).map(|_| &*Box::leak(Box::default())).collect()
}

static PLAIN: LazyLock<Controls> = LazyLock::new(controls);
static QUEUED: LazyLock<Controls> = LazyLock::new(controls);

/// A device of its own for a test.
pub(crate) fn plain() -> (Device, &'static Control) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    nth("plain", NEXT.fetch_add(1, Ordering::SeqCst))
}

/// A device of its own for a test.
pub(crate) fn queued() -> (Device, &'static Control) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    nth("queued", NEXT.fetch_add(1, Ordering::SeqCst))
}

/// One of each kind.
pub(crate) fn both() -> [(Device, &'static Control); 2] {
    [plain(), queued()]
}

/// One of each kind that copies in words of four bytes.
pub(crate) fn in_words() -> [(Device, &'static Control); 2] {
    static NEXT: AtomicUsize = AtomicUsize::new(IN_WORDS);
    let ordinal = NEXT.fetch_add(1, Ordering::SeqCst);
    [nth("plain", ordinal), nth("queued", ordinal)]
}

fn nth(name: &str, ordinal: usize) -> (Device, &'static Control) {
    static DESCRIPTORS: [BackendDescriptor; 2] = [
        BackendDescriptor::new("plain", || Ok(Box::new(Obedient { controls: &PLAIN, queues: false }))),
        BackendDescriptor::new("queued", || Ok(Box::new(Obedient { controls: &QUEUED, queues: true }))),
    ];
    let descriptor = DESCRIPTORS.iter().find(|descriptor| descriptor.name() == name).unwrap();
    backends().register(descriptor).unwrap();
    let controls = if name == "plain" { &PLAIN } else { &QUEUED };
    (device(&format!("{name}:{ordinal}")).unwrap(), controls[ordinal])
}

struct Obedient {
    controls: &'static LazyLock<Controls>,
    queues: bool,
}

impl Backend for Obedient {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(DEVICES)
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let properties = DeviceProperties::new("obedient").with_largest_allocation(1 << 40);
        Ok(match ordinal {
            IN_WORDS.. => properties.with_copy_alignment(4).with_timed_events(false),
            _ => properties.with_pinned_memory(true),
        })
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let control = self.controls[ordinal];
        control.note("open");
        Ok(OpenedDevice::new(
            self,
            ObedientDevice { control, queues: self.queues, in_words: ordinal >= IN_WORDS },
        ))
    }
}

/// The native handle of a device.
pub(crate) struct ObedientHandle(pub(crate) &'static Control);

struct ObedientDevice {
    control: &'static Control,
    queues: bool,
    in_words: bool,
}

struct ObedientMemory {
    bytes: HostMemory,
    control: &'static Control,
}

impl Memory for ObedientMemory {}

impl Drop for ObedientMemory {
    fn drop(&mut self) {
        let hook = self.control.on_drop.lock().unwrap().take();
        if let Some(run) = hook {
            run();
        }
        self.control.live.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Dropped with the pinned memory that it owns.
struct PinnedBytes {
    _bytes: Vec<u8>,
    control: &'static Control,
}

impl Drop for PinnedBytes {
    fn drop(&mut self) {
        self.control.live.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ObedientDevice {
    fn check(&self, span: &Span) {
        let memory = span.memory_as::<ObedientMemory>().unwrap();
        assert!(span.range().end <= memory.bytes.len() && span.len() > 0);
        if self.in_words {
            let to_the_end = span.range().end == memory.bytes.len();
            assert!(
                span.offset().is_multiple_of(4) && (span.len().is_multiple_of(4) || to_the_end),
                "{span:?}"
            );
        }
    }
}

fn write(destination: &Span, source: &[u8]) -> Result<(), BackendError> {
    let memory = &destination.memory_as::<ObedientMemory>()?.bytes;
    memory.write(destination.range())?.copy_from_slice(source);
    Ok(())
}

fn read(source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
    let memory = &source.memory_as::<ObedientMemory>()?.bytes;
    destination.copy_from_slice(&memory.read(source.range())?);
    Ok(())
}

fn copy(source: &Span, destination: &Span) -> Result<(), BackendError> {
    assert_eq!(source.len(), destination.len());
    let from = &source.memory_as::<ObedientMemory>()?.bytes;
    let to = &destination.memory_as::<ObedientMemory>()?.bytes;
    let ([from], [mut to]) = open_windows([(from, source.range())], [(to, destination.range())])?;
    to.copy_from_slice(&from);
    Ok(())
}

impl DeviceDriver for ObedientDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        self.control.note("allocate");
        let (live, most) =
            (self.control.live.load(Ordering::SeqCst), self.control.at_most.load(Ordering::SeqCst));
        if most > 0 && live >= most {
            return Err(BackendError::out_of_memory(options.len as u64, None));
        }
        let bytes = HostMemory::zeroed(options.len)?;
        self.control.live.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(ObedientMemory { bytes, control: self.control }))
    }

    fn write(&self, destination: &Span, source: &[u8]) -> Result<(), BackendError> {
        self.check(destination);
        self.control.note("write");
        self.control.begin()?;
        write(destination, source)
    }

    fn read(&self, source: &Span, destination: &mut [u8]) -> Result<(), BackendError> {
        self.check(source);
        self.control.note("read");
        self.control.begin()?;
        read(source, destination)
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.check(source);
        self.check(destination);
        self.control.note("copy");
        self.control.begin()?;
        copy(source, destination)
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        if self.queues {
            Ok(Box::new(ObedientQueue::new(self.control)))
        } else {
            Err(BackendError::unsupported("streams"))
        }
    }

    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(ObedientHandle(self.control)))
    }

    fn allocate_host(&self, len: usize) -> Result<HostBuffer, BackendError> {
        self.control.live.fetch_add(1, Ordering::SeqCst);
        // It returns the wrong length for 13 bytes, for a test.
        let len = if len == 13 { 12 } else { len };
        let mut bytes = vec![0; len];
        let start = NonNull::new(bytes.as_mut_ptr()).unwrap();
        let owner = PinnedBytes { _bytes: bytes, control: self.control };
        // SAFETY: the vector has `len` initialised bytes there, does not move them with itself, and is only
        // dropped.
        Ok(unsafe { HostBuffer::from_raw_parts(start, len, owner) })
    }

    fn close(&self) -> Result<(), BackendError> {
        self.control.note("close");
        self.control.queues_at_close.store(self.control.queues.load(Ordering::SeqCst), Ordering::SeqCst);
        self.control.begin()
    }

    fn reset(&self) -> Result<(), BackendError> {
        if self.control.can_reset.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(BackendError::unsupported("resetting"))
        }
    }
}

/// A queue like those of hardware: submitted work runs asynchronously.
struct ObedientQueue(Arc<ObedientStream>);

type Work = Box<dyn FnOnce() + Send>;

/// The native handle of a queue.
pub(crate) struct ObedientStream {
    control: &'static Control,
    work: Sender<Work>,
    /// The work that begins with the next flush.
    batch: Mutex<Vec<Work>>,
    /// The number of submitted pieces of work that are not done.
    open: Arc<AtomicUsize>,
}

impl ObedientQueue {
    fn new(control: &'static Control) -> Self {
        let (work, queue) = channel::<Work>();
        std::thread::spawn(move || queue.into_iter().for_each(|work| work()));
        control.queues.fetch_add(1, Ordering::SeqCst);
        Self(Arc::new(ObedientStream { control, work, batch: Mutex::default(), open: Arc::default() }))
    }
}

impl Deref for ObedientQueue {
    type Target = ObedientStream;

    fn deref(&self) -> &ObedientStream {
        &self.0
    }
}

impl ObedientStream {
    /// Submits native work, as a kernel does.
    pub(crate) fn submit(&self, work: impl FnOnce() + Send + 'static) {
        let open = Arc::clone(&self.open);
        open.fetch_add(1, Ordering::SeqCst);
        let work = move || {
            work();
            open.fetch_sub(1, Ordering::SeqCst);
        };
        self.add(Box::new(work));
    }

    fn add(&self, work: Work) {
        let mut batch = self.batch.lock().unwrap();
        batch.push(work);
        if !self.control.batches.load(Ordering::SeqCst) {
            batch.drain(..).for_each(|work| self.work.send(work).unwrap());
        }
    }

    fn begin_batch(&self) {
        let mut batch = self.batch.lock().unwrap();
        if !batch.is_empty() {
            self.control.batches_begun.fetch_add(1, Ordering::SeqCst);
        }
        batch.drain(..).for_each(|work| self.work.send(work).unwrap());
    }

    /// Submits native work that waits while the gate is closed.
    pub(crate) fn submit_gated(&self) {
        let control = self.control;
        self.submit(move || drop(control.begin()));
    }

    fn point(&self) -> ObedientEvent {
        let event = ObedientEvent::default();
        let (shared, control, open) = (Arc::clone(&event.0), self.control, Arc::clone(&self.open));
        open.fetch_add(1, Ordering::SeqCst);
        let work = move || {
            let result = control.begin();
            open.fetch_sub(1, Ordering::SeqCst);
            *shared.0.lock().unwrap() = Some(result.map(|()| Instant::now()));
            shared.1.notify_all();
        };
        self.add(Box::new(work));
        event
    }
}

impl Drop for ObedientQueue {
    fn drop(&mut self) {
        self.control.queues.fetch_sub(1, Ordering::SeqCst);
    }
}

impl StreamDriver for ObedientQueue {
    fn native(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.0) as _)
    }

    fn write(&self, destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        self.control.submit("queue write")?;
        // It finds its own memory again in a program's buffer.
        assert_eq!(source.is_pinned(), source.owner_as::<PinnedBytes>().is_some());
        // Like hardware, it relies on the core to keep the bytes alive.
        let (control, destination, source) = (self.control, destination.clone(), Arc::downgrade(source));
        self.submit(move || {
            let _ = control.begin();
            write(&destination, &source.upgrade().expect("the core keeps them")).unwrap();
        });
        Ok(())
    }

    fn read(
        &self,
        source: &Span,
        mut destination: HostBuffer,
        completion: Completion,
    ) -> Result<(), BackendError> {
        self.control.submit("queue read")?;
        if self.control.gives_up_reads.load(Ordering::SeqCst) {
            let control = self.control;
            self.submit(move || {
                let _ = control.begin();
                drop(completion);
            });
            return Ok(());
        }
        if self.control.holds_reads.load(Ordering::SeqCst) {
            self.control.held_reads.lock().unwrap().push((completion, destination));
            return Ok(());
        }
        if self.control.forgets_reads.load(Ordering::SeqCst) {
            std::mem::forget(completion);
            return Ok(());
        }
        let (control, source) = (self.control, source.clone());
        self.submit(move || {
            completion.finish(control.begin().and_then(|()| {
                read(&source, &mut destination)?;
                Ok(destination)
            }));
        });
        Ok(())
    }

    fn copy(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        self.control.submit("queue copy")?;
        let (control, source, destination) = (self.control, source.clone(), destination.clone());
        self.submit(move || {
            let _ = control.begin();
            copy(&source, &destination).unwrap();
        });
        Ok(())
    }

    fn fill(&self, destination: &Span, pattern: &FillPattern) -> Result<(), BackendError> {
        self.control.submit("queue fill")?;
        // Like some hardware, it supports short patterns only.
        if pattern.as_bytes().len() > 4 || self.control.has_no_fill.load(Ordering::SeqCst) {
            return Err(BackendError::unsupported("long patterns"));
        }
        let (control, destination, pattern) = (self.control, destination.clone(), *pattern);
        self.submit(move || {
            let _ = control.begin();
            let memory = &destination.memory_as::<ObedientMemory>().unwrap().bytes;
            pattern.fill(&mut memory.write(destination.range()).unwrap());
        });
        Ok(())
    }

    fn copy_from_peer(&self, source: &Span, destination: &Span) -> Result<(), BackendError> {
        // Only memory of this backend's comes here.
        source.memory_as::<ObedientMemory>()?;
        self.copy(source, destination)
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        self.control.submit("queue record")?;
        let hook = self.control.on_record.lock().unwrap().take();
        if let Some(run) = hook {
            run();
        }
        Ok(Box::new(self.point()))
    }

    fn wait_event(&self, event: &dyn EventDriver) -> Result<(), BackendError> {
        self.control.submit("queue wait")?;
        let event: &dyn Any = event;
        let event = ObedientEvent(Arc::clone(&event.downcast_ref::<ObedientEvent>().unwrap().0));
        self.submit(move || drop(event.synchronize()));
        Ok(())
    }

    fn launched(&self) {
        self.control.note("launched");
    }

    fn flush(&self) -> Result<(), BackendError> {
        self.control.note("queue flush");
        if let Some(error) = self.control.flush_failures.lock().unwrap().pop() {
            return Err(error);
        }
        self.begin_batch();
        Ok(())
    }

    fn query(&self) -> Result<bool, BackendError> {
        let hook = self.control.on_query.lock().unwrap().take();
        if let Some(run) = hook {
            run();
        }
        match self.control.query_failure.lock().unwrap().take() {
            Some(error) => Err(error),
            None => Ok(self.open.load(Ordering::SeqCst) == 0),
        }
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let end = self.point();
        self.begin_batch();
        end.synchronize()
    }
}

#[derive(Default)]
struct ObedientEvent(Arc<Reached>);

type Reached = (Mutex<Option<Result<Instant, BackendError>>>, Condvar);

impl ObedientEvent {
    fn time(&self) -> Result<Instant, BackendError> {
        let reached = self.0.1.wait_while(self.0.0.lock().unwrap(), |reached| reached.is_none()).unwrap();
        reached.clone().unwrap()
    }
}

impl EventDriver for ObedientEvent {
    fn query(&self) -> Result<bool, BackendError> {
        let reached = self.0.0.lock().unwrap().clone();
        reached.transpose().map(|time| time.is_some())
    }

    fn is_over(&self) -> Result<bool, BackendError> {
        Ok(self.0.0.lock().unwrap().is_some())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.time().map(|_| ())
    }

    fn elapsed_since(&self, start: &dyn EventDriver) -> Result<Duration, BackendError> {
        let start: &dyn Any = start;
        let start = start.downcast_ref::<Self>().unwrap().time()?;
        self.time()?
            .checked_duration_since(start)
            .ok_or_else(|| BackendError::invalid("the start came later"))
    }
}
