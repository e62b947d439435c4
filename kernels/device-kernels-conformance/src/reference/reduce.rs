//! Reductions: sums, extrema and their places, softmax.

use device_kernels::{DType, Dims, Extremum, Reduction};

use super::{Array, for_each_index};
use crate::element::{Value, wrap};
use crate::expect::Expect;
use crate::tolerance::{self, Terms, product, rounding};

/// The elements that each element of the output is computed from.
fn groups(input: &Array, dims: Dims) -> Vec<Vec<Value>> {
    let shape: Vec<usize> = reduced(&input.shape, dims);
    let mut groups = Vec::new();
    for_each_index(&shape, |_| groups.push(Vec::new()));
    for_each_index(&input.shape, |index| {
        let of_output =
            index.iter().enumerate().map(|(dim, &index)| if dims.contains(dim) { 0 } else { index });
        let place = of_output.zip(&shape).fold(0, |place, (index, size)| place * size + index);
        groups[place].push(input.at(index));
    });
    groups
}

/// A shape with dimensions of one element.
pub(crate) fn reduced(shape: &[usize], dims: Dims) -> Vec<usize> {
    shape.iter().enumerate().map(|(dim, &size)| if dims.contains(dim) { 1 } else { size }).collect()
}

pub(super) fn reduce(reduction: Reduction, dims: Dims, input: &Array) -> Vec<Expect> {
    groups(input, dims).iter().map(|group| element(reduction, input.dtype, group)).collect()
}

/// One element of a reduction.
pub(super) fn element(reduction: Reduction, dtype: DType, group: &[Value]) -> Expect {
    match reduction {
        Reduction::Any => Expect::Exactly(Value::Int(group.iter().any(|value| value.is_true()).into())),
        Reduction::All => Expect::Exactly(Value::Int(group.iter().all(|value| value.is_true()).into())),
        _ if dtype.is_float() => of_floats(reduction, dtype, group),
        _ => Expect::Exactly(Value::Int(of_integers(reduction, dtype, group))),
    }
}

fn of_integers(reduction: Reduction, dtype: DType, group: &[Value]) -> i128 {
    let values = group.iter().map(|value| value.as_int());
    match reduction {
        Reduction::Sum => wrap(dtype, values.sum()),
        Reduction::Prod => values.fold(1, |product, value| wrap(dtype, product * value)),
        Reduction::Max => values.max().expect("no elements are an error"),
        Reduction::Min => values.min().expect("no elements are an error"),
        _ => unreachable!("{reduction} is not for integers"),
    }
}

fn of_floats(reduction: Reduction, dtype: DType, group: &[Value]) -> Expect {
    let values = || group.iter().map(|value| value.as_f64());
    let terms = || {
        let mut terms = Terms::NONE;
        values().for_each(|value| terms.add(value));
        terms
    };
    match reduction {
        Reduction::Sum => Expect::Near(terms().sum, terms().error_in(dtype)),
        Reduction::Prod => {
            let exact = values().product();
            Expect::Near(exact, product(dtype, group.len(), exact))
        }
        Reduction::Mean => {
            let count = group.len() as f64;
            Expect::Near(terms().sum / count, tolerance::mean(dtype, &terms(), count))
        }
        _ if values().any(f64::is_nan) => Expect::Near(f64::NAN, 0.0),
        Reduction::Max => Expect::Near(values().fold(f64::NEG_INFINITY, f64::max), 0.0),
        Reduction::Min => Expect::Near(values().fold(f64::INFINITY, f64::min), 0.0),
        _ => unreachable!("{reduction} is not for floats"),
    }
}

pub(super) fn arg_reduce(extremum: Extremum, dim: usize, input: &Array) -> Vec<Expect> {
    groups(input, Dims::from([dim]))
        .iter()
        .map(|group| Expect::Exactly(Value::Int(place(extremum, group) as i128)))
        .collect()
}

/// The first of the largest or smallest elements. A NaN is more than that.
fn place(extremum: Extremum, group: &[Value]) -> usize {
    if let Some(place) = group.iter().position(|value| value.is_nan()) {
        return place;
    }
    let is_better = |one: Value, other: Value| match (extremum, one, other) {
        (Extremum::Max, Value::Int(one), Value::Int(other)) => one > other,
        (Extremum::Max, one, other) => one.as_f64() > other.as_f64(),
        (_, Value::Int(one), Value::Int(other)) => one < other,
        (_, one, other) => one.as_f64() < other.as_f64(),
    };
    (1..group.len()).fold(0, |best, place| if is_better(group[place], group[best]) { place } else { best })
}

