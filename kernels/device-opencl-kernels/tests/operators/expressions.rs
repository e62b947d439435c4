use device_kernels::{
    Argument, ArgumentRef, Binary, Compare, DType, Expression, ExpressionBuilder, ExpressionNode, Layout,
    NodeKind, Operand, Operator, Planned, Reduction, run,
};
use device_registry::Device;

use super::support::{
    Array, FLOATS, NUMBERS, assert_close, chain, compute, device, noise, rounded, those_of, values,
};

fn build(describe: impl FnOnce(&ExpressionBuilder)) -> Expression {
    Expression::build(describe).unwrap_or_else(|error| panic!("{error}"))
}

/// Whether an expression is one launch.
fn is_one_launch(device: Device, expression: Expression, inputs: &[Operand<'_>], outputs: &[&Array]) -> bool {
    let inputs: Vec<Argument> = inputs.iter().map(Operand::argument).collect();
    let outputs: Vec<Argument> = outputs.iter().map(|output| output.operand().argument()).collect();
    let inputs: Vec<ArgumentRef<'_>> = inputs.iter().map(Into::into).collect();
    let outputs: Vec<ArgumentRef<'_>> = outputs.iter().map(Into::into).collect();
    !Planned::of(device, expression, &inputs, &outputs).unwrap().is_in_parts()
}

/// Runs an expression, in one launch, and reads its outputs.
fn fused(
    device: Device,
    expression: Expression,
    inputs: &[Operand<'_>],
    outputs: &[&Array],
) -> Vec<Vec<f64>> {
    assert!(is_one_launch(device, expression, inputs, outputs), "{expression} is done in parts");
    let stream = device.create_stream().unwrap();
    let operands: Vec<Operand<'_>> = outputs.iter().map(|output| output.operand()).collect();
    run(&stream, expression, inputs, &operands).unwrap_or_else(|error| panic!("{}", chain(&error)));
    outputs.iter().map(|output| output.read(&stream)).collect()
}

/// What the operators of an expression give one after the other, of this shape unless they are reductions.
fn one_by_one(
    device: Device,
    expression: Expression,
    inputs: &[Operand<'_>],
    shape: &[usize],
) -> Vec<Vec<f64>> {
    let stream = device.create_stream().unwrap();
    let nodes = expression.nodes();
    let result = |node: &ExpressionNode| match node.operands() {
        Some((Operator::Reduce { dims, .. }, _)) => {
            let sizes = shape.iter().enumerate();
            let sizes: Vec<usize> =
                sizes.map(|(dim, &size)| if dims.contains(dim) { 1 } else { size }).collect();
            Array::sevens(device, node.dtype, &sizes)
        }
        _ => Array::sevens(device, node.dtype, shape),
    };
    let results: Vec<Array> = nodes.iter().map(result).collect();
    let mut operands: Vec<Operand<'_>> = Vec::new();
    for (node, result) in nodes.iter().zip(&results) {
        operands.push(result.operand());
        let (operator, of) = match &node.kind {
            NodeKind::Input(input) => (Operator::Copy, vec![inputs[*input]]),
            NodeKind::Literal(value) => (Operator::Copy, vec![(*value).into()]),
            NodeKind::Result { operator, operands: of } => {
                (*operator, of.iter().map(|&operand| operands[operand]).collect())
            }
            _ => unreachable!("an unknown node"),
        };
        run(&stream, operator, &of, &[result.operand()]).unwrap_or_else(|error| panic!("{}", chain(&error)));
    }
    expression.outputs().iter().map(|&node| results[node].read(&stream)).collect()
}

/// Compares each bit, but not of a NaN.
fn assert_same(found: &[Vec<f64>], expected: &[Vec<f64>], what: impl std::fmt::Display) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len());
        for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
            let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
            assert!(same, "{what} at {place}: found {found}, expected {expected}");
        }
    }
}

fn gated(dtype: DType) -> Expression {
    build(|e| e.output(e.input(dtype).gelu() * e.input(dtype) + e.input(dtype)))
}

