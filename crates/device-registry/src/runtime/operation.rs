//! One piece of work of a stream, and the two ways to do it: by blocking calls to a driver, one after the
//! other, or in a queue of the driver.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use entry_points::message::panic_message;

use crate::backend::{
    BackendError, Completion, EventOptions, FillPattern, HostBuffer, Launch, Span, StreamDriver,
};
use crate::device::Device;
use crate::error::DeviceError;
use crate::runtime::isolation::drop_isolated;
use crate::runtime::open_device::OpenDevice;
use crate::runtime::outcome::Outcome;
use crate::runtime::point::Point;
use crate::runtime::queue::{Keep, Queue};
use crate::runtime::transfer::is_unsupported;
use crate::runtime::{device_use, transfer};

/// A piece of work whose arguments are checked. It owns everything that it uses.
pub(crate) enum Operation {
    Write { source: Arc<HostBuffer>, destination: Span },
    Read { source: Span, destination: HostBuffer, read: QueuedRead },
    Copy { from: &'static OpenDevice, source: Span, destination: Span },
    Fill { destination: Span, pattern: FillPattern },
    Call(Box<dyn FnOnce() + Send>),
    Launch { spans: Vec<Option<Span>>, kernel: Kernel },
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

    /// Finishes the read instead of a driver.
    fn finish(self, result: Result<HostBuffer, DeviceError>) {
        self.outcome.set(result);
        self.completion.disarm();
    }
}

pub(crate) type Kernel = Box<dyn FnOnce(&Launch<'_>) -> Result<(), BackendError> + Send>;

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

    /// Skips the work, because earlier work failed with `error`. Its reads and events return that error.
    pub(crate) fn skip(self, device: Device, error: DeviceError) {
        match self {
            Self::Read { read, .. } => read.finish(Err(error)),
            Self::Record { event, .. } => event.fail(error),
            // A program's closure may own a value whose `drop` panics.
            other => drop_isolated(device, other),
        }
    }

    /// Does the work by blocking calls. It releases everything that it owns before it returns.
    pub(crate) fn perform(self, device: &'static OpenDevice) -> Result<(), DeviceError> {
        match self {
            Self::Write { source, destination } => {
                device.call("write", |driver| driver.write(&destination, &source))
            }
            Self::Read { source, mut destination, read } => {
                // From here on a failure is the queue's failure, and is reported in any case.
                read.outcome.accept(0)?;
                let result = device.call("read", |driver| driver.read(&source, &mut destination));
                drop(source);
                read.finish(result.clone().map(|()| destination));
                result
            }
            Self::Copy { from, source, destination } => transfer::copy(from, &source, device, &destination),
            Self::Fill { destination, pattern } => transfer::fill(device, &destination, &pattern),
            Self::Call(call) => call_host(device, call),
            Self::Launch { spans, kernel } => {
                let mut kept = Vec::new();
                let launched = launch(device, &spans, kernel, None, &mut kept);
                // A program's values: their `drop` could wait for this thread's own stream.
                device_use::forbid(|| drop_isolated(device.device(), kept));
                device.announce_loss();
                launched
            }
            Self::Record { event, .. } => {
                event.reach();
                Ok(())
            }
            Self::Wait(event) => event.synchronize(),
        }
    }

    /// Whether a driver's queue may be able to do the work, so that it can be submitted at once. If the queue
    /// turns out not to be able to, [`submit`](Self::submit) returns the work.
    pub(crate) fn is_submittable(&self, device: &'static OpenDevice) -> bool {
        match self {
            Self::Call(_) => false,
            Self::Copy { from, .. } => from.device().backend() == device.device().backend(),
            Self::Wait(event) => {
                event.open_device().device().backend() == device.device().backend()
                    && event.submitted().is_some_and(|event| event.has_begun())
            }
            _ => true,
        }
    }

    /// Of a wait for an event: makes the work before the event begin. A driver waits in its queue for no
    /// other events.
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

    /// Submits the work to a driver's queue. Returns the work itself if only the host can do it, after all
    /// work that was submitted before.
    ///
    /// `keep` gets all values that must stay alive until the queue has finished, even after an error: a part
    /// of refused work may have begun. The queue had this many `failures` when the work was not skipped.
    pub(crate) fn submit(
        self,
        queue: &Arc<Queue>,
        stream: &dyn StreamDriver,
        keep: &mut Vec<Keep>,
        failures: u64,
    ) -> Result<Option<Self>, DeviceError> {
        let device = queue.device();
        match self {
            Self::Write { source, destination } => {
                let written = device.call_in_turn("write", |_| stream.write(&destination, &source));
                keep.extend([Keep::Host(source), destination.into()]);
                written?;
            }
            Self::Read { source, destination, read: QueuedRead { outcome, completion } } => {
                let read = device.call_in_turn("read", |_| stream.read(&source, destination, completion));
                keep.push(source.into());
                if let Err(error) = read {
                    outcome.set(Err(error.clone()));
                    return Err(error);
                }
                outcome.accept(queue.count_read())?;
            }
            Self::Copy { from, source, destination } => {
                let within = std::ptr::eq(from, device);
                let copied = if within {
                    device.call_in_turn("copy", |_| stream.copy(&source, &destination))
                } else {
                    from.check("copy").and_then(|()| {
                        device.call_in_turn("copy from a peer", |_| {
                            stream.copy_from_peer(&source, &destination)
                        })
                    })
                };
                if !within && is_unsupported(&copied) {
                    return Ok(Some(Self::Copy { from, source, destination }));
                }
                keep.extend([source.into(), destination.into()]);
                copied?;
            }
            Self::Fill { destination, pattern } => {
                let mut filled = device.call_in_turn("fill", |_| stream.fill(&destination, &pattern));
                if is_unsupported(&filled) {
                    filled = submit_fill(device, stream, &destination, &pattern, keep);
                }
                keep.push(destination.into());
                filled?;
            }
            Self::Launch { spans, kernel } => {
                let launched = launch(device, &spans, kernel, Some(stream), keep);
                keep.extend(spans.into_iter().flatten().map(Keep::from));
                launched?;
            }
            Self::Record { event, options } => {
                match device.call_in_turn("record", |_| stream.record(&options)) {
                    // A driver does not fail the events behind a read whose failure the core has.
                    Ok(recorded) => match queue.failed_since(failures) {
                        None => event.submit(queue.recorded(recorded)),
                        Some(error) => {
                            event.fail(error);
                            drop_isolated(device.device(), recorded);
                        }
                    },
                    Err(error) => {
                        event.fail(error.clone());
                        return Err(error);
                    }
                }
            }
            Self::Wait(event) => {
                event.open_device().check("wait for an event")?;
                let Some(recorded) = event.submitted() else {
                    return Ok(Some(Self::Wait(event)));
                };
                let waits = device.call_in_turn("wait for an event", |_| stream.wait_event(recorded.event()));
                if is_unsupported(&waits) {
                    return Ok(Some(Self::Wait(event)));
                }
                keep.push(Keep::Value(Box::new(event)));
                waits?;
            }
            call @ Self::Call(_) => return Ok(Some(call)),
        }
        Ok(None)
    }
}

/// Submits a fill as a write of its first part and copies that double it.
fn submit_fill(
    device: &'static OpenDevice,
    stream: &dyn StreamDriver,
    destination: &Span,
    pattern: &FillPattern,
    keep: &mut Vec<Keep>,
) -> Result<(), DeviceError> {
    let plan = transfer::FillPlan::new(device, destination, pattern);
    let [first, tail] = [plan.first, plan.tail].map(|bytes| Arc::new(HostBuffer::from(bytes)));
    keep.extend([&first, &tail].map(|bytes| Keep::Host(Arc::clone(bytes))));
    device.call_in_turn("fill", |_| {
        stream.write(&destination.part(0..first.len()), &first)?;
        for (from, to) in transfer::doublings(first.len(), destination.len() - tail.len()) {
            stream.copy(&destination.part(from), &destination.part(to))?;
        }
        if tail.is_empty() {
            Ok(())
        } else {
            stream.write(&destination.part(destination.len() - tail.len()..destination.len()), &tail)
        }
    })
}

fn call_host(device: &'static OpenDevice, call: Box<dyn FnOnce() + Send>) -> Result<(), DeviceError> {
    device.check("host call")?;
    let called = catch_unwind(AssertUnwindSafe(|| device_use::forbid(call)));
    called.map_err(|panic| {
        let error = BackendError::other(format_args!("it panicked: {}", panic_message(panic)));
        DeviceError::Call { device: device.device(), call: "host call", error }
    })
}

fn launch(
    device: &'static OpenDevice,
    spans: &[Option<Span>],
    kernel: Kernel,
    stream: Option<&dyn StreamDriver>,
    keep: &mut Vec<Keep>,
) -> Result<(), DeviceError> {
    device.call_in_turn("launch", |driver| {
        let launch = Launch::new(device, spans, driver, stream);
        // Native work that a kernel submitted before it panicked may still use the values that it has kept.
        let launched = catch_unwind(AssertUnwindSafe(|| device_use::forbid(|| kernel(&launch))));
        keep.extend(launch.into_kept().into_iter().map(Keep::Value));
        if let Some(stream) = stream {
            stream.launched();
        }
        launched.unwrap_or_else(|panic| {
            Err(BackendError::other(format_args!("the kernel panicked: {}", panic_message(panic))))
        })
    })
}
