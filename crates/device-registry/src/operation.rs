//! One piece of work of a stream, and the two ways to do it: by a driver's functions that block, one after the other,
//! or by a queue of the driver's own.

use std::sync::Arc;

use crate::open_device::{OpenDevice, drop_isolated, isolated};
use crate::pending::Completion;
use crate::transfer::{self, is_unsupported};
use crate::{
    BackendError, Device, DeviceError, Event, EventOptions, HostBuffer, Pattern, Span, StreamDriver,
    host_call,
};

/// A piece of work that was checked. It owns all that it touches.
pub(crate) enum Operation {
    Write { source: Arc<HostBuffer>, destination: Span },
    Read { source: Span, destination: HostBuffer, completion: Completion<HostBuffer> },
    Copy { source: Span, destination: Span },
    Fill { destination: Span, pattern: Pattern },
    Call(Box<dyn FnOnce() + Send>),
    Launch { spans: Vec<Option<Span>>, kernel: Kernel },
    Record { event: Event, options: EventOptions },
    Wait(Event),
}

pub(crate) type Kernel = Box<dyn FnOnce(&Launch<'_>) -> Result<(), BackendError> + Send>;

/// What a kernel is given: where it runs, and its buffers.
pub struct Launch<'a> {
    device: Device,
    spans: &'a [Option<Span>],
    stream: Option<&'a dyn StreamDriver>,
}

impl Launch<'_> {
    /// The device that it is launched on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The buffers that it was launched with, in that order: each as memory and the range in it, or `None` if it has
    /// no bytes.
    #[must_use]
    pub fn spans(&self) -> &[Option<Span>] {
        self.spans
    }

    /// The driver's own stream, to submit native work to: where the device has queues of its own, the kernel is called
    /// when it is its turn to be submitted. Elsewhere it is called when all work before it is done, and is to be done
    /// when it returns.
    ///
    /// # Errors
    ///
    /// [`BackendError::unsupported`] if the stream is the core's, or of another type.
    pub fn stream_as<S: StreamDriver>(&self) -> Result<&S, BackendError> {
        let stream = self.stream.and_then(|stream| {
            let stream: &dyn std::any::Any = stream;
            stream.downcast_ref()
        });
        stream.ok_or_else(|| {
            let name = std::any::type_name::<S>();
            BackendError::unsupported(format_args!("native work: the stream is no `{name}`"))
        })
    }
}

/// What has to stay alive while a driver's queue works on it. It is only ever dropped.
pub(crate) enum Keep {
    Spans { _held: Vec<Span> },
    Host { held: Arc<HostBuffer>, _destination: Span },
}

impl Operation {
    /// What is done, as errors say it.
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

    /// Does not do it, because earlier work failed. What it would have returned is that error.
    pub(crate) fn skip(self, device: Device, error: DeviceError) {
        match self {
            Self::Read { completion, .. } => completion.finish_with(Err(error)),
            Self::Record { event, .. } => event.fail(error),
            // A closure of a user's, whose values may have a `drop` that panics.
            other => drop_isolated(device, other),
        }
    }

    /// Does it by functions that block. When it returns, it holds nothing any more.
    pub(crate) fn perform(self, device: &'static OpenDevice) -> Result<(), DeviceError> {
        match self {
            Self::Write { source, destination } => {
                device.call("write", |driver| driver.write(&destination, &source))
            }
            Self::Read { source, mut destination, completion } => {
                let result = device.call("read", |driver| driver.read(&source, &mut destination));
                drop(source);
                completion.finish_with(result.clone().map(|()| destination));
                result
            }
            Self::Copy { source, destination } => transfer::copy(&source, &destination),
            Self::Fill { destination, pattern } => transfer::fill(&destination, &pattern),
            Self::Call(call) => call_host(device, call),
            Self::Launch { spans, kernel } => launch(device, &spans, kernel, None),
            Self::Record { event, .. } => {
                event.reach();
                Ok(())
            }
            Self::Wait(event) => event.synchronize(),
        }
    }

    /// Whether a driver's queue has a way to do it, so that it can be submitted at once. Where that turns out to be
    /// wrong, [`submit`](Self::submit) gives it back.
    pub(crate) fn is_submittable(&self, device: &'static OpenDevice) -> bool {
        match self {
            Self::Call(_) => false,
            Self::Copy { source, .. } => source.device().device().backend() == device.device().backend(),
            Self::Wait(event) => {
                event.open_device().device().backend() == device.device().backend()
                    && event.submitted().is_some()
            }
            _ => true,
        }
    }

