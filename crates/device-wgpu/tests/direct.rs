//! A program that submits to the queue itself finds the work of streams before its own.

use std::sync::mpsc::channel;

use device_registry::backend::{BackendError, Launch};
use device_wgpu::wgpu::{BufferDescriptor, BufferUsages, CommandEncoderDescriptor, MapMode, PollType};
use device_wgpu::{WgpuDevice, WgpuMemory};

device_registry::autoload!();

#[test]
fn what_streams_have_gathered_is_in_the_queue_before_a_programs_own_work() {
    let Some(device) = device_conformance::device_or_skip("wgpu") else { return };
    let (stream, buffer) = (device.create_stream().unwrap(), device.allocate(4).unwrap());
    let (sender, memory) = channel();
    let kernel = move |launch: &Launch<'_>| {
        let [Some(span)] = launch.spans() else { return Err(BackendError::invalid("one buffer")) };
        sender.send(span.memory_as::<WgpuMemory>()?.buffer().clone()).unwrap();
        Ok(())
    };
    stream.launch(&[&buffer], kernel).unwrap();
    let memory = memory.recv().unwrap();

    // Before the queue was ever asked for, and after, when each piece of work is submitted at once.
    for byte in [1, 2] {
        stream.write(&buffer, 0, vec![byte; 4]).unwrap();
        let read = |driver: &WgpuDevice| {
            let (device, queue) = (driver.device(), driver.queue());
            let landing = device.create_buffer(&BufferDescriptor {
                label: None,
                size: 4,
                usage: BufferUsages::COPY_DST | BufferUsages::MAP_READ,
                mapped_at_creation: false,
            });
            let mut encoder = device.create_command_encoder(&CommandEncoderDescriptor::default());
            encoder.copy_buffer_to_buffer(&memory, 0, &landing, 0, 4);
            queue.submit([encoder.finish()]);
            landing.map_async(MapMode::Read, .., |mapped| mapped.unwrap());
            device.poll(PollType::wait_indefinitely()).unwrap();
            Ok(landing.get_mapped_range(..).unwrap().to_vec())
        };
        assert_eq!(device.with_driver(read).unwrap(), [byte; 4]);
    }
    stream.synchronize().unwrap();
}
