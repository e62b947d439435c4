//! Which calls are short: an idle stream of a host device does them on the thread that enqueues them.

use crate::argument::Argument;
use crate::dtype::DType;
use crate::layout::Layout;
use crate::operator::Operator;

/// The number of elements of the largest array of a short call. On one core, an element-wise operator takes
/// about as long for so many as handing it to another thread does.
pub const ELEMENTS: usize = 8 << 10;

/// The number of elements of a short sort, each of which is compared with several others.
pub const SORTED: usize = 1 << 10;

/// The number of products of a short matrix multiplication: of floating-point numbers, some ten of which one
/// core computes in a nanosecond, and of integers.
const PRODUCTS: usize = 512 << 10;
const INTEGER_PRODUCTS: usize = 32 << 10;

/// Whether one core of a host does the call in some tens of microseconds.
pub(crate) fn is_short(operator: Operator, inputs: &[Argument], outputs: &[(DType, Layout)]) -> bool {
    let arrays = || inputs.iter().filter_map(Argument::array).map(|(_, layout)| layout);
    let mut layouts = arrays().chain(outputs.iter().map(|(_, layout)| layout));
    if !layouts.all(|layout| layout.len() <= ELEMENTS) {
        return false;
    }
    match operator {
        Operator::MatMul => {
            let inner = arrays().next().and_then(|layout| layout.shape().last());
            let elements = outputs.first().map_or(0, |(_, layout)| layout.len());
            let is_float = outputs.first().is_some_and(|(dtype, _)| dtype.is_float());
            let most = if is_float { PRODUCTS } else { INTEGER_PRODUCTS };
            inner.is_none_or(|inner| elements.saturating_mul(*inner) <= most)
        }
        Operator::Sort { .. } => arrays().all(|layout| layout.len() <= SORTED),
        // The work for an element grows with the pooling window and the channels.
        Operator::Conv2d(_)
        | Operator::Conv2dInputGrad(_)
        | Operator::Conv2dWeightGrad(_)
        | Operator::MaxPool2d(_)
        | Operator::MaxPool2dGrad(_)
        | Operator::AvgPool2d { .. }
        | Operator::AvgPool2dGrad { .. }
        | Operator::AdaptiveAvgPool2d
        | Operator::AdaptiveAvgPool2dGrad => false,
        Operator::Expression(expression) => {
            let most = arrays().chain(outputs.iter().map(|(_, layout)| layout)).map(Layout::len).max();
            most.unwrap_or(0).saturating_mul(expression.operator_count().max(1)) <= 4 * ELEMENTS
        }
        Operator::Custom(custom) => custom.definition().is_light(),
        Operator::Unary(_)
        | Operator::Binary(_)
        | Operator::Compare(_)
        | Operator::Where
        | Operator::Clamp
        | Operator::Copy
        | Operator::Reduce { .. }
        | Operator::ArgReduce { .. }
        | Operator::Softmax { .. }
        | Operator::LogSoftmax { .. }
        | Operator::Gather { .. }
        | Operator::Scatter { .. }
        | Operator::IndexSelect { .. }
        | Operator::IndexAssign { .. }
        | Operator::Random { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Argument, Binary, Call, Conv2d, DType, Layout, Operator, Reduction, Sorted};

    fn is_short(operator: impl Into<Operator>, inputs: &[&[usize]], output: &[usize]) -> bool {
        is_short_of(DType::F32, operator, inputs, output)
    }

    fn is_short_of(
        dtype: DType,
        operator: impl Into<Operator>,
        inputs: &[&[usize]],
        output: &[usize],
    ) -> bool {
        let array = |shape: &[usize]| Argument::Array(dtype, Layout::contiguous(shape).unwrap());
        let inputs: Vec<_> = inputs.iter().map(|shape| array(shape)).collect();
        Call::new(operator, &inputs, &[array(output)]).unwrap().is_short()
    }

    #[test]
    fn the_largest_array_decides() {
        assert!(is_short(Binary::Add, &[&[8, 1024], &[1024]], &[8, 1024]));
        assert!(!is_short(Binary::Add, &[&[8, 1025], &[1025]], &[8, 1025]));
        let sum = Operator::Reduce { reduction: Reduction::Sum, dims: [0].into_iter().collect() };
        assert!(is_short(sum, &[&[8192]], &[1]));
        assert!(!is_short(sum, &[&[8193]], &[1]));
    }

    #[test]
    fn products_count_in_a_matrix_multiplication() {
        assert!(is_short(Operator::MatMul, &[&[2, 64, 64], &[2, 64, 64]], &[2, 64, 64]));
        assert!(is_short(Operator::MatMul, &[&[80, 80], &[80, 80]], &[80, 80]));
        assert!(!is_short(Operator::MatMul, &[&[81, 81], &[81, 81]], &[81, 81]));
        let is_short =
            |inputs: &[&[usize]], output| is_short_of(DType::I64, Operator::MatMul, inputs, output);
        assert!(is_short(&[&[32, 32], &[32, 32]], &[32, 32]));
        assert!(!is_short(&[&[32, 33], &[33, 32]], &[32, 32]));
    }

    #[test]
    fn a_sort_of_many_elements_is_not_short() {
        let sort = Operator::Sort { dim: 1, descending: false, sorted: Sorted::Values };
        assert!(is_short(sort, &[&[4, 256]], &[4, 256]));
        assert!(!is_short(sort, &[&[4, 257]], &[4, 1]));
    }

    #[test]
    fn images_are_never_short() {
        let conv = Operator::Conv2d(Conv2d::default());
        assert!(!is_short(conv, &[&[1, 1, 2, 2], &[1, 1, 1, 1]], &[1, 1, 2, 2]));
    }
}
