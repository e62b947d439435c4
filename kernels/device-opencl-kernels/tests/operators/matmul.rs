use device_kernels::{DType, Layout, Operator};

use super::support::{
    Array, NUMBERS, assert_close, compute, device, indices, place, rounded, those_of, values,
};

fn check(dtype: DType, a: Layout, b: Layout, bias: Option<Layout>, out: Layout) {
    let Some(device) = device() else { return };
    let elements = |layout: &Layout, seed| values(dtype, layout.range().end, seed);
    let (xs, ys) = (elements(&a, 1), elements(&b, 2));
    let zs = bias.map(|bias| elements(&bias, 3)).unwrap_or_default();
    let left = Array::with_layout(device, dtype, a, &xs);
    let right = Array::with_layout(device, dtype, b, &ys);
    let third = bias.map(|bias| Array::with_layout(device, dtype, bias, &zs));
    let result = Array::with_layout(device, dtype, out, &vec![7.0; out.range().end]);
    let mut inputs = vec![left.operand(), right.operand()];
    inputs.extend(third.as_ref().map(Array::operand));
    let found = compute(device, Operator::MatMul, &inputs, &[&result]);

    let (rank, k) = (out.rank(), a.shape()[a.rank() - 1]);
    let whole = |rows: usize, columns: usize| [&out.shape()[..rank - 2], &[rows, columns]].concat();
    let [m, n] = [out.shape()[rank - 2], out.shape()[rank - 1]];
    let (a, b) = (a.broadcast_to(whole(m, k)).unwrap(), b.broadcast_to(whole(k, n)).unwrap());
    let bias = bias.map(|bias| bias.broadcast_to(out.shape()).unwrap());
    let mut scale = 1.0_f64;
    let expected: Vec<f64> = indices(out.shape())
        .iter()
        .map(|index| {
            let at = |row, column| [&index[..rank - 2], &[row, column]].concat();
            let products = (0..k)
                .map(|i| xs[place(&a, &at(index[rank - 2], i))] * ys[place(&b, &at(i, index[rank - 1]))]);
            let products: Vec<f64> = products.collect();
            scale = scale.max(products.iter().map(|x| x.abs()).sum());
            products.iter().sum::<f64>() + bias.map_or(0.0, |bias| zs[place(&bias, index)])
        })
        .collect();
    println!("{dtype} {a:?} {b:?} {bias:?} {out:?}");
    if dtype == DType::U8 {
        let wrapped: Vec<f64> = expected.iter().map(|&x| x % 256.0).collect();
        return assert_eq!(found, wrapped);
    }
    let expected: Vec<f64> = expected.iter().map(|&x| rounded(dtype, x)).collect();
    let scaled = |values: &[f64]| values.iter().map(|x| 2.0 + x / scale).collect::<Vec<_>>();
    // Sums are exact up to the last rounding, relative to their largest terms.
    assert_close(dtype, &scaled(&found), &scaled(&expected), if dtype.is_float() { 4.0 } else { 0.0 });
    if !dtype.is_float() {
        assert_eq!(found, expected);
    }
}

fn plain(shape: &[usize]) -> Layout {
    Layout::contiguous(shape).unwrap()
}

#[test]
fn sizes_that_fit_tiles_and_sizes_that_do_not() {
    for [m, n, k] in [
        [1, 1, 1],
        [1, 50, 300],
        [50, 1, 300],
        [3, 5, 7],
        [4, 8, 600],
        [6, 16, 256],
        [7, 17, 257],
        [64, 64, 16],
        [65, 63, 33],
        [100, 130, 70],
        [97, 31, 513],
    ] {
        check(DType::F32, plain(&[m, k]), plain(&[k, n]), None, plain(&[m, n]));
        let (a, b) = (plain(&[k, m]).transpose(0, 1).unwrap(), plain(&[n, k]).transpose(0, 1).unwrap());
        check(DType::F32, a, b, Some(plain(&[n])), plain(&[n, m]).transpose(0, 1).unwrap());
        check(DType::F32, plain(&[m, k]), b, Some(plain(&[m, 1])), plain(&[m, n]));
    }
}

#[test]
fn each_type() {
    for dtype in those_of(NUMBERS) {
        for [m, n, k] in [[4, 3, 5], [20, 30, 40], [70, 66, 300]] {
            check(dtype, plain(&[m, k]), plain(&[k, n]), Some(plain(&[n])), plain(&[m, n]));
        }
    }
}

#[test]
fn batches_and_broadcasts() {
    let f32 = DType::F32;
    check(f32, plain(&[3, 2, 10, 20]), plain(&[3, 2, 20, 30]), None, plain(&[3, 2, 10, 30]));
    check(f32, plain(&[3, 2, 10, 20]), plain(&[20, 30]), Some(plain(&[30])), plain(&[3, 2, 10, 30]));
    check(f32, plain(&[10, 20]), plain(&[3, 2, 20, 30]), Some(plain(&[2, 10, 30])), plain(&[3, 2, 10, 30]));
    check(f32, plain(&[3, 1, 10, 20]), plain(&[1, 2, 20, 30]), None, plain(&[3, 2, 10, 30]));
    check(f32, plain(&[1, 3, 20]), plain(&[5, 20, 8]), None, plain(&[5, 3, 8]));
    // The heads of attention: [batch, head, time, size] in memory as [batch, time, head, size].
    let heads = plain(&[2, 9, 3, 16]).permute([0, 2, 1, 3]).unwrap();
    let keys = plain(&[2, 9, 3, 16]).permute([0, 2, 3, 1]).unwrap();
    check(f32, heads, keys, None, plain(&[2, 3, 9, 9]));
    let flipped = plain(&[40, 50]).flip(0).unwrap().flip(1).unwrap();
    check(f32, flipped, plain(&[50, 20]), None, plain(&[40, 20]));
    let rows = plain(&[40, 100]).slice(1, 3, 48, 2).unwrap();
    check(f32, rows, plain(&[48, 20]), None, plain(&[40, 30]).slice(1, 5, 20, 1).unwrap());
}