#[test]
fn a_chain_gives_what_its_operators_give_for_any_strides_and_scalars() {
    let Some(device) = device() else { return };
    let whole = Layout::contiguous([6, 5, 40]).unwrap();
    let views = [
        whole,
        whole.flip(2).unwrap().slice(2, 3, 30, 1).unwrap(),
        whole.permute([2, 0, 1]).unwrap(),
        whole.permute([1, 0, 2]).unwrap().flip(0).unwrap(),
        whole.slice(2, 1, 3, 2).unwrap(),
    ];
    for dtype in those_of(FLOATS) {
        let elements = |seed| values(dtype, 1200, seed);
        for view in views {
            let a = Array::with_layout(device, dtype, view, &elements(1));
            let b = Array::with_layout(device, dtype, whole, &elements(2));
            let row = Array::new(device, dtype, &[view.shape()[2]], &elements(3)[..view.shape()[2]]);
            let out = Array::sevens(device, dtype, view.shape());
            let mut second = vec![row.operand(), 0.75.into()];
            if view.shape() == whole.shape() {
                second.push(b.operand());
            }
            for b in second {
                let inputs = [a.operand(), b, a.operand()];
                let found = fused(device, gated(dtype), &inputs, &[&out]);
                let expected = one_by_one(device, gated(dtype), &inputs, view.shape());
                assert_same(&found, &expected, format_args!("{dtype} {view:?} {b:?}"));
            }
        }
    }
}

#[test]
fn all_operators_of_numbers_give_what_single_ones_give() {
    let Some(device) = device() else { return };
    for dtype in those_of(NUMBERS) {
        let expression = build(|e| {
            let (a, b) = (e.input(dtype), e.input(dtype));
            let small = a.compare(Compare::Lt, b);
            let product = a * b + a - b;
            e.output(product.larger(a).smaller(b * 3) % 7);
            e.output(small.select(-product, product / 3));
            e.output(e.apply(Binary::And, &[small, a.compare(Compare::Ne, 1)]).cast(DType::I64) - 1);
            e.output(product.clamp(-5, 9).cast(DType::U8) - 1);
            e.output(product.cast(DType::F16) * 0.3);
        });
        let a = Array::new(device, dtype, &[500], &values(dtype, 500, 1));
        let b = Array::new(device, dtype, &[500], &values(dtype, 500, 2));
        let types = expression.outputs().iter().map(|&node| expression.nodes()[node].dtype);
        let outputs: Vec<Array> = types.map(|dtype| Array::sevens(device, dtype, &[500])).collect();
        let inputs = [a.operand(), b.operand()];
        let found = fused(device, expression, &inputs, &outputs.iter().collect::<Vec<_>>());
        assert_same(&found, &one_by_one(device, expression, &inputs, &[500]), dtype);
    }
}

#[test]
fn an_output_may_be_an_input() {
    let Some(device) = device() else { return };
    let dtype = DType::F32;
    let step = build(|e| {
        let (weight, momentum, gradient) = (e.input(dtype), e.input(dtype), e.input(dtype));
        let new = momentum * 0.9 + gradient;
        e.output(weight - new * e.input(dtype));
        e.output(new);
    });
    let [weight, momentum, gradient] =
        [1, 2, 3].map(|seed| Array::new(device, dtype, &[30, 50], &values(dtype, 1500, seed)));
    let inputs = [weight.operand(), momentum.operand(), gradient.operand(), 0.1.into()];
    let expected = one_by_one(device, step, &inputs, &[30, 50]);
    assert_same(&fused(device, step, &inputs, &[&weight, &momentum]), &expected, "step");

    for len in [50, 1000] {
        let elements = values(dtype, 30 * len, 4);
        let rows = Array::new(device, dtype, &[30, len], &elements);
        let other = Array::sevens(device, dtype, &[30, len]);
        let apart = fused(device, softmax(dtype, 1), &[rows.operand()], &[&other]);
        let in_place = fused(device, softmax(dtype, 1), &[rows.operand()], &[&rows]);
        assert_same(&in_place, &apart, len);
    }
}

