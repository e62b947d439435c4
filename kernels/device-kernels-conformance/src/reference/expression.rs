//! Expressions, node by node. Of each element there is a range that it is in, as later operators compute with
//! what a kernel has rounded, or has computed with an error that it may have.

use device_kernels::{
    Binary, Compare, DType, Dims, Expression, ExpressionNode, NodeKind, Operator, Reduction, Unary,
};

use super::{Array, Input, elementwise, for_each_index, reduce};
use crate::element::{self, Value, of_scalar, round, smallest_normal, ulp};
use crate::expect::Expect;
use crate::tolerance::computed_in;

/// What is known of an element of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    /// Nothing.
    Nothing,
    /// It is this integer.
    Int(i128),
    /// It is a number from the first to the second, or NaN if these are.
    Float(f64, f64),
}

use Known::{Float, Int, Nothing};

/// How a node is rounded.
#[derive(Clone, Copy, Debug)]
struct Rounding {
    dtype: DType,
    /// Whether the rounding may be left out.
    optional: bool,
}

/// What the outputs of a call have to be.
pub(super) fn expected(expression: Expression, inputs: &[Input], outputs: &[Array]) -> Vec<Vec<Expect>> {
    let shape = shape(inputs, outputs);
    let mut nodes: Vec<Vec<Known>> = Vec::new();
    for node in expression.nodes() {
        let rounding = Rounding { dtype: node.dtype, optional: expression.keeps_precision() };
        nodes.push(match &node.kind {
            NodeKind::Input(place) => input(&inputs[*place], node.dtype, &shape),
            NodeKind::Literal(scalar) => {
                let value = Known::of(of_scalar(*scalar, node.dtype)).flushed(node.dtype);
                vec![value; shape.iter().product()]
            }
            NodeKind::Result { operator, operands } => match *operator {
                Operator::Reduce { reduction, dims } => {
                    reduced(reduction, dims, &nodes[operands[0]], &shape, rounding)
                }
                operator => {
                    let of = operand_type(operator, operands, expression.nodes());
                    let each = |at: usize| {
                        let operands = operands.iter().map(|&node| nodes[node][at]);
                        element(operator, of, &operands.collect::<Vec<_>>(), rounding)
                    };
                    (0..shape.iter().product()).map(each).collect()
                }
            },
            kind => unreachable!("{kind:?} is not one of the kinds"),
        });
    }
    let output = |(&node, output): (&usize, &Array)| {
        let mut expected = Vec::new();
        for_each_index(&output.shape, |index| {
            // A reduced output has the first of elements that are alike.
            let place = index.iter().zip(&shape).fold(0, |place, (index, size)| place * size + index);
            expected.push(nodes[node][place].expect(output.dtype));
        });
        expected
    };
    expression.outputs().iter().zip(outputs).map(output).collect()
}

/// The shape that all arrays are broadcast to.
fn shape(inputs: &[Input], outputs: &[Array]) -> Vec<usize> {
    let arrays = inputs.iter().filter_map(|input| match input {
        Input::Array(array) => Some(array),
        Input::Scalar(_) => None,
    });
    let shapes: Vec<&[usize]> = arrays.chain(outputs).map(|array| &array.shape[..]).collect();
    let mut shape = vec![1; shapes.iter().map(|shape| shape.len()).max().unwrap_or(0)];
    for one in shapes {
        let new = shape.len() - one.len();
        shape[new..].iter_mut().zip(one).filter(|(_, of_one)| **of_one != 1).for_each(|(size, of_one)| {
            *size = *of_one;
        });
    }
    shape
}

fn input(input: &Input, dtype: DType, shape: &[usize]) -> Vec<Known> {
    let mut values = Vec::new();
    for_each_index(shape, |index| {
        let value = match input {
            Input::Array(array) => array.at_broadcast(index),
            Input::Scalar(scalar) => of_scalar(*scalar, dtype),
        };
        values.push(Known::of(value).flushed(dtype));
    });
    values
}

/// The type of the operands that are alike. The condition of a choice has its own.
fn operand_type(operator: Operator, operands: &[usize], nodes: &[ExpressionNode]) -> DType {
    nodes[operands[usize::from(operator == Operator::Where)]].dtype
}

impl Known {
    fn of(value: Value) -> Self {
        match value {
            Value::Int(value) => Int(value),
            Value::Float(value) => Float(value, value),
        }
    }

