//! The measurements themselves.

use std::error::Error;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::{Duration, SystemTime};

use device_registry::{AttributeValue, Device, DeviceError, ErrorChain, HostBuffer};
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::SMALLEST;
use crate::bench::record::{ALLOCATE, FORMAT, Failed, Load, Measured, Measurement, Missing, Record};
use crate::kernels::{KernelBenchmark, KernelError, Timed, Timer, times};
use crate::output::bytes;

/// How long the first call of each kind may take, so that a device that hangs is an error. The calls that are
/// measured have no limit: with one they go another way.
const LIMIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });

/// Measures each device until `stop` is set. One that fails keeps what was measured before, and the others
/// are measured too.
pub(crate) fn all(devices: &[Device], largest: usize, stop: &AtomicBool) -> Record {
    let mut run = Run { record: Record::new(), bar: ProgressBar::hidden(), stop };
    let mut targets = Vec::new();
    for &device in devices {
        let target = Target::new(device, &mut run.record);
        run.keep(device, target.map(|target| targets.push(target)).map_err(End::Failed));
    }
    let sizes: Vec<usize> = sizes(largest).collect();
    let steps = targets.len() * (3 + sizes.len() * (4 + targets.len()));
    run.bar = bar(steps as u64);
    for target in &targets {
        if run.is_stopped() {
            break;
        }
        let measured = target.measure(&targets, &sizes, &mut run);
        run.keep(target.device, measured);
    }
    run.bar.finish_and_clear();
    run.record
}

/// Measures the kernels of each device by all benchmarks until `stop` is set. One that fails keeps what was
/// measured before.
pub(crate) fn kernels(
    benchmarks: &[&'static dyn KernelBenchmark],
    devices: &[Device],
    largest: usize,
    stop: &AtomicBool,
) -> Record {
    let mut run = Run { record: Record::new(), bar: bar(0), stop };
    for &device in devices {
        if run.is_stopped() {
            break;
        }
        if let Err(error) = Target::new(device, &mut run.record) {
            run.keep(device, Err(End::Failed(error)));
            continue;
        }
        for benchmark in benchmarks {
            if run.is_stopped() {
                break;
            }
            let Run { record, bar, .. } = &mut run;
            let mut keep = |timed| match timed {
                Timed::Planned { calls } => bar.inc_length(calls),
                Timed::Begun { call } => bar.set_message(format!("{device}: {call}")),
                Timed::Measured { call, bytes, operations, times } => {
                    bar.inc(1);
                    let mut measurement = Measurement::new(device, &call, times);
                    measurement.bytes = Some(bytes);
                    measurement.operations = Some(operations).filter(|count| *count != 0);
                    record.measurements.push(measurement);
                }
                Timed::Missing { call } => {
                    bar.inc(1);
                    record.missing.push(Missing { device: device.to_string(), operation: call });
                }
            };
            let result: Result<(), KernelError> =
                benchmark.run(device, &mut Timer { largest, stop, keep: &mut keep });
            match result {
                Err(_) if run.is_stopped() => {}
                Err(error) => run.record.keep_error(device, &*error),
                Ok(()) => {}
            }
        }
    }
    run.bar.finish_and_clear();
    run.record
}

/// What is measured, how far it is, and how long it may take. It is drawn on standard error, where that is a
/// terminal.
fn bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let template = "{bar:20} {pos}/{len}, {eta} left  {msg}";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is sound"));
    // Also while one call takes long.
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A run of the benchmark, which goes on after the error of a device.
struct Run<'a> {
    record: Record,
    bar: ProgressBar,
    stop: &'a AtomicBool,
}

/// Why a device is not measured to the end.
enum End {
    Failed(DeviceError),
    Interrupted,
}

impl From<DeviceError> for End {
    fn from(error: DeviceError) -> Self {
        Self::Failed(error)
    }
}

impl Run<'_> {
    /// Whether the user has ended the run, which the record then says.
    fn is_stopped(&mut self) -> bool {
        self.record.interrupted |= self.stop.load(Ordering::Relaxed);
        self.record.interrupted
    }

    /// Measures a call on a device: of a number of bytes, or a latency; to another device, or on this one.
    fn time(
        &mut self,
        device: Device,
        operation: &str,
        to: Option<Device>,
        len: Option<usize>,
        call: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), End> {
        if self.is_stopped() {
            return Err(End::Interrupted);
        }
        let size = len.map(|len| format!(", {}", bytes(len as u64))).unwrap_or_default();
        let whereto = to.map(|to| format!(" to {to}")).unwrap_or_default();
        self.bar.set_message(format!("{device}: {operation}{whereto}{size}"));
        let mut measurement = Measurement::new(device, operation, times(call)?);
        measurement.to = to.map(|to| to.to_string());
        measurement.bytes = len.map(|len| len as u64);
        self.record.measurements.push(measurement);
        self.bar.inc(1);
        Ok(())
    }

    /// Keeps the error of a device.
    fn keep(&mut self, device: Device, result: Result<(), End>) {
        match result {
            Err(End::Failed(error)) => self.record.keep_error(device, &error),
            Err(End::Interrupted) | Ok(()) => {}
        }
    }
}

/// A device that is measured.
struct Target {
    device: Device,
    /// The most bytes of a copy.
    most: u64,
}

