use device_kernels::{DType, Extremum, Layout, Operator};

use super::support::{
    Array, FLOATS, NUMBERS, assert_close, compute, device, indices, place, rounded, those_of, values,
};

/// The rows of a layout along `dim`: the places of their elements, by the other indices in order.
fn rows(layout: &Layout, dim: usize) -> Vec<Vec<usize>> {
    let mut shape = layout.shape().to_vec();
    let len = std::mem::replace(&mut shape[dim], 1);
    let at = |index: &[usize], i| {
        let mut index = index.to_vec();
        index[dim] = i;
        place(layout, &index)
    };
    indices(&shape).iter().map(|index| (0..len).map(|i| at(index, i)).collect()).collect()
}

fn views() -> Vec<(Layout, usize)> {
    let whole = Layout::contiguous([3, 20, 70]).unwrap();
    let long = Layout::contiguous([3, 1400]).unwrap();
    vec![
        (whole, 2),
        (whole, 1),
        (whole, 0),
        (whole.permute([2, 0, 1]).unwrap(), 0),
        (whole.flip(2).unwrap().slice(2, 3, 30, 2).unwrap(), 2),
        (long, 1),
        (long.transpose(0, 1).unwrap(), 0),
    ]
}

#[test]
fn softmax_and_its_logarithm() {
    let Some(device) = device() else { return };
    for (view, dim) in views() {
        for dtype in those_of(FLOATS) {
            let elements: Vec<f64> = values(dtype, view.range().end, 1).iter().map(|x| x * 2.0).collect();
            let input = Array::with_layout(device, dtype, view, &elements);
            let out = Array::sevens(device, dtype, view.shape());
            for operator in [Operator::Softmax { dim }, Operator::LogSoftmax { dim }] {
                let found = compute(device, operator, &[input.operand()], &[&out]);
                let mut expected = vec![0.0; view.len()];
                for (row, to) in rows(&view, dim).iter().zip(rows(&out.layout, dim)) {
                    let top = row.iter().map(|&at| elements[at]).fold(f64::NEG_INFINITY, f64::max);
                    let total: f64 = row.iter().map(|&at| (elements[at] - top).exp()).sum();
                    for (&from, &to) in row.iter().zip(&to) {
                        let log = elements[from] - top - total.ln();
                        let value =
                            if matches!(operator, Operator::Softmax { .. }) { log.exp() } else { log };
                        expected[to] = rounded(dtype, value);
                    }
                }
                println!("{operator} {dtype} {view:?}");
                // A logarithm near zero is the difference of two larger ones.
                let shift = if matches!(operator, Operator::LogSoftmax { .. }) { 1.0 } else { 0.0 };
                let shifted = |x: &[f64]| x.iter().map(|x| x - shift).collect::<Vec<_>>();
                assert_close(dtype, &shifted(&found), &shifted(&expected), 32.0);
            }
        }
    }
}

#[test]
fn softmax_of_large_numbers_and_of_a_nan() {
    let Some(device) = device() else { return };
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let input = Array::new(device, DType::F32, &[3, 2], &[1000.0, 1000.0, -inf, 0.0, nan, 1.0]);
    let out = Array::sevens(device, DType::F32, &[3, 2]);
    let found = compute(device, Operator::Softmax { dim: 1 }, &[input.operand()], &[&out]);
    assert_close(DType::F32, &found, &[0.5, 0.5, 0.0, 1.0, nan, nan], 1.0);
}

#[test]
fn the_index_of_the_largest_and_of_the_smallest() {
    let Some(device) = device() else { return };
    for (view, dim) in views() {
        for (dtype, to) in those_of(NUMBERS).zip([DType::I32, DType::I64, DType::U32].into_iter().cycle()) {
            // Integers have equal elements, the first of which counts; floats have NaN.
            let mut elements = values(dtype, view.range().end, 2);
            if dtype.is_float() {
                elements.iter_mut().skip(40).step_by(301).for_each(|x| *x = f64::NAN);
            }
            let input = Array::with_layout(device, dtype, view, &elements);
            let mut shape = view.shape().to_vec();
            shape[dim] = 1;
            let out = Array::sevens(device, to, &shape);
            for extremum in [Extremum::Max, Extremum::Min] {
                let operator = Operator::ArgReduce { extremum, dim };
                let found = compute(device, operator, &[input.operand()], &[&out]);
                let expected: Vec<f64> = rows(&view, dim)
                    .iter()
                    .map(|row| {
                        let row: Vec<f64> = row.iter().map(|&at| elements[at]).collect();
                        let better = |a: f64, b: f64| match extremum {
                            Extremum::Max => a > b,
                            _ => a < b,
                        };
                        let mut best = 0;
                        for (i, &x) in row.iter().enumerate() {
                            if better(x, row[best]) || (x.is_nan() && !row[best].is_nan()) {
                                best = i;
                            }
                        }
                        best as f64
                    })
                    .collect();
                assert_eq!(found, expected, "{operator} {dtype} {view:?}");
            }
        }
    }
}
