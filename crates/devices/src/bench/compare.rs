//! `devices bench --compare`: the ratios of two runs.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::Failure;
use crate::bench::record::{FORMAT, Measurement, Record};
use crate::output::{Cell, GREEN, Output, PLAIN, RED, Table, bytes};

/// A measurement that both runs have.
#[derive(Serialize)]
struct Compared<'a> {
    #[serde(flatten)]
    measurement: &'a Measurement,
    /// The time of the second run, divided by that of the first.
    ratio: f64,
}

pub(crate) fn run(before: &Path, after: &Path, output: &mut Output) -> Result<ExitCode, Failure> {
    let (first, second) = (read(before)?, read(after)?);
    let mut compared = Vec::new();
    for measurement in &second.measurements {
        let is_same = |other: &&Measurement| {
            (&other.device, &other.operation, &other.to, other.bytes)
                == (&measurement.device, &measurement.operation, &measurement.to, measurement.bytes)
        };
        let other = first.measurements.iter().find(is_same);
        compared
            .extend(other.map(|other| Compared { measurement, ratio: measurement.seconds / other.seconds }));
    }
    let only = first.measurements.len() + second.measurements.len() - 2 * compared.len();
    if compared.is_empty() {
        return Err(Failure::Usage(format!(
            "{} and {} have no measurement in common: they are of other devices or sizes",
            before.display(),
            after.display()
        )));
    }
    if output.is_json() {
        output.document(&compared)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["DEVICE", "OPERATION", "SIZE", "TIME, AFTER / BEFORE"], &[2, 3]);
    for Compared { measurement, ratio } in &compared {
        let style = match ratio {
            ratio if *ratio > 1.1 => RED,
            ratio if *ratio < 0.9 => GREEN,
            _ => PLAIN,
        };
        table.row([
            Cell::from(&measurement.device),
            Cell::from(measurement.what()),
            Cell::from(measurement.bytes.map(bytes).unwrap_or_default()),
            Cell::styled(style, format_args!("{ratio:.2}")),
        ]);
    }
    output.table(&table)?;
    if only > 0 {
        output.line(format_args!("\n{only} measurements are in one of the files only."))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<Record, Failure> {
    let fail = |reason: &dyn std::fmt::Display| Failure::Usage(format!("{}: {reason}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| fail(&error))?;
    let record: Record = serde_json::from_str(&text)
        .map_err(|error| fail(&format_args!("no output of `devices bench --json`: {error}")))?;
    match record.format {
        FORMAT => Ok(record),
        other => Err(fail(&format_args!(
            "format {other} is of another version of this command: expected {FORMAT}"
        ))),
    }
}
