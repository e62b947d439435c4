//! `devices bench`: bandwidths and latencies, by size.

mod chart;
mod compare;
mod measure;
mod record;

use std::fs;
use std::process::ExitCode;

use device_registry::{Device, devices};

use crate::Failure;
use crate::arguments::Bench;
use crate::bench::record::{Failed, Record};
use crate::info::chosen;
use crate::output::{Cell, Output, RED, Table, bytes, outside, styled};

pub(crate) fn run(bench: &Bench, output: &mut Output) -> Result<ExitCode, Failure> {
    if let [before, after] = &bench.compare[..] {
        return compare::run(before, after, output);
    }
    let devices = selected(&bench.devices)?;
    // What is measured for minutes has to have a place.
    for file in bench.csv.iter().chain(&bench.chart) {
        fs::write(file, "").map_err(|error| cannot_write(file, &error))?;
    }
    let record = measure::all(&devices, bench.largest);
    // The files first: who closes the pipe early has them.
    if let Some(file) = &bench.csv {
        fs::write(file, record.csv()).map_err(|error| cannot_write(file, &error))?;
    }
    if let Some(file) = &bench.chart {
        let chart = chart::svg(&record).map_err(Failure::Other)?;
        fs::write(file, chart).map_err(|error| cannot_write(file, &error))?;
    }
    if output.is_json() {
        output.document(&record)?;
    } else {
        print(&record, output)?;
    }
    Ok(if record.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cannot_write(file: &std::path::Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("cannot write {}: {error}", file.display()))
}

/// The devices to measure, each once.
fn selected(texts: &[String]) -> Result<Vec<Device>, Failure> {
    let mut found: Vec<Device> = Vec::new();
    let named = texts.iter().map(|text| chosen(text)).collect::<Result<Vec<_>, _>>()?;
    let all = || devices().flat_map(|(_, devices)| devices.unwrap_or_default()).collect();
    for device in if named.is_empty() { all() } else { named } {
        if !found.contains(&device.resolve()) {
            found.push(device.resolve());
        }
    }
    Ok(found)
}

fn print(record: &Record, output: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(["DEVICE", "OPERATION", "SIZE", "TIME", "BANDWIDTH"], &[2, 3, 4]);
    for measurement in &record.measurements {
        table.row([
            Cell::from(&measurement.device),
            Cell::from(measurement.what()),
            Cell::from(measurement.bytes.map(bytes).unwrap_or_default()),
            Cell::from(time(measurement.seconds)),
            Cell::from(
                measurement.bandwidth().map(|rate| format!("{:.2} GB/s", rate / 1e9)).unwrap_or_default(),
            ),
        ]);
    }
    output.table(&table)?;
    output.line("\nMedians. Bandwidths count each byte once, in units of 10^9 bytes.")?;
    for Failed { device, error } in &record.errors {
        output.line(format_args!(
            "{} {}",
            styled(RED, &format!("`{device}` was not measured to the end:")),
            outside(error)
        ))?;
    }
    Ok(())
}

/// Seconds with three digits and a unit.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
