//! Kernels through the native handles.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use device_registry::backend::{BackendError, BackendErrorKind, EventOptions, Launch, Span};
use device_registry::{Buffer, Device, DeviceError, Stream};
use device_wgpu::wgpu::{
    BindGroupDescriptor, BindGroupEntry, BindingResource, BufferBinding, BufferUsages, CommandBuffer,
    CommandEncoderDescriptor, ComputePassDescriptor, ComputePipeline, ComputePipelineDescriptor,
    ShaderModuleDescriptor, ShaderSource,
};
use device_wgpu::{WgpuDevice, WgpuMemory, WgpuStream};

device_registry::autoload!();

const DOUBLE: &str = "
    @group(0) @binding(0) var<storage, read_write> numbers: array<u32>;

    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&numbers) { numbers[id.x] = numbers[id.x] * 2u; }
    }
";

fn pipeline(device: &WgpuDevice, wgsl: &str) -> Result<ComputePipeline, BackendError> {
    device.checked(|device| {
        let source = ShaderSource::Wgsl(wgsl.into());
        let module = device.create_shader_module(ShaderModuleDescriptor { label: Some("double"), source });
        device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: Some("double"),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        })
    })
}

/// The commands that run a pipeline on a span, as one array of numbers.
fn commands(
    device: &WgpuDevice,
    pipeline: &ComputePipeline,
    span: &Span,
) -> Result<CommandBuffer, BackendError> {
    let memory: &WgpuMemory = span.memory_as()?;
    let binding = BufferBinding {
        buffer: memory.buffer(),
        offset: span.offset() as u64,
        size: (span.len() as u64).try_into().ok(),
    };
    device.checked(|device| {
        let group = device.create_bind_group(&BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[BindGroupEntry { binding: 0, resource: BindingResource::Buffer(binding) }],
        });
        let mut encoder = device.create_command_encoder(&CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor::default());
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups((span.len() as u32 / 4).div_ceil(64), 1, 1);
        drop(pass);
        encoder.finish()
    })
}

fn double(launch: &Launch<'_>) -> Result<(), BackendError> {
    let device: &WgpuDevice = launch.driver_as()?;
    let pipeline = pipeline(device, DOUBLE)?;
    let stream: &WgpuStream = launch.stream_as()?;
    let commands = launch.spans().iter().flatten().map(|span| commands(device, &pipeline, span));
    stream.submit(commands.collect::<Result<Vec<_>, _>>()?)
}

fn numbers(device: Device, numbers: &[u32]) -> Buffer {
    let buffer = device.allocate(numbers.len() * 4).unwrap();
    buffer.write(0, &bytes(numbers)).unwrap();
    buffer
}

fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn stream() -> Option<(Device, Stream)> {
    let device = device_conformance::device_or_skip("wgpu")?;
    Some((device, device.create_stream().unwrap()))
}

#[test]
fn a_kernel_works_on_the_memory_of_its_buffers_in_the_order_of_its_stream() {
    let Some((device, stream)) = stream() else { return };
    let all: Vec<u32> = (0..1000).collect();
    let (left, right) = (numbers(device, &all), device.allocate(4000).unwrap());
    stream.write(&right, 0, bytes(&all)).unwrap();
    for _ in 0..3 {
        stream.launch(&[&left, &right], double).unwrap();
    }
    let eightfold: Vec<u32> = all.iter().map(|number| number * 8).collect();
    // Queued behind them, and read back without a wait between.
    let read = stream.read(&right, ..).unwrap();
    assert_eq!(*read.wait().unwrap(), *bytes(&eightfold));
    stream.synchronize().unwrap();
    let mut back = vec![0; 4000];
    left.read(0, &mut back).unwrap();
    assert_eq!(back, bytes(&eightfold));
}

#[test]
fn a_kernel_on_a_part_leaves_the_rest_alone() {
    let Some((device, stream)) = stream() else { return };
    let buffer = numbers(device, &[1; 256]);
    // Bindings begin at multiples of 256 bytes at most.
    let part = buffer.slice(256..512).unwrap();
    stream.launch(&[&part], double).unwrap();
    stream.synchronize().unwrap();
    let mut back = vec![0; 1024];
    buffer.read(0, &mut back).unwrap();
    let expected: Vec<u32> = (0..256).map(|place| if (64..128).contains(&place) { 2 } else { 1 }).collect();
    assert_eq!(back, bytes(&expected));
}

