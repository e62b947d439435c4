//! `cargo test` across backends: one test for each linked device and check, such as `openreg:0::round_trip`.
//!
//! No source line names a backend: adding one to this package's Cargo.toml adds its tests. A backend that has no
//! device here shows as one ignored test with the reason.

use device_registry::{BackendErrorKind, Device, DeviceError, LoadError, backends, devices};
use libtest_mimic::{Arguments, Failed, Trial};

device_registry::autoload!();

/// A check: what it is called, and what it does to a device.
type Check = (&'static str, fn(Device) -> Result<(), Failed>);

const CHECKS: &[Check] = &[
    ("properties", properties),
    ("string_round_trip", string_round_trip),
    ("round_trip", round_trip),
    ("offsets", offsets),
    ("copy_within_the_device", copy_within_the_device),
    ("copy_to_and_from_every_other_device", copy_to_and_from_every_other_device),
    ("zero_lengths", zero_lengths),
    ("ranges_outside", ranges_outside),
    ("overlap", overlap),
    ("more_memory_than_there_is", more_memory_than_there_is),
    ("many_threads", many_threads),
    ("one_index_too_many", one_index_too_many),
];

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for (backend, devices) in devices() {
        match devices {
            Ok(devices) => trials.extend(devices.into_iter().flat_map(trials_of)),
            // Which of the two it is decides: absent hardware is no fault, a broken backend is one.
            Err(DeviceError::Backend(cause @ LoadError::Unavailable { .. })) => {
                let name = format!("{}::unavailable: {cause}", backend.name());
                trials.push(Trial::test(name, || Ok(())).with_ignored_flag(true));
            }
            Err(error) => {
                trials.push(Trial::test(format!("{}::devices", backend.name()), move || Err(error.into())));
            }
        }
    }
    trials.push(Trial::test("every_linked_backend_is_here", every_linked_backend_is_here));
    libtest_mimic::run(&arguments, trials).exit();
}

fn trials_of(device: Device) -> impl Iterator<Item = Trial> {
    CHECKS.iter().map(move |(name, check)| Trial::test(format!("{device}::{name}"), move || check(device)))
}

/// Guards against passing with nothing to do: Cargo.toml has at least one backend besides the cpu.
fn every_linked_backend_is_here() -> Result<(), Failed> {
    let names: Vec<_> = backends().names().collect();
    if names.len() < 2 || !names.contains(&"cpu") {
        return Err(format!("only {names:?} is linked:\n{}", backends().report()).into());
    }
    Ok(())
}

/// Bytes that differ from their neighbours and from those a page away.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

fn content(buffer: &device_registry::Buffer) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes)?;
    Ok(bytes)
}

fn properties(device: Device) -> Result<(), Failed> {
    let properties = device.properties()?;
    assert!(!properties.name.is_empty());
    let memory = device.memory_info()?;
    if let (Some(free), Some(total)) = (memory.free, memory.total) {
        assert!(free <= total, "{free} bytes of {total} are free");
    }
    Ok(())
}

fn string_round_trip(device: Device) -> Result<(), Failed> {
    assert_eq!(Device::parse(&device.to_string())?, device);
    assert_eq!(device.resolve(), device);
    Ok(())
}

fn round_trip(device: Device) -> Result<(), Failed> {
    for len in [1, 3, 4, 7, 4095, 4096, 4097, 3 << 20] {
        let buffer = device.allocate(len)?;
        assert_eq!((buffer.len(), buffer.device()), (len, device));
        let bytes = pattern(len);
        buffer.write(0, &bytes)?;
        assert!(content(&buffer)? == bytes, "{len} bytes come back changed");
    }
    Ok(())
}

fn offsets(device: Device) -> Result<(), Failed> {
    let buffer = device.allocate(100)?;
    let mut expected = pattern(100);
    buffer.write(0, &expected)?;
    for (offset, len) in [(0, 1), (1, 2), (50, 50), (99, 1), (3, 64)] {
        let part = vec![0xEE; len];
        buffer.write(offset, &part)?;
        expected[offset..offset + len].copy_from_slice(&part);
        let mut back = vec![0; len];
        buffer.read(offset, &mut back)?;
        assert_eq!(back, part);
        assert_eq!(content(&buffer)?, expected, "around {offset} + {len}");
    }
    Ok(())
}

