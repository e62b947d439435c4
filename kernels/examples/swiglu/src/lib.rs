#![doc = include_str!("../README.md")]

mod host;
mod text;

use device_host_kernels::HostKernels;
use device_kernels::{
    Call, Coverage, CustomOperator, DType, Evaluation, Example, KERNEL_SETS, KernelSet, KernelSetDescriptor,
    OPERATORS, Operator, OperatorDefinition, OperatorDescriptor, Problem, Signature,
};
use device_openreg::OpenRegMemory;
use device_registry::backend::{HostMemory, LoadFailure};
use entry_points::LoadError;

/// The name of the operator.
const NAME: &str = "acme__swiglu";

// Behind two underscores, a kernel set of a backend has its own name. It is asked before the backend's.
device_kernels::entry_points! {
    /// The operator `acme__swiglu`.
    #[distributed_slice(OPERATORS)]
    pub static SWIGLU: OperatorDescriptor = OperatorDescriptor::new(NAME, || Ok(Box::new(Swiglu)));

    /// Its kernel for `cpu`.
    #[distributed_slice(KERNEL_SETS)]
    pub static CPU: KernelSetDescriptor = KernelSetDescriptor::new("cpu__swiglu", cpu);

    /// Its kernel for `openreg`.
    #[distributed_slice(KERNEL_SETS)]
    pub static OPENREG: KernelSetDescriptor = KernelSetDescriptor::new("openreg__swiglu", openreg);

    /// Its kernel for `opencl`.
    #[distributed_slice(KERNEL_SETS)]
    pub static OPENCL: KernelSetDescriptor =
        KernelSetDescriptor::new("opencl__swiglu", || Ok(Box::new(text::Kernel(device_opencl_kernels::launch))));

    /// Its kernel for `cuda`.
    #[distributed_slice(KERNEL_SETS)]
    pub static CUDA: KernelSetDescriptor =
        KernelSetDescriptor::new("cuda__swiglu", || Ok(Box::new(text::Kernel(device_cuda_kernels::launch))));
}

fn cpu() -> Result<Box<dyn KernelSet>, LoadFailure> {
    let kernels = HostKernels::computing(|span| span.memory_as::<HostMemory>(), coverage(), host::compute);
    Ok(Box::new(kernels.of_the_host()))
}

fn openreg() -> Result<Box<dyn KernelSet>, LoadFailure> {
    let kernels =
        HostKernels::computing(|span| span.memory_as::<OpenRegMemory>()?.bytes(), coverage(), host::compute);
    Ok(Box::new(kernels))
}

/// `silu(min(gate, limit)) * clamp(value, -limit, limit)`, element-wise, for floating-point numbers of one
/// shape. `silu(x)` is `x / (1 + e^-x)`.
///
/// # Errors
///
/// If the operator is switched off.
pub fn swiglu(limit: f64) -> Result<CustomOperator, LoadError> {
    Ok(device_kernels::operator(NAME)?.with_options([limit]))
}

struct Swiglu;

impl OperatorDefinition for Swiglu {
    fn options(&self) -> &'static [&'static str] {
        &["limit"]
    }

    fn check(&self, signature: &Signature<'_>) -> Result<(), Problem> {
        let ([gate, value], [out]) = signature.arrays()?;
        gate.expect_float("the gate")?;
        value.expect_like("the value", gate)?;
        out.expect_like("the output", gate)?;
        let limit = signature.options()[0].as_f64();
        let problem =
            Problem::Option { option: "limit", expected: "a number above 0", found: limit.to_string() };
        if limit > 0.0 { Ok(()) } else { Err(problem) }
    }

    fn is_light(&self) -> bool {
        true
    }

    fn examples(&self) -> Vec<Example> {
        let example = |dtype, shape: &[usize], limit: f64| {
            let example = Example::new().option(limit).input(dtype, shape, -9.0..=9.0);
            example.input(dtype, shape, -9.0..=9.0).output(dtype, shape)
        };
        let of_type = |dtype| {
            [example(dtype, &[3, 5], 7.0), example(dtype, &[2, 1, 4], 1.5), example(dtype, &[], 100.0)]
        };
        [DType::F32, DType::F64].into_iter().flat_map(of_type).collect()
    }

    fn reference(&self, call: &Evaluation<'_>) -> Vec<Vec<f64>> {
        let ([gate, value], [limit]) = (call.inputs, call.options) else { return Vec::new() };
        let limit = limit.as_f64();
        let of = |(gate, value): (&f64, &f64)| {
            let gate = gate.min(limit);
            gate / (1.0 + (-gate).exp()) * value.clamp(-limit, limit)
        };
        vec![gate.elements.iter().zip(&value.elements).map(of).collect()]
    }

    /// The exponential function of OpenCL has 3, the division 2.5, and two more operations half of one each.
    fn units(&self, dtype: DType) -> f64 {
        if dtype == DType::F64 { 10.0 } else { 8.0 }
    }
}

/// What the kernels here have.
fn coverage() -> Vec<Coverage> {
    vec![Coverage::of(NAME).dtypes([DType::F32])]
}

/// The limit of a call of this operator, if its arrays are of type `f32`.
fn limit(call: &Call) -> Option<f32> {
    let Operator::Custom(custom) = call.operator() else { return None };
    let is_f32 = call.arrays().all(|(dtype, _)| dtype == DType::F32);
    let limit = custom.option(0).filter(|_| custom.name() == NAME && is_f32)?;
    Some(limit.as_f64() as f32)
}
