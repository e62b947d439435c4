//! What ran where: by operation, with the bytes that moved and the time of the fallbacks.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device_registry::{Device, Event};
use parking_lot::Mutex;
use serde::Serialize;

use crate::operation::OperationName;

/// What happened to the operations of one device since the start of the process or the last reset.
///
/// `Display` prints a table, [`to_json`](Self::to_json) the same as JSON.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// The device string.
    pub device: String,
    /// burn's own engine that computes on the device, if one does. It counts nothing.
    pub engine: Option<String>,
    /// The operations that ran, those with the longest time of fallbacks first.
    pub operations: Vec<OperationCount>,
    /// Operations that ran together, the most launches first. Also single ones whose kernel set [names its
    /// launches](device_kernels::KernelSet::launch_name), such as a vendor's library does.
    pub launches: Vec<LaunchCount>,
}

/// How often operations ran together, or one by a kernel with a name of its own.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LaunchCount {
    /// The operators of kernels that they are, such as `mul·add·relu`. Of more than eight there are the first
    /// seven. Or the kernel's own name, such as `matmul by cuBLASLt`.
    pub operators: String,
    /// How many operations run together.
    pub operations: u64,
    /// How many kernels do them: one, unless the device has none for all of them.
    pub kernels: u64,
    /// How often they ran.
    pub times: u64,
}

/// What happened to one operation.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct OperationCount {
    /// burn's name of it, such as `NumericFloat.Add`. `Tensor.Read` stands for reading tensors, and
    /// `Tensor.Move` for moving them to another device.
    pub operation: String,
    /// How often a kernel of the device did it.
    pub native: u64,
    /// How often it was, of these, one of several operations that ran together. See
    /// [`Fusion`](crate::Fusion).
    pub fused: u64,
    /// How often it was only another view of the same bytes.
    pub views: u64,
    /// How often burn's CPU engine did it although there is a kernel: since it is faster there, or since it
    /// joins tensors that only the host has. See [`KernelUse`](crate::KernelUse).
    ///
    /// Under [`Fallback::Allow`](crate::Fallback::Allow), on a device whose memory is the host's own, an
    /// operation that had a kernel once counts here also where its shapes or options have none. Under the
    /// other policies it is a fallback then.
    pub host: u64,
    /// How often burn's CPU engine did it, as there is no kernel.
    pub fallback: u64,
    /// How often it failed.
    pub failed: u64,
    /// The time of the fallbacks, including the moves that they waited for. Other runs are not timed.
    pub time: Duration,
    /// The transfers for it.
    pub moved: Transfers,
}

/// Moves between the host and the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Transfers {
    /// The number of downloads.
    pub downloads: u64,
    /// The bytes that were downloaded.
    pub bytes_to_host: u64,
    /// The number of uploads.
    pub uploads: u64,
    /// The bytes that were uploaded.
    pub bytes_to_device: u64,
}

impl Counts {
    /// How many operations burn's CPU engine did for lack of a kernel.
    #[must_use]
    pub fn fallbacks(&self) -> u64 {
        self.operations.iter().map(|operation| operation.fallback).sum()
    }

    /// How many operations kernels of the device did.
    #[must_use]
    pub fn native(&self) -> u64 {
        self.operations.iter().map(|operation| operation.native).sum()
    }

    /// How many operations ran together with others.
    #[must_use]
    pub fn fused(&self) -> u64 {
        self.operations.iter().map(|operation| operation.fused).sum()
    }

    /// How many operations burn's CPU engine did although there is a kernel.
    #[must_use]
    pub fn on_host(&self) -> u64 {
        self.operations.iter().map(|operation| operation.host).sum()
    }

    /// What moved for all operations.
    #[must_use]
    pub fn moved(&self) -> Transfers {
        self.operations.iter().fold(Transfers::default(), |sum, operation| Transfers {
            downloads: sum.downloads + operation.moved.downloads,
            bytes_to_host: sum.bytes_to_host + operation.moved.bytes_to_host,
            uploads: sum.uploads + operation.moved.uploads,
            bytes_to_device: sum.bytes_to_device + operation.moved.bytes_to_device,
        })
    }

