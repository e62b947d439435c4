//! Work that races for the same bytes leaves the result of one of the two, and never causes undefined
//! behaviour.
//!
//! Miri checks the second: `cargo +nightly miri test -p device-registry --test races`.

use device_registry::{Device, StreamGuard, device};

/// Miri takes a thousand times as long.
const ROUNDS: u8 = if cfg!(miri) { 4 } else { 200 };
const LEN: usize = if cfg!(miri) { 64 } else { 4096 };

#[test]
fn streams_that_race_for_one_buffer_leave_the_bytes_of_one_of_them() {
    let cpu = Device::cpu();
    let (buffer, other) = (cpu.allocate(LEN).unwrap(), cpu.allocate(LEN).unwrap());
    buffer.fill(0..LEN, &[0]).unwrap();
    other.fill(0..LEN, &[0]).unwrap();
    let streams = [(); 3].map(|()| cpu.create_stream().unwrap());
    let reads: Vec<_> = (0..ROUNDS)
        .map(|round| {
            streams[0].fill(&buffer, 0..LEN, &[round]).unwrap();
            streams[1].write(&buffer, 0, vec![round; LEN]).unwrap();
            streams[2].copy(&buffer, &other).unwrap();
            streams[0].copy(&other, &buffer).unwrap();
            streams[1].read(&buffer, 0..LEN).unwrap()
        })
        .collect();
    // And from this thread, by a blocking call.
    let mut bytes = vec![0; LEN];
    let _guard = StreamGuard::new(&cpu.create_stream().unwrap());
    buffer.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == bytes[0]));
    for read in reads {
        let bytes = read.wait().unwrap();
        assert!(bytes.iter().all(|&byte| byte == bytes[0] && byte < ROUNDS));
    }
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
}

#[test]
fn kernels_on_several_streams_add_up() {
    let cpu = device("cpu").unwrap();
    let buffer = cpu.allocate(2).unwrap();
    buffer.fill(0..2, &[0]).unwrap();
    let streams = [(); 3].map(|()| cpu.create_stream().unwrap());
    for stream in (0..ROUNDS / 4).flat_map(|_| &streams) {
        stream
            .launch(&[&buffer], |launch| {
                let Some(span) = &launch.spans()[0] else { return Ok(()) };
                let memory = span.memory_as::<device_registry::backend::HostMemory>()?;
                memory.write(span.range())?.iter_mut().for_each(|byte| *byte += 1);
                Ok(())
            })
            .unwrap();
    }
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    let mut bytes = [0; 2];
    buffer.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [ROUNDS / 4 * 3; 2]);
}