    /// With zero, if it may be subnormal: see `tolerance.rs`.
    fn flushed(self, dtype: DType) -> Self {
        match self {
            Float(low, high) if dtype != DType::F64 && dtype.is_float() => {
                let tiny = smallest_normal(dtype);
                let is_zero = low == 0.0 && high == 0.0;
                let may_be_subnormal = low < tiny && high > -tiny && !is_zero;
                if may_be_subnormal { Float(low.min(0.0), high.max(0.0)) } else { self }
            }
            known => known,
        }
    }

    fn is_nan(self) -> bool {
        matches!(self, Float(low, _) if low.is_nan())
    }

    /// The value, if only one is possible.
    fn value(self) -> Option<Value> {
        match self {
            Int(value) => Some(Value::Int(value)),
            Float(low, high) if low == high || low.is_nan() => Some(Value::Float(low)),
            _ => None,
        }
    }

    /// The ends of the range.
    fn ends(self) -> (Value, Value) {
        match self {
            Nothing => unreachable!("it has no ends"),
            Int(value) => (Value::Int(value), Value::Int(value)),
            Float(low, high) => (Value::Float(low), Value::Float(high)),
        }
    }

    fn has(self, number: f64) -> bool {
        matches!(self, Float(low, high) if low <= number && number <= high)
    }

    fn is_finite(self) -> bool {
        !matches!(self, Float(low, high) if low.is_infinite() || high.is_infinite())
    }

    /// This or that.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Int(a), Int(b)) if a == b => self,
            (Float(..), Float(..)) if self.is_nan() && other.is_nan() => self,
            (Float(low, high), Float(other_low, other_high)) if !self.is_nan() && !other.is_nan() => {
                Float(low.min(other_low), high.max(other_high))
            }
            _ => Nothing,
        }
    }

    /// What an output has to be. It is of the type, whatever precision was kept before.
    fn expect(self, dtype: DType) -> Expect {
        let (low, high) = match self {
            Nothing => return Expect::Anything,
            Int(value) => return Expect::Exactly(Value::Int(value)),
            Float(low, high) => (round(dtype, low), round(dtype, high)),
        };
        let between = |low: f64, high: f64| {
            let middle = low / 2.0 + high / 2.0;
            Expect::Near(middle, (high - middle).max(middle - low) * (1.0 + 4.0 * f64::EPSILON))
        };
        let largest = element::largest(dtype);
        match (low.is_infinite(), high.is_infinite()) {
            _ if low == high || low.is_nan() => Expect::Near(low, 0.0),
            (false, false) => between(low, high),
            (false, true) => between(low, largest).or([Expect::Near(high, 0.0)]),
            (true, false) => between(-largest, high).or([Expect::Near(low, 0.0)]),
            (true, true) => Expect::Anything,
        }
    }
}

/// What an operator gives before it is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Computed {
    Nothing,
    Int(i128),
    Nan,
    /// The ends of what is exact, and the error of a kernel.
    Float(f64, f64, f64),
}

