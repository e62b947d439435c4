//! Decides between a kernel and burn's CPU engine if both can do an operation in the same bytes.

use std::env;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

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

/// The operations that burn's CPU engine does faster at every size, although there are kernels, by their
/// first tensor's type. They need no plan: it would cost as much as a small operation.
///
/// Whether there is a kernel may differ by the shapes and the options too, such as the mode of a padding.
/// Then such an operation counts as one that has a kernel. Where that matters, each operation is planned:
/// unless the policy is [`Fallback::Allow`].
///
/// [`Fallback::Allow`]: crate::Fallback::Allow
pub(crate) struct Settled(Box<[AtomicU32]>);

impl Default for Settled {
    fn default() -> Self {
        Self((0..OperationName::COUNT).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Settled {
    pub(crate) fn has(&self, name: OperationName, operands: &Operands) -> bool {
        let types = self.0[name.index()].load(Ordering::Relaxed);
        types != 0 && type_bit(operands).is_some_and(|bit| types & bit != 0)
    }

    /// Notes what the engine does, unless kernels are faster at another size. A plan without elements says
    /// nothing about other sizes: it may have no steps.
    pub(crate) fn add(&self, name: OperationName, operands: &Operands, steps: &[Step]) {
        let operator = |step: &Step| step.planned.call().operator();
        let mut tensors = operands.inputs.iter().chain(&operands.outputs);
        if !steps.is_empty()
            && !tensors.any(|tensor| tensor.shape.num_elements() == 0)
            && (steps.len() > 1 || steps.iter().all(|step| kernels_are_faster_from(operator(step)).is_none()))
            && let Some(bit) = type_bit(operands)
        {
            self.0[name.index()].fetch_or(bit, Ordering::Relaxed);
        }
    }
}

fn type_bit(operands: &Operands) -> Option<u32> {
    let first = operands.inputs.first().or(operands.outputs.first())?;
    dtype_of(first.dtype).map(|dtype| 1 << dtype as u32)
}
