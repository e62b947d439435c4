//! The calls of kernels that do an operation, and the memory of each.

use std::borrow::Cow;
use std::ops::Deref;

use burn_ir::TensorIr;
use device_kernels::{Part, PartPlace, Planned};
use smallvec::SmallVec;

use crate::operation::Operands;

/// A call of a kernel, and the memory of its arrays.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) planned: Planned,
    /// In the order of [`Call::arrays`](device_kernels::Call::arrays).
    pub(crate) memory: SmallVec<[Memory; 4]>,
}

/// Whose memory an array is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Input(usize),
    /// An output or, after the outputs, a value between steps.
    Output(usize),
}

/// The launches of an expression, and the bytes of the memory between them. `arrays` are in the order of
/// [`Call::arrays`](device_kernels::Call::arrays), and the memory between comes after `outputs` others.
pub(crate) fn launches(
    planned: &Planned,
    arrays: &[Memory],
    outputs: usize,
) -> (SmallVec<[Step; 1]>, Vec<usize>) {
    let Some(parts) = planned.parts() else {
        let memory = SmallVec::from_slice(arrays);
        return (SmallVec::from_iter([Step { planned: planned.clone(), memory }]), Vec::new());
    };
    let place = |place: &PartPlace| match *place {
        PartPlace::Array(array) => arrays[array],
        PartPlace::Temporary(number) => Memory::Output(outputs + number),
    };
    let step = |part: &Part| Step {
        planned: part.planned().clone(),
        memory: part.places().iter().map(place).collect(),
    };
    (parts.parts().iter().map(step).collect(), parts.temporaries().to_vec())
}

/// Calls of kernels that do an operation, one after the other. Its outputs are new memory, without gaps.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) steps: SmallVec<[Step; 1]>,
    /// The memory between steps.
    pub(crate) scratch: Vec<TensorIr>,
}

impl Steps {
    /// The tensors that the steps write: the outputs, and intermediate results.
    pub(crate) fn written<'a>(&self, operands: &'a Operands) -> Cow<'a, [TensorIr]> {
        match &self.scratch[..] {
            [] => Cow::Borrowed(&operands.outputs),
            scratch => Cow::Owned(operands.outputs.iter().chain(scratch).cloned().collect()),
        }
    }
}

impl Deref for Steps {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        &self.steps
    }
}

impl FromIterator<Step> for Steps {
    fn from_iter<I: IntoIterator<Item = Step>>(steps: I) -> Self {
        Self { steps: steps.into_iter().collect(), scratch: Vec::new() }
    }
}