impl Computed {
    fn of(expect: &Expect) -> Self {
        match *expect {
            Expect::Anything | Expect::Kept => Self::Nothing,
            Expect::Exactly(Value::Int(value)) => Self::Int(value),
            Expect::Exactly(Value::Float(value)) | Expect::Near(value, _) if value.is_nan() => Self::Nan,
            Expect::Exactly(Value::Float(value)) => Self::Float(value, value, 0.0),
            Expect::Near(value, _) if value.is_infinite() => Self::Float(value, value, 0.0),
            Expect::Near(_, error) if !error.is_finite() => Self::Nothing,
            Expect::Near(value, error) => Self::Float(value, value, error),
            Expect::OneOf(ref all) => all.iter().map(Self::of).reduce(Self::or).unwrap_or(Self::Nothing),
        }
    }

    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) if a == b => self,
            (Self::Nan, Self::Nan) => self,
            (Self::Float(low, high, error), Self::Float(other_low, other_high, other)) => {
                Self::Float(low.min(other_low), high.max(other_high), error.max(other))
            }
            _ => Self::Nothing,
        }
    }

    /// With a larger error.
    fn and_error(self, more: f64) -> Self {
        match self {
            Self::Float(low, high, error) if more.is_finite() => Self::Float(low, high, error + more),
            Self::Float(..) => Self::Nothing,
            other => other,
        }
    }

    fn error(self) -> f64 {
        if let Self::Float(_, _, error) = self { error } else { 0.0 }
    }

    /// The result of an operator whose only error is its rounding, to the nearest number.
    fn rounded(self, rounding: Rounding) -> Known {
        let Self::Float(low, high, _) = self else { return self.rounded_any(rounding) };
        let Rounding { dtype, optional } = rounding;
        let nearest = Float(round(dtype, low), round(dtype, high));
        let kept = |exact: f64| {
            let inner = computed_in(dtype);
            if round(dtype, exact) == exact { 0.0 } else { 0.5 * ulp(inner, exact) }
        };
        let known = if optional { nearest.or(Float(low - kept(low), high + kept(high))) } else { nearest };
        known.flushed(dtype)
    }

    /// The result of an operator with an error: a number of the type, unless the rounding is left out.
    fn rounded_any(self, rounding: Rounding) -> Known {
        let Rounding { dtype, optional } = rounding;
        let (low, high, error) = match self {
            Self::Nothing => return Nothing,
            Self::Int(value) => return Int(value),
            Self::Nan => return Float(f64::NAN, f64::NAN),
            Self::Float(low, high, error) => (low, high, error),
        };
        // The reference has its own error: see `Expect`.
        let slack = |exact: f64| if dtype == DType::F64 { 0.0 } else { exact.abs() * 1e-15 };
        let low = if low.is_infinite() { low } else { low - error - slack(low) };
        let high = if high.is_infinite() { high } else { high + error + slack(high) };
        let of_type = (at_least(dtype, low), -at_least(dtype, -high));
        let known = match of_type {
            _ if optional => Float(low, high).or(Float(round(dtype, low), round(dtype, high))),
            (low, high) if low <= high => Float(low, high),
            // Of numbers that are all between two of the type.
            _ => Float(round(dtype, low), round(dtype, high)),
        };
        known.flushed(dtype)
    }
}

/// The smallest number of the type that is not less. What is rounded to an infinity is one.
fn at_least(dtype: DType, number: f64) -> f64 {
    let nearest = round(dtype, number);
    if nearest >= number || nearest.is_infinite() {
        return nearest;
    }
    let next = nearest + ulp(dtype, number);
    if next > element::largest(dtype) { nearest } else { next }
}

/// Whether the only error of an operator is that its result is rounded to the nearest number.
fn is_exact(operator: Operator) -> bool {
    match operator {
        Operator::Unary(unary) => matches!(
            unary,
            Unary::Neg
                | Unary::Abs
                | Unary::Sign
                | Unary::Floor
                | Unary::Ceil
                | Unary::Round
                | Unary::Trunc
                | Unary::Relu
        ),
        Operator::Binary(binary) => matches!(
            binary,
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Max | Binary::Min | Binary::ReluGrad
        ),
        Operator::Reduce { reduction, .. } => matches!(reduction, Reduction::Max | Reduction::Min),
        _ => operator == Operator::Clamp,
    }
}

/// One element of an element-wise operator, of operands with a type.
fn element(operator: Operator, of: DType, operands: &[Known], rounding: Rounding) -> Known {
    match (operator, operands) {
        (Operator::Where, [Nothing, a, b]) => return a.or(*b),
        (Operator::Where, [condition, a, b]) => return if *condition == Int(0) { *b } else { *a },
        (Operator::Copy, [a]) if of == rounding.dtype => return *a,
        _ if operands.contains(&Nothing) => return Nothing,
        _ => {}
    }
    let one = |values: &[Value]| match operator {
        // What is kept is the operand.
        Operator::Copy if rounding.optional && of.is_float() && rounding.dtype.is_float() => {
            Computed::of(&Expect::Near(values[0].as_f64(), 0.0))
        }
        Operator::Copy => Computed::of(&elementwise::copy(of, rounding.dtype, values[0])),
        _ => Computed::of(&elementwise::element(operator, of, values)),
    };
    let values: Option<Vec<Value>> = operands.iter().map(|operand| operand.value()).collect();
    let computed = match values {
        _ if is_large_angle(operator, operands) => Computed::Nothing,
        Some(values) => one(&values),
        None => uncertain(operator, rounding.dtype, operands, &one),
    };
    let is_moved = operator == Operator::Copy && rounding.optional;
    if is_exact(operator) || is_moved { computed.rounded(rounding) } else { computed.rounded_any(rounding) }
}

/// Whether an angle is larger than those that functions are tested with: see `tolerance.rs`.
fn is_large_angle(operator: Operator, operands: &[Known]) -> bool {
    let is_angle = matches!(operator, Operator::Unary(Unary::Sin | Unary::Cos | Unary::Tan));
    is_angle && matches!(operands[0], Float(low, high) if low.abs().max(high.abs()) > 32768.0)
}

