//! Elements at indices.
//!
//! An index that is outside of its dimension reads 0, and writes nothing.

use device_kernels::Update;

use super::{Array, for_each_index};
use crate::element::{Value, wrap};
use crate::expect::Expect;
use crate::tolerance::Terms;

/// `index` with the element of `indices` in the dimension `dim`. `None` if that is outside of `shape`.
fn at(index: &[usize], dim: usize, target: Value, shape: &[usize]) -> Option<Vec<usize>> {
    let target = usize::try_from(target.as_int()).ok().filter(|&target| target < shape[dim])?;
    let mut index = index.to_vec();
    index[dim] = target;
    Some(index)
}

fn read(array: &Array, index: Option<Vec<usize>>) -> Expect {
    match index {
        Some(index) => Expect::Exactly(array.at(&index)),
        None if array.is_float() => Expect::Exactly(Value::Float(0.0)),
        None => Expect::Exactly(Value::Int(0)),
    }
}

pub(super) fn gather(dim: usize, array: &Array, indices: &Array) -> Vec<Expect> {
    let mut expected = Vec::new();
    for_each_index(&indices.shape, |index| {
        expected.push(read(array, at(index, dim, indices.at(index), &array.shape)));
    });
    expected
}

pub(super) fn index_select(dim: usize, array: &Array, indices: &Array, shape: &[usize]) -> Vec<Expect> {
    let mut expected = Vec::new();
    for_each_index(shape, |index| {
        expected.push(read(array, at(index, dim, indices.at(&[index[dim]]), &array.shape)));
    });
    expected
}

pub(super) fn scatter(
    dim: usize,
    update: Update,
    indices: &Array,
    values: &Array,
    before: &Array,
) -> Vec<Expect> {
    updated(update, before, &indices.shape, |index| {
        (at(index, dim, indices.at(index), &before.shape), values.at(index))
    })
}

pub(super) fn index_assign(
    dim: usize,
    update: Update,
    indices: &Array,
    values: &Array,
    before: &Array,
) -> Vec<Expect> {
    updated(update, before, &values.shape, |index| {
        (at(index, dim, indices.at(&[index[dim]]), &before.shape), values.at(index))
    })
}

/// The elements after values were written to them. `value` has the place and the value for each index of
/// `shape`.
fn updated(
    update: Update,
    before: &Array,
    shape: &[usize],
    value: impl Fn(&[usize]) -> (Option<Vec<usize>>, Value),
) -> Vec<Expect> {
    let mut written: Vec<Vec<Value>> = vec![Vec::new(); before.values.len()];
    for_each_index(shape, |index| {
        if let (Some(target), value) = value(index) {
            let place = target.iter().zip(&before.shape).fold(0, |place, (index, size)| place * size + index);
            written[place].push(value);
        }
    });
    let dtype = before.dtype;
    let after = |(values, before): (Vec<Value>, &Value)| match update {
        _ if values.is_empty() => Expect::Kept,
        Update::Add if dtype.is_float() => {
            let mut terms = Terms::NONE;
            std::iter::once(before).chain(&values).for_each(|value| terms.add(value.as_f64()));
            Expect::Near(terms.sum, terms.error_in(dtype))
        }
        Update::Add => {
            let sum = values.iter().map(|value| value.as_int()).sum::<i128>() + before.as_int();
            Expect::Exactly(Value::Int(wrap(dtype, sum)))
        }
        // One of the values; which is not said.
        _ => {
            let mut values = values.into_iter().map(Expect::Exactly);
            let first = values.next().expect("it is not empty");
            first.or(values)
        }
    };
    written.into_iter().zip(&before.values).map(after).collect()
}

#[cfg(test)]
mod tests {
    use device_kernels::DType;

    use super::*;

    fn array(dtype: DType, shape: &[usize], values: &[i128]) -> Array {
        let values = values.iter().map(|&value| Value::Int(value)).collect();
        Array { dtype, shape: shape.to_vec(), values }
    }

    fn exactly(values: &[i128]) -> Vec<Expect> {
        values.iter().map(|&value| Expect::Exactly(Value::Int(value))).collect()
    }

    #[test]
    fn elements_are_read_at_indices_and_zeros_outside() {
        let matrix = array(DType::I32, &[2, 3], &[1, 2, 3, 4, 5, 6]);
        let indices = array(DType::I32, &[2, 2], &[2, 0, 3, -1]);
        assert_eq!(gather(1, &matrix, &indices), exactly(&[3, 1, 0, 0]));
        assert_eq!(gather(0, &matrix, &array(DType::I32, &[1, 3], &[1, 0, 1])), exactly(&[4, 2, 6]));
        let rows = array(DType::I32, &[2], &[1, 1]);
        assert_eq!(index_select(0, &matrix, &rows, &[2, 3]), exactly(&[4, 5, 6, 4, 5, 6]));
    }

    #[test]
    fn values_are_written_at_indices_and_nowhere_outside() {
        let before = array(DType::U8, &[4], &[250, 1, 2, 3]);
        let indices = array(DType::I32, &[4], &[0, 0, 2, 4]);
        let values = array(DType::U8, &[4], &[5, 6, 7, 8]);
        let added = scatter(0, Update::Add, &indices, &values, &before);
        let [five, seven] = [5, 9].map(|value| Expect::Exactly(Value::Int(value)));
        assert_eq!(added, [five, Expect::Kept, seven, Expect::Kept]);
        let replaced = index_assign(0, Update::Replace, &indices, &values, &before);
        assert_eq!(replaced[0], Expect::OneOf(exactly(&[5, 6])));
        assert_eq!(replaced[1..], [Expect::Kept, exactly(&[7]).remove(0), Expect::Kept]);
    }
}
