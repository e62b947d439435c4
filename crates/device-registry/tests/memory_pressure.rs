//! Allocations that find a device full while its queues still use memory of dropped buffers.
//!
//! The driver's queues move no bytes. The work in each lasts until the test opens the queue's gate.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use device_registry::backend::{
    AllocateOptions, Backend, BackendDescriptor, BackendError, Completion, DeviceDriver, DeviceProperties,
    EventDriver, EventOptions, HostBuffer, HostMemory, LoadFailure, LossReporter, Memory, MemoryInfo,
    MemoryReuse, OpenedDevice, Span, StreamDriver, StreamOptions,
};
use device_registry::{BackendErrorKind, Buffer, Device, DeviceError, Stream, backends, device};

const KIB: usize = 1 << 10;

/// How much memory a device has: less than the block that its length is rounded up to.
const CAPACITY: usize = (4 << 20) - 512;

/// The length of most buffers, of which five fit, and of an allocation for which the device then has no room.
const PIECE: usize = 768 * KIB;
const LARGE: usize = 2 << 20;

/// From this device on, a device has a cache.
const CACHED: usize = 16;

/// The last device without a cache, and the last with one, cannot allocate a block as long as their memory.
const LIMITED: usize = CACHED - 1;

/// Long enough for a machine under load. No test takes it.
const LONG: Duration = Duration::from_secs(60);

/// One device: what is allocated, and the gates of its queues in the order in which they were created.
#[derive(Default)]
struct Tank {
    used: AtomicUsize,
    gates: Mutex<Vec<Arc<Gate>>>,
    reporter: Mutex<Option<LossReporter>>,
    /// What other threads free while the driver finds itself full: the last at the first time.
    freed_meanwhile: Mutex<Vec<Vec<Buffer>>>,
}

/// The gate of a queue: its work is done when the gate is open.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    has_work: bool,
    open: bool,
    /// How many waits for the queue have begun.
    waits: usize,
    /// The failure of the work, which the queue reports once.
    failure: Option<BackendError>,
}

fn tank(ordinal: usize) -> &'static Tank {
    static TANKS: OnceLock<Vec<Tank>> = OnceLock::new();
    &TANKS.get_or_init(|| (0..2 * CACHED).map(|_| Tank::default()).collect())[ordinal]
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn submit(&self) -> Result<(), BackendError> {
        self.state().has_work = true;
        Ok(())
    }

    fn open(&self) {
        self.state().open = true;
        self.changed.notify_all();
    }

    fn fail(&self, error: BackendError) {
        self.state().failure = Some(error);
        self.open();
    }

    fn waits(&self) -> usize {
        self.state().waits
    }

    /// Returns when this many waits have begun.
    #[track_caller]
    fn await_waits(&self, waits: usize) {
        let state = self.state();
        let (state, timeout) =
            self.changed.wait_timeout_while(state, LONG, |state| state.waits < waits).unwrap();
        assert!(!timeout.timed_out(), "{} waits have begun, and not {waits}", state.waits);
    }
}

struct Pressure;

impl Backend for Pressure {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(2 * CACHED)
    }

    fn properties(&self, ordinal: usize) -> Result<DeviceProperties, BackendError> {
        let properties = DeviceProperties::new("pressure").with_memory_reuse(if ordinal >= CACHED {
            MemoryReuse::Rounded
        } else {
            MemoryReuse::Never
        });
        let limited = ordinal % CACHED == LIMITED;
        Ok(if limited { properties.with_largest_allocation(CAPACITY as u64) } else { properties })
    }

    fn open(&self, ordinal: usize) -> Result<OpenedDevice, BackendError> {
        let reporter = LossReporter::new();
        *tank(ordinal).reporter.lock().unwrap() = Some(reporter.clone());
        Ok(OpenedDevice::new(self, PressureDevice(tank(ordinal))).with_loss_reporter(reporter))
    }
}

struct PressureDevice(&'static Tank);

struct Filling {
    tank: &'static Tank,
    len: usize,
}

impl Memory for Filling {}

impl Drop for Filling {
    fn drop(&mut self) {
        self.tank.used.fetch_sub(self.len, Ordering::SeqCst);
    }
}

impl DeviceDriver for PressureDevice {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        let (tank, len) = (self.0, options.len);
        let free = CAPACITY - tank.used.load(Ordering::SeqCst);
        if len > free {
            let freed = tank.freed_meanwhile.lock().unwrap().pop();
            drop(freed);
            return Err(BackendError::out_of_memory(len as u64, Some(free as u64)));
        }
        tank.used.fetch_add(len, Ordering::SeqCst);
        Ok(Arc::new(Filling { tank, len }))
    }

    fn create_stream(&self, _options: &StreamOptions) -> Result<Box<dyn StreamDriver>, BackendError> {
        let gate = Arc::<Gate>::default();
        self.0.gates.lock().unwrap().push(Arc::clone(&gate));
        Ok(Box::new(GatedQueue(gate)))
    }
}

