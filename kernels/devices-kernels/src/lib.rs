#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod cases;

use device_kernels::{DType, Operand, RunError, run};
use device_registry::backend::LoadFailure;
use device_registry::{Buffer, Device, Stream};
use devices::{KERNEL_BENCHMARKS, KernelBenchmark, KernelBenchmarkDescriptor, KernelError, Timer};

use crate::cases::{Array, Case};

device_registry::backend::entry_points! {
    /// The benchmark `operators`, for programs that register it by hand.
    #[distributed_slice(KERNEL_BENCHMARKS)]
    pub static OPERATORS: KernelBenchmarkDescriptor = KernelBenchmarkDescriptor::new("operators", load);
}

fn load() -> Result<Box<dyn KernelBenchmark>, LoadFailure> {
    Ok(Box::new(Operators))
}

struct Operators;

impl KernelBenchmark for Operators {
    fn run(&self, device: Device, timer: &mut Timer<'_>) -> Result<(), KernelError> {
        let stream = device.create_stream()?;
        let largest = timer.largest();
        let cases = cases::all();
        let fitting = || cases.iter().filter(|case| case.bytes() <= largest);
        timer.plan(fitting().count() as u64);
        for case in fitting() {
            measure(device, &stream, case, timer)?;
        }
        Ok(())
    }
}

/// Measures one call, or notes that there is no kernel for it.
fn measure(device: Device, stream: &Stream, case: &Case, timer: &mut Timer<'_>) -> Result<(), KernelError> {
    let filled = |arrays: &[Array]| -> Result<Vec<_>, _> {
        arrays.iter().map(|array| filled(device, array)).collect()
    };
    let inputs = filled(&case.inputs)?;
    let outputs = filled(&case.outputs)?;
    let inputs = operands(&inputs, &case.inputs)?;
    let outputs = operands(&outputs, &case.outputs)?;
    match run(stream, case.operator, &inputs, &outputs) {
        Err(RunError::Unsupported { .. }) => {
            timer.missing(case.to_string());
            return Ok(());
        }
        first => first?,
    }
    timer.time(case.to_string(), case.bytes() as u64, case.operations, || {
        run(stream, case.operator, &inputs, &outputs)?;
        Ok(stream.synchronize()?)
    })
}

fn operands<'a>(buffers: &'a [Buffer], arrays: &[Array]) -> Result<Vec<Operand<'a>>, KernelError> {
    let all = buffers.iter().zip(arrays);
    all.map(|(buffer, (dtype, shape))| Ok(Operand::new(buffer, *dtype, shape)?)).collect()
}

/// A buffer whose floats are one half, and whose integers are 0, as they may be indices.
fn filled(device: Device, (dtype, shape): &Array) -> Result<Buffer, KernelError> {
    let buffer = device.allocate(dtype.size() * shape.iter().product::<usize>())?;
    match dtype {
        DType::F32 => buffer.fill(.., &0.5_f32.to_ne_bytes())?,
        DType::F64 => buffer.fill(.., &0.5_f64.to_ne_bytes())?,
        _ => buffer.fill(.., &[0])?,
    }
    Ok(buffer)
}