/// The result of operands that have ranges. It has a range itself where the operator is monotonic in each
/// operand, or changes by little more than its operand does.
fn uncertain(
    operator: Operator,
    to: DType,
    operands: &[Known],
    one: &dyn Fn(&[Value]) -> Computed,
) -> Computed {
    use Operator::{Binary as Two, Compare as Comparison, Copy, Unary as One};
    if !operands.iter().all(|operand| operand.is_finite()) {
        return Computed::Nothing;
    }
    let a = operands[0];
    let b = operands.get(1).copied().unwrap_or(Int(0));
    let may_be_zero_or_less = |known: Known| matches!(known, Float(low, _) if low <= 0.0);
    let overlap = || matches!((a, b), (Float(a, to), Float(b, end)) if a <= end && b <= to);
    let is_unknown = match operator {
        One(Unary::Recip) => a.has(0.0),
        Copy => to == DType::Bool && a.has(0.0),
        One(Unary::Tan) | Two(Binary::Rem) => true,
        Two(Binary::Div) => b.has(0.0),
        Two(Binary::Pow) => may_be_zero_or_less(a),
        Two(Binary::Atan2) => may_be_zero_or_less(b),
        Comparison(Compare::Eq | Compare::Ne) => overlap(),
        _ => false,
    };
    if is_unknown {
        return Computed::Nothing;
    }
    let mut points: Vec<Vec<Value>> = vec![Vec::new()];
    for (place, operand) in operands.iter().enumerate() {
        let (low, high) = operand.ends();
        let mut each = vec![low];
        if operand.value().is_none() {
            each.push(high);
            // Where such a function turns.
            let turn = match operator {
                One(Unary::Abs | Unary::Cosh) => Some(0.0),
                Two(Binary::SigmoidGrad) if place == 0 => Some(0.5),
                One(Unary::Sin | Unary::Cos | Unary::Gelu) => Some((low.as_f64() + high.as_f64()) / 2.0),
                _ => None,
            };
            each.extend(turn.filter(|turn| operand.has(*turn)).map(Value::Float));
        }
        let with = |point: &Vec<Value>| {
            let point = point.clone();
            each.iter().map(move |&value| [&point[..], &[value]].concat()).collect::<Vec<_>>()
        };
        points = points.iter().flat_map(with).collect();
    }
    let computed = points.iter().map(|point| one(point)).reduce(Computed::or).unwrap_or(Computed::Nothing);
    let slope = match operator {
        One(Unary::Sin | Unary::Cos) => 1.0,
        One(Unary::Gelu) => 1.13,
        _ => 0.0,
    };
    match (computed, a) {
        // Between numbers for which a function is not defined there may be others.
        (Computed::Nan, _) if !operands.iter().any(|operand| operand.is_nan()) => Computed::Nothing,
        (computed, Float(low, high)) if slope > 0.0 => computed.and_error(slope * (high - low) / 2.0),
        (computed, _) => computed,
    }
}

/// The elements of a reduction, each as often as it is in the whole shape.
fn reduced(
    reduction: Reduction,
    dims: Dims,
    values: &[Known],
    shape: &[usize],
    rounding: Rounding,
) -> Vec<Known> {
    let of_results = reduce::reduced(shape, dims);
    let mut groups: Vec<Vec<Known>> = vec![Vec::new(); of_results.iter().product()];
    let mut places = Vec::with_capacity(values.len());
    let mut value = values.iter();
    for_each_index(shape, |index| {
        let index = index.iter().enumerate();
        let of_result = index.map(|(dim, &index)| if dims.contains(dim) { 0 } else { index });
        let place = of_result.zip(&of_results).fold(0, |place, (index, size)| place * size + index);
        places.push(place);
        groups[place].extend(value.next());
    });
    let results: Vec<Known> =
        groups.iter().map(|group| reduced_group(reduction, dims, group, rounding)).collect();
    places.into_iter().map(|place| results[place]).collect()
}

