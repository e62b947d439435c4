//! Kernels of devices for burn's operations: what a kernel can do, and the group that kernel sets register in.
//!
//! A kernel set is an entry point with the name of its backend. It belongs to no crate here: a program links the set by a
//! line in its Cargo.toml, as it links the backend. Without one, burn's CPU engine does every operation.

use burn_backend::DType;
use device_registry::backend::{BackendError, Launch, Span};
use entry_points::EntryPoint;
/// Registers a kernel set, with [`KERNEL_SETS`](static@KERNEL_SETS) as the group.
#[doc(inline)]
pub use entry_points::entry_points;

/// The kernels of one backend.
pub trait KernelSet: Send + Sync {
    /// Whether the set has `kernel`. Called for each operation: it does not block.
    fn supports(&self, kernel: &Kernel) -> bool;

    /// Runs or submits `kernel`, as [`Stream::launch`](device_registry::Stream::launch) says.
    ///
    /// The operands have the kernel's number of elements, one after the other. An input may be the same memory as the
    /// other one; the output is memory of its own.
    ///
    /// # Errors
    ///
    /// An error becomes that of the tensor that the kernel was to write.
    fn launch(
        &self,
        kernel: &Kernel,
        launch: &Launch<'_>,
        inputs: [&Span; 2],
        output: &Span,
    ) -> Result<(), BackendError>;
}

/// A kernel, and what it is to work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// What it computes.
    pub operator: Operator,
    /// The type of all operands.
    pub dtype: DType,
    /// The number of elements of each operand.
    pub len: usize,
}

/// What a kernel computes, element by element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operator {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
}

/// A kernel set as constant data: the name of its backend, where it comes from, and how to load it.
pub type KernelSetDescriptor = EntryPoint<dyn KernelSet>;

entry_points::group! {
    /// The distributed slice that kernel sets register in.
    pub static KERNEL_SETS: [KernelSetDescriptor];

    /// The group `burn.kernels`: every kernel set of this program, by the name of its backend. Variables with the prefix
    /// `DEVICE_BURN_KERNELS` switch its entries on and off.
    pub fn kernel_sets() -> Group<dyn KernelSet> {
        entry_points::Group::new("burn.kernels")
            .noun("kernel set")
            .switches("DEVICE_BURN_KERNELS")
            .autoload_line("device_registry::autoload!();")
    }
}
