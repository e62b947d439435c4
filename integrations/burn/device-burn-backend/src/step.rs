//! The calls of kernels that do an operation, and the memory of each.

use std::borrow::Cow;
use std::ops::Deref;

use burn_ir::TensorIr;
use device_kernels::Planned;
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
