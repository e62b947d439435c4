//! `devices`: all backends and devices in a table.

use std::process::ExitCode;

use device_registry::registry::State;
use device_registry::{DeviceKind, ListedBackend, ListedDevice, Presence, backends, device_list};

use crate::Failure;
use crate::output::{Cell, GREEN, Output, RED, Table, YELLOW, bytes, outside, styled};

pub(crate) fn run(output: &mut Output) -> Result<ExitCode, Failure> {
    let list = device_list();
    if output.is_json() {
        output.document(&list)?;
        return Ok(ExitCode::SUCCESS);
    }
    let titles = ["DEVICE", "NAME", "KIND", "MEMORY", "DRIVER", "STATE", "PACKAGE"];
    let mut table = Table::new(titles, &[3]).elastic(&[1, 4, 6]);
    for backend in list.backends() {
        for device in backend.devices() {
            table.row(row(device, backend));
        }
    }
    output.table(&table)?;
    let unusable: Vec<_> = list.backends().iter().filter_map(reason).collect();
    if !unusable.is_empty() {
        output.heading("Not available")?;
        for (backend, style, reason) in unusable {
            let name = styled(style, backend.name());
            output.paragraph(&format!("  {name}: {}", outside(reason)), 4)?;
        }
    }
    let notes = list.report().notes();
    if !notes.is_empty() {
        output.heading("Notes")?;
        for note in notes {
            output.paragraph(&format!("  {}", outside(note)), 4)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(device: &ListedDevice, backend: &ListedBackend) -> [Cell; 7] {
    let properties = device.properties().ok();
    let text = |text: Option<String>| Cell::from(text.unwrap_or_default());
    [
        Cell::from(device.device()),
        text(properties.map(|properties| properties.name.clone())),
        text(
            properties
                .map(|properties| properties.kind)
                .filter(|kind| *kind != DeviceKind::Other)
                .map(|kind| kind.to_string()),
        ),
        text(properties.and_then(|properties| properties.total_memory).map(bytes)),
        text(properties.and_then(|properties| properties.driver.clone())),
        state(device),
        text(package(backend)),
    ]
}

fn state(device: &ListedDevice) -> Cell {
    match device.presence() {
        Ok(Presence::Present) if device.properties().is_ok() => Cell::styled(GREEN, "present"),
        Ok(Presence::Present) => Cell::styled(RED, device),
        Ok(Presence::Absent(_)) => Cell::styled(YELLOW, device),
        _ => Cell::styled(RED, device),
    }
}

/// The package of a backend with its version.
pub(crate) fn package(backend: &ListedBackend) -> Option<String> {
    let entry = backends().get(backend.name())?;
    Some(format!("{} {}", entry.package()?, entry.version().unwrap_or_default()))
}

/// Why a backend has no devices here.
fn reason(backend: &ListedBackend) -> Option<(&ListedBackend, anstyle::Style, String)> {
    match (backend.state(), backend.error()) {
        (State::Disabled { .. }, _) => Some((backend, YELLOW, backend.state().to_string())),
        (State::Unavailable { .. }, Some(error)) => Some((backend, YELLOW, error.to_string())),
        (_, Some(error)) => Some((backend, RED, error.to_string())),
        (_, None) if backend.devices().is_empty() => Some((backend, YELLOW, "it has no devices".to_owned())),
        _ => None,
    }
}
