//! Expressions of a wrong set: each node by itself, with one defect.

use device_kernels::{Binary, Call, Coverage, DType, Dims, Expression, KernelSet, NodeKind, Operator};
use device_kernels_conformance::element::{self, Value};
use device_kernels_conformance::expect::Expect;
use device_kernels_conformance::reference::{self, Array, Input, for_each_index};
use device_registry::Device;
use device_registry::backend::{BackendError, Launch, LoadFailure};

use crate::set::Set;
use crate::wrong::Wrong;

/// The linked set of this program, which has all but expressions: those are done in parts.
pub(crate) fn without_expressions() -> Result<Box<dyn KernelSet>, LoadFailure> {
    Ok(Box::new(WithoutExpressions(Set::new(None))))
}

struct WithoutExpressions(Set);

impl KernelSet for WithoutExpressions {
    fn coverage(&self, device: Device) -> Vec<Coverage> {
        let all = self.0.coverage(device).into_iter();
        all.filter(|coverage| coverage.operator() != "expression").collect()
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        self.0.launch(call, launch)
    }
}

/// The elements of the outputs. `in_place` has, for each output, the input whose elements it is.
pub(crate) fn results(
    wrong: Wrong,
    expression: Expression,
    inputs: &[Input],
    outputs: &[Array],
    in_place: &[Option<usize>],
) -> Vec<Vec<Option<Value>>> {
    let shape = shape(inputs, outputs);
    let mut inputs: Vec<Input> = inputs.to_vec();
    let mut nodes: Vec<Array> = Vec::new();
    for (number, node) in expression.nodes().iter().enumerate() {
        let dtype = node.dtype;
        let all = |value: Value| {
            let values = vec![value; shape.iter().product()];
            Array { dtype, shape: shape.clone(), values }
        };
        let array = match &node.kind {
            // It is read where it is used.
            NodeKind::Input(_) => all(element::convert(Value::Int(0), dtype)),
            NodeKind::Literal(scalar) => all(element::of_scalar(*scalar, dtype)),
            NodeKind::Result { operator, operands } => {
                let operand = |&operand: &usize| match &expression.nodes()[operand].kind {
                    NodeKind::Input(place) => match &inputs[*place] {
                        Input::Array(array) => array.clone(),
                        Input::Scalar(scalar) => {
                            let dtype = expression.nodes()[operand].dtype;
                            let value = element::of_scalar(*scalar, dtype);
                            Array { dtype, values: vec![value; shape.iter().product()], shape: shape.clone() }
                        }
                    },
                    _ => nodes[operand].clone(),
                };
                let operands: Vec<Array> = operands.iter().map(operand).collect();
                result(wrong, *operator, operands, dtype, &shape)
            }
            kind => unreachable!("{kind:?} is not one of the kinds"),
        };
        // An output is written as soon as it is there.
        let places = expression.outputs().iter().zip(in_place);
        for place in places.filter(|(output, _)| **output == number).filter_map(|(_, place)| *place) {
            if let (Wrong::ExpressionWritesEarly, Input::Array(input)) = (wrong, &mut inputs[place])
                && input.dtype == array.dtype
            {
                input.values.clone_from(&array.values);
            }
        }
        nodes.push(array);
    }
    let output = |(place, (&node, output)): (usize, (&usize, &Array))| {
        let first = &nodes[expression.outputs()[0]];
        let node = match wrong {
            Wrong::ExpressionRepeatsOutput if first.dtype == output.dtype => first,
            _ => &nodes[node],
        };
        let is_missing = wrong == Wrong::ExpressionLosesOutput && place > 0;
        let mut values = Vec::new();
        for_each_index(&output.shape, |index| {
            let place = index.iter().zip(&shape).fold(0, |place, (index, size)| place * size + index);
            values.push((!is_missing).then_some(node.values[place]));
        });
        values
    };
    expression.outputs().iter().zip(outputs).enumerate().map(output).collect()
}

/// One node, of the whole shape.
fn result(wrong: Wrong, operator: Operator, operands: Vec<Array>, dtype: DType, shape: &[usize]) -> Array {
    let len = shape.iter().product();
    let operator = match operator {
        Operator::Reduce { reduction, dims } if wrong == Wrong::ExpressionReducesOneDim => {
            Operator::Reduce { reduction, dims: dims.iter().take(1).collect() }
        }
        operator => operator,
    };
    let mut of_result = shape.to_vec();
    let mut operands = operands;
    if let Operator::Reduce { dims, .. } = operator {
        dims.iter().for_each(|dim| of_result[dim] = 1);
        leave_out(wrong, &mut operands[0], dims);
    }
    let output = Array { dtype, shape: of_result, values: Vec::new() };
    let inputs: Vec<Input> = operands.into_iter().map(Input::Array).collect();
    let expected = reference::expected(operator, &inputs, std::slice::from_ref(&output)).remove(0);
    let round = |expect: &Expect| {
        let value = expect.likely().unwrap_or(Value::Int(0));
        let is_product = operator == Operator::Binary(Binary::Mul);
        match wrong {
            Wrong::ExpressionKeepsPrecision if matches!(dtype, DType::F16 | DType::BF16) => {
                element::convert(value, DType::F32)
            }
            Wrong::ExpressionFuses if dtype == DType::F32 && is_product => value,
            _ => element::convert(value, dtype),
        }
    };
    let output = Array { values: expected.iter().map(round).collect(), ..output };
    let mut values = Vec::with_capacity(len);
    for_each_index(shape, |index| {
        let index = index.iter().zip(&output.shape);
        let place = index.fold(0, |place, (&index, &size)| place * size + if size == 1 { 0 } else { index });
        values.push(output.values[place]);
    });
    Array { dtype, shape: shape.to_vec(), values }
}

/// Leaves out elements that are to be reduced.
fn leave_out(wrong: Wrong, array: &mut Array, dims: Dims) {
    let Some(dim) = dims.iter().next() else { return };
    let size = array.shape[dim];
    let first = &array.values[0];
    let keeps = match wrong {
        Wrong::ExpressionFirstChunk => 1024,
        Wrong::ExpressionCountsOnce if array.values.iter().all(|value| value == first) => 1,
        _ => return,
    };
    if keeps < size {
        let inner: usize = array.shape[dim + 1..].iter().product();
        let mut at = 0..;
        array.values.retain(|_| at.next().is_some_and(|at| at / inner % size < keeps));
        array.shape[dim] = keeps;
    }
}

fn shape(inputs: &[Input], outputs: &[Array]) -> Vec<usize> {
    let arrays = inputs.iter().filter_map(|input| match input {
        Input::Array(array) => Some(array),
        Input::Scalar(_) => None,
    });
    let largest = arrays.chain(outputs).max_by_key(|array| array.values.len());
    largest.map(|array| array.shape.clone()).unwrap_or_default()
}