    /// Submits it to a driver's queue. Returns what has to be kept alive until it is done; or the work itself, if only
    /// the host can do it, once all that was submitted before is done.
    pub(crate) fn submit(
        self,
        device: &'static OpenDevice,
        stream: &dyn StreamDriver,
    ) -> Result<Submitted, DeviceError> {
        let kept = |spans: Vec<Span>| Ok(Submitted::Kept(Keep::Spans { _held: spans }));
        match self {
            Self::Write { source, destination } => {
                device.call("write", |_| stream.write(&destination, &source))?;
                Ok(Submitted::Kept(Keep::Host { held: source, _destination: destination }))
            }
            Self::Read { source, destination, completion } => {
                let answer = Arc::clone(completion.shared());
                device.call("read", |_| {
                    stream.read(&source, destination, completion)?;
                    stream.flush()
                })?;
                answer.accept()?;
                kept(vec![source])
            }
            Self::Copy { source, destination } => {
                let copied = match std::ptr::eq(source.device(), device) {
                    true => device.call("copy", |_| stream.copy(&source, &destination)),
                    false => {
                        device.call("copy from a peer", |_| stream.copy_from_peer(&source, &destination))
                    }
                };
                match is_unsupported(&copied) && !std::ptr::eq(source.device(), device) {
                    true => Ok(Submitted::ForTheHost(Self::Copy { source, destination })),
                    false => copied.and_then(|()| kept(vec![source, destination])),
                }
            }
            Self::Fill { destination, pattern } => {
                let filled = device.call("fill", |_| stream.fill(&destination, &pattern));
                match is_unsupported(&filled) {
                    true => submit_fill(device, stream, destination, &pattern),
                    false => filled.and_then(|()| kept(vec![destination])),
                }
            }
            Self::Launch { spans, kernel } => {
                launch(device, &spans, kernel, Some(stream))?;
                kept(spans.into_iter().flatten().collect())
            }
            Self::Record { event, options } => {
                let recorded = device.call("record", |_| {
                    let recorded = stream.record(&options)?;
                    stream.flush()?;
                    Ok(recorded)
                });
                match recorded {
                    Ok(recorded) => event.submit(recorded),
                    Err(error) => {
                        event.fail(error.clone());
                        return Err(error);
                    }
                }
                kept(Vec::new())
            }
            Self::Wait(event) => {
                let Some(native) = event.submitted() else {
                    return Ok(Submitted::ForTheHost(Self::Wait(event)));
                };
                let waits = device.call("wait for an event", |_| stream.wait(&*native));
                match is_unsupported(&waits) {
                    true => Ok(Submitted::ForTheHost(Self::Wait(event))),
                    false => waits.and_then(|()| kept(Vec::new())),
                }
            }
            call @ Self::Call(_) => Ok(Submitted::ForTheHost(call)),
        }
    }
}

/// What became of work that was to be submitted to a driver's queue.
pub(crate) enum Submitted {
    /// It is in the queue, which needs this.
    Kept(Keep),
    /// The queue has no way to do it.
    ForTheHost(Operation),
}

/// A fill by a part that is written and doubled by copies.
fn submit_fill(
    device: &'static OpenDevice,
    stream: &dyn StreamDriver,
    destination: Span,
    pattern: &Pattern,
) -> Result<Submitted, DeviceError> {
    let first = Arc::new(HostBuffer::from(transfer::first_part(&destination, pattern)));
    device.call("fill", |_| {
        stream.write(&destination.part(0..first.len()), &first)?;
        transfer::doublings(first.len(), destination.len())
            .try_for_each(|(from, to)| stream.copy(&destination.part(from), &destination.part(to)))
    })?;
    Ok(Submitted::Kept(Keep::Host { held: first, _destination: destination }))
}

fn call_host(device: &'static OpenDevice, call: Box<dyn FnOnce() + Send>) -> Result<(), DeviceError> {
    device.check("host call")?;
    let result = isolated(device.device(), "host call", || {
        host_call::run(call);
        Ok(())
    });
    // It was a user's code that panicked and not the backend's.
    result.map_err(|error| match error {
        DeviceError::Call { device, call, error } => {
            let message = error.message().replacen("the backend panicked", "it panicked", 1);
            DeviceError::Call { device, call, error: BackendError::other(message) }
        }
        other => other,
    })
}

fn launch(
    device: &'static OpenDevice,
    spans: &[Option<Span>],
    kernel: Kernel,
    stream: Option<&dyn StreamDriver>,
) -> Result<(), DeviceError> {
    let launch = Launch { device: device.device(), spans, stream };
    device.call("launch", |_| host_call::run(|| kernel(&launch)))
}
