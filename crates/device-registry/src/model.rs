//! Models of threads that use a queue, its failures and its end. [shuttle] explores them: it chooses at each
//! lock, wait and atomic access which thread runs next.
//!
//! ```sh
//! RUSTFLAGS="--cfg shuttle" cargo test -p device-registry --lib model::
//! ```
//!
//! A failure prints a schedule, which [`shuttle::replay`] runs again. Loom would explore every schedule, but
//! only of far smaller models: it does not support detached threads, which queues have, and a polling loop
//! does not end there.
//!
//! [shuttle]: https://docs.rs/shuttle

use std::sync::{Arc, Mutex as StdMutex, Weak};
use std::time::Duration;

use shuttle::thread;

use crate::backend::{
    AllocateOptions, BackendError, Block, Completion, CompletionWatch, DeviceDriver, DeviceProperties,
    EventDriver, EventOptions, HostBuffer, LaunchOptions, Memory, MemoryInfo, MemoryReuse, Parts, Progress,
    Span, StreamDriver, StreamOptions, StreamOrder,
};
use crate::device::Device;
use crate::error::DeviceError;
use crate::pending::Pending;
use crate::runtime::memory_cache::MemoryCache;
use crate::runtime::open_device::{OpenDevice, StreamQueue};
use crate::runtime::operation::{Operation, QueuedRead};
use crate::runtime::outcome::Outcome;
use crate::runtime::point::Point;
use crate::runtime::queue::Queue;
use crate::sync::{Mutex, lock};

/// The number of schedules of each model, at random and by PCT, which finds orders that are rare at random.
const SCHEDULES: usize = 400;

fn explore(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), SCHEDULES);
    shuttle::check_pct(model, SCHEDULES, 3);
}

/// The calls that the model's driver has received. It has no bytes, so its copies and reads move none.
#[derive(Default)]
struct Seen {
    calls: Mutex<Vec<&'static str>>,
    /// Reads that were accepted and are not finished.
    reads: Mutex<Vec<Completion>>,
    /// Reads that have failed, whether or not they are finished.
    failed: Mutex<Vec<CompletionWatch>>,
    /// The sources of queued writes, until the queue is synchronized.
    sources: Mutex<Vec<Weak<HostBuffer>>>,
    closed: Mutex<bool>,
    /// How many events were recorded, and how many of them before the last flush.
    recorded: Mutex<(u64, u64)>,
}

impl Seen {
    fn note(&self, call: &'static str) {
        assert!(!*lock(&self.closed), "`{call}` after the device was closed");
        lock(&self.calls).push(call);
    }

    fn read(&self) -> Option<Completion> {
        lock(&self.reads).pop()
    }
}

struct Driver(Arc<Seen>);

struct Bytes;

impl Memory for Bytes {}

fn parts(driver: Box<dyn DeviceDriver>) -> Parts {
    Parts { driver, loss_reporter: None, has_native_handles: false }
}

impl DeviceDriver for Driver {
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        Ok(MemoryInfo::unknown())
    }

    fn allocate(&self, _options: &AllocateOptions) -> Result<Arc<dyn Memory>, BackendError> {
        Ok(Arc::new(Bytes))
    }

    fn write(&self, _destination: &Span, _source: &[u8]) -> Result<(), BackendError> {
        self.0.note("write");
        Ok(())
    }

    fn read(&self, _source: &Span, _destination: &mut [u8]) -> Result<(), BackendError> {
        self.0.note("read");
        Ok(())
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        self.0.note("copy");
        Ok(())
    }

    fn close(&self) -> Result<(), BackendError> {
        assert!(lock(&self.0.sources).is_empty(), "work was not waited for");
        *lock(&self.0.closed) = true;
        Ok(())
    }
}

impl StreamDriver for Driver {
    fn write(&self, _destination: &Span, source: &Arc<HostBuffer>) -> Result<(), BackendError> {
        self.0.note("queue write");
        lock(&self.0.sources).push(Arc::downgrade(source));
        Ok(())
    }

    fn read(&self, _: &Span, _: HostBuffer, completion: Completion) -> Result<(), BackendError> {
        self.0.note("queue read");
        lock(&self.0.reads).push(completion);
        Ok(())
    }

    fn copy(&self, _source: &Span, _destination: &Span) -> Result<(), BackendError> {
        self.0.note("queue copy");
        Ok(())
    }