    /// The same as JSON: times in nanoseconds and seconds, as serde writes a `Duration`.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and text are always JSON")
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(width) = self.operations.iter().map(|operation| operation.operation.len()).max() else {
            return match &self.engine {
                Some(engine) => write!(f, "operations on {} are not counted: {engine} computes", self.device),
                None => write!(f, "no operations on {}", self.device),
            };
        };
        if let Some(engine) = &self.engine {
            writeln!(f, "{engine} computes on {}, and these operations went past it", self.device)?;
        }
        let width = width.max("operation".len());
        writeln!(f, "operations on {}", self.device)?;
        writeln!(
            f,
            "{:width$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>10}  {:>10}  {:>10}",
            "operation",
            "native",
            "fused",
            "host",
            "views",
            "fallback",
            "failed",
            "time",
            "to host",
            "to device"
        )?;
        let mut time = Duration::ZERO;
        for operation in &self.operations {
            time += operation.time;
            let OperationCount { operation, native, fused, views, host, fallback, failed, time, moved } =
                operation;
            writeln!(
                f,
                "{operation:width$}  {native:>8}  {fused:>8}  {host:>8}  {views:>8}  {fallback:>8}  {failed:>8}  {:>10}  {:>10}  {:>10}",
                Milliseconds(*time),
                Size(moved.bytes_to_host),
                Size(moved.bytes_to_device),
            )?;
        }
        let moved = self.moved();
        let sum = |number: fn(&OperationCount) -> u64| self.operations.iter().map(number).sum::<u64>();
        write!(
            f,
            "{:width$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>10}  {:>10}  {:>10}",
            "total",
            self.native(),
            self.fused(),
            self.on_host(),
            sum(|operation| operation.views),
            self.fallbacks(),
            sum(|operation| operation.failed),
            Milliseconds(time),
            Size(moved.bytes_to_host),
            Size(moved.bytes_to_device),
        )?;
        let operators = |launch: &LaunchCount| launch.operators.chars().count();
        let Some(width) = self.launches.iter().map(operators).max() else { return Ok(()) };
        let width = width.max("together".len());
        write!(f, "\n\n{:width$}  {:>10}  {:>8}  {:>8}", "together", "operations", "kernels", "times")?;
        for LaunchCount { operators, operations, kernels, times } in &self.launches {
            write!(f, "\n{operators:width$}  {operations:>10}  {kernels:>8}  {times:>8}")?;
        }
        Ok(())
    }
}

struct Milliseconds(Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1} ms", self.0.as_secs_f64() * 1e3))
    }
}

struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(clippy::cast_precision_loss, reason = "one decimal is printed")]
        f.pad(&match self.0 {
            bytes @ 0..1024 => format!("{bytes} B"),
            bytes @ 1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
            bytes => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        })
    }
}

/// What one operation moved, and the work of the device that the program waits for after it.
#[derive(Default)]
pub(crate) struct Moved {
    transfers: Transfers,
    earlier: Option<Event>,
}

impl Moved {
    pub(crate) fn downloaded(&mut self, bytes: usize) {
        self.transfers.downloads += 1;
        self.transfers.bytes_to_host += bytes as u64;
    }

    pub(crate) fn uploaded(&mut self, bytes: usize) {
        self.transfers.uploads += 1;
        self.transfers.bytes_to_device += bytes as u64;
    }

    /// The program is too far ahead of the device, until `earlier` work is over.
    pub(crate) fn waits_for(&mut self, earlier: Option<Event>) {
        self.earlier = earlier.or(self.earlier.take());
    }

    /// The work to wait for.
    pub(crate) fn into_earlier(self) -> Option<Event> {
        self.earlier
    }

    /// Waits, where the program is too far ahead. No lock may be held, and no other thread may wait for this
    /// one.
    pub(crate) fn wait(self) {
        // A read of the outputs reports a failure.
        let _ = self.earlier.map(|event| event.synchronize());
    }
}

/// How an operation ended.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    Native,
    /// By a kernel, together with others.
    Fused,
    View,
    Host,
    Fallback(Duration),
    Failed,
}

/// The counters of one device. Counting operations takes no lock.
pub(crate) struct Counters {
    operations: Box<[OnceLock<Box<Counter>>]>,
    /// How often operations ran together, by the name of the expression, their number and the number of
    /// kernels.
    launches: Mutex<HashMap<(&'static str, usize, usize), u64, foldhash::fast::RandomState>>,
}

struct Counter {
    name: OperationName,
    native: AtomicU64,
    fused: AtomicU64,
    views: AtomicU64,
    host: AtomicU64,
    fallback: AtomicU64,
    failed: AtomicU64,
    nanoseconds: AtomicU64,
    downloads: AtomicU64,
    bytes_to_host: AtomicU64,
    uploads: AtomicU64,
    bytes_to_device: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let operations = (0..OperationName::COUNT).map(|_| OnceLock::new()).collect();
        Self { operations, launches: Mutex::default() }
    }
}

