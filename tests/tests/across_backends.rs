//! Tests of several backends: copies between the devices of any two, and that there is more than one.
//!
//! What one device has to do by itself is in the conformance suite, `conformance.rs`. No source line names a
//! backend: adding one to this package's Cargo.toml adds its tests.

use device_registry::{Buffer, Device, DeviceError, backends, devices};
use libtest_mimic::{Arguments, Failed, Trial};

device_registry::autoload!();

fn main() {
    let arguments = Arguments::from_args();
    let all: Vec<Device> = devices().flat_map(|(_, devices)| devices.into_iter().flatten()).collect();
    let pairs = all.iter().flat_map(|&from| all.iter().map(move |&to| (from, to)));
    let mut trials: Vec<_> = pairs
        .filter(|(from, to)| from.backend() != to.backend())
        .map(|(from, to)| Trial::test(format!("{from}_to_{to}"), move || copy_between(from, to)))
        .collect();
    trials.extend(
        all.iter().map(|&device| {
            Trial::test(format!("{device}_and_its_string"), move || string_round_trip(device))
        }),
    );
    trials.push(Trial::test("every_linked_backend_is_here", every_linked_backend_is_here));
    libtest_mimic::run(&arguments, trials).exit();
}

/// Guards against passing with nothing to do: Cargo.toml has at least one backend besides the cpu.
fn every_linked_backend_is_here() -> Result<(), Failed> {
    let names: Vec<_> = backends().names().collect();
    if names.len() < 2 || !names.contains(&"cpu") {
        return Err(format!("only {names:?} is linked:\n{}", backends().report()).into());
    }
    Ok(())
}

fn string_round_trip(device: Device) -> Result<(), Failed> {
    assert_eq!(Device::parse(&device.to_string())?, device);
    assert_eq!(device.resolve(), device);
    Ok(())
}

fn copy_between(from: Device, to: Device) -> Result<(), Failed> {
    // More than one piece of a copy through the host, and no multiple of anything.
    let len = (2 << 20) + 13;
    let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
    let (source, copy, back) = (from.allocate(len)?, to.allocate(len)?, from.allocate(len)?);
    source.write(0, &bytes)?;
    copy.copy_from(&source)?;
    back.copy_from(&copy)?;
    assert!(content(&copy)? == bytes, "the bytes on {to} are others");
    assert!(content(&back)? == bytes, "the bytes that are back on {from} are others");
    Ok(())
}

fn content(buffer: &Buffer) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes)?;
    Ok(bytes)
}
