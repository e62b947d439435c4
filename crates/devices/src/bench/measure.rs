//! The measurements themselves.

use std::error::Error;
use std::time::Duration;

use device_registry::{AttributeValue, Device, DeviceError, ErrorChain, HostBuffer};
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::SMALLEST;
use crate::bench::record::{ALLOCATE, FORMAT, Failed, Measured, Measurement, Missing, Record};
use crate::kernels::{KernelBenchmark, KernelError, Timed, Timer, median};

/// How long the first call of each kind may take, so that a device that hangs is an error. The calls that are
/// measured have no limit: with one they go another way.
const LIMIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 60 });

/// Measures each device. One that fails keeps what was measured before, and the others are measured too.
pub(crate) fn all(devices: &[Device], largest: usize) -> Record {
    let mut record = Record::new();
    let mut targets = Vec::new();
    for &device in devices {
        let target = Target::new(device, &mut record);
        record.keep(device, target.map(|target| targets.push(target)));
    }
    let sizes: Vec<usize> = sizes(largest).collect();
    let steps = targets.len() * (3 + sizes.len() * (4 + targets.len()));
    // It is drawn on standard error, where that is a terminal.
    let bar = ProgressBar::new(steps as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {msg}").expect("the template is sound"));
    for target in &targets {
        bar.set_message(target.device.to_string());
        let measured = target.measure(&targets, &sizes, &mut record.measurements, &bar);
        record.keep(target.device, measured);
    }
    bar.finish_and_clear();
    record
}

/// Measures the kernels of each device by all benchmarks. One that fails keeps what was measured before.
pub(crate) fn kernels(
    benchmarks: &[&'static dyn KernelBenchmark],
    devices: &[Device],
    largest: usize,
) -> Record {
    let mut record = Record::new();
    let bar = ProgressBar::new_spinner();
    for &device in devices {
        if let Err(error) = Target::new(device, &mut record) {
            record.keep_error(device, &error);
            continue;
        }
        for benchmark in benchmarks {
            let mut keep = |timed| match timed {
                Timed::Measured { call, bytes, operations, seconds } => {
                    bar.set_message(format!("{device}: {call}"));
                    bar.tick();
                    record.measurements.push(Measurement {
                        device: device.to_string(),
                        operation: call,
                        to: None,
                        bytes: Some(bytes),
                        operations: Some(operations).filter(|count| *count != 0),
                        seconds,
                    });
                }
                Timed::Missing { call } => {
                    record.missing.push(Missing { device: device.to_string(), operation: call });
                }
            };
            let result: Result<(), KernelError> =
                benchmark.run(device, &mut Timer { largest, keep: &mut keep });
            if let Err(error) = result {
                record.keep_error(device, &*error);
            }
        }
    }
    bar.finish_and_clear();
    record
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

    fn measure(
        &self,
        targets: &[Self],
        sizes: &[usize],
        measurements: &mut Vec<Measurement>,
        bar: &ProgressBar,
    ) -> Result<(), DeviceError> {
        latencies(self.device, measurements, bar)?;
        for &len in sizes.iter().filter(|len| self.fits(**len)) {
            let others = targets.iter().map(|target| (target.device, target.fits(len)));
            let others = others.filter_map(|(other, fits)| (fits && other != self.device).then_some(other));
            transfers(self.device, others, len, measurements, bar)?;
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
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            devices: Vec::new(),
            measurements: Vec::new(),
            missing: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Keeps the error of a device.
    fn keep(&mut self, device: Device, result: Result<(), DeviceError>) {
        if let Err(error) = result {
            self.keep_error(device, &error);
        }
    }

    fn keep_error(&mut self, device: Device, error: &(dyn Error + 'static)) {
        let error = ErrorChain::new(error).to_string();
        self.errors.push(Failed { device: device.to_string(), error });
    }
}

/// From 4 KiB on, each sixteen times the one before, and the largest.
fn sizes(largest: usize) -> impl Iterator<Item = usize> {
    let smaller = std::iter::successors(Some(SMALLEST), |len| len.checked_mul(16));
    smaller.take_while(move |len| *len < largest).chain([largest])
}

fn latencies(
    device: Device,
    measurements: &mut Vec<Measurement>,
    bar: &ProgressBar,
) -> Result<(), DeviceError> {
    let stream = device.create_stream()?;
    let buffer = device.allocate(SMALLEST)?;
    stream.fill(&buffer, 0..SMALLEST, &[0])?;
    stream.synchronize_timeout(LIMIT)?;
    let mut add = |operation: &str, seconds| {
        bar.inc(1);
        measurements.push(Measurement {
            device: device.to_string(),
            operation: operation.to_owned(),
            to: None,
            bytes: None,
            operations: None,
            seconds,
        });
    };
    add("wait for an idle stream", median(|| stream.synchronize())?);
    add(
        "submit a fill and wait",
        median(|| {
            stream.fill(&buffer, 0..SMALLEST, &[0])?;
            stream.synchronize()
        })?,
    );
    add("record an event and wait", median(|| stream.record()?.synchronize())?);
    Ok(())
}

fn transfers(
    device: Device,
    others: impl Iterator<Item = Device>,
    len: usize,
    measurements: &mut Vec<Measurement>,
    bar: &ProgressBar,
) -> Result<(), DeviceError> {
    let source = device.allocate(len)?;
    let destination = device.allocate(len)?;
    // Where the host has no room, that is an error, which `vec!` would not be.
    let mut host = HostBuffer::zeroed(len).map_err(DeviceError::Host)?;
    source.write_timeout(0, &host, LIMIT)?;
    source.read_timeout(0, &mut host, LIMIT)?;
    destination.copy_from_timeout(&source, LIMIT)?;
    let mut add = |operation: &str, to: Option<Device>, seconds| {
        bar.inc(1);
        measurements.push(Measurement {
            device: device.to_string(),
            operation: operation.to_owned(),
            to: to.map(|to| to.to_string()),
            bytes: Some(len as u64),
            operations: None,
            seconds,
        });
    };
    add(ALLOCATE, None, median(|| device.allocate(len).map(drop))?);
    add("write from the host", None, median(|| source.write(0, &host))?);
    add("read to the host", None, median(|| source.read(0, &mut host))?);
    add("fill", None, median(|| destination.fill(0..len, &[2]))?);
    add("copy within", None, median(|| destination.copy_from(&source))?);
    for other in others {
        let there = other.allocate(len)?;
        there.copy_from_timeout(&source, LIMIT)?;
        add("copy", Some(other), median(|| there.copy_from(&source))?);
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
        let record = all(&[device], SMALLEST);
        let [Failed { device, error }] = &record.errors[..] else { panic!("{record:?}") };
        assert!(device == "openreg:1" && error.contains("not done after 1s"), "{error}");
    }

    #[test]
    fn sizes_end_at_the_largest() {
        assert_eq!(sizes(4096).collect::<Vec<_>>(), [4096]);
        assert_eq!(sizes(65_536).collect::<Vec<_>>(), [4096, 65_536]);
        assert_eq!(sizes(100_000).collect::<Vec<_>>(), [4096, 65_536, 100_000]);
        assert!(sizes(usize::MAX).count() < 20);
    }
}
