//! Random programs, compared with what a plain sequential model says of them.
//!
//! A [draft](draw::Draft) is a list of numbers, which can be drawn at random and made smaller. [`Rules`](draw::Rules)
//! make a program of it: with the bytes that have to come of it, and with events where streams that touch the same
//! bytes are to wait for each other. It is [run](execute), and if it fails, the smallest that also fails is
//! [printed](print) as code. A fuzzer's [text](text) is a draft too.

mod draw;
mod execute;
mod hold;
mod print;
mod text;

use std::ops::Range;

use device_registry::Device;

pub(crate) use draw::{Kind, Rules};
pub(crate) use hold::{Settings, hold};
pub use text::run_program_of;

/// What is done, one after the other, and what has to come of it. Buffers, events and streams go by their numbers, in
/// the order in which they are made.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    devices: Vec<Device>,
    /// The device of each stream.
    streams: Vec<usize>,
    steps: Vec<Step>,
    /// Buffers that are there at the end, and what they hold.
    end: Vec<(usize, Vec<u8>)>,
}

/// Who does something: a stream when it is its turn, or the host at once, by a function that blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Host,
    Stream(usize),
}

#[derive(Clone, Debug)]
enum Step {
    /// Makes a buffer that holds [`bytes`](crate::context::bytes).
    Allocate {
        device: usize,
        len: usize,
        seed: u8,
    },
    /// Makes a buffer that is a part of another.
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
    /// A host call that takes a while.
    Call {
        stream: usize,
        micros: u64,
    },
    /// Makes an event.
    Record {
        stream: usize,
    },
    Wait {
        by: By,
        event: usize,
    },
}

impl Program {
    /// The streams that do something.
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
