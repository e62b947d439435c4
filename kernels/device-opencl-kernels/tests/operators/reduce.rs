use device_kernels::{DType, Dims, Layout, Operator, Reduction};

use super::support::{
    Array, NUMBERS, assert_close, compute, device, indices, noise, place, rounded, those_of, values,
};

/// The reduction, element by element.
fn reduced(
    reduction: Reduction,
    layout: &Layout,
    elements: &[f64],
    dims: Dims,
) -> (Vec<usize>, Vec<f64>, f64) {
    let shape: Vec<usize> = layout
        .shape()
        .iter()
        .enumerate()
        .map(|(dim, &size)| if dims.contains(dim) { 1 } else { size })
        .collect();
    let out = Layout::contiguous(&shape).unwrap();
    let mut lists = vec![Vec::new(); out.len()];
    for index in indices(layout.shape()) {
        let to: Vec<usize> =
            index.iter().enumerate().map(|(dim, &i)| if dims.contains(dim) { 0 } else { i }).collect();
        lists[place(&out, &to)].push(elements[place(layout, &index)]);
    }
    let results = lists.iter().map(|list| match reduction {
        Reduction::Sum => list.iter().sum(),
        Reduction::Prod => list.iter().product(),
        Reduction::Mean => list.iter().sum::<f64>() / list.len() as f64,
        Reduction::Max => {
            list.iter().fold(f64::NEG_INFINITY, |a, &b| if a > b || a.is_nan() { a } else { b })
        }
        Reduction::Min => list.iter().fold(f64::INFINITY, |a, &b| if a < b || a.is_nan() { a } else { b }),
        Reduction::Any => f64::from(u8::from(list.contains(&1.0))),
        Reduction::All => f64::from(u8::from(!list.contains(&0.0))),
        _ => unreachable!("an unknown reduction"),
    });
    // What errors are relative to.
    let largest = lists.iter().map(|list| list.iter().map(|x| x.abs()).sum::<f64>()).fold(1.0, f64::max);
    (shape, results.collect(), largest)
}

fn check(reduction: Reduction, dtype: DType, layout: Layout, elements: &[f64], dims: Dims) {
    let Some(device) = device() else { return };
    let input = Array::with_layout(device, dtype, layout, elements);
    let (shape, expected, largest) = reduced(reduction, &layout, elements, dims);
    let out = Array::sevens(device, dtype, &shape);
    let found = compute(device, Operator::Reduce { reduction, dims }, &[input.operand()], &[&out]);
    println!("{reduction} {dtype} {layout:?} {dims}");
    let expected: Vec<f64> = expected.iter().map(|&value| rounded(dtype, value)).collect();
    let summed = matches!(reduction, Reduction::Sum | Reduction::Mean);
    let largest = if reduction == Reduction::Mean { 4.0 } else { largest };
    if summed && dtype.is_float() {
        for (found, expected) in found.iter().zip(&expected) {
            let error = (found - expected).abs();
            let epsilon = rounded(dtype, 1.0 + 1.0 / 128.0) - 1.0;
            let epsilon = if dtype == DType::F32 { 1e-6 } else { epsilon.max(1e-3) };
            assert!(
                error <= epsilon * largest || (found.is_nan() && expected.is_nan()),
                "{found} {expected}"
            );
        }
        return;
    }
    assert_close(dtype, &found, &expected, 16.0);
}

#[test]
fn any_dimensions_of_any_layout() {
    let whole = Layout::contiguous([5, 40, 3, 7]).unwrap();
    let elements = values(DType::F32, whole.len(), 1);
    let views = [
        whole,
        whole.permute([2, 0, 3, 1]).unwrap(),
        whole.flip(1).unwrap().flip(3).unwrap(),
        whole.slice(1, 3, 17, 2).unwrap(),
        whole.slice(2, 1, 1, 1).unwrap().broadcast_to([5, 40, 4, 7]).unwrap(),
    ];
    for view in views {
        for dims in 0..16_usize {
            let dims: Dims = (0..4).filter(|dim| dims >> dim & 1 == 1).collect();
            check(Reduction::Sum, DType::F32, view, &elements, dims);
        }
        check(Reduction::Max, DType::F32, view, &elements, Dims::from([1, 3]));
        check(Reduction::Mean, DType::F32, view, &elements, Dims::from([0, 2]));
    }
}

