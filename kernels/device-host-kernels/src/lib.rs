#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod arrays;
mod blocks;
mod call_bytes;
mod conv;
mod element;
mod elementwise;
mod expression;
mod functions;
mod index;
mod kernels;
mod matmul;
mod pooling;
mod random;
mod real;
mod reduce;
mod softmax;
mod sort;
mod threads;
mod vectors;

use std::fmt;

use device_kernels::{ComputeOnHost, Coverage};
use device_registry::backend::{BackendError, HostMemory, Span};
pub use kernels::compute;

/// The memory of a backend as memory of the host.
type HostMemoryOf = fn(&Span) -> Result<&HostMemory, BackendError>;

/// Kernels for a backend whose memory is memory of the host.
///
/// The backend's crate of kernels says how its memory is found, and registers the set:
///
/// ```
/// use device_host_kernels::HostKernels;
/// use device_kernels::{KERNEL_SETS, KernelSet, KernelSetDescriptor};
/// use device_registry::backend::{HostMemory, LoadFailure};
///
/// device_kernels::entry_points! {
///     #[distributed_slice(KERNEL_SETS)]
///     pub static MYCPU_KERNELS: KernelSetDescriptor = KernelSetDescriptor::new("mycpu", load);
/// }
///
/// fn load() -> Result<Box<dyn KernelSet>, LoadFailure> {
///     Ok(Box::new(HostKernels::new(|span| span.memory_as::<HostMemory>())))
/// }
/// # fn main() {}
/// ```
pub struct HostKernels {
    memory: HostMemoryOf,
    is_host: bool,
    coverage: Vec<Coverage>,
    compute: ComputeOnHost,
    /// Whether that is this crate's own.
    is_own: bool,
}

impl HostKernels {
    /// Kernels for memory that `memory` finds.
    #[must_use]
    pub fn new(memory: HostMemoryOf) -> Self {
        Self { is_own: true, ..Self::computing(memory, Coverage::of_all(), compute) }
    }

    /// Your own kernel for such memory, such as one for an [operator that a crate
    /// declares](device_kernels::OperatorDefinition): what it covers, and what computes that.
    ///
    /// `compute` gets the bytes of the arrays, each from its first element to its last: an element is at its
    /// place by the strides, less the first element's place, which is the start of [`Layout::range`].
    ///
    /// [`Layout::range`]: device_kernels::Layout::range
    #[must_use]
    pub fn computing(memory: HostMemoryOf, coverage: Vec<Coverage>, compute: ComputeOnHost) -> Self {
        Self { memory, is_host: false, coverage, compute, is_own: false }
    }

    /// Says that the memory of the devices is the host's own, which any code of the host may use in their
    /// place: a framework then [computes in its arrays](device_kernels::KernelSet::on_host), without buffers
    /// and streams.
    #[must_use]
    pub fn of_the_host(self) -> Self {
        Self { is_host: true, ..self }
    }
}

fn unsupported(what: impl fmt::Display) -> BackendError {
    BackendError::unsupported(format_args!("the operator or type {what}"))
}