fn reduced_group(reduction: Reduction, dims: Dims, group: &[Known], rounding: Rounding) -> Known {
    if group.contains(&Nothing) {
        return Nothing;
    }
    let one = |values: Vec<Value>| Computed::of(&reduce::element(reduction, rounding.dtype, &values));
    let computed = match group.iter().map(|known| known.value()).collect::<Option<Vec<Value>>>() {
        Some(values) => one(values),
        None if !group.iter().all(|known| known.is_finite()) => return Nothing,
        None if group.iter().any(|known| known.is_nan()) => Computed::Nan,
        None => {
            let ends = group.iter().map(|known| known.ends());
            let larger = |(low, high): (Value, Value)| low.as_f64().abs().max(high.as_f64().abs());
            // Not integers, whose sums have no error.
            let magnitudes = ends.clone().map(|ends| Value::Float(larger(ends) * (1.0 + 1e-9))).collect();
            let error = one(magnitudes).error();
            let exact = match reduction {
                Reduction::Prod => {
                    let (low, high) = ends.fold((1.0, 1.0), product_of_ranges);
                    Computed::Float(low, high, 0.0)
                }
                _ => one(ends.clone().map(|(low, _)| low).collect())
                    .or(one(ends.map(|(_, high)| high).collect())),
            };
            exact.and_error(error)
        }
    };
    if is_exact(Operator::Reduce { reduction, dims }) {
        computed.rounded(rounding)
    } else {
        computed.rounded_any(rounding)
    }
}

fn product_of_ranges((low, high): (f64, f64), (with, to): (Value, Value)) -> (f64, f64) {
    let all = [with, to].into_iter().flat_map(|factor| [low * factor.as_f64(), high * factor.as_f64()]);
    all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), product| (low.min(product), high.max(product)))
}

#[cfg(test)]
mod tests {
    use device_kernels::{ExpressionBuilder, Scalar};

    use super::*;

    fn array(dtype: DType, shape: &[usize], values: &[f64]) -> Array {
        let values = values.iter().map(|&value| element::convert(Value::Float(value), dtype)).collect();
        Array { dtype, shape: shape.to_vec(), values }
    }

    /// What the first output has to be, with the shape of the inputs.
    fn first(describe: impl FnOnce(&ExpressionBuilder), inputs: &[Array]) -> Vec<Expect> {
        let expression = Expression::build(describe).unwrap();
        let dtype = expression.nodes()[expression.outputs()[0]].dtype;
        let outputs: Vec<Array> =
            expression.outputs().iter().map(|_| array(dtype, &inputs[0].shape, &[])).collect();
        let inputs: Vec<Input> = inputs.iter().cloned().map(Input::Array).collect();
        expected(expression, &inputs, &outputs).remove(0)
    }

    fn exactly(value: f64) -> Expect {
        Expect::Near(value, 0.0)
    }

    fn fits(expect: &Expect, dtype: DType, found: f64) -> bool {
        let mut bytes = [0; 8];
        element::write(dtype, Value::Float(found), &mut bytes);
        expect.fits(dtype, &bytes)
    }

    #[test]
    fn each_result_is_rounded_and_no_product_is_fused() {
        let large = array(DType::F16, &[1], &[2048.0]);
        let one = array(DType::F16, &[1], &[1.0]);
        let sum = |e: &ExpressionBuilder| e.output(e.input(DType::F16) + e.input(DType::F16) - 2048.0);
        assert_eq!(first(sum, &[large, one]), [exactly(0.0)]);
        let a = 1.0 + 2_f64.powi(-12);
        let product = |e: &ExpressionBuilder| {
            let a = e.input(DType::F32);
            e.output(a * a - (1.0 + 2_f64.powi(-11)));
        };
        assert_eq!(first(product, &[array(DType::F32, &[1], &[a])]), [exactly(0.0)]);
    }

    #[test]
    fn kept_precision_may_be_that_of_the_type_or_more() {
        let sum = |e: &ExpressionBuilder| {
            e.keep_precision();
            e.output(e.input(DType::F16) + 1.0 - 2048.0);
        };
        let found = first(sum, &[array(DType::F16, &[1], &[2048.0])]).remove(0);
        let fit = [-1.0, 0.0, 1.0, 2.0].map(|value| fits(&found, DType::F16, value));
        assert_eq!(fit, [false, true, true, false], "{found}");
    }

    #[test]
    fn an_error_of_a_function_is_passed_on() {
        let x = array(DType::F32, &[1], &[1.5]);
        let exact = 1.5_f64.exp() * 3.0;
        let times = |e: &ExpressionBuilder| e.output(e.input(DType::F32).exp() * 3.0);
        let found = first(times, &[x]).remove(0);
        let unit = ulp(DType::F32, exact);
        assert!(fits(&found, DType::F32, exact + 3.0 * unit), "{found}");
        assert!(!fits(&found, DType::F32, exact + 8.0 * unit), "{found}");
    }

