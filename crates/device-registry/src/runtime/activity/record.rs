//! The records that observers get, of a fixed size and without owned values.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::Priority;
use crate::device::Device;

/// What one thread of the program did, in order.
#[derive(Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The thread that made the records.
    pub thread: Arc<Thread>,
    /// The records.
    pub records: Vec<Record>,
    /// How many records of the thread were lost before these, because they came faster than the observers
    /// took them.
    pub lost: u64,
}

/// A thread that makes records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Thread {
    /// Its number, from 1 on, which no other thread of the process gets.
    pub number: u64,
    /// Its name, if it has one.
    pub name: Option<Box<str>>,
}

/// One thing that happened, and when.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Record {
    /// When it happened. The [`Clock`] of the activity says how exact that is.
    pub time: Instant,
    /// The device, with its index, or without one if a backend did it. `None` if the program did it itself.
    pub device: Option<Device>,
    /// The stream of the device, if it happened in one.
    pub stream: Option<Id>,
    /// The innermost [`span`](super::span) of the program that the thread was in.
    pub span: Option<Id>,
    /// What happened.
    pub activity: Activity,
}

/// The number of a piece of work, an allocation, a stream or a span. No two in a process have the same
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(NonZeroU64);

impl Id {
    /// The id with a number; `None` for 0.
    pub(crate) fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The number, which is not zero.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What happened.
///
/// A piece of queued work is [`Enqueued`](Self::Enqueued) by the program's thread,
/// [`Begun`](Self::Begun) and [`Ended`](Self::Ended); a blocking call is [`Called`](Self::Called) and has
/// [`Returned`](Self::Returned). The same [`Id`] connects the records of one piece.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Activity {
    /// A backend was loaded, or could not be.
    #[non_exhaustive]
    Loaded {
        /// How long that took.
        took: Duration,
        /// Whether it failed.
        failed: bool,
    },
    /// A device was opened, or could not be.
    #[non_exhaustive]
    Opened {
        /// How long that took.
        took: Duration,
        /// Whether it failed.
        failed: bool,
    },
    /// The device was closed.
    Closed,
    /// The device was lost.
    Lost,
    /// The device was reset.
    Reset,
    /// The record's stream was created.
    #[non_exhaustive]
    StreamCreated {
        /// Its priority.
        priority: Priority,
    },
    /// The stream of the record got a [label](crate::Stream::set_label), or had one when the observation
    /// began.
    #[non_exhaustive]
    StreamLabeled {
        /// The label.
        label: Name,
    },
    /// Memory of the device was allocated. The stream of the record is the one that it is
    /// [for](crate::Stream::allocate).
    #[non_exhaustive]
    Allocated {
        /// The number of the allocation.
        allocation: Id,
        /// Its length.
        bytes: usize,
        /// Whether it is memory that the core had kept after an earlier free.
        reused: bool,
        /// The device's memory afterwards.
        memory: MemoryInUse,
    },
    /// There was not enough memory.
    #[non_exhaustive]
    AllocationFailed {
        /// The length that was asked for.
        bytes: usize,
        /// The device's memory.
        memory: MemoryInUse,
    },
    /// Memory was freed: by the program and, if work has used it, by the device.
    #[non_exhaustive]
    Freed {
        /// The number of the allocation.
        allocation: Id,
        /// Its length.
        bytes: usize,
        /// The device's memory afterwards.
        memory: MemoryInUse,
    },
    /// A piece of work was enqueued in the stream of the record.
    #[non_exhaustive]
    Enqueued {
        /// The number of the piece.
        work: Id,
        /// What it is.
        what: Work,
    },
    /// The device, or the stream's thread, has begun a piece of work. Work in a driver's queue has no such
    /// record without [device times](super::Observer::wants_device_times).
    #[non_exhaustive]
    Begun {
        /// The number of the piece.
        work: Id,
        /// Where the time comes from.
        clock: Clock,
    },
    /// A piece of work has ended.
    #[non_exhaustive]
    Ended {
        /// The number of the piece.
        work: Id,
        /// Where the time comes from.
        clock: Clock,
        /// What came of it.
        outcome: Outcome,
    },
    /// The thread has begun a call that blocks.
    #[non_exhaustive]
    Called {
        /// The number of the call.
        call: Id,
        /// What it does.
        what: Work,
    },
    /// The call has returned.
    #[non_exhaustive]
    Returned {
        /// The number of the call.
        call: Id,
        /// Whether it failed.
        failed: bool,
    },
    /// The thread has entered a [`span`](super::span). The record's own `span` is the one around it.
    #[non_exhaustive]
    Entered {
        /// The number of the span.
        span: Id,
        /// Its name.
        name: Name,
    },
    /// The thread has left a span.
    #[non_exhaustive]
    Left {
        /// The number of the span.
        span: Id,
    },
}