fn copy_within_the_device(device: Device) -> Result<(), Failed> {
    let (source, destination) = (device.allocate(64)?, device.allocate(64)?);
    source.write(0, &pattern(64))?;
    destination.write(0, &[0xEE; 64])?;
    destination.copy_from(8, &source, 16..48)?;
    let mut expected = vec![0xEE; 64];
    expected[8..40].copy_from_slice(&pattern(64)[16..48]);
    assert_eq!(content(&destination)?, expected);
    // Within one buffer, side by side.
    source.copy_from(32, &source, 0..32)?;
    assert_eq!(content(&source)?[32..], pattern(32));
    Ok(())
}

fn copy_to_and_from_every_other_device(device: Device) -> Result<(), Failed> {
    // More than one piece of a copy through the host, and no multiple of anything.
    let len = (2 << 20) + 13;
    let bytes = pattern(len);
    for (_, others) in devices() {
        for other in others.into_iter().flatten().filter(|other| *other != device) {
            let (here, there, back) = (device.allocate(len)?, other.allocate(len)?, device.allocate(len)?);
            here.write(0, &bytes)?;
            there.copy_from(0, &here, 0..len)?;
            back.copy_from(0, &there, 0..len)?;
            assert!(content(&there)? == bytes && content(&back)? == bytes, "by way of {other}");
        }
    }
    Ok(())
}

fn zero_lengths(device: Device) -> Result<(), Failed> {
    let (empty, full) = (device.allocate(0)?, device.allocate(4)?);
    assert!(empty.is_empty());
    empty.write(0, &[])?;
    empty.read(0, &mut [])?;
    full.write(4, &[])?;
    full.copy_from(4, &empty, 0..0)?;
    Ok(())
}

fn ranges_outside(device: Device) -> Result<(), Failed> {
    let buffer = device.allocate(8)?;
    let outside = |result| matches!(result, Err(DeviceError::OutOfRange { .. }));
    assert!(outside(buffer.write(0, &[0; 9])));
    assert!(outside(buffer.write(usize::MAX, &[0; 2])));
    assert!(outside(buffer.read(8, &mut [0; 1])));
    assert!(outside(buffer.copy_from(1, &device.allocate(8)?, 0..8)));
    assert!(outside(buffer.copy_from(0, &device.allocate(8)?, 7..9)));
    Ok(())
}

fn overlap(device: Device) -> Result<(), Failed> {
    let buffer = device.allocate(8)?;
    assert!(matches!(buffer.copy_from(1, &buffer, 0..4), Err(DeviceError::Overlap { .. })));
    assert!(matches!(buffer.copy_from(0, &buffer, 0..8), Err(DeviceError::Overlap { .. })));
    buffer.copy_from(4, &buffer, 0..4)?;
    Ok(())
}

fn more_memory_than_there_is(device: Device) -> Result<(), Failed> {
    for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
        let error = device.allocate(len).err().ok_or_else(|| format!("{len} bytes were allocated"))?;
        let kind = error.backend_error().map(|error| error.kind());
        assert!(matches!(kind, Some(BackendErrorKind::OutOfMemory { .. })), "{len}: {error}");
    }
    // The device is none the worse for it.
    round_trip(device)
}

fn many_threads(device: Device) -> Result<(), Failed> {
    let work = |thread: u8| -> Result<(), DeviceError> {
        for _ in 0..50 {
            let buffer = device.allocate(1000)?;
            buffer.write(0, &[thread; 1000])?;
            assert!(content(&buffer)?.iter().all(|byte| *byte == thread));
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    Ok(())
}

fn one_index_too_many(device: Device) -> Result<(), Failed> {
    let count = device.count()?;
    let beyond = Device::parse(&format!("{}:{count}", device.name()))?;
    match beyond.allocate(1) {
        Err(DeviceError::NoSuchDevice { count: told, .. }) if told == count => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
