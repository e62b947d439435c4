//! Kernels in WGSL, the language of WebGPU.

use std::num::NonZero;
use std::sync::Arc;

use device_registry::backend::{BackendError, Launch, LoadFailure, Span};
use device_registry::{Device, DeviceError};
use device_wgpu::wgpu::{
    BindGroupDescriptor, BindGroupEntry, BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry,
    BindingResource, BindingType, Buffer, BufferBinding, BufferBindingType, BufferDescriptor, BufferUsages,
    CommandEncoderDescriptor, ComputePassDescriptor, ComputePipeline, ComputePipelineDescriptor,
    PipelineCompilationOptions, PipelineLayoutDescriptor, ShaderModuleDescriptor, ShaderSource, ShaderStages,
};
use device_wgpu::{WgpuDevice, WgpuMemory, WgpuStream, wgpu};

use super::{Compiler, Form, Language, NativeKernels, Shape, first_element};

/// The invocations of a workgroup, as the text has it.
const WORKGROUP: u32 = 64;

/// The numbers of the struct `Arguments`.
const NUMBERS: usize = 8;

/// The most terms that one dispatch adds up.
///
/// Loops have limits: Mesa's llvmpipe leaves a kernel's loops after 65535 steps, nested ones counted
/// together, without an error; and systems reset a GPU that is busy with one command for seconds.
const TERMS: usize = 1 << 15;

/// Loads the kernels for `wgpu`.
pub(crate) fn load() -> Result<Box<dyn Language>, LoadFailure> {
    Ok(Box::new(Wgsl))
}

struct Wgsl;

impl Language for Wgsl {
    fn name(&self) -> &'static str {
        "WGSL"
    }

    fn form(&self) -> Form<'_> {
        Form::Text { built_in: include_str!("wgpu.wgsl"), compiler: self }
    }
}

impl Compiler for Wgsl {
    fn compile(&self, device: Device, text: &str) -> Result<Arc<dyn NativeKernels>, DeviceError> {
        device.with_driver(|driver| {
            let program = Program::compile(driver, text)?;
            Ok(Arc::new(program) as Arc<dyn NativeKernels>)
        })
    }
}

struct Program {
    bindings: BindGroupLayout,
    add: ComputePipeline,
    matmul: ComputePipeline,
    limits: wgpu::Limits,
}