    fn record(&self, _options: &EventOptions) -> Result<Box<dyn EventDriver>, BackendError> {
        self.0.note("queue record");
        let failed = lock(&self.0.failed).iter().any(|read| !read.is_finished());
        let mut recorded = lock(&self.0.recorded);
        recorded.0 += 1;
        Ok(Box::new(Recorded { failed, number: recorded.0, seen: Arc::clone(&self.0) }))
    }

    fn flush(&self) -> Result<(), BackendError> {
        self.0.note("queue flush");
        let mut recorded = lock(&self.0.recorded);
        recorded.1 = recorded.0;
        Ok(())
    }

    fn query(&self) -> Result<bool, BackendError> {
        self.0.note("queue query");
        Ok(lock(&self.0.reads).is_empty() && lock(&self.0.sources).is_empty())
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        self.0.note("queue synchronize");
        let sources = std::mem::take(&mut *lock(&self.0.sources));
        assert!(sources.iter().all(|source| source.upgrade().is_some()), "freed before the work was done");
        Ok(())
    }
}

/// An event whose work has ended.
struct Recorded {
    failed: bool,
    number: u64,
    seen: Arc<Seen>,
}

impl EventDriver for Recorded {
    fn query(&self) -> Result<bool, BackendError> {
        self.synchronize().map(|()| true)
    }

    fn synchronize(&self) -> Result<(), BackendError> {
        assert!(lock(&self.seen.recorded).1 >= self.number, "it was not flushed");
        if self.failed { Err(BackendError::other("the read failed")) } else { Ok(()) }
    }

    fn elapsed_since(&self, _start: &dyn EventDriver) -> Result<Duration, BackendError> {
        Ok(Duration::ZERO)
    }
}

/// A device that was just opened. It is leaked, like every open device.
fn device() -> (&'static OpenDevice, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let driver = Box::new(Driver(Arc::clone(&seen)));
    let device = OpenDevice::new(Device::cpu(), parts(driver), DeviceProperties::new("model"));
    (Box::leak(Box::new(device)), seen)
}

/// A queue of the core: a thread does its work.
fn threaded(device: &'static OpenDevice) -> Arc<Queue> {
    Queue::new(device, None, &StreamOptions::new())
}

/// A queue of the driver.
fn driven(device: &'static OpenDevice, seen: &Arc<Seen>) -> Arc<Queue> {
    Queue::new(device, Some(Box::new(Driver(Arc::clone(seen)))), &StreamOptions::new())
}

fn span(device: &'static OpenDevice) -> Span {
    device.statistics().add(1);
    let allocation = crate::backend::Allocation::new(device, Arc::new(Bytes), 1, None, None, 0);
    Span::new(&Arc::new(allocation), 0..1).expect("it has a byte")
}

fn fails(why: &'static str) -> Operation {
    Operation::Launch {
        spans: Vec::new(),
        name: None,
        kernel: Box::new(move |_| Err(BackendError::other(why))),
    }
}

fn succeeds() -> Operation {
    Operation::Launch { spans: Vec::new(), name: None, kernel: Box::new(|_| Ok(())) }
}

/// A host call that writes to a log.
fn notes(what: &'static str, log: &Arc<StdMutex<Vec<&'static str>>>) -> Operation {
    let log = Arc::clone(log);
    Operation::Call(Box::new(move || log.lock().unwrap().push(what)))
}

fn enqueue_read(queue: &Arc<Queue>) -> Pending {
    let outcome = Outcome::of_work(queue.device(), queue.as_origin(), "read", 1);
    let destination = HostBuffer::from(vec![0]);
    let read = QueuedRead::new(&outcome);
    queue.accept(Operation::Read { source: span(queue.device()), destination, read }).unwrap();
    Pending::new(outcome)
}

/// Records an event and waits for it.
fn record(queue: &Arc<Queue>) -> Result<(), DeviceError> {
    let event = Point::queued(queue.device(), false);
    let options = EventOptions::new();
    queue.accept(Operation::Record { event: Arc::clone(&event), options }).unwrap();
    event.synchronize()
}

/// Polls a queue until it is done or fails.
fn poll(queue: &Queue) -> Result<(), DeviceError> {
    while !queue.query()? {
        thread::yield_now();
    }
    Ok(())
}

fn is(result: Result<(), DeviceError>, why: &str) -> usize {
    match result {
        Ok(()) => 0,
        Err(error) => {
            assert!(error.to_string().contains(why), "{error}");
            1
        }
    }
}

#[test]
fn a_poll_never_returns_failed_work_as_done() {
    explore(|| {
        let queue = threaded(device().0);
        queue.accept(fails("on purpose")).unwrap();
        assert_eq!(
            is(poll(&queue), "on purpose"),
            1,
            "the poll returned the work as done, without its failure"
        );
        queue.close();
    });
}

