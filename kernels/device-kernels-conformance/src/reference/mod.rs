//! The plain reference: what each operator computes, in `f64` and `i128`, by loops over indices.

mod convolution;
mod custom;
pub mod elementwise;
mod expression;
mod indexing;
mod pooling;
pub mod random;
pub(crate) mod reduce;
mod sort;

pub(crate) use pooling::places;

use device_kernels::{DType, Operator, Scalar};

use self::pooling::PoolingWindows;
use crate::element::Value;
use crate::expect::Expect;

/// An array with its elements in the order of their indices.
#[derive(Clone, Debug)]
pub struct Array {
    /// The type of the elements.
    pub dtype: DType,
    /// The size of each dimension.
    pub shape: Vec<usize>,
    /// The elements, the last dimension first.
    pub values: Vec<Value>,
}

/// An input of a call.
#[derive(Clone, Debug)]
pub enum Input {
    /// An array.
    Array(Array),
    /// A value for each element.
    Scalar(Scalar),
}

impl Input {
    fn dtype(&self) -> Option<DType> {
        match self {
            Self::Array(array) => Some(array.dtype),
            Self::Scalar(_) => None,
        }
    }

    /// The array, for operators that have no scalars in this place.
    fn array(&self) -> &Array {
        match self {
            Self::Array(array) => array,
            Self::Scalar(_) => panic!("expected an array, found a scalar"),
        }
    }
}

impl Array {
    /// The element at an index.
    fn at(&self, index: &[usize]) -> Value {
        let place = index.iter().zip(&self.shape).fold(0, |place, (index, size)| place * size + index);
        self.values[place]
    }

    /// The element that is at an index of a larger array, by the rules of NumPy.
    fn at_broadcast(&self, index: &[usize]) -> Value {
        let new = index.len() - self.shape.len();
        let of_size = |(index, size): (&usize, &usize)| if *size == 1 { 0 } else { *index };
        let place = index[new..]
            .iter()
            .zip(&self.shape)
            .fold(0, |place, (i, size)| place * size + of_size((i, size)));
        self.values[place]
    }

    fn is_float(&self) -> bool {
        self.dtype.is_float()
    }
}

/// Calls a function with each index of a shape, the last dimension first.
pub fn for_each_index(shape: &[usize], mut each: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    loop {
        each(&index);
        let Some(dim) = (0..shape.len()).rev().find(|&dim| index[dim] + 1 < shape[dim]) else { return };
        index[dim] += 1;
        index[dim + 1..].fill(0);
    }
}

/// What the outputs of a call have to be, each in the order of its indices. `outputs` are their types, shapes
/// and elements before the call.
#[must_use]
pub fn expected(operator: Operator, inputs: &[Input], outputs: &[Array]) -> Vec<Vec<Expect>> {
    if let Operator::Custom(custom) = operator {
        return custom::expected(custom, inputs, outputs);
    }
    if let Operator::Expression(expression) = operator {
        return expression::expected(expression, inputs, outputs);
    }
    let out = &outputs[0];
    let array = |place: usize| inputs[place].array();
    let arrays = || inputs.iter().map(Input::array).collect::<Vec<_>>();
    let shape = &out.shape[..];
    vec![match operator {
        _ if operator.is_elementwise() => elementwise::expected(operator, inputs, (out.dtype, shape)),
        Operator::Reduce { reduction, dims } => reduce::reduce(reduction, dims, array(0)),
        Operator::ArgReduce { extremum, dim } => reduce::arg_reduce(extremum, dim, array(0)),
        Operator::Sort { dim, descending, sorted } => {
            return sort::sort(dim, descending, sorted, array(0), shape);
        }
        Operator::Softmax { dim } => reduce::softmax(dim, array(0), false),
        Operator::LogSoftmax { dim } => reduce::softmax(dim, array(0), true),
        Operator::MatMul => reduce::matmul(&arrays(), shape),
        Operator::Gather { dim } => indexing::gather(dim, array(0), array(1)),
        Operator::Scatter { dim, update } => indexing::scatter(dim, update, array(0), array(1), out),
        Operator::IndexSelect { dim } => indexing::index_select(dim, array(0), array(1), shape),
        Operator::IndexAssign { dim, update } => indexing::index_assign(dim, update, array(0), array(1), out),
        Operator::Conv2d(conv) => convolution::conv2d(conv, &arrays(), out),
        Operator::Conv2dInputGrad(conv) => convolution::input_grad(conv, array(0), array(1), out),
        Operator::Conv2dWeightGrad(conv) => convolution::weight_grad(conv, array(0), array(1), out),
        Operator::MaxPool2d(pool) => {
            let mut both = pooling::max_pool(pool, array(0), shape).to_vec();
            both.truncate(outputs.len());
            return both;
        }
        Operator::MaxPool2dGrad(_) => pooling::max_pool_grad(array(0), array(1), out),
        Operator::AvgPool2d { pool, count_padding } => {
            pooling::mean(PoolingWindows::Fixed(pool, count_padding), array(0), shape)
        }
        Operator::AvgPool2dGrad { pool, count_padding } => {
            pooling::mean_grad(PoolingWindows::Fixed(pool, count_padding), array(0), out)
        }
        Operator::AdaptiveAvgPool2d => pooling::mean(PoolingWindows::Adaptive, array(0), shape),
        Operator::AdaptiveAvgPool2dGrad => pooling::mean_grad(PoolingWindows::Adaptive, array(0), out),
        Operator::Random { distribution, seed, offset } => {
            random::random(distribution, seed, offset, out.dtype, out.values.len())
        }
        _ => unreachable!("{operator} is not one of the operators"),
    }]
}
