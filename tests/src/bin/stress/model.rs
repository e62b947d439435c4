//! A thread's model of its own streams, buffers and reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device_registry::{Buffer, DeviceError, Event, Stream};

use crate::failure::{Identity, is_gone};
use crate::journal::StreamKey;
use crate::scene::Scene;

/// The calls of one stream: the number of the last one that ran.
#[derive(Default)]
pub(crate) struct Order(AtomicU64);

impl Order {
    /// The effect of the call with this number when it runs.
    pub(crate) fn pass(&self, number: u64) -> Result<(), String> {
        match self.0.fetch_max(number, Ordering::SeqCst) {
            before if before < number => Ok(()),
            before => Err(format!("call {number} of a stream ran behind call {before}")),
        }
    }

    pub(crate) fn has_passed(&self, number: u64) -> bool {
        self.0.load(Ordering::SeqCst) >= number
    }
}

/// A stream that only this thread enqueues work in.
pub(crate) struct Lane {
    pub(crate) key: StreamKey,
    /// Its place in the list of devices.
    pub(crate) device: usize,
    pub(crate) stream: Stream,
    pub(crate) order: Arc<Order>,
    /// How many calls were enqueued.
    pub(crate) calls: u64,
    /// The last of them that surely runs.
    pub(crate) sure_call: u64,
    /// The failures that the stream may have and that were not reported to this thread. If errors are
    /// private, the stream has the first of them.
    pub(crate) failed: Vec<Identity>,
    /// Calls of other streams that have run when the next call of this one runs.
    pub(crate) behind: Vec<(Arc<Order>, u64)>,
}

impl Lane {
    pub(crate) fn new(key: StreamKey, device: usize, stream: Stream) -> Self {
        Self {
            key,
            device,
            stream,
            order: Arc::default(),
            calls: 0,
            sure_call: 0,
            failed: Vec::new(),
            behind: Vec::new(),
        }
    }

    pub(crate) fn fails_with(&mut self, identities: &[Identity]) {
        for identity in identities {
            if !self.failed.contains(identity) {
                self.failed.push(*identity);
            }
        }
    }

    /// Whether all calls have run that have to when the stream's work is done.
    pub(crate) fn has_passed(&self) -> Result<(), String> {
        if self.order.has_passed(self.sure_call) {
            Ok(())
        } else {
            Err(format!("the work of {:?} is done, but its call {} did not run", self.key, self.sure_call))
        }
    }
}

/// An event, and what is known of the work before it.
#[derive(Clone)]
pub(crate) struct Mark {
    pub(crate) event: Event,
    /// The errors that it may have, as of its stream.
    pub(crate) failed: Vec<Identity>,
    /// A call that has run when the event is done and well.
    pub(crate) behind: (Arc<Order>, u64),
}

impl Mark {
    pub(crate) fn has_passed(&self) -> Result<(), String> {
        if self.behind.0.has_passed(self.behind.1) {
            Ok(())
        } else {
            Err(format!("an event is done, but call {} before it did not run", self.behind.1))
        }
    }
}

/// A buffer that only this thread's work touches.
pub(crate) struct Held {
    pub(crate) device: usize,
    pub(crate) buffer: Buffer,
    /// Its contents when all enqueued work is done, if they are known.
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) last: Last,
    /// Its last stream has come to it from another one since that last was known to be well: by a wait, which
    /// the stream skips if it has failed.
    pub(crate) moved: bool,
    /// Work that it was to come behind may still be under way, so that its contents will never be known
    /// again.
    pub(crate) spoiled: bool,
}

/// The work that the next use of a buffer has to wait for.
pub(crate) enum Last {
    Nothing,
    Lane(StreamKey),
    Mark(Mark),
}

/// The expected result of a read.
pub(crate) struct Expected {
    pub(crate) bytes: Option<Vec<u8>>,
    /// The failures for which it may have been skipped.
    pub(crate) failed: Vec<Identity>,
    /// Where it was enqueued, for messages.
    pub(crate) place: String,
}

impl Expected {
    /// Compares it with what was read.
    pub(crate) fn compare(&self, read: Result<&[u8], &DeviceError>, scene: &Scene) -> Result<(), String> {
        let sure = scene.weather.is_private();
        let expects_error = sure && !self.failed.is_empty();
        let place = &self.place;
        match read {
            Ok(_) if expects_error => {
                Err(format!("{place}: a read behind `{}` was done, and is to be skipped", self.failed[0]))
            }
            Ok(bytes) => match &self.bytes {
                Some(expected) if self.failed.is_empty() && bytes != expected => {
                    let at = bytes.iter().zip(expected).position(|(read, expected)| read != expected);
                    let at = at.unwrap_or(bytes.len().min(expected.len()));
                    Err(format!(
                        "{place}: wrong contents from byte {at} of {} on: expected {:?}…, found {:?}…",
                        expected.len(),
                        &expected[at..expected.len().min(at + 8)],
                        &bytes[at..bytes.len().min(at + 8)],
                    ))
                }
                _ => Ok(()),
            },
            Err(error) if is_gone(error) && scene.weather.takes_devices() => Ok(()),
            Err(error) => match Identity::of(error) {
                Some(found) if sure && self.failed.first() == Some(&found) => Ok(()),
                Some(found) if !sure && self.failed.contains(&found) => Ok(()),
                // A loss that came first may have been reported, and the rest have failed after that.
                Some(found) if scene.weather.takes_devices() && self.failed.contains(&found) => Ok(()),
                _ => {
                    Err(format!("{place}: a read failed, expected one of {:?}, found: {error}", self.failed))
                }
            },
        }
    }
}