#[test]
fn halves_are_rounded_after_each_operator() {
    let Some(device) = device() else { return };
    for (dtype, first) in [(DType::F16, 2048.0), (DType::BF16, 256.0)] {
        let expression = build(|e| e.output(e.input(dtype) + 1.0 - first));
        let a = Array::new(device, dtype, &[40], &[first; 40]);
        let out = Array::sevens(device, dtype, &[40]);
        assert_eq!(fused(device, expression, &[a.operand()], &[&out]), [vec![0.0; 40]], "{dtype}");
        let precise = build(|e| {
            e.keep_precision();
            e.output(e.input(dtype) + 1.0 - first);
        });
        assert_eq!(fused(device, precise, &[a.operand()], &[&out]), [vec![1.0; 40]], "{dtype}");

        // All there are, so that subnormal and infinite products are among them.
        let bits: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
        let every = Array::new(device, dtype, &[1 << 16], &vec![0.0; 1 << 16]);
        every.buffer.write(0, &bits).unwrap();
        let out = Array::sevens(device, dtype, &[1 << 16]);
        let scaled = build(|e| e.output(-(e.input(dtype) * e.input(dtype))));
        for scale in [0.333, 1.0, 1.001, 5e-5, 3.0, 7e-8] {
            let inputs = [every.operand(), scale.into()];
            let found = fused(device, scaled, &inputs, &[&out]);
            assert_same(
                &found,
                &one_by_one(device, scaled, &inputs, &[1 << 16]),
                format_args!("{dtype} {scale}"),
            );
        }
    }
}

#[test]
fn a_product_and_a_sum_are_rounded_one_after_the_other() {
    let Some(device) = device() else { return };
    let (a, square) = (1.0 + 2_f64.powi(-12), 1.0 + 2_f64.powi(-11));
    let inputs = Array::new(device, DType::F32, &[100], &[a; 100]);
    let out = Array::sevens(device, DType::F32, &[100]);
    let line = build(|e| {
        let a = e.input(DType::F32);
        e.output(a * a - e.input(DType::F32));
    });
    assert_eq!(fused(device, line, &[inputs.operand(), square.into()], &[&out]), [vec![0.0; 100]]);
    let rows = build(|e| {
        let a = e.input(DType::F32);
        e.output((a * a - e.input(DType::F32)).sum([0]));
    });
    let out = Array::sevens(device, DType::F32, &[1]);
    assert_eq!(fused(device, rows, &[inputs.operand(), square.into()], &[&out]), [vec![0.0]]);
}

#[test]
fn literals_keep_each_bit() {
    let Some(device) = device() else { return };
    for dtype in those_of([DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::BF16]) {
        let literals = match dtype {
            DType::I32 => vec![f64::from(i32::MIN), -1.0, f64::from(i32::MAX)],
            DType::I64 => vec![i64::MIN as f64, -1.0, 9e15],
            DType::U32 => vec![0.0, f64::from(u32::MAX), 1.0],
            _ => vec![0.1, -0.0, f64::INFINITY, f64::NAN, 1e-38, -1e38, 16_777_217.0],
        };
        let expression = build(|e| {
            let zero = e.input(DType::Bool);
            for &literal in literals.iter().take(Expression::MOST_OUTPUTS) {
                e.output(zero.select(e.literal(dtype, 7), e.literal(dtype, literal)));
            }
        });
        let zero = Array::new(device, DType::Bool, &[3], &[0.0; 3]);
        let outputs: Vec<Array> = literals.iter().map(|_| Array::sevens(device, dtype, &[3])).collect();
        let found = fused(device, expression, &[zero.operand()], &outputs.iter().collect::<Vec<_>>());
        let expected: Vec<Vec<f64>> =
            literals.iter().map(|&literal| vec![rounded(dtype, literal); 3]).collect();
        assert_same(&found, &expected, dtype);
    }
}

fn softmax(dtype: DType, dim: usize) -> Expression {
    build(|e| {
        let x = e.input(dtype);
        let powers = (x - x.max([dim])).exp();
        e.output(powers / powers.sum([dim]));
    })
}

#[test]
fn softmax_by_its_operators() {
    let Some(device) = device() else { return };
    let whole = Layout::contiguous([3, 20, 70]).unwrap();
    let long = Layout::contiguous([5, 3000]).unwrap();
    for (view, dim) in [
        (whole, 2),
        (whole, 1),
        (whole.permute([2, 0, 1]).unwrap(), 0),
        (whole.flip(2).unwrap().slice(2, 3, 30, 2).unwrap(), 2),
        (long, 1),
        (long.flip(1).unwrap(), 1),
        (long.transpose(0, 1).unwrap(), 0),
        (whole.slice(2, 0, 1, 1).unwrap(), 2),
    ] {
        for dtype in those_of(FLOATS) {
            let x = Array::with_layout(device, dtype, view, &values(dtype, view.range().end, 1));
            let out = Array::sevens(device, dtype, view.shape());
            let expected = Array::sevens(device, dtype, view.shape());
            println!("{dtype} {view:?}");
            let found = compute(device, softmax(dtype, dim), &[x.operand()], &[&out]);
            let expected = compute(device, Operator::Softmax { dim }, &[x.operand()], &[&expected]);
            // Each result between is rounded.
            assert_close(dtype, &found, &expected, if dtype.size() == 2 { 4.0 } else { 32.0 });
        }
    }
}

