//! Options of allocations, streams, events and launches.

/// Options of an allocation. Later versions may add fields.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AllocateOptions {
    /// The length in bytes, at least 1.
    pub len: usize,
}

impl AllocateOptions {
    /// Options for memory of `len` bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { len }
    }
}

/// Options of a stream.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StreamOptions {
    /// The priority of its work.
    pub priority: Priority,
}

impl StreamOptions {
    /// Options for a stream of normal priority.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the priority of its work.
    #[must_use]
    pub fn with_priority(self, priority: Priority) -> Self {
        Self { priority }
    }
}

/// The priority of a stream's work. It is a hint, which many devices ignore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// The work can wait for other streams.
    Low,
    /// The priority of most streams.
    #[default]
    Normal,
    /// The work should run before other streams' work.
    High,
}

/// Options of an event.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EventOptions {
    /// Whether the event has a timestamp. A timed event may cost more.
    pub timed: bool,
}

impl EventOptions {
    /// Options for an event without a timestamp.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a timestamp.
    #[must_use]
    pub fn timed(self) -> Self {
        Self { timed: true }
    }
}

/// Options of a launch.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LaunchOptions {
    /// Whether the kernel takes little time and waits for nothing: see [`short`](Self::short).
    pub short: bool,
    /// The name of the kernel: see [`named`](Self::named).
    pub name: Option<&'static str>,
}

impl LaunchOptions {
    /// Options for a kernel that may take long.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that the kernel takes no longer than some tens of microseconds, waits for nothing, and takes no
    /// lock that the calling thread holds. Where a driver has no queues, a stream whose work is all done
    /// then runs it at once, on the calling thread: handing it to another thread would take longer. For the
    /// program nothing else changes. A failure is the stream's, as for any kernel.
    #[must_use]
    pub fn short(self) -> Self {
        Self { short: true, ..self }
    }

    /// Names the kernel for [observers](crate::activity), such as `add`.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name: Some(name), ..self }
    }
}
