//! The reference of an operator that another crate declares: what its author says.

use device_kernels::{CustomOperator, DType, Elements, Evaluation};

use super::{Array, Input};
use crate::element::{self, Value};
use crate::expect::Expect;

pub(super) fn expected(custom: CustomOperator, inputs: &[Input], outputs: &[Array]) -> Vec<Vec<Expect>> {
    let number = |value: &Value| value.as_f64();
    let inputs: Vec<Elements> = inputs
        .iter()
        .map(|input| match input {
            Input::Array(array) => Elements {
                dtype: array.dtype,
                shape: array.shape.clone(),
                elements: array.values.iter().map(number).collect(),
            },
            Input::Scalar(scalar) => {
                Elements { dtype: DType::F64, shape: Vec::new(), elements: vec![scalar.as_f64()] }
            }
        })
        .collect();
    let shapes: Vec<_> = outputs.iter().map(|output| (output.dtype, output.shape.clone())).collect();
    let definition = custom.definition();
    let options: Vec<_> = custom.options().collect();
    let call = Evaluation { options: &options, inputs: &inputs, outputs: &shapes };
    let found = definition.reference(&call);
    let lens: Vec<usize> = found.iter().map(Vec::len).collect();
    let expected: Vec<usize> = outputs.iter().map(|output| output.values.len()).collect();
    assert!(
        lens == expected,
        "the reference of {custom} returned {lens:?} elements, expected {expected:?}: as many as each output has"
    );
    let of_output = |(values, output): (Vec<f64>, &Array)| {
        let dtype = output.dtype;
        let units = definition.units(output.dtype);
        let expect = |value: f64| match dtype {
            _ if dtype.is_float() => Expect::Near(value, units * element::ulp(dtype, value)),
            DType::Bool => Expect::Exactly(Value::Int((value != 0.0).into())),
            _ => Expect::Near(value, units),
        };
        values.into_iter().map(expect).collect()
    };
    found.into_iter().zip(outputs).map(of_output).collect()
}