/// A piece of work, or a call that blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// A copy from the host.
    #[non_exhaustive]
    Write {
        /// The number of bytes.
        bytes: usize,
        /// Where they go.
        to: Place,
    },
    /// A copy to the host.
    #[non_exhaustive]
    Read {
        /// The number of bytes.
        bytes: usize,
        /// Where they come from.
        from: Place,
    },
    /// A copy within a device or between two.
    #[non_exhaustive]
    Copy {
        /// The number of bytes.
        bytes: usize,
        /// Where they come from.
        from: Place,
        /// Where they go.
        to: Place,
    },
    /// A fill with a pattern.
    #[non_exhaustive]
    Fill {
        /// The number of bytes.
        bytes: usize,
        /// Which are filled.
        to: Place,
    },
    /// A kernel.
    #[non_exhaustive]
    Launch {
        /// [Its name](crate::LaunchOptions::named), if it has one.
        kernel: Option<&'static str>,
        /// The number of its buffers.
        buffers: usize,
    },
    /// A [call of a function on the host](crate::Stream::host_call), in the order of the stream.
    HostCall,
    /// The recording of an event.
    Record,
    /// A wait of the stream for an event.
    #[non_exhaustive]
    WaitForEvent {
        /// The number of the work that records the event; `None` if it is older than the observation.
        event: Option<Id>,
    },
    /// A wait of a thread of the host.
    Wait(WaitFor),
}

impl Work {
    /// The number of bytes that it copies or fills.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        match *self {
            Self::Write { bytes, .. }
            | Self::Read { bytes, .. }
            | Self::Copy { bytes, .. }
            | Self::Fill { bytes, .. } => Some(bytes),
            Self::Launch { .. }
            | Self::HostCall
            | Self::Record
            | Self::WaitForEvent { .. }
            | Self::Wait(_) => None,
        }
    }
}

/// Its name: the kernel's for a launch, and `write`, `read`, `copy`, `fill` or a few words for the others.
impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write { .. } => "write",
            Self::Read { .. } => "read",
            Self::Copy { .. } => "copy",
            Self::Fill { .. } => "fill",
            Self::Launch { kernel, .. } => kernel.unwrap_or("launch"),
            Self::HostCall => "host call",
            Self::Record => "record",
            Self::WaitForEvent { .. } => "wait for an event",
            Self::Wait(what) => match what {
                WaitFor::Stream(_) => "synchronize a stream",
                WaitFor::Device => "synchronize a device",
                WaitFor::Event(_) => "synchronize an event",
                WaitFor::Read => "wait for a read",
                WaitFor::Memory => "wait for memory",
            },
        })
    }
}

/// What a thread of the host waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitFor {
    /// All work of a stream.
    Stream(Id),
    /// All work of the device.
    Device,
    /// An event, by the number of the work that records it; `None` if it is older than the observation.
    Event(Option<Id>),
    /// The bytes of a read.
    Read,
    /// Work of another stream that still uses new memory.
    Memory,
}

/// Bytes in memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The device, with its index.
    pub device: Device,
    /// The allocation; `None` if it is older than the observation.
    pub allocation: Option<Id>,
    /// The number of bytes before them in the memory, which may contain other allocations.
    pub offset: usize,
}

/// How much memory of a device is in use: two values of [`MemoryStatistics`](crate::MemoryStatistics).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInUse {
    /// The number of bytes that are allocated.
    pub allocated: u64,
    /// The number of bytes that the device holds for the program, including bytes kept for later allocations.
    pub reserved: u64,
}

/// Where the time of a record comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// The host's clock, when it happened.
    Host,
    /// The host's clock, when the core noticed it: work in a driver's queue may have ended any time before.
    Noticed,
    /// The device's clock, converted to the host's.
    #[non_exhaustive]
    Device {
        /// By how much the conversion may be wrong.
        error: Duration,
    },
}

/// What came of a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done, as far as the core knows: a driver's queue reports failures later, if at all, as failures
    /// of the stream.
    Done,
    /// It failed, or was refused.
    Failed,
    /// It did not run, because earlier work of the stream had failed.
    Skipped,
}

/// A short text that a record contains: a label or the name of a span.
///
/// It has at most [`MAX_LEN`](Self::MAX_LEN) bytes. A longer text is cut, and ends with `…`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    len: u8,
    bytes: [u8; Name::MAX_LEN],
}

impl Name {
    /// The greatest number of bytes.
    pub const MAX_LEN: usize = 63;

    /// The text, cut to the greatest length.
    #[must_use]
    pub fn new(text: &str) -> Self {
        const CUT: &str = "…";

        let mut name = Self { len: 0, bytes: [0; Self::MAX_LEN] };
        if text.len() <= Self::MAX_LEN {
            name.push(text);
        } else {
            let end = text.floor_char_boundary(Self::MAX_LEN - CUT.len());
            name.push(&text[..end]);
            name.push(CUT);
        }
        name
    }

    /// Adds a text for which there is room.
    fn push(&mut self, text: &str) {
        let start = usize::from(self.len);
        self.bytes[start..start + text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len() as u8;
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("it consists of whole characters")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_cut_between_characters() {
        assert_eq!(&*Name::new("epoch 3"), "epoch 3");
        assert_eq!(&*Name::new(&"x".repeat(63)), "x".repeat(63));
        assert_eq!(&*Name::new(&"x".repeat(64)), "x".repeat(60) + "…");
        assert_eq!(&*Name::new(&"ä".repeat(40)), "ä".repeat(30) + "…");
        assert_eq!(&*Name::new(""), "");
    }

    #[test]
    fn a_record_has_at_most_two_lines_of_a_cache() {
        assert!(size_of::<Record>() <= 128 + 16, "{}", size_of::<Record>());
    }
}
