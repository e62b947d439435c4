//! The rules of calls of expressions.

use smallvec::SmallVec;

use super::arguments::{Array, count};
use super::{dimension, reduced};

use crate::argument::{Argument, Inputs, Outputs};
use crate::call::Call;
use crate::layout::{Layout, LayoutError};
use crate::operator::{Expression, Operator};
use crate::problem::Problem;

pub(super) fn expression(of: Expression, inputs: &[Argument], outputs: Outputs) -> Result<Call, Problem> {
    let wrong_count = |of, expected: usize, found| Problem::Count { of, expected: count(expected), found };
    if inputs.len() != of.inputs().len() {
        return Err(wrong_count("inputs", of.inputs().len(), inputs.len()));
    }
    if outputs.len() != of.outputs().len() {
        return Err(wrong_count("outputs", of.outputs().len(), outputs.len()));
    }
    let shape = shape(inputs, &outputs)?;
    if let Some(dims) = of.dims() {
        let layout = Layout::contiguous(&shape)?;
        dims.iter().try_for_each(|dim| dimension(dim, &layout))?;
        if dims.iter().any(|dim| shape[dim] == 0) {
            return Err(Problem::Empty { argument: "the reduced dimensions" });
        }
    }
    let mut broadcast = Inputs::from(inputs);
    for (input, dtype) in broadcast.iter_mut().zip(of.inputs()) {
        if let Argument::Array(found, layout) = input {
            *layout = layout.broadcast_to(&shape)?;
            Array { dtype: *found, layout }.same_dtype("an input", *dtype)?;
        }
    }
    let call = Call::checked(of.into(), broadcast, outputs);
    let alike = of.reduced_nodes(&call);
    for (&node, (dtype, layout)) in of.outputs().iter().zip(call.outputs()) {
        let output = Array { dtype: *dtype, layout };
        output.same_dtype("an output", of.nodes()[node].dtype)?;
        match of.dims() {
            Some(dims) if alike[node] && layout.shape() != shape => {
                output.expect("an output", &reduced(&Layout::contiguous(&shape)?, dims))?;
            }
            _ => output.expect("an output", &shape)?,
        }
    }
    Ok(call)
}

/// The shape that all arrays are broadcast to.
fn shape(inputs: &[Argument], outputs: &Outputs) -> Result<Vec<usize>, Problem> {
    let inputs = inputs.iter().filter_map(Argument::array).map(|(_, layout)| layout.shape());
    let shapes = || outputs.iter().map(|(_, layout)| layout.shape()).chain(inputs.clone());
    let mut shape = vec![1; shapes().map(<[usize]>::len).max().unwrap_or(0)];
    for one in shapes() {
        let new = shape.len() - one.len();
        for (size, &of_one) in shape[new..].iter_mut().zip(one) {
            match (*size, of_one) {
                (_, 1) => {}
                (1, of_one) => *size = of_one,
                (size, of_one) if size == of_one => {}
                _ => {
                    let (from, verb, to) = (one.to_vec(), "broadcast to", shape);
                    return Err(LayoutError::Shape { from, verb, to }.into());
                }
            }
        }
    }
    Ok(shape)
}

impl Call {
    /// The shape that the inputs of an [`Expression`] have in this call, and that its operators work on. Of
    /// other operators it is the first output's.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        let outputs = || self.outputs().iter().map(|(_, layout)| layout);
        if let Operator::Expression(_) = self.operator() {
            let input = self.inputs().iter().find_map(Argument::array).map(|(_, layout)| layout);
            return input.or_else(|| outputs().max_by_key(|layout| layout.len())).map_or(&[], Layout::shape);
        }
        outputs().next().map_or(&[], Layout::shape)
    }
}

impl Expression {
    /// For each node, whether its value in `call`, which is one of this expression, is the same along the
    /// reduced dimensions: it is then computed once for them. Without reductions, no node's is.
    #[must_use]
    pub fn reduced_nodes(&self, call: &Call) -> SmallVec<[bool; 32]> {
        let Some(dims) = self.dims() else { return SmallVec::from_elem(false, self.nodes().len()) };
        self.alike(|place| match call.inputs()[place].array() {
            None => true,
            Some((_, layout)) => dims.iter().all(|dim| layout.strides()[dim] == 0),
        })
    }
}
