//! `devices bench`: bandwidths and latencies, by size.

mod chart;
mod compare;
mod measure;
mod record;

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use device_registry::{Device, ErrorChain, devices};
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::Failure;
use crate::arguments::Bench;
use crate::bench::record::{Failed, Load, Measured, Measurement, Missing, Record};
use crate::info::chosen;
use crate::kernels::{KernelBenchmark, kernel_benchmarks};
use crate::output::{self, Cell, Output, PLAIN, RED, Table, YELLOW, bytes, outside, styled};

pub(crate) fn run(bench: &Bench, output: &mut Output) -> Result<ExitCode, Failure> {
    if let [before, after] = &bench.compare[..] {
        return compare::run(before, after, bench.fail_above, output);
    }
    // Clap does not ask for an argument that another one conflicts with.
    if bench.fail_above.is_some() {
        return Err(Failure::Usage("`--fail-above` needs `--compare BEFORE AFTER`".to_owned()));
    }
    // Before any driver is loaded: LLVM, which is a part of some, has a handler that ends the process. It
    // passes the signal on to the one that was there before.
    let stop = stop_at_interrupt()?;
    let devices = selected(&bench.devices)?;
    if let ([_], [device]) = (&bench.devices[..], &devices[..]) {
        // Its error, before the head of an empty table.
        device.open()?;
    }
    // What is measured for minutes has to have a place.
    for file in bench.csv.iter().chain(&bench.chart) {
        fs::write(file, "").map_err(|error| cannot_write(file, &error))?;
    }
    if let (Some(csv), Some(chart)) = (&bench.csv, &bench.chart)
        && output::is_same(csv, chart)
    {
        return Err(Failure::Usage("`--csv` and `--chart` name one file".to_owned()));
    }
    let record = if bench.kernels {
        measure::kernels(&benchmarks()?, &devices, bench.largest, &stop)
    } else {
        measure::all(&devices, bench.largest, &stop)
    };
    // The files first: a reader that closes the pipe early has them.
    if let Some(file) = &bench.csv {
        fs::write(file, record.csv()).map_err(|error| cannot_write(file, &error))?;
    }
    let mut chart = Ok(());
    if let Some(file) = &bench.chart {
        chart = match chart::svg(&record) {
            Ok(svg) => fs::write(file, svg).map_err(|error| cannot_write(file, &error)),
            // What there is to print comes first.
            Err(reason) => Err(Failure::Other(format!("no chart is written: {reason}"))),
        };
    }
    if output.is_json() {
        output.document(&record)?;
    } else {
        print(&record, bench, output)?;
    }
    if record.interrupted {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    chart?;
    Ok(match record.errors[..] {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// What a shell has for a program that Ctrl-C has ended.
const INTERRUPTED: u8 = 130;

/// A value that Ctrl-C sets: what was measured is printed. Another Ctrl-C ends the program at once.
fn stop_at_interrupt() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let failed = |error| Failure::Other(format!("cannot handle Ctrl-C: {error}"));
    flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), Arc::clone(&stop)).map_err(failed)?;
    flag::register(SIGINT, Arc::clone(&stop)).map_err(failed)?;
    Ok(stop)
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

/// The benchmarks of kernels that the program links.
fn benchmarks() -> Result<Vec<&'static dyn KernelBenchmark>, Failure> {
    let loaded = kernel_benchmarks().load_all().into_iter().map(|(_, loaded)| loaded);
    let benchmarks = loaded.collect::<Result<Vec<_>, _>>();
    let benchmarks = benchmarks.map_err(|error| Failure::Other(ErrorChain::new(&error).to_string()))?;
    if benchmarks.is_empty() {
        let message = "this program links no benchmark of kernels: the crate `devices-kernels` has one, for the \
                       operators of device-kernels; in this project's repository, `cd kernels && cargo run \
                       --release -p devices-kernels -- bench --kernels`";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(benchmarks)
}

fn print(record: &Record, bench: &Bench, output: &mut Output) -> Result<(), Failure> {
    let Bench { largest, kernels, .. } = *bench;
    let mut table = Table::new(["DEVICE", "OPERATION", "SIZE", "TIME", "±", "RATE"], &[2, 3, 4, 5]);
    for measurement in &record.measurements {
        table.row([
            Cell::from(&measurement.device),
            Cell::from(measurement.what()),
            Cell::from(measurement.bytes.map(bytes).unwrap_or_default()),
            Cell::from(time(measurement.seconds)),
            spread(measurement),
            Cell::from(rate(measurement)),
        ]);
    }
    output.table(&table)?;
    output.line("")?;
    let mut units =
        "Medians; the middle half of the runs is within ± of them. GB/s counts each byte once, in units of \
                     10^9."
            .to_owned();
    if record.measurements.iter().any(|measurement| measurement.operations.is_some()) {
        units += " Gop/s counts additions and multiplications.";
    }
    output.paragraph(&units, 0)?;
    let vary = record.measurements.iter().filter(|measurement| varies(measurement)).count();
    let is_empty = record.measurements.is_empty();
    if is_empty && record.errors.is_empty() && record.missing.is_empty() && !record.interrupted {
        output.line("Nothing was measured: all calls have more bytes than `--largest` allows.")?;
    }
    if let Some(Load { average, processors }) =
        record.load.as_ref().filter(|load| load.is_busy() && !is_empty)
    {
        let warning = styled(YELLOW, "warning:");
        let mut text =
            format!("{warning} other programs were busy: a load of {average:.1} on {processors} processors");
        if vary > 0 {
            let (all, percent) = (record.measurements.len(), VARIES * 100.0);
            text += &format!(", and {vary} of {all} measurements vary by more than {percent:.0} %");
        }
        output.paragraph(&text, 0)?;
    }
    let has_failed = |device: &str| record.errors.iter().any(|failed| failed.device == device);
    for Measured { device, .. } in record.devices.iter().filter(|measured| !has_failed(&measured.device)) {
        let of_device = record.measurements.iter().filter(|measurement| measurement.device == *device);
        let most = of_device.filter_map(|measurement| measurement.bytes).max();
        if let Some(most) = most.filter(|&most| most < largest as u64 && !record.interrupted && !kernels) {
            let (most, largest) = (bytes(most), bytes(largest as u64));
            output.line(format_args!(
                "`{device}` has no room for copies of {largest}: measured up to {most}"
            ))?;
        }
    }
    if record.interrupted {
        output.line(format_args!("{} interrupted: measurements are missing", styled(YELLOW, "warning:"),))?;
    }
    for (device, calls) in missing(record) {
        output.line(outside(format!("`{device}` has no kernel for {}", calls.join(", "))))?;
    }
    for Failed { device, error } in &record.errors {
        output.line(format_args!(
            "{} {}",
            styled(RED, &format!("`{device}` was not measured to the end:")),
            outside(error)
        ))?;
    }
    Ok(())
}

/// The calls that each device has no kernel for.
fn missing(record: &Record) -> BTreeMap<&str, Vec<&str>> {
    let mut calls = BTreeMap::<_, Vec<_>>::new();
    for Missing { device, operation } in &record.missing {
        calls.entry(&**device).or_default().push(&**operation);
    }
    calls
}

/// The spread that calls for a second run.
const VARIES: f64 = 0.2;

fn varies(measurement: &Measurement) -> bool {
    measurement.spread().is_some_and(|spread| spread > VARIES)
}

fn spread(measurement: &Measurement) -> Cell {
    let style = if varies(measurement) { YELLOW } else { PLAIN };
    let text = measurement.spread().map(|spread| format!("{:.0} %", spread * 100.0));
    Cell::styled(style, text.unwrap_or_default())
}

/// What limits the operation: arithmetic, or else bytes.
fn rate(measurement: &Measurement) -> String {
    match (measurement.arithmetic(), measurement.bandwidth()) {
        (Some(rate), _) => format!("{:.2} Gop/s", rate / 1e9),
        (None, Some(rate)) => format!("{:.2} GB/s", rate / 1e9),
        (None, None) => String::new(),
    }
}

/// Seconds with three digits and a unit.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}