#[test]
fn one_of_several_querying_threads_gets_the_failure() {
    explore(|| {
        let queue = threaded(device().0);
        queue.accept(fails("on purpose")).unwrap();
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || is(queue.synchronize(), "on purpose"))
        };
        let here = is(poll(&queue), "on purpose");
        assert_eq!(here + other.join().unwrap(), 1);
        queue.accept(succeeds()).unwrap();
        assert_eq!(is(queue.synchronize(), "nothing"), 0, "it was reported");
        queue.close();
    });
}

#[test]
fn a_stream_that_is_dropped_leaves_its_failure_to_the_device_once() {
    explore(|| {
        let (device, _) = device();
        let queue = threaded(device);
        queue.accept(fails("on purpose")).unwrap();
        let waits = thread::spawn(move || is(device.synchronize(), "on purpose"));
        queue.close();
        drop(queue);
        let mut reported = waits.join().unwrap();
        // Its thread may still be running.
        for _ in 0..50 {
            if reported == 1 {
                break;
            }
            thread::yield_now();
            reported += is(device.synchronize(), "on purpose");
        }
        assert_eq!(reported + is(device.synchronize(), "on purpose"), 1);
    });
}

#[test]
fn a_read_that_fails_at_any_time_is_reported_once_besides_its_own_error() {
    explore(|| {
        let (device, seen) = device();
        let queue = driven(device, &seen);
        let read = enqueue_read(&queue);
        let driver = thread::spawn(move || {
            seen.read().expect("it was accepted").finish(Err(BackendError::other("the read failed")));
        });
        // The stream is dropped meanwhile, and the device collects its queue.
        queue.close();
        drop(queue);
        let mut reported = 0;
        for _ in 0..2 {
            device.collect();
            reported += is(device.synchronize(), "the read failed");
        }
        driver.join().unwrap();
        assert!(read.is_ready() && read.wait().is_err());
        device.collect();
        for _ in 0..2 {
            reported += is(device.synchronize(), "the read failed");
        }
        assert_eq!(reported, 1);
    });
}

#[test]
fn events_fail_for_a_read_that_failed_until_its_failure_is_reported() {
    explore(|| {
        let (device, seen) = device();
        let queue = driven(device, &seen);
        let read = enqueue_read(&queue);
        let completion = seen.read().expect("it was accepted");
        lock(&seen.failed).push(completion.watch());
        let driver = thread::spawn(move || completion.finish(Err(BackendError::other("the read failed"))));
        assert_eq!(is(record(&queue), "the read failed"), 1, "an event before the report did not fail");
        while is(queue.take_failure(), "the read failed") == 0 {
            thread::yield_now();
        }
        assert_eq!(is(record(&queue), "nothing"), 0);
        driver.join().unwrap();
        assert_eq!(is(record(&queue), "nothing") + is(queue.synchronize(), "nothing"), 0);
        assert!(read.wait().is_err());
        queue.close();
    });
}

#[test]
fn a_read_wakes_the_thread_that_waits_for_it() {
    explore(|| {
        let (device, seen) = device();
        let queue = driven(device, &seen);
        let read = enqueue_read(&queue);
        let waits = thread::spawn(move || read.wait().map(drop));
        seen.read().expect("it was accepted").finish(Ok(HostBuffer::from(vec![7])));
        waits.join().unwrap().unwrap();
        queue.close();
    });
}

#[test]
fn an_event_is_flushed_before_a_thread_looks_at_it_whatever_others_record_and_flush() {
    explore(|| {
        let (device, seen) = device();
        let queue = driven(device, &seen);
        let event = Point::queued(device, false);
        queue.accept(Operation::Record { event: Arc::clone(&event), options: EventOptions::new() }).unwrap();
        let other = {
            let queue = Arc::clone(&queue);
            let event = Arc::clone(&event);
            thread::spawn(move || {
                record(&queue).unwrap();
                event.query().unwrap();
            })
        };
        event.query().unwrap();
        record(&queue).unwrap();
        other.join().unwrap();
        queue.close();
    });
}

#[test]
fn work_runs_in_the_order_of_its_thread_while_another_enqueues() {
    explore(|| {
        let queue = threaded(device().0);
        let log = Arc::default();
        let other = {
            let queue = Arc::clone(&queue);
            let log = Arc::clone(&log);
            thread::spawn(move || {
                for what in ["c", "d"] {
                    queue.accept(notes(what, &log)).unwrap();
                }
            })
        };
        for what in ["a", "b"] {
            queue.accept(notes(what, &log)).unwrap();
        }
        other.join().unwrap();
        queue.synchronize().unwrap();
        let log = log.lock().unwrap();
        let place = |what| log.iter().position(|&noted| noted == what).expect("it was done");
        assert!(place("a") < place("b") && place("c") < place("d") && log.len() == 4, "{log:?}");
        queue.close();
    });
}