struct GatedQueue(Arc<Gate>);

impl StreamDriver for GatedQueue {
    fn write(&self, _destination: &Span, _source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        self.0.submit()
    }

    fn read(
        &self,
        _source: &Span,
        _destination: HostBuffer,
        _completion: Completion,
    ) -> Result<(), BackendError> {
        Err(BackendError::unsupported("reads"))
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        self.0.submit()
    }

    fn copy_from_peer(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        self.0.submit()
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        Err(BackendError::unsupported("events"))
    }

    fn query(&self) -> Result<bool, BackendError> {
        let mut state = self.0.state();
        if state.has_work && !state.open {
            return Ok(false);
        }
        state.failure.take().map_or(Ok(true), Err)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        let mut state = self.0.state();
        state.waits += 1;
        self.0.changed.notify_all();
        let mut state = self.0.changed.wait_while(state, |state| state.has_work && !state.open).unwrap();
        state.failure.take().map_or(Ok(()), Err)
    }
}

fn load() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(Pressure))
}

static PRESSURE: BackendDescriptor = BackendDescriptor::new("pressure", load);

/// Runs a test on a device without a cache, and on one with a cache.
fn on_both(ordinal: usize, test: impl Fn(Device, &'static Tank)) {
    backends().register(&PRESSURE).unwrap();
    for ordinal in [ordinal, CACHED + ordinal] {
        test(device(&format!("pressure:{ordinal}")).unwrap(), tank(ordinal));
    }
}

/// A stream with the gate of its queue.
fn gated(device: Device, tank: &Tank) -> (Stream, Arc<Gate>) {
    let stream = device.create_stream().unwrap();
    (stream, Arc::clone(tank.gates.lock().unwrap().last().unwrap()))
}

fn pieces(device: Device) -> [Buffer; 5] {
    [(); 5].map(|()| device.allocate(PIECE).unwrap())
}

fn write(stream: &Stream, buffer: &Buffer) {
    stream.write(buffer, 0, vec![1; 16]).unwrap();
}

/// An allocation on a thread of its own, since a test must not hang with it.
struct Allocating(mpsc::Receiver<Result<Buffer, DeviceError>>);

impl Allocating {
    fn begin(device: Device, len: usize) -> Self {
        let (sender, outcome) = mpsc::channel();
        thread::spawn(move || sender.send(device.allocate(len)));
        Self(outcome)
    }

    #[track_caller]
    fn still_waits(&self) {
        assert!(matches!(self.0.try_recv(), Err(mpsc::TryRecvError::Empty)));
    }

    #[track_caller]
    fn outcome(self) -> Result<Buffer, DeviceError> {
        self.0.recv_timeout(LONG).expect("the allocation hangs")
    }
}

#[track_caller]
fn is_full_at_once(device: Device) {
    let error = Allocating::begin(device, LARGE).outcome().unwrap_err();
    assert!(matches!(error.kind(), Some(BackendErrorKind::OutOfMemory { .. })), "{error}");
}

/// The number of retries that a device with a cache counts.
#[track_caller]
fn has_retried(device: Device, retries: u64) {
    let expected = if device.properties().unwrap().memory_reuse != MemoryReuse::Never { retries } else { 0 };
    assert_eq!(device.memory_statistics().unwrap().retries, expected);
}

#[test]
fn memory_behind_work_that_lasts_is_waited_for() {
    on_both(0, |device, tank| {
        let (stream, gate) = gated(device, tank);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let large = Allocating::begin(device, LARGE);
        gate.await_waits(1);
        large.still_waits();
        has_retried(device, 0);
        gate.open();
        let large = large.outcome().unwrap();
        assert_eq!((large.len(), gate.waits()), (LARGE, 1));
        has_retried(device, 1);
        assert_eq!(tank.used.load(Ordering::SeqCst), LARGE);
    });
}

#[test]
fn an_allocation_that_is_tried_three_times_counts_one_retry() {
    on_both(1, |device, tank| {
        let (stream, gate) = gated(device, tank);
        let [free, used @ ..] = pieces(device);
        drop(free);
        used.iter().for_each(|piece| write(&stream, piece));
        drop(used);
        let large = Allocating::begin(device, LARGE);
        gate.await_waits(1);
        // What was free was not enough.
        has_retried(device, 1);
        gate.open();
        large.outcome().unwrap();
        has_retried(device, 1);
    });
}

#[test]
fn memory_that_another_thread_has_freed_meanwhile_is_used() {
    on_both(14, |device, tank| {
        // Without a cache, such memory is the driver's before the core knows of it.
        if device.properties().unwrap().memory_reuse == MemoryReuse::Never {
            return;
        }
        let [free, used @ ..] = pieces(device);
        drop(free);
        tank.freed_meanwhile.lock().unwrap().extend([Vec::from(used), Vec::new()]);
        device.allocate(LARGE).unwrap();
        has_retried(device, 1);
    });
}

#[test]
fn memory_without_a_block_is_waited_for_as_well() {
    for ordinal in [2, LIMITED] {
        on_both(ordinal, |device, tank| {
            let (stream, gate) = gated(device, tank);
            let [free, used @ ..] = pieces(device);
            drop(free);
            used.iter().for_each(|piece| write(&stream, piece));
            drop(used);
            let all = Allocating::begin(device, CAPACITY);
            gate.await_waits(1);
            gate.open();
            assert_eq!(all.outcome().unwrap().len(), CAPACITY);
            assert_eq!(gate.waits(), 1);
            has_retried(device, 1);
        });
    }
}

#[test]
fn memory_with_a_handle_is_not_waited_for() {
    on_both(3, |device, tank| {
        let (stream, gate) = gated(device, tank);
        let pieces = pieces(device);
        for piece in &pieces {
            // Two of its three users are in flight.
            stream.copy(piece, ..16, piece, 16).unwrap();
        }
        is_full_at_once(device);
        let slices = pieces.map(|piece| piece.slice(..8).unwrap());
        is_full_at_once(device);
        assert_eq!(gate.waits(), 0);
        has_retried(device, 0);
        drop(slices);
        let large = Allocating::begin(device, LARGE);
        gate.await_waits(1);
        gate.open();
        large.outcome().unwrap();
    });
}

#[test]
fn memory_that_two_streams_use_is_waited_for_in_both_and_in_no_other() {
    on_both(4, |device, tank| {
        let [(one, first), (two, second), (three, third)] = [(); 3].map(|()| gated(device, tank));
        let [kept, shared @ ..] = pieces(device);
        for piece in &shared {
            write(&one, piece);
            write(&two, piece);
        }
        write(&three, &kept);
        drop(shared);
        let large = Allocating::begin(device, LARGE);
        first.await_waits(1);
        first.open();
        second.await_waits(1);
        large.still_waits();
        second.open();
        large.outcome().unwrap();
        assert_eq!([&first, &second, &third].map(|gate| gate.waits()), [1, 1, 0]);
    });
}

#[test]
fn work_of_a_dropped_stream_is_waited_for() {
    on_both(5, |device, tank| {
        let (stream, gate) = gated(device, tank);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        drop(stream);
        let large = Allocating::begin(device, LARGE);
        gate.await_waits(1);
        gate.open();
        large.outcome().unwrap();
    });
}

#[test]
fn a_failure_of_the_work_is_the_streams_and_the_allocation_succeeds() {
    on_both(6, |device, tank| {
        let (stream, gate) = gated(device, tank);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let large = Allocating::begin(device, LARGE);
        gate.await_waits(1);
        gate.fail(BackendError::other("a bit flipped"));
        large.outcome().unwrap();
        let error = stream.synchronize().unwrap_err();
        assert!(error.to_string().ends_with("a bit flipped"), "{error}");
        stream.synchronize().unwrap();
        device.synchronize().unwrap();
    });
}

#[test]
fn a_loss_that_the_queue_returns_ends_the_wait() {
    on_both(7, |device, tank| {
        let [(one, first), (two, second)] = [(); 2].map(|()| gated(device, tank));
        for piece in pieces(device) {
            write(&one, &piece);
            write(&two, &piece);
        }
        let large = Allocating::begin(device, LARGE);
        first.await_waits(1);
        first.fail(BackendError::lost("unplugged"));
        assert_eq!(large.outcome().unwrap_err().kind(), Some(BackendErrorKind::Lost));
        assert_eq!(second.waits(), 0, "a lost device was waited for");
    });
}

#[test]
fn a_loss_that_is_reported_meanwhile_is_the_error_of_the_allocation() {
    on_both(8, |device, tank| {
        let (stream, gate) = gated(device, tank);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let large = Allocating::begin(device, LARGE);
        gate.await_waits(1);
        let reporter = tank.reporter.lock().unwrap().clone().unwrap();
        reporter.report(BackendError::lost("unplugged"));
        gate.open();
        assert_eq!(large.outcome().unwrap_err().kind(), Some(BackendErrorKind::Lost));
    });
}

#[test]
fn a_host_call_that_waits_for_the_allocating_thread_is_not_waited_for() {
    on_both(9, |device, tank| {
        let (stream, gate) = gated(device, tank);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        let (release, released) = mpsc::channel::<()>();
        stream.host_call(move || released.recv().unwrap_or(())).unwrap();
        // The stream's thread waits for the work before its host call.
        gate.await_waits(1);
        let large = Allocating::begin(device, LARGE);
        gate.await_waits(2);
        gate.open();
        let large = large.outcome().unwrap();
        drop(release);
        stream.synchronize().unwrap();
        drop(large);
    });
}

#[test]
fn memory_behind_a_host_call_is_not_waited_for() {
    on_both(10, |device, tank| {
        let [(one, first), (two, second)] = [(); 2].map(|()| gated(device, tank));
        let pieces = pieces(device);
        let (begin, begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        two.host_call(move || {
            begin.send(()).unwrap();
            released.recv().unwrap_or(());
        })
        .unwrap();
        begun.recv_timeout(LONG).unwrap();
        for piece in &pieces {
            write(&one, piece);
            write(&two, piece);
        }
        drop(pieces);
        // A wait for the first queue would release nothing.
        is_full_at_once(device);
        assert_eq!(first.waits(), 0);
        [first, second].iter().for_each(|gate| gate.open());
        drop(release);
        two.synchronize().unwrap();
        device.allocate(LARGE).unwrap();
    });
}

#[test]
fn each_device_waits_for_its_own_queues_and_memory() {
    on_both(12, |device, tank| {
        let peer = device_registry::device(&format!("pressure:{}", device.index().unwrap() + 1)).unwrap();
        let (stream, gate) = gated(device, tank);
        let own = pieces(device);
        for piece in pieces(peer) {
            stream.copy(&piece, ..16, &own[0], 0).unwrap();
        }
        is_full_at_once(device);
        is_full_at_once(peer);
        assert_eq!(gate.waits(), 0);
        gate.open();
        stream.synchronize().unwrap();
        peer.allocate(LARGE).unwrap();
    });
}

/// A backend without queues whose writes allocate on another device.
struct Layered;

/// The devices on which its writes allocate, in turn, and what comes of it.
static BELOW: Mutex<Vec<Device>> = Mutex::new(Vec::new());
static OUTCOMES: Mutex<Vec<Option<BackendErrorKind>>> = Mutex::new(Vec::new());

impl Backend for Layered {
    fn device_count(&self) -> Result<usize, BackendError> {
        Ok(1)
    }

    fn properties(&self, _ordinal: usize) -> Result<DeviceProperties, BackendError> {
        Ok(DeviceProperties::new("layered"))
    }

    fn open(&self, _ordinal: usize) -> Result<OpenedDevice, BackendError> {
        Ok(OpenedDevice::new(self, Self))
    }
}

impl DeviceDriver for Layered {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(HostMemory::zeroed(options.len)?))
    }

    fn write(&self, _destination: &Span, _source: &[u8]) -> Result<(), BackendError> {
        let below = BELOW.lock().unwrap().pop().unwrap();
        let kind = below.allocate(LARGE).err().and_then(|error| error.kind());
        OUTCOMES.lock().unwrap().push(kind);
        Ok(())
    }
}

fn load_layered() -> Result<Box<dyn Backend>, LoadFailure> {
    Ok(Box::new(Layered))
}

static LAYERED: BackendDescriptor = BackendDescriptor::new("layered", load_layered);

#[test]
fn the_thread_of_a_stream_does_not_wait() {
    backends().register(&LAYERED).unwrap();
    let above = device("layered").unwrap();
    let (outer, target) = (above.create_stream().unwrap(), above.allocate(16).unwrap());
    on_both(11, |device, tank| {
        let (stream, gate) = gated(device, tank);
        pieces(device).iter().for_each(|piece| write(&stream, piece));
        BELOW.lock().unwrap().push(device);
        write(&outer, &target);
        outer.synchronize_timeout(LONG).unwrap();
        let kind = OUTCOMES.lock().unwrap().pop().unwrap();
        assert!(matches!(kind, Some(BackendErrorKind::OutOfMemory { .. })), "{kind:?}");
        assert_eq!(gate.waits(), 0);
    });
}
