//! How wrong sets sort.

use device_kernels::{Operator, Sorted};
use device_kernels_conformance::element::Value;
use device_kernels_conformance::expect::Expect;
use device_kernels_conformance::reference::{self, Array, Input};

use crate::wrong::Wrong;

/// A sort of a single row, as a wrong set does it.
pub(crate) fn missort(
    wrong: Wrong,
    operator: Operator,
    row: &Array,
    outputs: &[Array],
    results: &mut [Vec<Option<Value>>],
) {
    let likely = |row: &Array| -> Vec<Vec<Option<Value>>> {
        let wanted = |output: &Array| Array { shape: row.shape.clone(), ..output.clone() };
        let outputs: Vec<Array> = outputs.iter().map(wanted).collect();
        let expected = reference::expected(operator, &[Input::Array(row.clone())], &outputs);
        expected.iter().map(|output| output.iter().map(Expect::likely).collect()).collect()
    };
    let (len, count) = (row.values.len(), results[0].len());
    match wrong {
        Wrong::SortReversesEquals => {
            let mut reversed = row.clone();
            reversed.values.reverse();
            let has_indices = !matches!(operator, Operator::Sort { sorted: Sorted::Values, .. });
            let turned = |value: Value| Value::Int(len as i128 - 1 - value.as_int());
            let last = results.len() - 1;
            for (place, (result, found)) in results.iter_mut().zip(likely(&reversed)).enumerate() {
                result.copy_from_slice(&found[..count]);
                if place == last && has_indices {
                    result.iter_mut().for_each(|value| *value = value.map(turned));
                }
            }
        }
        Wrong::SortsBlocks => {
            for (place, result) in results.iter_mut().enumerate() {
                let blocks = row.values.chunks(1024).map(|values| {
                    let shape = vec![values.len()];
                    likely(&Array { shape, values: values.to_vec(), ..row.clone() }).swap_remove(place)
                });
                *result = blocks.flatten().take(count).collect();
            }
        }
        _ => {
            for (result, found) in results.iter_mut().zip(likely(row)) {
                result.copy_from_slice(&found[len - count..]);
            }
        }
    }
}