pub(super) fn softmax(dim: usize, input: &Array, logarithm: bool) -> Vec<Expect> {
    let dtype = input.dtype;
    let mut expected = Vec::new();
    for_each_index(&input.shape, |index| {
        let row: Vec<f64> = (0..input.shape[dim])
            .map(|place| {
                let mut index = index.to_vec();
                index[dim] = place;
                input.at(&index).as_f64()
            })
            .collect();
        if row.iter().any(|value| value.is_nan()) {
            return expected.push(Expect::Near(f64::NAN, 0.0));
        }
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let smallest = row.iter().copied().filter(|value| value.is_finite()).fold(largest, f64::min);
        let sum: f64 = row.iter().map(|value| (value - largest).exp()).sum();
        let difference = row[index[dim]] - largest;
        let spread = (largest - smallest).min(200.0);
        expected.push(if logarithm {
            let exact = difference - sum.ln();
            let distance = if difference.is_finite() { -difference } else { 0.0 };
            let error = tolerance::log_softmax(dtype, row.len(), distance, sum.ln(), exact);
            Expect::Near(exact, error)
        } else {
            let exact = difference.exp() / sum;
            Expect::Near(
                exact,
                tolerance::softmax(dtype, row.len(), spread.max(-difference.max(-1e4)), exact),
            )
        });
    });
    expected
}

/// The product of matrices. A batch and a bias are broadcast.
pub(super) fn matmul(inputs: &[&Array], shape: &[usize]) -> Vec<Expect> {
    let a = inputs[0];
    let b = inputs[1];
    let bias = inputs.get(2);
    let dtype = a.dtype;
    let depth = a.shape[a.shape.len() - 1];
    let rank = shape.len();
    let mut expected = Vec::new();
    for_each_index(shape, |index| {
        let factors = |k: usize| {
            let mut of_a = index.to_vec();
            let mut of_b = index.to_vec();
            (of_a[rank - 1], of_b[rank - 2]) = (k, k);
            (a.at_broadcast(&of_a), b.at_broadcast(&of_b))
        };
        let bias = bias.map(|bias| bias.at_broadcast(index));
        if !dtype.is_float() {
            let products = (0..depth).map(factors).map(|(a, b)| a.as_int().wrapping_mul(b.as_int()));
            let sum = products.fold(bias.map_or(0, Value::as_int), i128::wrapping_add);
            return expected.push(Expect::Exactly(Value::Int(wrap(dtype, sum))));
        }
        let mut terms = Terms::NONE;
        (0..depth).map(factors).for_each(|(a, b)| terms.add(a.as_f64() * b.as_f64()));
        // The bias may be added to a sum that was rounded to the type of the output.
        let rounded = if crate::element::round(dtype, terms.sum) == terms.sum {
            0.0
        } else {
            rounding(dtype, terms.sum)
        };
        let rounded = if bias.is_some() { rounded } else { 0.0 };
        if let Some(bias) = bias {
            terms.add(bias.as_f64());
        }
        expected.push(Expect::Near(terms.sum, terms.error_in(dtype) + rounded));
    });
    expected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize], values: &[f64]) -> Array {
        let values = values.iter().map(|&value| Value::Float(value)).collect();
        Array { dtype: DType::F32, shape: shape.to_vec(), values }
    }

    fn likely(expected: &[Expect]) -> Vec<f64> {
        expected.iter().map(|expect| expect.likely().unwrap().as_f64()).collect()
    }

    #[test]
    fn dimensions_are_reduced() {
        let matrix = array(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let sum = |dims| likely(&reduce(Reduction::Sum, dims, &matrix));
        assert_eq!(sum(Dims::from([0])), [5.0, 7.0, 9.0]);
        assert_eq!(sum(Dims::from([1])), [6.0, 15.0]);
        assert_eq!(sum(Dims::all(2)), [21.0]);
        assert_eq!(likely(&reduce(Reduction::Mean, Dims::from([1]), &matrix)), [2.0, 5.0]);
        assert_eq!(likely(&reduce(Reduction::Prod, Dims::from([0]), &matrix)), [4.0, 10.0, 18.0]);
    }

    #[test]
    fn the_first_of_equal_elements_and_the_first_nan_is_found() {
        let values = |values: &[f64]| values.iter().map(|&value| Value::Float(value)).collect::<Vec<_>>();
        assert_eq!(place(Extremum::Max, &values(&[1.0, 3.0, 3.0])), 1);
        assert_eq!(place(Extremum::Min, &values(&[2.0, 1.0, 1.0])), 1);
        assert_eq!(place(Extremum::Min, &values(&[2.0, f64::NAN, 1.0, f64::NAN])), 1);
    }

    #[test]
    fn a_softmax_has_the_sum_1() {
        let row = array(&[1, 3], &[1000.0, 1000.0, f64::NEG_INFINITY]);
        assert_eq!(likely(&softmax(1, &row, false)), [0.5, 0.5, 0.0]);
        assert_eq!(likely(&softmax(1, &row, true)), [-(2_f64.ln()), -(2_f64.ln()), f64::NEG_INFINITY]);
    }

    #[test]
    fn matrices_are_multiplied() {
        let a = array(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let b = array(&[2, 1], &[5.0, 6.0]);
        let bias = array(&[1], &[100.0]);
        assert_eq!(likely(&matmul(&[&a, &b, &bias], &[2, 1])), [117.0, 139.0]);
        let batch = array(&[2, 1, 2], &[1.0, 0.0, 0.0, 1.0]);
        assert_eq!(likely(&matmul(&[&batch, &b], &[2, 1, 1])), [5.0, 6.0]);
    }
}