impl Target {
    fn new(device: Device, record: &mut Record) -> Result<Self, DeviceError> {
        let properties = device.properties()?;
        // Two buffers are copied from one to the other.
        let free = device.memory_info()?.free.map(|free| free / 2);
        let most = free.into_iter().chain(properties.largest_allocation).min().unwrap_or(u64::MAX);
        let memory_bandwidth = match properties.attributes.get("memory_bandwidth_bytes_per_second") {
            Some(AttributeValue::Integer(rate)) => u64::try_from(*rate).ok(),
            _ => None,
        };
        let name = properties.name;
        let driver = properties.driver;
        record.devices.push(Measured { device: device.to_string(), name, driver, memory_bandwidth });
        Ok(Self { device, most })
    }

    fn measure(&self, targets: &[Self], sizes: &[usize], run: &mut Run<'_>) -> Result<(), End> {
        latencies(self.device, run)?;
        for &len in sizes.iter().filter(|len| self.fits(**len)) {
            let others = targets.iter().map(|target| (target.device, target.fits(len)));
            let others = others.filter_map(|(other, fits)| (fits && other != self.device).then_some(other));
            transfers(self.device, others, len, run)?;
        }
        Ok(())
    }

    fn fits(&self, len: usize) -> bool {
        len as u64 <= self.most
    }
}

impl Record {
    pub(crate) fn new() -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            load: load(),
            interrupted: false,
            devices: Vec::new(),
            measurements: Vec::new(),
            missing: Vec::new(),
            errors: Vec::new(),
        }
    }

    fn keep_error(&mut self, device: Device, error: &(dyn Error + 'static)) {
        let error = ErrorChain::new(error).to_string();
        self.errors.push(Failed { device: device.to_string(), error });
    }
}

/// What other programs do here, as far as the system says.
fn load() -> Option<Load> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let average = text.split_whitespace().next()?.parse().ok()?;
    Some(Load { average, processors: available_parallelism().ok()?.get() })
}

/// From 4 KiB on, each sixteen times the one before, and the largest.
fn sizes(largest: usize) -> impl Iterator<Item = usize> {
    let smaller = std::iter::successors(Some(SMALLEST), |len| len.checked_mul(16));
    smaller.take_while(move |len| *len < largest).chain([largest])
}

fn latencies(device: Device, run: &mut Run<'_>) -> Result<(), End> {
    let stream = device.create_stream()?;
    let buffer = device.allocate(SMALLEST)?;
    stream.fill(&buffer, 0..SMALLEST, &[0])?;
    stream.synchronize_timeout(LIMIT)?;
    run.time(device, "wait for an idle stream", None, None, || stream.synchronize())?;
    run.time(device, "submit a fill and wait", None, None, || {
        stream.fill(&buffer, 0..SMALLEST, &[0])?;
        stream.synchronize()
    })?;
    run.time(device, "record an event and wait", None, None, || stream.record()?.synchronize())
}

fn transfers(
    device: Device,
    others: impl Iterator<Item = Device>,
    len: usize,
    run: &mut Run<'_>,
) -> Result<(), End> {
    let source = device.allocate(len)?;
    let destination = device.allocate(len)?;
    // Where the host has no room, that is an error, which `vec!` would not be.
    let mut host = HostBuffer::zeroed(len).map_err(DeviceError::Host)?;
    source.write_timeout(0, &host, LIMIT)?;
    source.read_timeout(0, &mut host, LIMIT)?;
    destination.copy_from_timeout(&source, LIMIT)?;
    let size = Some(len);
    run.time(device, ALLOCATE, None, size, || device.allocate(len).map(drop))?;
    run.time(device, "write from the host", None, size, || source.write(0, &host))?;
    run.time(device, "read to the host", None, size, || source.read(0, &mut host))?;
    run.time(device, "fill", None, size, || destination.fill(0..len, &[2]))?;
    run.time(device, "copy within", None, size, || destination.copy_from(&source))?;
    for other in others {
        let there = other.allocate(len)?;
        there.copy_from_timeout(&source, LIMIT)?;
        run.time(device, "copy", Some(other), size, || there.copy_from(&source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "openreg")]
    #[test]
    fn a_device_that_hangs_is_an_error() {
        use device_registry::{Fault, device};
        device_registry::backends().register(&device_openreg::OPENREG).expect("it is not linked");
        let device = device("openreg:1").expect("it is registered");
        // The first operation is the allocation, which has no limit.
        device.faults().and_then(|faults| faults.inject(Fault::Stall { nth: 2 })).expect("it has faults");
        let record = all(&[device], SMALLEST, &AtomicBool::new(false));
        let [Failed { device, error }] = &record.errors[..] else { panic!("{record:?}") };
        assert!(device == "openreg:1" && error.contains("not done after 1s"), "{error}");
    }

    #[test]
    fn a_run_that_is_interrupted_keeps_what_was_measured() {
        let stop = AtomicBool::new(true);
        let record = all(&[Device::cpu()], SMALLEST, &stop);
        assert!(record.interrupted && record.errors.is_empty(), "{record:?}");
        assert!(record.measurements.is_empty() && record.devices.len() == 1, "{record:?}");
        let record = all(&[Device::cpu()], SMALLEST, &AtomicBool::new(false));
        assert!(!record.interrupted && record.measurements.len() == 8, "{record:?}");
        let between = |measurement: &Measurement| {
            let [lower, upper] = measurement.quartiles.expect("it was measured");
            lower <= measurement.seconds && measurement.seconds <= upper
        };
        assert!(record.measurements.iter().all(between), "{record:?}");
    }

    #[test]
    fn sizes_end_at_the_largest() {
        assert_eq!(sizes(4096).collect::<Vec<_>>(), [4096]);
        assert_eq!(sizes(65_536).collect::<Vec<_>>(), [4096, 65_536]);
        assert_eq!(sizes(100_000).collect::<Vec<_>>(), [4096, 65_536, 100_000]);
        assert!(sizes(usize::MAX).count() < 20);
    }
}
