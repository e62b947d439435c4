use device_kernels::{DType, Layout, Operator, Update};

use super::support::{Array, compute, device, indices, place, rounded, those_of, values};

/// Indices below `size`, and every so often one outside.
fn some_indices(dtype: DType, len: usize, size: usize) -> Vec<f64> {
    let outside: &[f64] = match dtype {
        DType::U32 => &[4e9],
        DType::I32 => &[-1.0, 2e9],
        _ => &[-1.0, 5e9, 4294967296.0],
    };
    let index = |i: usize| match i % 11 {
        10 => outside[i / 11 % outside.len()],
        _ => ((i * 7 + i / 3) % size) as f64,
    };
    (0..len).map(index).collect()
}

const INDEX_TYPES: [DType; 3] = [DType::I32, DType::I64, DType::U32];

fn with(index: &[usize], dim: usize, value: usize) -> Vec<usize> {
    let mut index = index.to_vec();
    index[dim] = value;
    index
}

fn inside(index: f64, size: usize) -> Option<usize> {
    (index >= 0.0 && index < size as f64).then_some(index as usize)
}

#[test]
fn reads_by_indices() {
    let Some(device) = device() else { return };
    let whole = Layout::contiguous([5, 6, 7]).unwrap();
    for (dtype, of_index) in those_of(DType::ALL).zip(INDEX_TYPES.into_iter().cycle()) {
        for view in [whole, whole.permute([2, 0, 1]).unwrap().flip(1).unwrap()] {
            for dim in 0..3 {
                let elements = values(dtype, view.len(), 1);
                let input = Array::with_layout(device, dtype, view, &elements);
                let size = view.shape()[dim];

                let shape = with(&[3, 4, 5], dim, 9);
                let at = some_indices(of_index, shape.iter().product(), size);
                let at_layout = Layout::contiguous(&shape).unwrap();
                let index = Array::new(device, of_index, &shape, &at);
                let out = Array::sevens(device, dtype, &shape);
                let found =
                    compute(device, Operator::Gather { dim }, &[input.operand(), index.operand()], &[&out]);
                let read = |i: &Vec<usize>, at: f64| {
                    inside(at, size).map_or(0.0, |at| elements[place(&view, &with(i, dim, at))])
                };
                let expected: Vec<f64> =
                    indices(&shape).iter().map(|i| read(i, at[place(&at_layout, i)])).collect();
                assert_eq!(found, expected, "gather {dtype} {of_index} {dim}");

                let at = some_indices(of_index, 13, size);
                let index = Array::new(device, of_index, &[13], &at);
                let shape = with(view.shape(), dim, 13);
                let out = Array::sevens(device, dtype, &shape);
                let inputs = [input.operand(), index.operand()];
                let found = compute(device, Operator::IndexSelect { dim }, &inputs, &[&out]);
                let expected: Vec<f64> = indices(&shape).iter().map(|i| read(i, at[i[dim]])).collect();
                assert_eq!(found, expected, "index_select {dtype} {of_index} {dim}");
            }
        }
    }
}

#[test]
fn writes_by_indices() {
    let Some(device) = device() else { return };
    let whole = Layout::contiguous([5, 6, 7]).unwrap();
    for (dtype, of_index) in those_of(DType::ALL).zip(INDEX_TYPES.into_iter().cycle()) {
        for (update, alone) in
            [(Update::Replace, false), (Update::Replace, true), (Update::Add, false), (Update::Add, true)]
        {
            if update == Update::Add && dtype == DType::Bool {
                continue;
            }
            for dim in 0..3 {
                let view = whole.permute([1, 2, 0]).unwrap().flip(1).unwrap();
                let size = view.shape()[dim];
                // Additions meet; replacements do not, as which one stays is not said.
                let len = if update == Update::Add { 20 } else { size };
                let mut elements: Vec<f64> = (0..view.len()).map(|i| (i % 2) as f64).collect();
                let output = Array::with_layout(device, dtype, view, &elements);
                let shape = with(if alone { view.shape() } else { &[4, 3, 5] }, dim, len);
                let news: Vec<f64> = values(dtype, shape.iter().product(), 2);
                let news: Vec<f64> = news.iter().map(|x| rounded(dtype, (x * 4.0).round() / 4.0)).collect();
                let of_values = Layout::contiguous(&shape).unwrap();
                let one = match update {
                    Update::Add => some_indices(of_index, len, size),
                    _ => (0..len).map(|i| if i == 2 { 4e9 } else { ((i + 1) % size) as f64 }).collect(),
                };
                let one: Vec<f64> =
                    one.iter().map(|&i| if of_index == DType::I32 { i.min(2e9) } else { i }).collect();
                let at: Vec<f64> = match alone {
                    true => one.clone(),
                    false => indices(&shape).iter().map(|i| one[i[dim]]).collect(),
                };
                let index = Array::new(device, of_index, if alone { &shape[dim..=dim] } else { &shape }, &at);
                let input = Array::new(device, dtype, &shape, &news);
                let operator = match alone {
                    true => Operator::IndexAssign { dim, update },
                    false => Operator::Scatter { dim, update },
                };
                let found = compute(device, operator, &[index.operand(), input.operand()], &[&output]);
                for i in indices(&shape) {
                    let Some(to) = inside(one[i[dim]], size) else { continue };
                    let to = &mut elements[place(&view, &with(&i, dim, to))];
                    let new = news[place(&of_values, &i)];
                    *to = match update {
                        Update::Add if dtype == DType::U8 => (*to + new) % 256.0,
                        Update::Add => rounded(dtype, *to + new),
                        _ => new,
                    };
                }
                let expected: Vec<f64> =
                    indices(view.shape()).iter().map(|i| elements[place(&view, i)]).collect();
                assert_eq!(found, expected, "{operator} {dtype} {of_index}");
            }
        }
    }
}
