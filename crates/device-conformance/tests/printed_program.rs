//! A program that the conformance suite has made.

use device_registry::{Buffer, DeviceError, device};

device_registry::autoload!();

/// `len` bytes, different for each seed.
fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i as u32).wrapping_mul(0x9E37_79B1) >> 24) as u8 ^ seed.wrapping_mul(0x3D)).collect()
}

fn content(buffer: &Buffer) -> Result<Vec<u8>, DeviceError> {
    let mut bytes = vec![0xA5; buffer.len()];
    buffer.read(0, &mut bytes)?;
    Ok(bytes)
}

fn main() -> Result<(), DeviceError> {
    let d0 = device("cpu")?;
    let d1 = device("cpu")?;
    let s0 = d0.create_stream()?;
    let s2 = d1.create_stream()?;
    let b0 = d0.allocate(8)?;
    b0.write(0, &bytes(0, 8))?;
    let b1 = d1.allocate(6)?;
    b1.write(0, &bytes(1, 6))?;
    let b2 = b0.slice(2..8)?;
    s0.host_call(|| std::thread::sleep(std::time::Duration::from_micros(500)))?;
    s0.fill(&b0, 0..8, &[0x11, 0x22])?;
    let r0 = s0.read(&b2, 0..2)?;
    s0.write(&b2, 1, bytes(2, 4))?;
    let e0 = s0.record()?;
    s2.wait_event(&e0)?;
    s2.copy(&b2.slice(1..5)?, &b1.slice(2..6)?)?;
    let r1 = s2.read(&b1, 2..6)?;
    drop(b2);
    let e1 = s2.record()?;
    e1.synchronize()?;
    assert_eq!(content(&b1.slice(0..2)?)?, [0x3d, 0xa3]);
    b1.write(0, &bytes(3, 1))?;
    b0.slice(7..8)?.copy_from(&b1.slice(0..1)?)?;
    b1.fill(0..6, &[0x33])?;
    s0.synchronize()?;
    s2.synchronize()?;
    assert_eq!(*r0.wait()?, [0x11, 0x22]);
    assert_eq!(*r1.wait()?, [0x7a, 0xe4, 0x46, 0xa0]);
    assert_eq!(content(&b0)?, [0x11, 0x22, 0x11, 0x7a, 0xe4, 0x46, 0xa0, 0xb7]);
    assert_eq!(content(&b1)?, [0x33; 6]);
    Ok(())
}
