use std::cmp::Ordering;

use device_kernels::{DType, Layout, Operator, Sorted};

use super::support::{Array, NUMBERS, bytes, compute, device, indices, numbers, place, those_of, values};

/// Layouts with rows for all kernels: counted rows, rows of one run, and rows of several.
fn views() -> Vec<(Layout, usize)> {
    let whole = Layout::contiguous([3, 20, 70]).unwrap();
    let long = Layout::contiguous([2, 5000]).unwrap();
    let longer = Layout::contiguous([9001]).unwrap();
    vec![
        (whole, 2),
        (whole, 1),
        (whole.permute([2, 0, 1]).unwrap(), 0),
        (whole.flip(2).unwrap().slice(2, 3, 30, 2).unwrap(), 2),
        (long, 1),
        (long.transpose(0, 1).unwrap().flip(0).unwrap(), 0),
        (long.slice(1, 7, 257, 3).unwrap(), 1),
        (longer, 0),
        (Layout::contiguous([1]).unwrap().broadcast_to([2, 700]).unwrap(), 1),
    ]
}

/// The indices of a row's elements in order.
fn order(row: &[f64], descending: bool) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    places.sort_by(|&a, &b| {
        let order: Ordering = row[a].total_cmp(&row[b]);
        if descending { order.reverse() } else { order }
    });
    places
}

#[test]
fn rows_are_sorted_with_their_indices() {
    let Some(device) = device() else { return };
    for (number, (view, dim)) in views().into_iter().enumerate() {
        // A third of the types for each layout: there are many kernels to compile.
        let types = those_of(NUMBERS).zip([DType::I32, DType::I64, DType::U32].into_iter().cycle());
        for (dtype, index) in types.skip(number % 3).step_by(3) {
            let mut elements = values(dtype, view.range().end, 2);
            if dtype.is_float() {
                let special = [f64::NAN, -0.0, -f64::NAN, f64::INFINITY, 0.0, f64::NEG_INFINITY];
                elements.iter_mut().step_by(11).zip(special.into_iter().cycle()).for_each(|(x, y)| *x = y);
            }
            // The elements rounded to the type.
            let elements = numbers(dtype, &bytes(dtype, &elements));
            let (len, descending) = (view.shape()[dim], number % 2 == 1);
            let input = Array::with_layout(device, dtype, view, &elements);
            for count in [len, len.min(5)] {
                let mut shape = view.shape().to_vec();
                shape[dim] = count;
                let mut rows = shape.clone();
                rows[dim] = 1;
                let (mut of_values, mut of_indices) = (Vec::new(), Vec::new());
                let out = Layout::contiguous(&shape).unwrap();
                of_values.resize(out.len(), 0.0);
                of_indices.resize(out.len(), 0.0);
                for first in indices(&rows) {
                    let at = |i: usize| {
                        let mut index = first.clone();
                        index[dim] = i;
                        index
                    };
                    let row: Vec<f64> = (0..len).map(|i| elements[place(&view, &at(i))]).collect();
                    for (to, from) in order(&row, descending).into_iter().take(count).enumerate() {
                        of_values[place(&out, &at(to))] = row[from];
                        of_indices[place(&out, &at(to))] = from as f64;
                    }
                }
                let (found, places) =
                    (Array::sevens(device, dtype, &shape), Array::sevens(device, index, &shape));
                let sort = |sorted| Operator::Sort { dim, descending, sorted };
                println!("{} {dtype} {view:?}, {count} of {len}", sort(Sorted::Both));
                let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let both = compute(device, sort(Sorted::Both), &[input.operand()], &[&found, &places]);
                assert_eq!(bits(&both), bits(&of_values));
                let stream = device.create_stream().unwrap();
                assert_eq!(places.read(&stream), of_indices);
                let (found, places) =
                    (Array::sevens(device, dtype, &shape), Array::sevens(device, index, &shape));
                let alone = compute(device, sort(Sorted::Values), &[input.operand()], &[&found]);
                assert_eq!(bits(&alone), bits(&of_values));
                let alone = compute(device, sort(Sorted::Indices), &[input.operand()], &[&places]);
                assert_eq!(alone, of_indices);
            }
        }
    }
}