fn layer_norm(dtype: DType) -> Expression {
    build(|e| {
        let (x, scale, shift) = (e.input(dtype), e.input(dtype), e.input(dtype));
        let centred = x - x.mean([1]);
        let variance = (centred * centred).mean([1]);
        e.output(centred / (variance + 1e-5).sqrt() * scale + shift);
        e.output(variance);
    })
}

#[test]
fn a_layer_norm_writes_rows_and_what_they_are_reduced_to() {
    let Some(device) = device() else { return };
    for (rows, len) in [(1, 1), (4, 3), (300, 33), (7, 64), (9, 1000), (2, 5000)] {
        for dtype in those_of([DType::F32, DType::F64]) {
            let elements: Vec<f64> = values(dtype, rows * len, 1).iter().map(|x| x + 1.0).collect();
            let (scale, shift) = (values(dtype, len, 2), values(dtype, len, 3));
            let x = Array::new(device, dtype, &[rows, len], &elements);
            let [of_scale, of_shift] = [&scale, &shift].map(|x| Array::new(device, dtype, &[len], x));
            let out = Array::sevens(device, dtype, &[rows, len]);
            let variances = Array::sevens(device, dtype, &[rows, 1]);
            let inputs = [x.operand(), of_scale.operand(), of_shift.operand()];
            let found = fused(device, layer_norm(dtype), &inputs, &[&out, &variances]);
            let mut expected = [Vec::new(), Vec::new()];
            for row in elements.chunks(len) {
                let mean = row.iter().sum::<f64>() / len as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / len as f64;
                expected[0].extend(
                    row.iter()
                        .enumerate()
                        .map(|(i, x)| (x - mean) / (variance + 1e-5).sqrt() * scale[i] + shift[i]),
                );
                expected[1].push(variance);
            }
            println!("{dtype} {rows} {len}");
            for (found, expected) in found.iter().zip(&expected) {
                // The result may be near zero, and what it is the sum of is not.
                assert_close(dtype, found, expected, 8192.0);
            }
        }
    }
}

#[test]
fn several_reductions_of_several_dimensions() {
    let Some(device) = device() else { return };
    for dtype in [DType::F32, DType::F16, DType::I32, DType::U8] {
        let dims = [0, 2];
        let expression = build(|e| {
            let (x, bias) = (e.input(dtype), e.input(dtype));
            let largest = (x + bias).reduce(Reduction::Max, dims);
            let is_largest = (x + bias).compare(Compare::Eq, largest);
            e.output(largest);
            e.output(x.reduce(Reduction::Min, dims) + bias);
            e.output(is_largest.reduce(Reduction::Any, dims));
            e.output(is_largest.reduce(Reduction::All, dims));
            e.output(is_largest.cast(DType::I64).sum(dims));
            e.output(x.compare(Compare::Gt, 3).select(x, 1).reduce(Reduction::Prod, dims).smaller(100));
            e.output(is_largest.select(x - x, x));
        });
        for (shape, one) in [([2, 3, 40], [1, 3, 1]), ([4, 5, 6], [1, 5, 1]), ([1, 3, 200], [1, 3, 1])] {
            // Small products, so that products of integers are exact.
            let elements: Vec<f64> = values(dtype, shape.iter().product(), 1)
                .iter()
                .map(|x| if dtype.is_float() { rounded(dtype, x.abs() / 4.0 + 2.5) } else { (x % 5.0).abs() })
                .collect();
            let x = Array::new(device, dtype, &shape, &elements);
            let bias = Array::new(device, dtype, &one, &values(dtype, one[1], 2));
            let types = expression.outputs().iter().map(|&node| expression.nodes()[node].dtype);
            // Values that are alike in a row, with one element or all of them.
            let shapes = [&one, &one, &shape, &one, &one, &one, &shape];
            let shapes = shapes.map(|shape| &shape[..]);
            let outputs: Vec<Array> =
                types.zip(shapes).map(|(dtype, shape)| Array::sevens(device, dtype, shape)).collect();
            let inputs = [x.operand(), bias.operand()];
            let found = fused(device, expression, &inputs, &outputs.iter().collect::<Vec<_>>());
            let expected = one_by_one(device, expression, &inputs, &shape);
            for (output, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let wanted: Vec<f64> = match expected.len() / found.len() {
                    0 => found.iter().map(|_| expected[0]).collect(),
                    1 => expected.clone(),
                    // The first element of each row.
                    _ => (0..shape[1]).map(|row| expected[row * shape[2]]).collect(),
                };
                let dtype = outputs[output].dtype;
                assert_close(dtype, found, &wanted, if dtype.size() == 2 { 1.0 } else { 64.0 });
            }
        }
    }
}

