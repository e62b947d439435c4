//! Random programs, compared with a sequential model.
//!
//! A [draft](draw::Draft) is a list of numbers, which can be drawn at random and shrunk.
//! [`Rules`](draw::Rules) make a program of it, with the bytes that the model expects, and with events
//! between streams that access the same bytes. The suite [runs](execute) the program. If it fails, the suite
//! [shrinks](random) it and [prints](print) the smallest program that fails as code. The [text](text) of a
//! fuzzer is a draft too.

mod draw;
mod execute;
mod print;
mod random;
mod text;

use std::ops::Range;

use device_registry::Device;

pub(crate) use draw::{Kind, Rules};
pub(crate) use random::{run_random, settings};
pub use text::run_program_of;

/// A sequence of steps, with the expected results. Buffers, events and streams have numbers, in the order of
/// their creation.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    devices: Vec<Device>,
    /// The device of each stream.
    streams: Vec<usize>,
    steps: Vec<Step>,
    /// The buffers at the end, and their expected bytes.
    end: Vec<(usize, Vec<u8>)>,
}

/// What executes a step: a stream, or a blocking call on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Host,
    Stream(usize),
}

#[derive(Clone, Debug)]
enum Step {
    /// Allocates a buffer, and writes [`bytes`](crate::context::bytes) to it.
    Allocate {
        device: usize,
        len: usize,
        seed: u8,
    },
    /// Makes a slice of a buffer.
    Slice {
        of: usize,
        range: Range<usize>,
    },
    Drop {
        buffer: usize,
    },
    Write {
        by: By,
        buffer: usize,
        at: usize,
        len: usize,
        seed: u8,
    },
    Fill {
        by: By,
        buffer: usize,
        range: Range<usize>,
        pattern: Vec<u8>,
    },
    Copy {
        by: By,
        from: usize,
        range: Range<usize>,
        to: usize,
        at: usize,
    },
    Read {
        by: By,
        buffer: usize,
        range: Range<usize>,
        expected: Vec<u8>,
    },
    /// Enqueues a host call that takes a while.
    Call {
        stream: usize,
        micros: u64,
    },
    /// Records an event.
    Record {
        stream: usize,
    },
    Wait {
        by: By,
        event: usize,
    },
}

impl Program {
    /// The streams with at least one step.
    fn used_streams(&self) -> impl Iterator<Item = usize> {
        let is_used = |&stream: &usize| {
            self.steps.iter().any(|step| match step {
                Step::Allocate { .. } | Step::Slice { .. } | Step::Drop { .. } => false,
                Step::Call { stream: by, .. } | Step::Record { stream: by } => *by == stream,
                Step::Write { by, .. }
                | Step::Fill { by, .. }
                | Step::Copy { by, .. }
                | Step::Read { by, .. }
                | Step::Wait { by, .. } => *by == By::Stream(stream),
            })
        };
        (0..self.streams.len()).filter(is_used)
    }
}