    #[test]
    fn what_follows_from_an_uncertain_number_is_known_where_the_range_decides() {
        let x = [array(DType::F32, &[2], &[0.0, 1.0])];
        let above = |limit: f64| {
            move |e: &ExpressionBuilder| e.output(e.input(DType::F32).exp().compare(Compare::Gt, limit))
        };
        let truth = |value: i128| Expect::Exactly(Value::Int(value));
        assert_eq!(first(above(2.0), &x), [truth(0), truth(1)]);
        assert_eq!(first(above(1_f64.exp()), &x), [truth(0), Expect::Anything]);
        let chosen = |e: &ExpressionBuilder| {
            let x = e.input(DType::F32);
            e.output(x.exp().compare(Compare::Gt, 1_f64.exp()).select(x, 3.0));
        };
        assert_eq!(first(chosen, &x), [exactly(3.0), Expect::Near(2.0, 1.0 + 4.0 * f64::EPSILON)]);
        let recip = |e: &ExpressionBuilder| e.output((e.input(DType::F32).exp() - 1.0).recip());
        assert_eq!(first(recip, &x).remove(0), Expect::Anything);
    }

    #[test]
    fn functions_of_a_range_have_the_values_between_its_ends() {
        let between = |unary: Unary, low: f64, high: f64| {
            let rounding = Rounding { dtype: DType::F64, optional: false };
            element(unary.into(), DType::F64, &[Float(low, high)], rounding)
        };
        let Float(low, high) = between(Unary::Abs, -2.0, 1.0) else { panic!("it is known") };
        assert_eq!((low, high), (0.0, 2.0));
        assert!(between(Unary::Cosh, -1.0, 1.0).has(1.0));
        for (unary, middle) in [(Unary::Sin, std::f64::consts::FRAC_PI_2), (Unary::Gelu, -0.7518)] {
            for at in [-0.3, -0.1, 0.0, 0.2, 0.3] {
                let Expect::Near(value, _) =
                    elementwise::element(unary.into(), DType::F64, &[Value::Float(middle + at)])
                else {
                    panic!("it is a number")
                };
                assert!(between(unary, middle - 0.3, middle + 0.3).has(value), "{unary} {at}");
            }
        }
        assert_eq!(between(Unary::Acos, -2.0, 2.0), Nothing);
        assert_eq!(between(Unary::Log, -1.0, 2.0), Nothing);
    }

    #[test]
    fn repeated_elements_count_in_a_reduction() {
        let expression = Expression::build(|e| {
            let x = e.input(DType::F32);
            e.output(x - e.input(DType::F32).sum([1]));
            e.output(e.input(DType::I32).sum([1]));
        })
        .unwrap();
        let x = array(DType::F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let outputs = [array(DType::F32, &[2, 3], &[]), array(DType::I32, &[2, 1], &[])];
        let inputs =
            [Input::Array(x), Input::Array(array(DType::F32, &[1], &[2.0])), Input::Scalar(Scalar::Int(5))];
        let found = expected(expression, &inputs, &outputs);
        assert_eq!(found[0], [-5.0, -4.0, -3.0, -2.0, -1.0, 0.0].map(exactly));
        assert_eq!(found[1], [15, 15].map(|value| Expect::Exactly(Value::Int(value))));
    }

    #[test]
    fn subnormal_numbers_may_be_zero_also_in_between() {
        let tiny = smallest_normal(DType::F32) / 4.0;
        let scaled = |e: &ExpressionBuilder| e.output(e.input(DType::F32) * 2_f64.powi(100));
        let found = first(scaled, &[array(DType::F32, &[1], &[tiny])]).remove(0);
        assert!(fits(&found, DType::F32, 0.0) && fits(&found, DType::F32, tiny * 2_f64.powi(100)), "{found}");
        assert!(!fits(&found, DType::F32, tiny * 2_f64.powi(101)), "{found}");
    }

    #[test]
    fn the_next_number_of_a_type_is_found() {
        assert_eq!(at_least(DType::F16, 2048.5), 2050.0);
        assert_eq!(at_least(DType::F16, -2049.0), -2048.0);
        assert_eq!(at_least(DType::F32, 1.0), 1.0);
        assert_eq!(at_least(DType::F16, 65519.0), 65504.0);
        assert_eq!(at_least(DType::F16, 65520.0), f64::INFINITY);
    }
}