impl Program {
    fn compile(driver: &WgpuDevice, text: &str) -> Result<Self, BackendError> {
        let module = driver.checked(|device| {
            let source = ShaderSource::Wgsl(text.into());
            device.create_shader_module(ShaderModuleDescriptor { label: Some("kernels"), source })
        })?;
        let (bindings, layout) = driver.checked(|device| {
            let entries = [0, 1, 2, 3].map(|binding| BindGroupLayoutEntry {
                binding,
                visibility: ShaderStages::COMPUTE,
                ty: BindingType::Buffer {
                    ty: match binding {
                        3 => BufferBindingType::Uniform,
                        _ => BufferBindingType::Storage { read_only: false },
                    },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            });
            let bindings = device
                .create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries });
            let layout = device.create_pipeline_layout(&PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&bindings)],
                immediate_size: 0,
            });
            (bindings, layout)
        })?;
        let pipeline = |name| {
            let descriptor = ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&layout),
                module: &module,
                entry_point: Some(name),
                compilation_options: PipelineCompilationOptions::default(),
                cache: None,
            };
            driver.checked(|device| device.create_compute_pipeline(&descriptor))
        };
        let (add, matmul) = (pipeline("add")?, pipeline("matmul")?);
        Ok(Self { bindings, add, matmul, limits: driver.device().limits() })
    }

    /// Enqueues a pipeline with the buffers and the numbers, of which the first is how many elements the
    /// result has, and the second how many terms each has, of which a dispatch adds up only a limited number.
    fn submit(
        &self,
        launch: &Launch<'_>,
        pipeline: &ComputePipeline,
        spans: [&Span; 3],
        [len, inner, columns]: [u32; 3],
    ) -> Result<(), BackendError> {
        let driver: &WgpuDevice = launch.driver_as()?;
        let [(a, a_start), (b, b_start), (result, result_start)] =
            [self.bind(spans[0])?, self.bind(spans[1])?, self.bind(spans[2])?];
        let arguments = (0..inner.max(1)).step_by(TERMS).map(|start| {
            let end = inner.min(start.saturating_add(TERMS as u32));
            uniform(driver, [a_start, b_start, result_start, len, inner, columns, start, end])
        });
        let arguments = arguments.collect::<Result<Vec<Buffer>, _>>()?;
        let buffers = [a, b, result].map(BindingResource::Buffer);
        let groups = len.div_ceil(WORKGROUP);
        let x = groups.min(self.limits.max_compute_workgroups_per_dimension);
        let commands = driver.checked(|device| {
            let mut encoder = device.create_command_encoder(&CommandEncoderDescriptor::default());
            let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor::default());
            pass.set_pipeline(pipeline);
            // One after the other, as wgpu orders dispatches that use the same bytes.
            for arguments in &arguments {
                let resources = buffers.iter().cloned().chain([arguments.as_entire_binding()]);
                let entries = (0..).zip(resources);
                let entries: Vec<_> =
                    entries.map(|(binding, resource)| BindGroupEntry { binding, resource }).collect();
                let group = device.create_bind_group(&BindGroupDescriptor {
                    label: None,
                    layout: &self.bindings,
                    entries: &entries,
                });
                pass.set_bind_group(0, &group, &[]);
                pass.dispatch_workgroups(x, groups.div_ceil(x), 1);
            }
            drop(pass);
            encoder.finish()
        })?;
        // wgpu keeps the resources of commands until they are done.
        launch.stream_as::<WgpuStream>()?.enqueue([commands])
    }

    /// The bytes of a span as something to bind, and where in it the first element is. A binding begins at a
    /// multiple of an alignment, and a span where it likes.
    fn bind<'a>(&self, span: &'a Span) -> Result<(BufferBinding<'a>, u32), BackendError> {
        let buffer = span.memory_as::<WgpuMemory>()?.buffer();
        let start = first_element(span)? * size_of::<f32>();
        let before = start % self.limits.min_storage_buffer_offset_alignment as usize;
        let (size, most) = ((before + span.len()) as u64, self.limits.max_storage_buffer_binding_size);
        if size > most {
            return Err(BackendError::invalid(format_args!(
                "an operand needs a binding of {size} bytes, and this device binds at most {most} \
                 (max_storage_buffer_binding_size): use a smaller --length or --size"
            )));
        }
        let binding = BufferBinding { buffer, offset: (start - before) as u64, size: NonZero::new(size) };
        Ok((binding, (before / size_of::<f32>()) as u32))
    }
}

impl NativeKernels for Program {
    fn add(&self, launch: &Launch<'_>, spans: [&Span; 3], len: u32) -> Result<(), BackendError> {
        self.submit(launch, &self.add, spans, [len, 0, 0])
    }

    fn matmul(&self, launch: &Launch<'_>, spans: [&Span; 3], shape: Shape) -> Result<(), BackendError> {
        let [_, _, len] = shape.lens();
        self.submit(launch, &self.matmul, spans, [len, shape.inner(), shape.columns()])
    }
}

/// A buffer of its own for the arguments of one launch.
fn uniform(driver: &WgpuDevice, numbers: [u32; NUMBERS]) -> Result<Buffer, BackendError> {
    let descriptor = BufferDescriptor {
        label: None,
        size: size_of_val(&numbers) as u64,
        usage: BufferUsages::UNIFORM,
        mapped_at_creation: true,
    };
    let buffer = driver.checked(|device| device.create_buffer(&descriptor))?;
    let mut mapped = buffer
        .get_mapped_range_mut(..)
        .map_err(|error| BackendError::other("the arguments are not mapped").with_source(error))?;
    mapped.slice(..).copy_from_slice(numbers.map(u32::to_ne_bytes).as_flattened());
    drop(mapped);
    buffer.unmap();
    Ok(buffer)
}
