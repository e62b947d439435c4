//! `devices info`: everything about one device.

use std::process::ExitCode;

use device_registry::{Device, DeviceError, ErrorChain, ListedDevice, device, devices, first_available};

use crate::Failure;
use crate::output::{BOLD, Output, RED, bytes, outside, styled};

/// Describes a device, or without one each that is present.
pub(crate) fn run(text: Option<&str>, output: &mut Output) -> Result<ExitCode, Failure> {
    let Some(text) = text else { return all(output) };
    let listed = opened(chosen(text)?)?;
    if output.is_json() {
        output.document(&listed)?;
    } else {
        print(&listed, output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One that cannot be opened is an error below the others.
fn all(output: &mut Output) -> Result<ExitCode, Failure> {
    let present = devices().flat_map(|(_, devices)| devices.unwrap_or_default());
    let (mut listed, mut errors) = (Vec::new(), Vec::new());
    for device in present {
        match opened(device) {
            Ok(device) => listed.push(device),
            Err(error) => errors.push(error),
        }
    }
    if output.is_json() {
        output.document(&listed)?;
    } else {
        for (number, device) in listed.iter().enumerate() {
            if number > 0 {
                output.line("")?;
            }
            print(device, output)?;
        }
    }
    for error in &errors {
        anstream::eprintln!("{} {}", styled(RED, "error:"), outside(ErrorChain::new(error)));
    }
    Ok(if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn opened(device: Device) -> Result<ListedDevice, DeviceError> {
    let device = device.resolve();
    device.open()?;
    let listed = device.listed()?;
    listed.properties().map_err(Clone::clone)?;
    Ok(listed)
}

fn print(listed: &ListedDevice, output: &mut Output) -> Result<(), Failure> {
    for (name, value) in facts(listed)? {
        output.line(format_args!("{}  {}", styled(BOLD, &format!("{name:<22}")), outside(value)))?;
    }
    Ok(())
}

/// The device of a device string, or the first that is available of a list.
pub(crate) fn chosen(text: &str) -> Result<Device, DeviceError> {
    match device(text) {
        Err(DeviceError::Syntax(_)) => Ok(first_available(text)?.device),
        device => device,
    }
}

fn facts(listed: &ListedDevice) -> Result<Vec<(String, String)>, Failure> {
    let device = listed.device();
    let properties = listed.properties().map_err(Clone::clone)?;
    let mut facts = Vec::new();
    let mut add =
        |name: &str, value: Option<String>| facts.extend(value.map(|value| (name.to_owned(), value)));
    add("device", Some(device.to_string()));
    add("name", Some(properties.name.clone()));
    let yes_or_no = |yes| Some(if yes { "yes" } else { "no" }.to_owned());
    add("vendor", properties.vendor.clone());
    add("kind", Some(properties.kind.to_string()));
    add("driver", properties.driver.clone());
    add("driver version", properties.driver_version.clone());
    add("interface", properties.api.as_ref().map(ToString::to_string));
    add("compute capability", properties.compute_capability.map(|version| version.to_string()));
    add("native dtypes", properties.native_dtypes.as_ref().map(|names| names.join(" ")));
    add("uuid", properties.uuid.map(|uuid| uuid.to_string()));
    add("pci", properties.pci.map(|pci| pci.to_string()));
    let entry = device.backend();
    add(
        "package",
        entry.package().map(|package| format!("{package} {}", entry.version().unwrap_or_default())),
    );
    add("file", entry.file().map(|file| file.display().to_string()));
    add("total memory", properties.total_memory.map(bytes));
    if let Some(memory) = listed.memory() {
        add("free memory", memory.map_err(Clone::clone)?.free.map(bytes));
    }
    add("largest allocation", properties.largest_allocation.map(bytes));
    add("copy alignment", Some(bytes(properties.copy_alignment as u64)));
    add("concurrent streams", yes_or_no(properties.concurrent_streams));
    add("timed events", yes_or_no(properties.timed_events));
    add("pinned host memory", yes_or_no(properties.pinned_memory));
    if let Some(statistics) = listed.statistics() {
        add("allocated", Some(bytes(statistics.allocated)));
        add("held by this process", Some(bytes(statistics.reserved)));
    }
    for (name, value) in properties.attributes.iter() {
        facts.push((name.to_owned(), value.to_string()));
    }
    Ok(facts)
}
