//! The kernel for OpenCL and for CUDA, which compile one text.

use std::fmt::Write;

use device_kernels::{Call, Coverage, KernelSet};
use device_opencl_kernels::{CustomKernel, Value};
use device_registry::Device;
use device_registry::backend::{BackendError, Launch};

use crate::{coverage, limit};

/// The kernel, and what enqueues it on devices of one interface.
pub(crate) struct Kernel(pub(crate) Enqueue);

/// `launch` of device-opencl-kernels or of device-cuda-kernels, which has their contract.
pub(crate) type Enqueue = unsafe fn(&CustomKernel, &Call, &Launch<'_>) -> Result<(), BackendError>;

impl KernelSet for Kernel {
    fn coverage(&self, _device: Device) -> Vec<Coverage> {
        coverage()
    }

    fn supports(&self, _device: Device, call: &Call) -> bool {
        limit(call).is_some() && arguments(call).is_some()
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let unsupported = || BackendError::unsupported(call);
        let (limit, indices) = limit(call).zip(arguments(call)).ok_or_else(unsupported)?;
        let (_, out) = call.outputs().first().ok_or_else(unsupported)?;
        let kernel = CustomKernel::new(text(out.rank()), out.len()).value(Value::Float(limit));
        let kernel = indices.into_iter().fold(kernel, CustomKernel::index);
        // SAFETY: the kernel has these parameters. Each item computes the index of an element from the shape,
        // and its places from the layouts' strides.
        unsafe { (self.0)(&kernel, call, launch) }
    }
}

/// The number of elements, the offset of each layout, and of each dimension its size and strides. `None` for
/// numbers that the kernel does not have.
fn arguments(call: &Call) -> Option<Vec<i64>> {
    let layouts: Vec<_> = call.arrays().map(|(_, layout)| layout).collect();
    let out = layouts.last()?;
    let mut indices = vec![i64::try_from(out.len()).ok()?];
    for layout in &layouts {
        indices.push(layout.offset().try_into().ok()?);
    }
    for (dim, &size) in out.shape().iter().enumerate() {
        indices.push(size.try_into().ok()?);
        for layout in &layouts {
            // The stride of a dimension of one element is never used, and may be any number.
            let stride = if size == 1 { 0 } else { layout.strides()[dim] };
            indices.push(stride.try_into().ok()?);
        }
    }
    Some(indices)
}

fn text(rank: usize) -> String {
    let mut text = String::from(
        "__kernel void run(__global const float *gate, index_t gate_at, __global const float *value, index_t value_at,
    __global float *out, index_t out_at, float limit,
    index_t len, index_t gate_offset, index_t value_offset, index_t out_offset",
    );
    for dim in 0..rank {
        let _ =
            write!(text, ",\n    index_t size{dim}, index_t gate{dim}, index_t value{dim}, index_t out{dim}");
    }
    text += ") {
    index_t rest = (index_t)get_global_id(0);
    if (rest >= len) return;
    gate_at += gate_offset;
    value_at += value_offset;
    out_at += out_offset;
    index_t index;\n";
    for dim in (0..rank).rev() {
        let _ = writeln!(
            text,
            "    index = rest % size{dim}; rest /= size{dim};
    gate_at += index * gate{dim}; value_at += index * value{dim}; out_at += index * out{dim};"
        );
    }
    text + "    float g = fmin(gate[gate_at], limit);
    out[out_at] = g / (1.0f + exp(-g)) * clamp(value[value_at], -limit, limit);
}
"
}