impl Counters {
    pub(crate) fn count(&self, name: OperationName, way: Way, moved: &Moved) {
        let counter = self.operations[name.index()].get_or_init(|| Box::new(Counter::new(name)));
        let add = |to: &AtomicU64, value: u64| {
            if value > 0 {
                to.fetch_add(value, Ordering::Relaxed);
            }
        };
        match way {
            Way::Native => add(&counter.native, 1),
            Way::Fused => {
                add(&counter.native, 1);
                add(&counter.fused, 1);
            }
            Way::View => add(&counter.views, 1),
            Way::Host => add(&counter.host, 1),
            Way::Failed => add(&counter.failed, 1),
            Way::Fallback(time) => {
                add(&counter.fallback, 1);
                add(&counter.nanoseconds, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            }
        }
        self.moved(counter, moved);
    }

    /// Counts operations that ran together, as the expression of this name, or one by a kernel of this name.
    pub(crate) fn count_launch(&self, name: &'static str, operations: usize, kernels: usize) {
        *self.launches.lock().entry((name, operations, kernels)).or_default() += 1;
    }

    /// Counts transfers without a burn operation.
    pub(crate) fn count_moved(&self, name: OperationName, moved: &Moved) {
        if moved.transfers != Transfers::default() {
            self.moved(self.operations[name.index()].get_or_init(|| Box::new(Counter::new(name))), moved);
        }
    }

    fn moved(&self, counter: &Counter, Moved { transfers: moved, .. }: &Moved) {
        if *moved != Transfers::default() {
            counter.downloads.fetch_add(moved.downloads, Ordering::Relaxed);
            counter.bytes_to_host.fetch_add(moved.bytes_to_host, Ordering::Relaxed);
            counter.uploads.fetch_add(moved.uploads, Ordering::Relaxed);
            counter.bytes_to_device.fetch_add(moved.bytes_to_device, Ordering::Relaxed);
        }
    }

    /// The counts as they are now.
    pub(crate) fn now(&self, device: Device) -> Counts {
        let mut operations: Vec<_> =
            self.counters().map(Counter::now).filter(|count| !count.is_zero()).collect();
        operations.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.operation.cmp(&b.operation)));
        let launch = |((name, operations, kernels), times): (&(&str, usize, usize), &u64)| LaunchCount {
            operators: (*name).to_owned(),
            operations: *operations as u64,
            kernels: *kernels as u64,
            times: *times,
        };
        let mut launches: Vec<_> = self.launches.lock().iter().map(launch).collect();
        launches.sort_by(|a, b| {
            b.times
                .cmp(&a.times)
                .then_with(|| (&a.operators, a.operations).cmp(&(&b.operators, b.operations)))
        });
        Counts { device: device.to_string(), engine: None, operations, launches }
    }

    pub(crate) fn reset(&self) {
        self.counters().flat_map(Counter::values).for_each(|value| value.store(0, Ordering::Relaxed));
        self.launches.lock().clear();
    }

    fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.operations.iter().filter_map(|counter| counter.get().map(|counter| &**counter))
    }
}

impl OperationCount {
    fn is_zero(&self) -> bool {
        self.native + self.views + self.host + self.fallback + self.failed == 0
            && self.moved == Transfers::default()
    }
}

impl Counter {
    fn new(name: OperationName) -> Self {
        Self {
            name,
            native: AtomicU64::new(0),
            fused: AtomicU64::new(0),
            views: AtomicU64::new(0),
            host: AtomicU64::new(0),
            fallback: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            downloads: AtomicU64::new(0),
            bytes_to_host: AtomicU64::new(0),
            uploads: AtomicU64::new(0),
            bytes_to_device: AtomicU64::new(0),
        }
    }

    fn values(&self) -> [&AtomicU64; 11] {
        [
            &self.native,
            &self.fused,
            &self.views,
            &self.host,
            &self.fallback,
            &self.failed,
            &self.nanoseconds,
            &self.downloads,
            &self.bytes_to_host,
            &self.uploads,
            &self.bytes_to_device,
        ]
    }

    fn now(&self) -> OperationCount {
        let [
            native,
            fused,
            views,
            host,
            fallback,
            failed,
            nanoseconds,
            downloads,
            bytes_to_host,
            uploads,
            bytes_to_device,
        ] = self.values().map(|value| value.load(Ordering::Relaxed));
        OperationCount {
            operation: self.name.to_string(),
            native,
            fused,
            views,
            host,
            fallback,
            failed,
            time: Duration::from_nanos(nanoseconds),
            moved: Transfers { downloads, bytes_to_host, uploads, bytes_to_device },
        }
    }
}