#[test]
fn an_event_behind_a_kernel_waits_for_it_and_has_its_time() {
    let Some((device, stream)) = stream() else { return };
    let buffer = numbers(device, &vec![1; 1 << 20]);
    let timed = device.properties().unwrap().timed_events;
    let record = || {
        if timed {
            stream.record_with(&EventOptions::new().timed()).unwrap()
        } else {
            stream.record().unwrap()
        }
    };
    let before = record();
    for _ in 0..20 {
        stream.launch(&[&buffer], double).unwrap();
    }
    let after = record();
    after.synchronize().unwrap();
    assert!(after.query().unwrap() && before.query().unwrap() && stream.query().unwrap());
    if timed {
        let taken = after.elapsed_since(&before).unwrap();
        assert!(taken.as_nanos() > 0 && taken.as_secs() < 60, "{taken:?}");
        assert!(before.elapsed_since(&after).is_err());
    }
}

#[test]
fn memory_can_be_used_in_all_the_ways_that_kernels_need() {
    let Some((device, stream)) = stream() else { return };
    let buffer = device.allocate(5).unwrap();
    let uses = |launch: &Launch<'_>| {
        let [Some(span)] = launch.spans() else { return Err(BackendError::invalid("one buffer")) };
        let buffer = span.memory_as::<WgpuMemory>()?.buffer();
        let needed = BufferUsages::STORAGE
            | BufferUsages::UNIFORM
            | BufferUsages::INDIRECT
            | BufferUsages::COPY_SRC
            | BufferUsages::COPY_DST;
        match (buffer.usage().contains(needed), buffer.size()) {
            (true, 8) => Ok(()),
            (_, size) => Err(BackendError::other(format!("{:?} of {size} bytes", buffer.usage()))),
        }
    };
    stream.launch(&[&buffer], uses).unwrap();
}

#[test]
fn a_device_is_opened_with_all_that_its_adapter_can_do() {
    let Some((_, stream)) = stream() else { return };
    let limits = |launch: &Launch<'_>| {
        let device: &WgpuDevice = launch.driver_as()?;
        assert_eq!(device.device().limits(), device.adapter().limits());
        Ok(())
    };
    stream.launch(&[], limits).unwrap();
}

/// Of Vulkan, whose handles can be compared.
#[cfg(target_os = "linux")]
#[test]
fn the_instance_is_that_of_the_adapter() {
    use device_wgpu::wgpu::hal::api::Vulkan;

    let Some((device, _)) = stream() else { return };
    let handles = |device: &WgpuDevice| {
        // SAFETY: the handle is only compared, and not used or destroyed.
        let instance = unsafe { device.instance().as_hal::<Vulkan>() };
        // SAFETY: the handle is only compared, and not used or destroyed.
        let adapter = unsafe { device.adapter().as_hal::<Vulkan>() };
        let instance = instance.map(|instance| instance.shared_instance().raw_instance().handle());
        Ok((instance, adapter.map(|adapter| adapter.shared_instance().raw_instance().handle())))
    };
    let (instance, adapter) = device.with_driver(handles).unwrap();
    if adapter.is_some() {
        assert_eq!(instance, adapter);
    }
}

/// The kind and the message of what a kernel returned.
fn refused(launched: Result<(), DeviceError>) -> (BackendErrorKind, String) {
    match launched {
        Err(DeviceError::Call { call: "launch", error, .. }) => (error.kind(), error.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_malformed_kernel_is_an_error_with_the_compilers_message() {
    let Some((device, stream)) = stream() else { return };
    let compile = |wgsl: &'static str| {
        let compile = move |launch: &Launch<'_>| pipeline(launch.driver_as()?, wgsl).map(drop);
        refused(stream.launch(&[], compile))
    };
    let (kind, message) = compile("@compute @workgroup_size(1) fn main() { let x: f32 = 1u; }");
    assert_eq!(kind, BackendErrorKind::Invalid);
    assert!(
        message.contains("let x: f32 = 1u") && message.contains("f32"),
        "the place and the reason: {message}"
    );
    let (_, message) = compile("@compute fn main( {");
    assert!(message.contains("expected"), "{message}");
    let (kind, message) = compile("@compute @workgroup_size(1) fn other() {}");
    assert_eq!(kind, BackendErrorKind::Invalid);
    assert!(message.contains("main"), "no entry point of that name: {message}");
    // The stream continues.
    let buffer = numbers(device, &[21]);
    stream.launch(&[&buffer], double).unwrap();
    assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), 42_u32.to_ne_bytes());
}