#[test]
fn work_for_a_drivers_queue_waits_for_the_host_call_before_it_and_is_flushed() {
    explore(|| {
        let (device, seen) = device();
        let queue = driven(device, &seen);
        let log = Arc::default();
        queue.accept(notes("call", &log)).unwrap();
        let source = Arc::new(HostBuffer::from(vec![1]));
        queue.accept(Operation::Write { source, destination: span(device) }).unwrap();
        queue.close();
        drop(queue);
        let write = loop {
            let calls = lock(&seen.calls).clone();
            let write = calls.iter().position(|&call| call == "queue write");
            match write {
                Some(write) if calls[write..].contains(&"queue flush") => break write,
                _ => thread::yield_now(),
            }
        };
        assert_eq!(*log.lock().unwrap(), ["call"], "the write at {write} came first");
    });
}

#[test]
fn no_call_reaches_the_driver_after_its_device_was_closed() {
    explore(|| {
        let (device, seen) = device();
        let queue = driven(device, &seen);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let source = Arc::new(HostBuffer::from(vec![1]));
                let _ = queue.accept(Operation::Write { source, destination: span(queue.device()) });
                let _ = queue.query();
            })
        };
        device.close().unwrap();
        other.join().unwrap();
        assert!(queue.accept(succeeds()).is_err());
        queue.close();
    });
}

#[test]
fn a_stream_that_is_dropped_while_its_device_closes_keeps_its_works_values() {
    explore(|| {
        let (device, seen) = device();
        let queue = driven(device, &seen);
        let other = thread::spawn(move || {
            let source = Arc::new(HostBuffer::from(vec![1]));
            let _ = queue.accept(Operation::Write { source, destination: span(device) });
            queue.close();
        });
        // Delays the close between the moment when the device counts as closed and the wait for its queues.
        let slow = thread::spawn(move || {
            let _ = device.call("slow", |_| {
                thread::yield_now();
                Ok(())
            });
        });
        device.close().unwrap();
        other.join().unwrap();
        slow.join().unwrap();
    });
}

#[test]
fn a_stream_may_end_with_a_failure_while_its_device_closes() {
    explore(|| {
        let (device, _) = device();
        let queue = threaded(device);
        let other = thread::spawn(move || {
            let _ = queue.accept(fails("on purpose"));
            queue.close();
        });
        // The model checks that neither waits for the other. Either of them may report the failure.
        let _ = device.close();
        other.join().unwrap();
    });
}

#[test]
fn of_two_threads_that_close_a_device_one_does() {
    explore(|| {
        let (device, _) = device();
        let other = thread::spawn(move || device.close().is_ok());
        let here = device.close().is_ok();
        assert!(here != other.join().unwrap());
    });
}

/// The blocks of a cache in the models of its users. Its memory has a name.
fn cache() -> MemoryCache<u32> {
    let properties = DeviceProperties::new("model").with_memory_reuse(MemoryReuse::Rounded);
    MemoryCache::of(&properties, |_| false).expect("its memory is used again")
}

#[test]
fn no_block_is_lost_or_given_out_twice_while_work_ends_and_the_stream_allocates() {
    const SIZE: usize = 512;

    /// Notes that a block is given out, which must not happen twice.
    fn take(used: &StdMutex<Vec<Block>>, block: Block) -> Block {
        let mut used = used.lock().unwrap();
        assert!(!used.contains(&block), "{block:?} is given out twice");
        used.push(block);
        block
    }

    fn put(used: &StdMutex<Vec<Block>>, block: Block) {
        used.lock().unwrap().retain(|used| *used != block);
    }

    explore(|| {
        let cache = Arc::new(cache());
        let progress = Arc::new(Progress::default());
        let used = Arc::new(StdMutex::new(Vec::new()));
        let blocks = [0, 1].map(|name| take(&used, cache.add(name, SIZE, SIZE).1));
        let frees = {
            let cache = Arc::clone(&cache);
            let progress = Arc::clone(&progress);
            let used = Arc::clone(&used);
            thread::spawn(move || {
                for (block, number) in blocks.into_iter().zip(0..) {
                    let order = StreamOrder::new(&progress, 0);
                    order.used_by(number);
                    put(&used, block);
                    assert!(cache.put_promised(block, &order).is_empty());
                }
            })
        };
        let ends = {
            let cache = Arc::clone(&cache);
            let progress = Arc::clone(&progress);
            thread::spawn(move || {
                for number in 1..=2 {
                    progress.reach(number);
                    assert!(cache.settle(&progress).is_empty());
                }
            })
        };
        for _ in 0..2 {
            let free = cache.take(SIZE).map(|(_, block)| (block, 0));
            let taken = free
                .or_else(|| cache.take_promised(SIZE, &progress).map(|(_, block, number)| (block, number)));
            let Some((block, number)) = taken else { continue };
            take(&used, block);
            thread::yield_now();
            put(&used, block);
            assert!(cache.put_promised(block, &StreamOrder::new(&progress, number)).is_empty());
        }
        frees.join().unwrap();
        ends.join().unwrap();
        assert!(!cache.has_promised(&progress), "a block is pending behind work that is done");
        assert_eq!(cache.counters().cached, 2 * SIZE as u64);
        assert_eq!(cache.empty().len(), 2);
    });
}

