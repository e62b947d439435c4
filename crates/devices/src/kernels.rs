//! Benchmarks of kernels, which other crates add.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use device_registry::Device;
use entry_points::EntryPoint;

/// A benchmark of kernels as constant data, and how to load it.
pub type KernelBenchmarkDescriptor = EntryPoint<dyn KernelBenchmark>;

entry_points::group! {
    /// The distributed slice that benchmarks register in.
    pub static KERNEL_BENCHMARKS: [KernelBenchmarkDescriptor];

    /// The group `devices.kernel_benchmarks`: what `devices bench --kernels` runs. Variables with the prefix
    /// `DEVICES_KERNEL_BENCHMARKS` switch its entries on and off.
    pub fn kernel_benchmarks() -> Group<dyn KernelBenchmark> {
        entry_points::Group::new("devices.kernel_benchmarks")
            .noun("benchmark")
            .switches("DEVICES_KERNEL_BENCHMARKS")
            .autoload_line("device_registry::autoload!();")
    }
}

/// Any error. An error of a driver, device or framework ends the benchmark of one device, and is printed with
/// its causes.
pub type KernelError = Box<dyn Error + Send + Sync>;

/// What `devices bench --kernels` measures: the kernels of a framework, which this crate does not know.
///
/// A crate registers it, and a program that links that crate and calls [`run`](crate::run) has it:
///
/// ```rust,standalone_crate
/// use device_registry::Device;
/// use device_registry::backend::LoadFailure;
/// use devices::{KERNEL_BENCHMARKS, KernelBenchmark, KernelBenchmarkDescriptor, KernelError, Timer};
///
/// device_registry::backend::entry_points! {
///     #[distributed_slice(KERNEL_BENCHMARKS)]
///     pub static FILLS: KernelBenchmarkDescriptor = KernelBenchmarkDescriptor::new("fills", load);
/// }
///
/// fn load() -> Result<Box<dyn KernelBenchmark>, LoadFailure> {
///     Ok(Box::new(Fills))
/// }
///
/// struct Fills;
///
/// impl KernelBenchmark for Fills {
///     fn run(&self, device: Device, timer: &mut Timer<'_>) -> Result<(), KernelError> {
///         let (stream, buffer) = (device.create_stream()?, device.allocate(4096)?);
///         timer.time("fill", 4096, 0, || {
///             stream.fill(&buffer, .., &[0])?;
///             Ok(stream.synchronize()?)
///         })
///     }
/// }
/// ```
pub trait KernelBenchmark: Send + Sync {
    /// Measures the kernels of a device, each by [`Timer::time`].
    ///
    /// # Errors
    ///
    /// What ended it early. What was measured before is kept.
    fn run(&self, device: Device, timer: &mut Timer<'_>) -> Result<(), KernelError>;
}

/// Measures calls, and keeps the results.
pub struct Timer<'a> {
    pub(crate) largest: usize,
    /// Set when the user ends the run.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) keep: &'a mut dyn FnMut(Timed),
}

/// What a benchmark reports.
pub(crate) enum Timed {
    Planned { calls: u64 },
    Begun { call: String },
    Measured { call: String, bytes: u64, operations: u64, times: Times },
    Missing { call: String },
}

/// The error of [`Timer::time`] after Ctrl-C.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl Error for Interrupted {}

impl Timer<'_> {
    /// The most bytes that a call should touch, as `--largest` says.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Says how many calls of [`time`](Self::time) and [`missing`](Self::missing) follow, for the progress
    /// that a terminal shows.
    pub fn plan(&mut self, calls: u64) {
        (self.keep)(Timed::Planned { calls });
    }

    /// Measures a call: the median of some runs, after one that warms up. `run` returns when the kernel has
    /// ended.
    ///
    /// `call` is the operator with types and shapes. `bytes` are those that it reads and writes, each once,
    /// and `operations` the arithmetic ones, or 0 where they are not what limits it.
    ///
    /// # Errors
    ///
    /// Any that `run` returns, and an error after Ctrl-C, which ends the benchmark.
    pub fn time(
        &mut self,
        call: impl Into<String>,
        bytes: u64,
        operations: u64,
        run: impl FnMut() -> Result<(), KernelError>,
    ) -> Result<(), KernelError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        let call = call.into();
        (self.keep)(Timed::Begun { call: call.clone() });
        let times = times(run)?;
        (self.keep)(Timed::Measured { call, bytes, operations, times });
        Ok(())
    }

    /// Notes a call that the device has no kernel for.
    pub fn missing(&mut self, call: impl Into<String>) {
        (self.keep)(Timed::Missing { call: call.into() });
    }
}

/// How long one cell of the table is measured. Each is run three times at least.
const TIME: Duration = Duration::from_millis(150);

/// At most so many runs of an operation are kept.
const RUNS: usize = 2000;

/// How long a call takes, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) median: f64,
    /// Between these two are the middle half of the runs.
    pub(crate) quartiles: [f64; 2],
}

/// The times of a call, after one that warms up.
pub(crate) fn times<E>(mut call: impl FnMut() -> Result<(), E>) -> Result<Times, E> {
    call()?;
    let begun = Instant::now();
    let mut runs = Vec::new();
    while runs.len() < 3 || (begun.elapsed() < TIME && runs.len() < RUNS) {
        let start = Instant::now();
        call()?;
        runs.push(start.elapsed().as_secs_f64());
    }
    runs.sort_by(f64::total_cmp);
    let count = runs.len();
    Ok(Times { median: runs[count / 2], quartiles: [runs[count / 4], runs[count * 3 / 4]] })
}
