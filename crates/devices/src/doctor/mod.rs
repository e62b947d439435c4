//! `devices doctor`: what is here, what is wrong, and what to do about it. For bug reports.

mod drivers;
mod environment;
pub(crate) mod open;
mod pci;

use std::path::Path;
use std::process::ExitCode;

use device_config::ConfigReport;
use device_registry::registry::{Report, State, groups};
use device_registry::{DeviceList, backends, default_selection, device_list};
use serde::Serialize;

use crate::Failure;
use crate::doctor::drivers::Driver;
use crate::doctor::pci::Card;
use crate::output::{GREEN, Output, RED, YELLOW, outside, styled};

/// Where Linux lists the devices on its PCI buses.
const PCI: &str = "/sys/bus/pci/devices";

/// What `devices doctor --json` prints.
#[derive(Serialize)]
struct Diagnosis<'a> {
    version: &'static str,
    system: String,
    variables: Vec<(String, String)>,
    /// The file and its values, or null if it is wrong, which is a problem.
    configuration: Option<&'a ConfigReport>,
    default_selection: Option<String>,
    drivers: &'a [Driver],
    hardware: &'a [Card],
    problems: &'a [String],
    /// What `devices --json` prints.
    devices: &'a DeviceList,
    /// The reports on all groups of entry points in the program, including the backends.
    groups: &'a [Report],
}

pub(crate) fn run(
    configuration: &Result<ConfigReport, device_config::Error>,
    output: &mut Output,
) -> Result<ExitCode, Failure> {
    // First, as a driver that ends its process ends this one when its backend is listed.
    let drivers = drivers::drivers();
    let list = device_list();
    let mut cards = pci::cards(Path::new(PCI));
    for card in &mut cards {
        card.find_backends(&list);
    }
    // The others say where was searched.
    let is_problem = |note: &&String| !note.starts_with("searched for ") && !note.starts_with("no folder ");
    let mut problems: Vec<String> = list.report().notes().iter().filter(is_problem).cloned().collect();
    problems.extend(configuration.as_ref().err().map(ToString::to_string));
    let default = default_selection();
    problems.extend(default.as_ref().err().map(ToString::to_string));
    for backend in list.backends() {
        if let (State::Failed { .. } | State::Duplicate { .. }, Some(error)) =
            (backend.state(), backend.error())
        {
            problems.push(error.to_string());
        }
        for device in backend.devices() {
            problems.extend(device.presence().err().map(ToString::to_string));
            problems
                .extend(device.properties().err().filter(|_| device.is_present()).map(ToString::to_string));
        }
    }
    if let Ok(Some(default)) = &default
        && let Err(error) = default.first_available()
    {
        // Its reasons are indented, and the list of backends below them stands in the report already.
        let text = error.to_string();
        let reasons = text.lines().skip(1).take_while(|line| line.starts_with(' ')).map(str::trim);
        problems.push(format!("`auto` has no device: {}", reasons.collect::<Vec<_>>().join("; ")));
    }
    problems.extend(drivers.iter().filter_map(Driver::problem));
    problems.extend(cards.iter().filter_map(Card::problem));
    let groups = groups();
    for group in groups.reports().iter().filter(|group| group.group() != backends().name()) {
        let failed = group.rows().iter().filter_map(|row| match &row.state {
            State::Failed { cause, .. } => Some(cause.messages().join(": ")),
            _ => None,
        });
        problems.extend(failed);
    }
    let diagnosis = Diagnosis {
        version: env!("CARGO_PKG_VERSION"),
        system: environment::system(),
        variables: environment::variables(),
        configuration: configuration.as_ref().ok(),
        default_selection: default.ok().flatten().map(|selection| selection.to_string()),
        drivers: &drivers,
        hardware: &cards,
        problems: &problems,
        devices: &list,
        groups: groups.reports(),
    };
    if output.is_json() {
        output.document(&diagnosis)?;
    } else {
        print(&diagnosis, output)?;
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(diagnosis: &Diagnosis<'_>, output: &mut Output) -> Result<(), Failure> {
    let none = |output: &mut Output| output.line("  none");
    output.line(format_args!("devices {} on {}", diagnosis.version, diagnosis.system))?;
    output.heading("Variables")?;
    if diagnosis.variables.is_empty() {
        none(output)?;
    }
    for (name, value) in &diagnosis.variables {
        output.line(format_args!("  {name}={}", outside(value)))?;
    }
    output.heading("Configuration")?;
    match diagnosis.configuration {
        Some(report) => output.line(format_args!("  {}", report.to_string().replace('\n', "\n  ")))?,
        None => output.line("  the file is wrong: see the problems")?,
    }
    output.heading("What `auto` means")?;
    match &diagnosis.default_selection {
        Some(selection) => output.line(format_args!("  {selection}"))?,
        None => output.line("  nothing: neither DEVICE_DEFAULT nor a configuration file says it")?,
    }
    output.heading("Backends and devices")?;
    output.line(format_args!("  {}", outside(diagnosis.devices).replace('\n', "\n  ")))?;
    for group in
        diagnosis.groups.iter().filter(|group| group.group() != backends().name() && !group.rows().is_empty())
    {
        output.heading(&format!("Group {}", group.group()))?;
        output.line(format_args!("  {}", outside(group).replace('\n', "\n  ")))?;
    }
    output.heading("Drivers that the loaders of OpenCL and Vulkan look for")?;
    if diagnosis.drivers.is_empty() {
        output.line("  none was found, or no backend for them is on (only Linux is searched)")?;
    }
    for driver in diagnosis.drivers {
        let style = if driver.problem().is_some() { YELLOW } else { GREEN };
        output.line(format_args!("  {}", styled(style, &outside(driver))))?;
    }
    output.heading("Hardware on PCI buses")?;
    if diagnosis.hardware.is_empty() {
        output.line("  no graphics card or accelerator was found (only Linux is searched)")?;
    }
    for card in diagnosis.hardware {
        let style = if card.problem().is_some() { YELLOW } else { GREEN };
        output.line(format_args!("  {}", styled(style, &card.to_string())))?;
    }
    output.heading("Problems")?;
    if diagnosis.problems.is_empty() {
        none(output)?;
    }
    for problem in diagnosis.problems {
        let problem = outside(problem).replace('\n', "\n    ");
        output.line(format_args!("  {} {problem}", styled(RED, "*")))?;
    }
    Ok(())
}
