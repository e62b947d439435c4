//! `devices bench --compare`: the ratios of two runs.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::Failure;
use crate::bench::record::{FORMAT, Measurement, Record};
use crate::bench::time;
use crate::output::{Cell, GREEN, Output, PLAIN, RED, Table, YELLOW, bytes, outside, styled};

/// A measurement that both runs have.
#[derive(Serialize)]
struct Compared<'a> {
    #[serde(flatten)]
    measurement: &'a Measurement,
    /// Its time in the first run.
    before: f64,
    /// The time of the second run, divided by the first's.
    ratio: f64,
    /// Whether the middle halves of both runs overlap: such a difference may be by chance.
    overlaps: bool,
}

/// Fails if a ratio is above `most`.
pub(crate) fn run(
    before: &Path,
    after: &Path,
    most: Option<f64>,
    output: &mut Output,
) -> Result<ExitCode, Failure> {
    let first = read(before)?;
    let second = read(after)?;
    let mut compared = Vec::new();
    for measurement in &second.measurements {
        let other = first.measurements.iter().find(|other| is_same(other, measurement));
        compared.extend(other.map(|other| Compared {
            measurement,
            before: other.seconds,
            ratio: measurement.seconds / other.seconds,
            overlaps: overlap(measurement.quartiles, other.quartiles),
        }));
    }
    let has = |record: &Record, wanted: &Measurement| {
        record.measurements.iter().any(|other| is_same(other, wanted))
    };
    let only = first.measurements.iter().filter(|one| !has(&second, one)).count()
        + second.measurements.iter().filter(|one| !has(&first, one)).count();
    if compared.is_empty() {
        return Err(Failure::Usage(format!(
            "{} and {} have no measurement in common: they are of other devices or sizes",
            before.display(),
            after.display()
        )));
    }
    for (file, record) in [(before, &first), (after, &second)] {
        if record.interrupted {
            anstream::eprintln!("{} {} was interrupted", styled(YELLOW, "warning:"), file.display());
        }
        for failed in &record.errors {
            let (file, device) = (file.display(), outside(&failed.device));
            anstream::eprintln!("{} `{device}` has failed in {file}", styled(YELLOW, "warning:"));
        }
    }
    let slower = compared.iter().filter(|compared| most.is_some_and(|most| compared.ratio > most)).count();
    let code = if slower == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if output.is_json() {
        output.document(&compared)?;
        return Ok(code);
    }
    let titles = ["DEVICE", "OPERATION", "SIZE", "BEFORE", "AFTER", "AFTER / BEFORE"];
    let mut table = Table::new(titles, &[2, 3, 4, 5]);
    for Compared { measurement, before, ratio, overlaps } in &compared {
        let style = match ratio {
            _ if *overlaps => PLAIN,
            ratio if *ratio > 1.1 => RED,
            ratio if *ratio < 0.9 => GREEN,
            _ => PLAIN,
        };
        table.row([
            Cell::from(&measurement.device),
            Cell::from(measurement.what()),
            Cell::from(measurement.bytes.map(bytes).unwrap_or_default()),
            Cell::from(time(*before)),
            Cell::from(time(measurement.seconds)),
            Cell::styled(style, format_args!("{ratio:.2}")),
        ]);
    }
    output.table(&table)?;
    if only > 0 {
        output.line(format_args!("\n{only} measurements are in one of the files only."))?;
    }
    if let Some(most) = most.filter(|_| slower > 0) {
        output.line(format_args!("\n{slower} of {} take more than {most} times as long:", compared.len()))?;
        for Compared { measurement, ratio, .. } in compared.iter().filter(|compared| compared.ratio > most) {
            let size = measurement.bytes.map(|len| format!(", {}", bytes(len))).unwrap_or_default();
            output.line(format_args!(
                "  {}: {}{size}: {ratio:.2}",
                measurement.device,
                measurement.what()
            ))?;
        }
    }
    Ok(code)
}

/// Whether two ranges have a value in common. Files of older versions have none.
fn overlap(one: Option<[f64; 2]>, other: Option<[f64; 2]>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    one[0] <= other[1] && other[0] <= one[1]
}

/// Whether both are of the same operation, at the same size.
fn is_same(one: &Measurement, other: &Measurement) -> bool {
    (&one.device, &one.operation, &one.to, one.bytes)
        == (&other.device, &other.operation, &other.to, other.bytes)
}

fn read(file: &Path) -> Result<Record, Failure> {
    let fail = |reason: &dyn std::fmt::Display| Failure::Usage(format!("{}: {reason}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| fail(&error))?;
    let record: Record = serde_json::from_str(&text)
        .map_err(|error| fail(&format_args!("it is not an output of `devices bench --json`: {error}")))?;
    if record
        .measurements
        .iter()
        .any(|measurement| measurement.seconds.is_nan() || measurement.seconds <= 0.0)
    {
        return Err(fail(&"a time in it is not above 0"));
    }
    match record.format {
        FORMAT => Ok(record),
        other => Err(fail(&format_args!(
            "format {other} is of another version of this command: expected {FORMAT}"
        ))),
    }
}
