//! Transfers that go in several pieces: longer than all buffers that they go through.

use device_registry::{Device, HostBuffer};

device_registry::autoload!();

/// Five pieces between the host and the device, two within the device, and some bytes.
const LEN: usize = (19 << 20) + 3;

fn open() -> Option<Device> {
    device_conformance::device_or_skip("wgpu")
}

/// Bytes in which no two pieces are alike.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place ^ (place >> 8) ^ (place >> 16) ^ (place >> 22)) as u8).collect()
}

/// Not `assert_eq`, which prints all of them.
fn check(got: &[u8], expected: &[u8]) {
    let wrong = got.iter().zip(expected).position(|(got, expected)| got != expected);
    assert!(got.len() == expected.len() && wrong.is_none(), "the first wrong byte is at {wrong:?}");
}

#[test]
fn functions_that_block_copy_all_pieces() {
    let Some(device) = open() else { return };
    let (buffer, written) = (device.allocate(LEN).unwrap(), bytes(LEN));
    buffer.write(0, &written).unwrap();
    let mut read = vec![0; LEN];
    buffer.read(0, &mut read).unwrap();
    check(&read, &written);
    // From a place on.
    let start = 4 << 20 | 4;
    buffer.read(start, &mut read[start..]).unwrap();
    check(&read, &written);
}

#[test]
fn streams_copy_all_pieces() {
    let Some(device) = open() else { return };
    let (buffer, written) = (device.allocate(LEN).unwrap(), bytes(LEN));
    let stream = device.create_stream().unwrap();
    stream.write(&buffer, 0, HostBuffer::from(written.clone())).unwrap();
    check(&stream.read(&buffer, ..).unwrap().wait().unwrap(), &written);
}

#[test]
fn a_copy_within_one_buffer_copies_all_pieces_and_nothing_else() {
    let Some(device) = open() else { return };
    let (half, mut expected) = (LEN - 3, bytes(2 * (LEN - 3) + 8));
    let buffer = device.allocate(expected.len()).unwrap();
    buffer.write(0, &expected).unwrap();
    let target = buffer.slice(half + 4..2 * half + 4).unwrap();
    target.copy_from(&buffer.slice(..half).unwrap()).unwrap();
    expected.copy_within(0..half, half + 4);
    let mut read = vec![0; expected.len()];
    buffer.read(0, &mut read).unwrap();
    check(&read, &expected);
}

#[test]
fn a_fill_repeats_its_pattern_to_the_end_and_no_further() {
    let Some(device) = open() else { return };
    for pattern in [&b"x"[..], b"ab", b"abcdefghijklmnop", &[0; 4]] {
        // More than twice what it goes through.
        let len = (37 << 20) + 16;
        let mut expected = bytes(len + 32);
        let buffer = device.allocate(len + 32).unwrap();
        buffer.write(0, &expected).unwrap();
        buffer.fill(16..16 + len, pattern).unwrap();
        expected[16..16 + len].copy_from_slice(&pattern.repeat(len / pattern.len()));
        let mut read = vec![0; len + 32];
        buffer.read(0, &mut read).unwrap();
        check(&read, &expected);
    }
}

/// The next write gets a buffer that the device has not read, or a new one.
#[test]
fn writes_that_nobody_waits_for_do_not_disturb_each_other() {
    let Some(device) = open() else { return };
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(64 << 16).unwrap();
    for round in 0..8_u8 {
        for part in 0..64 {
            let bytes = HostBuffer::from(vec![part ^ round; 1 << 16]);
            stream.write(&buffer, usize::from(part) << 16, bytes).unwrap();
        }
        let expected: Vec<u8> = (0..64).flat_map(|part| vec![part ^ round; 1 << 16]).collect();
        check(&stream.read(&buffer, ..).unwrap().wait().unwrap(), &expected);
    }
}
