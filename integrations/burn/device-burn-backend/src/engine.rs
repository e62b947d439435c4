//! Decides between a kernel and burn's CPU engine if both can do an operation in the same bytes.

use std::env;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use burn_backend::DType;
use burn_ir::TensorIr;
use device_kernels::{Argument, Operator, Unary};

use crate::dtype::dtype_of;
use crate::operation::{Operands, OperationName};
use crate::policy::{self, InvalidVariable};
use crate::step::Step;

const VARIABLE: &str = "DEVICE_BURN_KERNELS";

/// When kernels do an operation, on a device whose memory is the host's own, such as `cpu`.
///
/// There burn's CPU engine and the kernels work on the same bytes, so that each operation may take the faster
/// way. On all other devices an operation that has a kernel runs as one.
///
/// Two operations ignore the choice, on any device. Random numbers are drawn by a kernel that has
/// their type and distribution. burn's CPU engine does `Tensor::cat` as long as no part of it is only on the
/// device or on both: on a device whose memory is the host's own, that is always so.
///
/// The choice holds for all devices of the process. The variable `DEVICE_BURN_KERNELS` sets it with the
/// values `auto` and `always`; [`set`](Self::set) in code takes precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KernelUse {
    /// Where they are faster than burn's CPU engine, by operator and size: convolutions and their gradients,
    /// maximum poolings, sorts of more than a few elements, and large sigmoids.
    #[default]
    Auto = 1,
    /// Wherever there is one.
    Always = 2,
}

/// The choice, or 0 before it is set or read from the variable.
static CHOICE: AtomicU8 = AtomicU8::new(0);

impl KernelUse {
    /// Sets the choice for all devices.
    pub fn set(self) {
        CHOICE.store(self as u8, Ordering::Relaxed);
    }

    /// The choice in force.
    ///
    /// # Errors
    ///
    /// If the variable has another value than the two. Until [`set`](Self::set) is called, every operation
    /// that has a kernel is then an error.
    pub fn current() -> Result<Self, InvalidVariable> {
        match CHOICE.load(Ordering::Relaxed) {
            1 => Ok(Self::Auto),
            2 => Ok(Self::Always),
            _ => {
                let choice = Self::from_variable(env::var_os(VARIABLE))?;
                choice.set();
                Ok(choice)
            }
        }
    }

    fn from_variable(value: Option<OsString>) -> Result<Self, InvalidVariable> {
        let words = [("auto", Self::Auto), ("always", Self::Always)];
        policy::parse(VARIABLE, value, &words).map(Option::unwrap_or_default)
    }
}

/// The number of elements of the first input from which on kernels are faster than burn's CPU engine, or
/// `None` if the engine always is: the table.
fn kernels_are_faster_from(operator: Operator) -> Option<usize> {
    match operator {
        Operator::Conv2d(_)
        | Operator::Conv2dInputGrad(_)
        | Operator::Conv2dWeightGrad(_)
        | Operator::MaxPool2d(_) => Some(0),
        Operator::Unary(Unary::Sigmoid) => Some(4096),
        Operator::Sort { .. } => Some(256),
        _ => None,
    }
}

/// Whether a kernel is faster than burn's CPU engine for an operation of this step. Several kernels never
/// are.
pub(crate) fn kernels_are_faster(steps: &[Step]) -> bool {
    let [step] = steps else { return false };
    let call = step.planned.call();
    let elements = call.inputs().first().and_then(Argument::array).map_or(0, |(_, layout)| layout.len());
    kernels_are_faster_from(call.operator()).is_some_and(|from| elements >= from)
}

/// The operations that burn's CPU engine does faster although there are kernels, by their first tensor's
/// type. They need no plan: it would cost as much as a small operation.
///
/// Whether there is a kernel may differ by the shapes and the options too, such as the mode of a padding.
/// Then such an operation counts as one that has a kernel. Where that matters, each operation is planned:
/// unless the policy is [`Fallback::Allow`].
///
/// [`Fallback::Allow`]: crate::Fallback::Allow
pub(crate) struct Settled(Box<[Engine]>);

/// When burn's CPU engine does an operation faster.
struct Engine {
    /// The types that are known.
    types: AtomicU32,
    /// With fewer elements of the first tensor than that.
    below: AtomicUsize,
}

impl Default for Settled {
    fn default() -> Self {
        let unknown = |_| Engine { types: AtomicU32::new(0), below: AtomicUsize::new(usize::MAX) };
        Self((0..OperationName::COUNT).map(unknown).collect())
    }
}

impl Settled {
    /// Whether the engine does the operation faster, whose [first tensor](first) this is.
    pub(crate) fn has(&self, name: OperationName, first: &TensorIr) -> bool {
        let Engine { types, below } = &self.0[name.index()];
        let types = types.load(Ordering::Acquire);
        if types == 0 || type_bit(first.dtype).is_none_or(|bit| types & bit == 0) {
            return false;
        }
        let below = below.load(Ordering::Relaxed);
        below == usize::MAX || first.shape.num_elements() < below
    }

    /// Notes what the engine does. A plan without elements says nothing about other sizes: it may have no
    /// steps.
    pub(crate) fn add(&self, name: OperationName, operands: &Operands, steps: &[Step]) {
        let mut tensors = operands.inputs.iter().chain(&operands.outputs);
        if steps.is_empty() || tensors.any(|tensor| tensor.shape.num_elements() == 0) {
            return;
        }
        let kernels_from = match steps {
            [step] => kernels_are_faster_from(step.planned.call().operator()),
            _ => None,
        };
        if let Some(bit) = first(operands).and_then(|first| type_bit(first.dtype)) {
            let Engine { types, below } = &self.0[name.index()];
            below.fetch_min(kernels_from.unwrap_or(usize::MAX), Ordering::Relaxed);
            types.fetch_or(bit, Ordering::Release);
        }
    }
}

/// The first input or, if there is none, the first output.
pub(crate) fn first(operands: &Operands) -> Option<&TensorIr> {
    operands.inputs.first().or(operands.outputs.first())
}

fn type_bit(dtype: DType) -> Option<u32> {
    dtype_of(dtype).map(|dtype| 1 << dtype as u32)
}