#[test]
fn a_nan_is_the_largest_and_the_smallest_and_infinities_are_numbers() {
    let Some(device) = device() else { return };
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let expression = build(|e| {
        let x = e.input(DType::F32);
        e.output(x.max([1]));
        e.output(x.reduce(Reduction::Min, [1]));
    });
    for len in [3, 100, 2000] {
        for place in [0, 1, len / 2, len - 1] {
            let mut elements = vec![-inf; 3 * len];
            elements[place] = nan;
            elements[len + place] = 5.0;
            let x = Array::new(device, DType::F32, &[3, len], &elements);
            let [largest, smallest] = [(); 2].map(|()| Array::sevens(device, DType::F32, &[3, 1]));
            let found = fused(device, expression, &[x.operand()], &[&largest, &smallest]);
            let expected = [vec![nan, 5.0, -inf], vec![nan, -inf, -inf]];
            assert_same(&found, &expected, format_args!("{len} {place}"));
        }
    }
}

#[test]
fn long_sums_keep_a_small_error() {
    let Some(device) = device() else { return };
    let expression = build(|e| {
        let x = e.input(DType::F32);
        e.output((x * 1.0).sum([1]));
    });
    let len = 1 << 15;
    let x = Array::new(device, DType::F32, &[1, len], &vec![f64::from(0.1_f32); len]);
    // So many rows keep any device busy.
    let rows = Layout::contiguous([1, len]).unwrap().broadcast_to([1 << 12, len]).unwrap();
    let rows = Operand::with_layout(&x.buffer, DType::F32, rows);
    let out = Array::sevens(device, DType::F32, &[1 << 12, 1]);
    let found = fused(device, expression, &[rows], &[&out]);
    assert_close(DType::F32, &found[0], &[f64::from(0.1_f32) * len as f64; 1 << 12], 8.0);
}

#[test]
fn a_few_long_rows_and_strided_ones_are_done_in_parts() {
    let Some(device) = device() else { return };
    let check = |shape: [usize; 2], dim| {
        let elements = noise(shape[0] * shape[1], 1);
        let x = Array::new(device, DType::F32, &shape, &elements);
        let [out, expected] = [(); 2].map(|()| Array::sevens(device, DType::F32, &shape));
        let whole = is_one_launch(device, softmax(DType::F32, dim), &[x.operand()], &[&out]);
        let found = compute(device, softmax(DType::F32, dim), &[x.operand()], &[&out]);
        let expected = compute(device, Operator::Softmax { dim }, &[x.operand()], &[&expected]);
        assert_close(DType::F32, &found, &expected, 32.0);
        whole
    };
    assert!(check([300, 400], 1));
    assert!(!check([2, 100_000], 1), "most of a device would wait");
    assert!(!check([400, 300], 0), "elements of a row are far from each other");
    assert!(check([40, 300], 0), "they stay in the cache");
}

#[test]
fn an_expression_of_all_arrays_that_there_can_be() {
    let Some(device) = device() else { return };
    let expression = build(|e| {
        let inputs: Vec<_> = (0..Expression::MOST_INPUTS).map(|_| e.input(DType::I32)).collect();
        let total = inputs.iter().skip(1).fold(inputs[0], |sum, input| sum + *input);
        (0..Expression::MOST_OUTPUTS).for_each(|output| e.output(total * output as i64));
    });
    let arrays: Vec<Array> =
        (0..16).map(|k| Array::new(device, DType::I32, &[40], &vec![f64::from(k); 40])).collect();
    let outputs: Vec<Array> = (0..8).map(|_| Array::sevens(device, DType::I32, &[40])).collect();
    let inputs: Vec<Operand<'_>> = arrays.iter().map(Array::operand).collect();
    let found = fused(device, expression, &inputs, &outputs.iter().collect::<Vec<_>>());
    for (output, found) in found.iter().enumerate() {
        assert_eq!(*found, vec![120.0 * output as f64; 40]);
    }
}
