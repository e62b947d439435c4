//! One piece of work of a stream, the [`Route`] by which it is done, and how a thread does it: by blocking
//! calls to a driver. The queue itself submits work to a driver's queue.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use entry_points::message::panic_message;

use crate::backend::{
    BackendError, Completion, EventOptions, FillPattern, HostBuffer, Launch, Span, StreamDriver,
    is_any_window_open,
};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::activity;
use crate::runtime::activity::{Activity, Clock, Id, Place, Work};
use crate::runtime::at_once::{AtOnce, SHORT_COPY};
use crate::runtime::isolation::drop_isolated;
use crate::runtime::open_device::{KeptMemory, OpenDevice};
use crate::runtime::outcome::Outcome;
use crate::runtime::point::Point;
use crate::runtime::transfer::Between;
use crate::runtime::{device_use, transfer};

/// A piece of work whose arguments are checked. It owns everything that it uses.
pub(crate) enum Operation {
    Write { source: Arc<HostBuffer>, destination: Span },
    Read { source: Span, destination: HostBuffer, read: QueuedRead },
    Copy { from: &'static OpenDevice, source: Span, destination: Span },
    Fill { destination: Span, pattern: FillPattern },
    Call(Box<dyn FnOnce() + Send>),
    Launch { spans: Vec<Option<Span>>, name: Option<&'static str>, kernel: Kernel },
    Record { event: Arc<Point>, options: EventOptions },
    Wait(Arc<Point>),
}

/// Both ends of a read: one for the waiting thread, one for the driver that does it.
///
/// If it is dropped before it is done, the waiting end gets an error.
pub(crate) struct QueuedRead {
    outcome: Arc<Outcome>,
    completion: Completion,
}

impl QueuedRead {
    pub(crate) fn new(outcome: &Arc<Outcome>) -> Self {
        let outcome = Arc::clone(outcome);
        Self { completion: Completion::new(outcome.clone()), outcome }
    }

    pub(crate) fn outcome(&self) -> &Arc<Outcome> {
        &self.outcome
    }

    /// The waiting end, and the driver's.
    pub(crate) fn into_parts(self) -> (Arc<Outcome>, Completion) {
        (self.outcome, self.completion)
    }

    /// Finishes the read instead of a driver.
    fn finish(self, result: Result<HostBuffer, DeviceError>) {
        self.outcome.set(result);
        self.completion.disarm();
    }
}

pub(crate) type Kernel = Box<dyn FnOnce(&Launch<'_>) -> Result<(), BackendError> + Send>;

/// Records that a piece of work is enqueued in a stream. Returns its number.
#[cold]
pub(crate) fn enqueued(device: Device, stream: Id, what: Work) -> Option<Id> {
    let work = activity::next_id()?;
    activity::record(Some(device), Some(stream), Activity::Enqueued { work, what });
    Some(work)
}

/// Records that a piece of work has ended, if it has a number.
#[inline]
pub(crate) fn ended(device: Device, stream: Id, id: Option<Id>, clock: Clock, outcome: activity::Outcome) {
    if let Some(work) = id {
        activity::record(Some(device), Some(stream), Activity::Ended { work, clock, outcome });
    }
}

/// Bytes of a device, for observers.
pub(crate) fn place(span: &Span) -> Place {
    let allocation = span.allocation();
    let device = allocation.owner().device();
    Place { device, allocation: Id::new(allocation.number()), offset: span.offset() }
}

pub(crate) fn copy_work(source: &Span, destination: &Span) -> Work {
    Work::Copy { bytes: source.len(), from: place(source), to: place(destination) }
}

pub(crate) fn fill_work(destination: &Span) -> Work {
    Work::Fill { bytes: destination.len(), to: place(destination) }
}

/// The way to do a piece of work, decided when its turn comes.
#[derive(Clone, Copy)]
pub(crate) enum Route {
    /// In the driver's queue.
    Queue,
    /// In the driver's queue, or by the thread if the driver does not support this work.
    QueueOrThread,
    /// At once, on the thread that enqueues it, with blocking calls: the driver has no queues, all earlier
    /// work is done, this work is short, and the thread has no windows open, with which it could not wait for
    /// others.
    AtOnce,
    /// By the stream's thread, with blocking calls, when all work before is done.
    Thread,
}

/// What follows from a route. Each function names all routes, so that the compiler asks about a new one.
impl Route {
    /// Whether the thread that enqueues the work does it.
    #[inline]
    pub(crate) fn is_at_once(self) -> bool {
        match self {
            Self::AtOnce => true,
            Self::Queue | Self::QueueOrThread | Self::Thread => false,
        }
    }

    /// Whether the driver gets the work first, and has to be flushed after it.
    #[inline]
    pub(crate) fn is_submitted(self) -> bool {
        match self {
            Self::Queue | Self::QueueOrThread => true,
            Self::AtOnce | Self::Thread => false,
        }
    }

    /// Whether the driver may leave the work to the thread.
    #[inline]
    pub(crate) fn may_be_left(self) -> bool {
        match self {
            Self::QueueOrThread => true,
            Self::Queue | Self::AtOnce | Self::Thread => false,
        }
    }
}

impl Operation {
    /// The name of the work in errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Write { .. } => "write",
            Self::Read { .. } => "read",
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::Call(_) => "host call",
            Self::Launch { .. } => "launch",
            Self::Record { .. } => "record",
            Self::Wait(_) => "wait for an event",
        }
    }

    /// What it is, for observers.
    #[cold]
    pub(crate) fn work(&self) -> Work {
        match self {
            Self::Write { source, destination } => {
                Work::Write { bytes: source.len(), to: place(destination) }
            }
            Self::Read { source, .. } => Work::Read { bytes: source.len(), from: place(source) },
            Self::Copy { source, destination, .. } => copy_work(source, destination),
            Self::Fill { destination, .. } => fill_work(destination),
            Self::Call(_) => Work::HostCall,
            Self::Launch { spans, name, .. } => Work::Launch { kernel: *name, buffers: spans.len() },
            Self::Record { .. } => Work::Record,
            Self::Wait(event) => Work::WaitForEvent { event: event.id() },
        }
    }

    /// Whether the work ends by itself, whatever the program does meanwhile. A host call may wait for any
    /// thread of the program, and so may the work before an event.
    pub(crate) fn ends_by_itself(&self) -> bool {
        !matches!(self, Self::Call(_) | Self::Wait(_))
    }

    /// Adds the memory of a device that the work uses.
    pub(crate) fn add_memory(&self, device: &OpenDevice, memory: &mut Vec<KeptMemory>) {
        let mut add = |span: &Span| memory.extend(KeptMemory::of(span, device));
        match self {
            Self::Write { destination, .. } | Self::Fill { destination, .. } => add(destination),
            Self::Read { source, .. } => add(source),
            Self::Copy { source, destination, .. } => {
                add(source);
                add(destination);
            }
            Self::Launch { spans, .. } => spans.iter().flatten().for_each(add),
            Self::Call(_) | Self::Record { .. } | Self::Wait(_) => {}
        }
    }

    /// Skips the work, because earlier work failed with `error`. Its reads and events return that error. What
    /// a program's closure owns is dropped as in a host call, on whatever thread: it may panic, and may not
    /// use devices, as the caller may hold a lock of the queue.
    pub(crate) fn skip(self, device: Device, error: DeviceError) {
        device_use::forbid(|| match self {
            Self::Read { read, .. } => read.finish(Err(error)),
            Self::Record { event, .. } => event.fail(error),
            other => drop_isolated(device, other),
        });
    }

    /// Does the work by blocking calls. It releases everything that it owns before it returns.
    pub(crate) fn perform(self, device: &'static OpenDevice) -> Result<(), DeviceError> {
        match self {
            Self::Write { source, destination } => {
                device.call("write", |driver| driver.write(&destination, &source))
            }
            Self::Read { source, mut destination, read } => {
                // From here on a failure is the queue's failure, and is reported in any case.
                read.outcome.accept(0, None)?;
                let result = device.call("read", |driver| driver.read(&source, &mut destination));
                drop(source);
                read.finish(result.clone().map(|()| destination));
                result
            }
            Self::Copy { from, source, destination } => transfer::copy(from, &source, device, &destination),
            Self::Fill { destination, pattern } => transfer::fill(device, &destination, &pattern),
            Self::Call(call) => call_host(device, call),
            Self::Launch { spans, kernel, .. } => perform_launch(device, &spans, kernel),
            Self::Record { event, .. } => {
                event.reach();
                Ok(())
            }
            Self::Wait(event) => event.synchronize(),
        }
    }

    /// The route of the work, now that it is its turn.
    #[inline]
    pub(crate) fn route(&self, device: &'static OpenDevice, has_driver_queue: bool) -> Route {
        if !has_driver_queue {
            let is_at_once = self.is_short(device.at_once()) && !is_any_window_open();
            return if is_at_once { Route::AtOnce } else { Route::Thread };
        }
        match self {
            Self::Call(_) => Route::Thread,
            Self::Copy { from, .. } => match Between::new(from, device) {
                Between::OneDevice => Route::Queue,
                Between::Peers => Route::QueueOrThread,
                Between::Backends => Route::Thread,
            },
            Self::Wait(event) => {
                let of_one_backend = event.open_device().device().backend() == device.device().backend();
                let has_begun = || event.submitted().is_some_and(|event| event.has_begun());
                if of_one_backend && has_begun() { Route::QueueOrThread } else { Route::Thread }
            }
            _ => Route::Queue,
        }
    }

    /// Whether the work takes less time than handing it to another thread, and waits for nothing.
    #[inline]
    fn is_short(&self, at_once: AtOnce) -> bool {
        let is_short_copy = |span: &Span| span.len() <= SHORT_COPY && span.is_host_memory();
        match self {
            // A short launch never becomes an operation: `Queue::launch`.
            Self::Call(_) | Self::Wait(_) | Self::Launch { .. } => false,
            _ if at_once == AtOnce::Never => false,
            Self::Record { .. } => true,
            Self::Write { destination: span, .. }
            | Self::Read { source: span, .. }
            | Self::Fill { destination: span, .. } => is_short_copy(span),
            Self::Copy { source, destination, .. } => is_short_copy(source) && is_short_copy(destination),
        }
    }

    /// If this is a wait for an event, makes the work before that event begin. A driver waits in its queue
    /// for no other events.
    ///
    /// The caller does not hold `submitting`, as this calls another queue of the driver.
    pub(crate) fn begin_awaited(&self) {
        // In a fork, a thread that does not exist there may hold a lock of the event.
        if let Self::Wait(event) = self
            && event.open_device().is_of_this_process()
        {
            event.begin();
        }
    }
}

fn call_host(device: &'static OpenDevice, call: Box<dyn FnOnce() + Send>) -> Result<(), DeviceError> {
    device.check("host call")?;
    let called = catch_unwind(AssertUnwindSafe(|| device_use::forbid(call)));
    called.map_err(|panic| {
        let error = BackendError::other(format_args!("it panicked: {}", panic_message(panic)));
        DeviceError::Call { device: device.device(), call: "host call", error }
    })
}

/// Runs a kernel, which finishes its work before it returns.
pub(crate) fn perform_launch(
    device: &'static OpenDevice,
    spans: &[Option<Span>],
    kernel: impl FnOnce(&Launch<'_>) -> Result<(), BackendError>,
) -> Result<(), DeviceError> {
    let (launched, kept) = launch(device, spans, kernel, None);
    if !kept.is_empty() {
        // A program's values: their `drop` could wait for this thread's own stream.
        device_use::forbid(|| drop_isolated(device.device(), kept));
    }
    device.announce_loss();
    launched
}

/// Runs a kernel. Returns what it has kept for the work that it has submitted.
pub(crate) fn launch(
    device: &'static OpenDevice,
    spans: &[Option<Span>],
    kernel: impl FnOnce(&Launch<'_>) -> Result<(), BackendError>,
    stream: Option<&dyn StreamDriver>,
) -> (Result<(), DeviceError>, Vec<Box<dyn Any + Send>>) {
    let mut kept = Vec::new();
    let launched = device.call_in_turn("launch", |driver| {
        let launch = Launch::new(device, spans, driver, stream);
        // Native work that a kernel submitted before it panicked may still use the values that it has kept.
        let launched = catch_unwind(AssertUnwindSafe(|| device_use::forbid(|| kernel(&launch))));
        kept = launch.into_kept();
        if let Some(stream) = stream {
            stream.launched();
        }
        launched.unwrap_or_else(|panic| {
            Err(BackendError::other(format_args!("the kernel panicked: {}", panic_message(panic))))
        })
    });
    (launched, kept)
}
