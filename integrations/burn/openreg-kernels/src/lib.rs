//! A kernel set for burn on `openreg`: sum, difference, product and quotient of `f32`.
//!
//! It is a line in a program's Cargo.toml, as every set is. The simulated device has no speed to gain: the set is there
//! for tests, and to copy.

use device_burn_backend::kernels::{KERNEL_SETS, Kernel, KernelSet, KernelSetDescriptor, Operator};
use device_openreg::OpenRegMemory;
use device_registry::backend::{BackendError, HostMemory, Launch, LoadFailure, Span, open_windows};

device_burn_backend::kernels::entry_points! {
    /// The kernels of `openreg`.
    #[distributed_slice(KERNEL_SETS)]
    pub static OPENREG_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("openreg", load);
}

fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(OpenReg))
}

struct OpenReg;

impl KernelSet for OpenReg {
    fn supports(&self, kernel: &Kernel) -> bool {
        kernel.dtype.name() == "f32"
    }

    fn launch(
        &self,
        kernel: &Kernel,
        _launch: &Launch<'_>,
        [a, b]: [&Span; 2],
        output: &Span,
    ) -> Result<(), BackendError> {
        let compute: fn(f32, f32) -> f32 = match kernel.operator {
            Operator::Add => |a, b| a + b,
            Operator::Sub => |a, b| a - b,
            Operator::Mul => |a, b| a * b,
            Operator::Div => |a, b| a / b,
            other => return Err(BackendError::unsupported(format_args!("the operator {other:?}"))),
        };
        let reads = [(memory(a)?, a.range()), (memory(b)?, b.range())];
        // All windows at once, so that no two kernels wait for each other.
        let ([a, b], [mut output]) = open_windows(reads, [(memory(output)?, output.range())])?;
        let ((a, _), (b, _)) = (a.as_chunks(), b.as_chunks());
        for ((output, a), b) in output.as_chunks_mut().0.iter_mut().zip(a).zip(b) {
            *output = compute(f32::from_ne_bytes(*a), f32::from_ne_bytes(*b)).to_ne_bytes();
        }
        Ok(())
    }
}

fn memory(span: &Span) -> Result<&HostMemory, BackendError> {
    span.memory_as::<OpenRegMemory>()?.bytes()
}