#[test]
fn memory_of_a_stream_is_free_when_its_work_is_done() {
    explore(|| {
        let seen = Arc::new(Seen::default());
        let driver = Box::new(Driver(Arc::clone(&seen)));
        let properties = DeviceProperties::new("model").with_memory_reuse(MemoryReuse::Rounded);
        let device: &'static OpenDevice =
            Box::leak(Box::new(OpenDevice::new(Device::cpu(), parts(driver), properties)));
        let queue = driven(device, &seen);
        let write = |queue: &Arc<Queue>| {
            let allocation = device.allocate(1, queue.progress()).unwrap();
            let destination = Span::new(&Arc::new(allocation), 0..1).expect("it has a byte");
            let source = Arc::new(HostBuffer::from(vec![1]));
            queue.accept(Operation::Write { source, destination }).unwrap();
        };
        // Its drop is this thread's, and its work may end at any time.
        write(&queue);
        let ends = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.synchronize().unwrap())
        };
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || write(&queue))
        };
        write(&queue);
        ends.join().unwrap();
        other.join().unwrap();
        queue.synchronize().unwrap();
        let now = device.memory_statistics();
        assert_eq!((now.allocated, now.live), (0, 0));
        assert_eq!(now.cached, now.reserved, "a block is neither in use nor free");
        queue.close();
    });
}

/// A short kernel, which runs at once where the queue is idle.
fn launch(queue: &Arc<Queue>, kernel: impl FnOnce() -> Result<(), BackendError> + Send + 'static) {
    queue.launch(Vec::new(), |_| kernel(), &LaunchOptions::new().short()).unwrap();
}

#[test]
fn work_at_once_and_work_of_the_thread_run_one_at_a_time_and_in_order() {
    explore(|| {
        let queue = threaded(device().0);
        let log = Arc::new(StdMutex::new(Vec::new()));
        let runs = Arc::new(Mutex::new(()));
        let threads: Vec<_> = [["a1", "a2"], ["b1", "b2"]]
            .into_iter()
            .map(|names| {
                let queue = queue.clone();
                let log = log.clone();
                let runs = runs.clone();
                thread::spawn(move || {
                    let [first, second] = names;
                    for name in [first, second] {
                        let log = log.clone();
                        let runs = runs.clone();
                        let kernel = move || {
                            let _alone = runs.try_lock().expect("other work of the stream runs");
                            // Other threads may run here.
                            thread::yield_now();
                            log.lock().unwrap().push(name);
                            Ok(())
                        };
                        launch(&queue, kernel);
                    }
                })
            })
            .collect();
        queue.accept(notes("c", &log)).unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        queue.synchronize().unwrap();
        let log = log.lock().unwrap().clone();
        let place = |name| log.iter().position(|other| *other == name).unwrap();
        assert_eq!(log.len(), 5, "{log:?}");
        assert!(place("a1") < place("a2") && place("b1") < place("b2"), "{log:?}");
        queue.close();
    });
}

#[test]
fn a_failure_of_work_at_once_is_reported_once() {
    explore(|| {
        let queue = threaded(device().0);
        let other = queue.clone();
        let thread = thread::spawn(move || {
            launch(&other, || Err(BackendError::other("on purpose")));
            is(other.synchronize(), "on purpose")
        });
        queue.accept(succeeds()).unwrap();
        let reported = is(queue.synchronize(), "on purpose") + thread.join().unwrap();
        assert_eq!(reported, 1);
        queue.close();
    });
}
