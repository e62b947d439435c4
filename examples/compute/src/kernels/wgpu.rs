//! Kernels in WGSL, the language of WebGPU.

use std::num::NonZero;
use std::sync::Arc;

use device_registry::Device;
use device_registry::backend::{BackendError, Launch, Span};
use device_wgpu::wgpu::{
    BindGroupDescriptor, BindGroupEntry, BindingResource, BufferBinding, CommandEncoderDescriptor,
    ComputePassDescriptor, ComputePipeline, ComputePipelineDescriptor, Limits, PipelineCompilationOptions,
    ShaderModuleDescriptor, ShaderSource,
};
use device_wgpu::{WgpuDevice, WgpuMemory, WgpuStream};

use super::{Compiled, Language, NativeKernels, first_element};
use crate::work::{Shape, Work};

/// The invocations of a workgroup, as the text has it.
const WORKGROUP: u32 = 64;

/// The most terms that one dispatch adds up.
///
/// Loops have limits: Mesa's llvmpipe leaves a kernel's loops after 65535 steps, nested ones counted
/// together, without an error; and systems reset a GPU that is busy with one command for seconds.
const TERMS: usize = 1 << 15;

pub(crate) const LANGUAGE: Language =
    Language { name: "WGSL", built_in: Some(include_str!("wgpu.wgsl")), compile };

fn compile(device: Device, text: &str) -> Compiled {
    device.with_driver(|driver: &WgpuDevice| {
        let source = ShaderSource::Wgsl(text.into());
        let descriptor = ShaderModuleDescriptor { label: Some("kernels"), source };
        let module = driver.checked(|device| device.create_shader_module(descriptor))?;
        let pipeline = |name| {
            let descriptor = ComputePipelineDescriptor {
                label: Some(name),
                // Of the arrays that the function uses: with one left out, a launch is refused.
                layout: None,
                module: &module,
                entry_point: Some(name),
                compilation_options: PipelineCompilationOptions::default(),
                cache: None,
            };
            driver.checked(|device| device.create_compute_pipeline(&descriptor))
        };
        let limits = driver.device().limits();
        let program = Program { add: pipeline("add")?, matmul: pipeline("matmul")?, limits };
        Ok(Arc::new(program) as Arc<dyn NativeKernels>)
    })
}

struct Program {
    add: ComputePipeline,
    matmul: ComputePipeline,
    limits: Limits,
}

impl NativeKernels for Program {
    fn enqueue(&self, launch: &Launch<'_>, work: Work, spans: [&Span; 3]) -> Result<(), BackendError> {
        let (pipeline, inner, columns) = match work {
            Work::Add { .. } => (&self.add, 0, 0),
            Work::Matmul(Shape { inner, columns, .. }) => (&self.matmul, inner, columns),
        };
        let [(a, a_start), (b, b_start), (result, result_start)] =
            [self.bind(spans[0])?, self.bind(spans[1])?, self.bind(spans[2])?];
        let resources = [a, b, result].map(BindingResource::Buffer);
        let entries = (0..).zip(resources).map(|(binding, resource)| BindGroupEntry { binding, resource });
        let entries: Vec<_> = entries.collect();
        let len = work.call().1[0];
        let groups = len.div_ceil(WORKGROUP);
        let x = groups.min(self.limits.max_compute_workgroups_per_dimension);
        let commands = launch.driver_as::<WgpuDevice>()?.checked(|device| {
            let layout = &pipeline.get_bind_group_layout(0);
            let bindings = BindGroupDescriptor { label: None, layout, entries: &entries };
            let mut encoder = device.create_command_encoder(&CommandEncoderDescriptor::default());
            let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &device.create_bind_group(&bindings), &[]);
            // One after the other, as wgpu orders dispatches that use the same bytes.
            for start in (0..inner.max(1)).step_by(TERMS) {
                let end = inner.min(start.saturating_add(TERMS as u32));
                let arguments = [a_start, b_start, result_start, len, inner, columns, start, end];
                pass.set_immediates(0, arguments.map(u32::to_ne_bytes).as_flattened());
                pass.dispatch_workgroups(x, groups.div_ceil(x), 1);
            }
            drop(pass);
            encoder.finish()
        })?;
        // wgpu keeps the resources of commands until they are done.
        launch.stream_as::<WgpuStream>()?.enqueue([commands])
    }
}

impl Program {
    /// The bytes of a span as something to bind, and where in it the first element is. A binding begins at a
    /// multiple of an alignment, and a span where it likes.
    fn bind<'a>(&self, span: &'a Span) -> Result<(BufferBinding<'a>, u32), BackendError> {
        let buffer = span.memory_as::<WgpuMemory>()?.buffer();
        let start = first_element(span)? * size_of::<f32>();
        let before = start % self.limits.min_storage_buffer_offset_alignment as usize;
        let size = NonZero::new((before + span.len()) as u64);
        let binding = BufferBinding { buffer, offset: (start - before) as u64, size };
        Ok((binding, (before / size_of::<f32>()) as u32))
    }
}