#[test]
fn each_reduction_of_each_type() {
    for dtype in those_of(NUMBERS) {
        let layout = Layout::contiguous([30, 20]).unwrap();
        let elements = values(dtype, 600, 2);
        for reduction in [Reduction::Sum, Reduction::Max, Reduction::Min] {
            // The sum of 600 bytes wraps.
            let dims = if dtype == DType::U8 { Dims::from([2]) } else { Dims::from([0]) };
            let layout = if dtype == DType::U8 { layout.reshape([30, 5, 4]).unwrap() } else { layout };
            check(reduction, dtype, layout, &elements, dims);
            check(reduction, dtype, layout.transpose(0, 1).unwrap(), &elements, dims);
        }
        if dtype.is_float() {
            check(Reduction::Mean, dtype, layout, &elements, Dims::all(2));
        }
        let few: Vec<f64> = elements.iter().map(|x| if *x > 1.0 { 2.0 } else { 1.0 }).collect();
        check(Reduction::Prod, dtype, layout.reshape([150, 4]).unwrap(), &few, Dims::from([1]));
    }
    for reduction in [Reduction::Any, Reduction::All] {
        let mut elements = vec![f64::from(u8::from(reduction == Reduction::All)); 4000];
        elements[77] = 1.0 - elements[77];
        let layout = Layout::contiguous([40, 100]).unwrap();
        for dims in [Dims::from([0]), Dims::from([1]), Dims::all(2)] {
            check(reduction, DType::Bool, layout, &elements, dims);
        }
    }
}

#[test]
fn long_reductions_have_parts() {
    for (shape, dims) in [
        (&[40_000][..], Dims::from([0])),
        (&[3, 20_000], Dims::from([1])),
        (&[20_000, 3], Dims::from([0])),
        (&[9_000, 20], Dims::from([0])),
        (&[40_000, 2], Dims::all(2)),
    ] {
        let layout = Layout::contiguous(shape).unwrap();
        let elements: Vec<f64> =
            noise(layout.len(), 3).iter().map(|x| rounded(DType::F32, x + 1.0)).collect();
        for reduction in [Reduction::Sum, Reduction::Mean, Reduction::Min] {
            check(reduction, DType::F32, layout, &elements, dims);
        }
        check(Reduction::Sum, DType::F32, layout.flip(0).unwrap(), &elements, dims);
    }
}

#[test]
fn a_sum_of_many_is_as_exact_as_in_a_tree() {
    let Some(device) = device() else { return };
    // One after the other, the error would be more than a thousandth.
    for (len, columns) in [(1 << 22, 1), (1 << 18, 16)] {
        let elements = vec![0.1; len * columns];
        let input = Array::new(device, DType::F32, &[len, columns], &elements);
        let out = Array::sevens(device, DType::F32, &[1, columns]);
        let operator = Operator::Reduce { reduction: Reduction::Sum, dims: Dims::from([0]) };
        let found = compute(device, operator, &[input.operand()], &[&out]);
        let expected = f64::from(0.1_f32) * len as f64;
        for found in found {
            assert!((found / expected - 1.0).abs() < 2e-6, "{found} {expected}");
        }
    }
}

#[test]
fn a_nan_is_the_largest_and_the_smallest() {
    let mut elements = noise(5000, 4);
    elements[4321] = f64::NAN;
    for dims in [Dims::from([0]), Dims::from([1]), Dims::all(2)] {
        for reduction in [Reduction::Max, Reduction::Min, Reduction::Sum] {
            let elements: Vec<f64> = elements.iter().map(|&x| rounded(DType::F32, x)).collect();
            check(reduction, DType::F32, Layout::contiguous([50, 100]).unwrap(), &elements, dims);
        }
    }
}
