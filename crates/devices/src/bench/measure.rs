//! The measurements themselves.

use std::time::{Duration, Instant};

use device_registry::{Device, DeviceError, ErrorChain, HostBuffer};
use indicatif::{ProgressBar, ProgressStyle};

use crate::arguments::SMALLEST;
use crate::bench::record::{ALLOCATE, FORMAT, Failed, Measured, Measurement, Record};

/// How long one cell of the table is measured. Each is run three times at least.
const TIME: Duration = Duration::from_millis(150);

/// At most so many runs of an operation are kept.
const RUNS: usize = 2000;

/// Measures each device. One that fails keeps what was measured before, and the others are measured too.
pub(crate) fn all(devices: &[Device], largest: usize) -> Record {
    let mut record = Record {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        devices: Vec::new(),
        measurements: Vec::new(),
        errors: Vec::new(),
    };
    let sizes: Vec<usize> = sizes(largest).collect();
    let steps = devices.len() * (3 + sizes.len() * (4 + devices.len()));
    // It is drawn on standard error, where that is a terminal.
    let bar = ProgressBar::new(steps as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {msg}").expect("the template is sound"));
    for &device in devices {
        bar.set_message(device.to_string());
        if let Err(error) = one(device, devices, &sizes, &mut record, &bar) {
            record
                .errors
                .push(Failed { device: device.to_string(), error: ErrorChain::new(&error).to_string() });
        }
    }
    bar.finish_and_clear();
    record
}

fn one(
    device: Device,
    devices: &[Device],
    sizes: &[usize],
    record: &mut Record,
    bar: &ProgressBar,
) -> Result<(), DeviceError> {
    let properties = device.properties()?;
    let free = device.memory_info()?.free;
    record.devices.push(Measured {
        device: device.to_string(),
        name: properties.name,
        driver: properties.driver,
    });
    latencies(device, &mut record.measurements, bar)?;
    let fits = |len: usize| {
        let len = len as u64;
        // Two buffers are copied from one to the other.
        properties.largest_allocation.is_none_or(|largest| len <= largest)
            && free.is_none_or(|free| len <= free / 2)
    };
    for &len in sizes.iter().filter(|len| fits(**len)) {
        transfers(device, devices, len, &mut record.measurements, bar)?;
    }
    Ok(())
}

/// From 4 KiB on, each sixteen times the one before, and the largest.
fn sizes(largest: usize) -> impl Iterator<Item = usize> {
    let smaller = std::iter::successors(Some(SMALLEST), |len| len.checked_mul(16));
    smaller.take_while(move |len| *len < largest).chain([largest])
}

/// The median time of a call, after one that warms up.
fn median(mut call: impl FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
    call()?;
    let (begun, mut runs) = (Instant::now(), Vec::new());
    while runs.len() < 3 || (begun.elapsed() < TIME && runs.len() < RUNS) {
        let start = Instant::now();
        call()?;
        runs.push(start.elapsed().as_secs_f64());
    }
    runs.sort_by(f64::total_cmp);
    Ok(runs[runs.len() / 2])
}

fn latencies(
    device: Device,
    measurements: &mut Vec<Measurement>,
    bar: &ProgressBar,
) -> Result<(), DeviceError> {
    let stream = device.create_stream()?;
    let buffer = device.allocate(SMALLEST)?;
    let mut add = |operation: &str, seconds| {
        bar.inc(1);
        measurements.push(Measurement {
            device: device.to_string(),
            operation: operation.to_owned(),
            to: None,
            bytes: None,
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
    devices: &[Device],
    len: usize,
    measurements: &mut Vec<Measurement>,
    bar: &ProgressBar,
) -> Result<(), DeviceError> {
    let (source, destination) = (device.allocate(len)?, device.allocate(len)?);
    // Where the host has no room, that is an error, which `vec!` would not be.
    let mut host = HostBuffer::zeroed(len).map_err(DeviceError::Host)?;
    let mut add = |operation: &str, to: Option<Device>, seconds| {
        bar.inc(1);
        measurements.push(Measurement {
            device: device.to_string(),
            operation: operation.to_owned(),
            to: to.map(|to| to.to_string()),
            bytes: Some(len as u64),
            seconds,
        });
    };
    add(ALLOCATE, None, median(|| device.allocate(len).map(drop))?);
    add("write from the host", None, median(|| source.write(0, &host))?);
    add("read to the host", None, median(|| source.read(0, &mut host))?);
    add("fill", None, median(|| destination.fill(0..len, &[2]))?);
    add("copy within", None, median(|| destination.copy_from(&source, 0..len, 0))?);
    for &other in devices.iter().filter(|other| **other != device) {
        let there = other.allocate(len)?;
        add("copy", Some(other), median(|| there.copy_from(&source, 0..len, 0))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_at_the_largest() {
        assert_eq!(sizes(4096).collect::<Vec<_>>(), [4096]);
        assert_eq!(sizes(65_536).collect::<Vec<_>>(), [4096, 65_536]);
        assert_eq!(sizes(100_000).collect::<Vec<_>>(), [4096, 65_536, 100_000]);
        assert!(sizes(usize::MAX).count() < 20);
    }
}
