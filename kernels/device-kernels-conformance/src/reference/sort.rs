//! Sorting: elements along a dimension in the order of their bits, and their indices.

use std::cmp::Ordering;

use device_kernels::Sorted;

use super::{Array, for_each_index};
use crate::element::Value;
use crate::expect::Expect;

/// What the outputs are, for outputs of the shape `shape`.
pub(super) fn sort(
    dim: usize,
    descending: bool,
    sorted: Sorted,
    input: &Array,
    shape: &[usize],
) -> Vec<Vec<Expect>> {
    let mut values = Vec::new();
    let mut indices = Vec::new();
    let mut rows = Rows::default();
    for_each_index(shape, |index| {
        let row = rows.of(dim, descending, input, index);
        let (place, value) = row[index[dim]];
        values.push(Expect::Exactly(value));
        indices.push(Expect::Exactly(Value::Int(place as i128)));
    });
    match sorted {
        Sorted::Values => vec![values],
        Sorted::Indices => vec![indices],
        _ => vec![values, indices],
    }
}

/// The rows that are sorted already, by their number.
#[derive(Default)]
struct Rows(std::collections::HashMap<Vec<usize>, Vec<(usize, Value)>>);

impl Rows {
    /// The elements of the row that `index` is in, in order, with their indices.
    fn of(&mut self, dim: usize, descending: bool, input: &Array, index: &[usize]) -> &[(usize, Value)] {
        let mut first = index.to_vec();
        first[dim] = 0;
        self.0.entry(first.clone()).or_insert_with(|| {
            let mut row: Vec<(usize, Value)> = (0..input.shape[dim])
                .map(|place| {
                    first[dim] = place;
                    (place, input.at(&first))
                })
                .collect();
            // The sort of the standard library is stable.
            row.sort_by(|(_, a), (_, b)| if descending { order(*b, *a) } else { order(*a, *b) });
            row
        })
    }
}

/// The order of two elements of one type.
fn order(a: Value, b: Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(&b),
        (a, b) => a.as_f64().total_cmp(&b.as_f64()),
    }
}

#[cfg(test)]
mod tests {
    use device_kernels::DType;

    use super::*;

    fn row(values: &[f64]) -> Array {
        let values: Vec<Value> = values.iter().map(|&value| Value::Float(value)).collect();
        Array { dtype: DType::F32, shape: vec![values.len()], values }
    }

    fn places(descending: bool, values: &[f64], count: usize) -> Vec<i128> {
        let indices = &sort(0, descending, Sorted::Indices, &row(values), &[count])[0];
        indices.iter().map(|index| index.likely().unwrap().as_int()).collect()
    }

    #[test]
    fn equal_elements_keep_their_order_in_either_direction() {
        assert_eq!(places(false, &[2.0, 1.0, 2.0, 1.0], 4), [1, 3, 0, 2]);
        assert_eq!(places(true, &[2.0, 1.0, 2.0, 1.0], 4), [0, 2, 1, 3]);
        assert_eq!(places(true, &[2.0, 1.0, 2.0, 1.0], 3), [0, 2, 1]);
    }

    #[test]
    fn signs_of_zeros_and_of_nan_count() {
        let values = [f64::NAN, 0.0, -f64::NAN, -0.0, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0];
        assert_eq!(places(false, &values, 8), [2, 5, 7, 3, 1, 6, 4, 0]);
        assert_eq!(places(true, &values, 8), [0, 4, 6, 1, 3, 7, 5, 2]);
    }
}