#[test]
fn commands_that_wgpu_refuses_are_not_submitted_and_harm_nobody() {
    let Some((device, stream)) = stream() else { return };
    let buffer = numbers(device, &[21]);
    let beyond = |launch: &Launch<'_>| {
        let (device, stream): (&WgpuDevice, &WgpuStream) = (launch.driver_as()?, launch.stream_as()?);
        let [Some(span)] = launch.spans() else { return Err(BackendError::invalid("one buffer")) };
        let memory: &WgpuMemory = span.memory_as()?;
        // Without its own scope: `submit` has one, for the errors there.
        let mut encoder = device.device().create_command_encoder(&CommandEncoderDescriptor::default());
        encoder.clear_buffer(memory.buffer(), 0, Some(4096));
        stream.submit([encoder.finish()])
    };
    let (kind, message) = refused(stream.launch(&[&buffer], beyond));
    assert_eq!(kind, BackendErrorKind::Invalid, "{message}");
    assert_eq!(*stream.read(&buffer, ..).unwrap().wait().unwrap(), 21_u32.to_ne_bytes());
    stream.synchronize().unwrap();
}

#[test]
fn commands_may_come_from_an_iterator_that_submits_to_the_same_stream() {
    let Some((device, stream)) = stream() else { return };
    let buffer = numbers(device, &[10]);
    let (done, is_done) = channel();
    let kernel = move |launch: &Launch<'_>| {
        let (device, stream): (&WgpuDevice, &WgpuStream) = (launch.driver_as()?, launch.stream_as()?);
        let [Some(span)] = launch.spans() else { return Err(BackendError::invalid("one buffer")) };
        let pipeline = pipeline(device, DOUBLE)?;
        let (earlier, later) = (commands(device, &pipeline, span)?, commands(device, &pipeline, span)?);
        let commands = std::iter::once_with(|| {
            stream.submit([earlier]).unwrap();
            later
        });
        let submitted = stream.submit(commands);
        done.send(()).unwrap();
        submitted
    };
    let enqueues = thread::spawn(move || {
        stream.launch(&[&buffer], kernel).unwrap();
        stream.read(&buffer, ..).unwrap().wait().unwrap()
    });
    is_done.recv_timeout(Duration::from_secs(60)).expect("it waits for itself");
    assert_eq!(*enqueues.join().unwrap(), 40_u32.to_ne_bytes());
}

#[test]
fn what_no_scope_has_caught_is_no_panic() {
    let Some((_, stream)) = stream() else { return };
    let careless = |launch: &Launch<'_>| {
        let device = launch.driver_as::<WgpuDevice>()?.device();
        let source = ShaderSource::Wgsl("nonsense".into());
        drop(device.create_shader_module(ShaderModuleDescriptor { label: None, source }));
        Ok(())
    };
    stream.launch(&[], careless).unwrap();
}

#[test]
fn a_kernel_for_another_device_is_unsupported() {
    let stream = Device::cpu().create_stream().unwrap();
    stream.launch(&[], double).unwrap();
    let error = stream.synchronize().unwrap_err().to_string();
    assert!(error.contains("the device has no handle of type `device_wgpu::native::WgpuDevice`"), "{error}");
}

/// Many steps for each number. More than 65535 in one loop llvmpipe does not do.
const SPIN: &str = "
    @group(0) @binding(0) var<storage, read_write> numbers: array<u32>;

    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        var state = numbers[id.x];
        for (var step = 0u; step < 50000u; step++) {
            state ^= state << 13u;
            state ^= state >> 17u;
            state ^= state << 5u;
        }
        numbers[id.x] = state;
    }
";

fn spin(launch: &Launch<'_>) -> Result<(), BackendError> {
    let (device, stream): (&WgpuDevice, &WgpuStream) = (launch.driver_as()?, launch.stream_as()?);
    let [Some(span)] = launch.spans() else { return Err(BackendError::invalid("one buffer")) };
    stream.submit([commands(device, &pipeline(device, SPIN)?, span)?])
}

#[test]
fn what_runs_is_not_done_and_what_was_waited_for_is() {
    let Some((device, stream)) = stream() else { return };
    let other = device.create_stream().unwrap();
    // As many numbers as take so long that it cannot be mistaken for none.
    let mut count = 64;
    let buffer = loop {
        let buffer = numbers(device, &vec![1; count]);
        let is_long = |_| {
            stream.launch(&[&buffer], spin).unwrap();
            // Not before, for a launch compiles.
            let started = Instant::now();
            stream.synchronize().unwrap();
            started.elapsed() > Duration::from_millis(300)
        };
        // More than once, as this process may have to wait for others. Or as many as one dispatch has, which
        // keep the fastest card busy for longer than it takes to ask.
        if (0..3).all(is_long) || count == 64 << 15 {
            break buffer;
        }
        count *= 2;
    };
    for by_event in [true, false] {
        stream.launch(&[&buffer], spin).unwrap();
        let event = stream.record().unwrap();
        assert!(!event.query().unwrap() && !stream.query().unwrap());
        // There is nothing in it.
        assert!(other.query().unwrap());
        if by_event {
            event.synchronize().unwrap();
        } else {
            stream.synchronize().unwrap();
        }
        assert!(event.query().unwrap() && stream.query().unwrap());
    }
}
