//! Options of allocations, streams and events.

/// Options of an allocation. More will be added.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AllocateOptions {
    /// The length in bytes, at least 1.
    pub len: usize,
}

impl AllocateOptions {
    /// Memory of `len` bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { len }
    }
}

/// Options of a stream.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StreamOptions {
    /// How urgent its work is.
    pub priority: Priority,
}

impl StreamOptions {
    /// A stream of normal priority.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how urgent its work is.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        Self { priority }
    }
}

/// How urgent the work of a stream is: a hint, which many devices do not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// It can wait for other streams.
    Low,
    /// As most.
    #[default]
    Normal,
    /// Before other streams.
    High,
}

/// Options of an event.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EventOptions {
    /// Whether it has a time, which may cost something.
    pub timed: bool,
}

impl EventOptions {
    /// An event without a time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An event with a time.
    #[must_use]
    pub fn timed(self) -> Self {
        Self { timed: true }
    }
}
