//! Calls that cannot be: each is an error that names the operator with its arguments, and what is wrong with
//! them.

use device_kernels::{
    Argument, Binary, Call, Compare, Conv2d, DType, Dims, Distribution, Extremum, Layout, LayoutError,
    MAX_RANK, MAX_STEP, Operator, Pool2d, Problem, Reduction, Scalar, Sorted, Unary, Update,
};

fn array(dtype: DType, shape: &[usize]) -> Argument {
    Argument::Array(dtype, Layout::contiguous(shape).expect("it is small"))
}

fn f32(shape: &[usize]) -> Argument {
    array(DType::F32, shape)
}

fn i64(shape: &[usize]) -> Argument {
    array(DType::I64, shape)
}

fn scalar(value: impl Into<Scalar>) -> Argument {
    Argument::Scalar(value.into())
}

/// The message of the error that the call is.
fn refused(operator: impl Into<Operator>, inputs: &[Argument], outputs: &[Argument]) -> String {
    let call = Call::new(operator, inputs, outputs);
    call.expect_err("it cannot be").to_string()
}

/// Compares the messages of calls, each without the call itself, which it begins with.
fn all_refused(calls: &[(Operator, &[Argument], &[Argument], &str)]) {
    for (operator, inputs, outputs, expected) in calls {
        let message = refused(*operator, inputs, outputs);
        let (call, problem) = message.rsplit_once(": ").expect("a call and what is wrong with it");
        assert!(call.starts_with(operator.to_string().split('<').next().unwrap()), "{message}");
        assert_eq!(problem, *expected, "{message}");
    }
}

#[test]
fn the_number_of_arguments() {
    let a = f32(&[2]);
    let product = f32(&[2, 2]);
    all_refused(&[
        (Unary::Neg.into(), &[], &[a], "expected 1 as the number of inputs, found 0"),
        (Unary::Neg.into(), &[a, a], &[a], "expected 1 as the number of inputs, found 2"),
        (Binary::Add.into(), &[a], &[a], "expected 2 as the number of inputs, found 1"),
        (Binary::Add.into(), &[a, a], &[], "expected 1 as the number of outputs, found 0"),
        (Binary::Add.into(), &[a, a], &[a, a], "expected 1 as the number of outputs, found 2"),
        (Operator::Where, &[a, a], &[a], "expected 3 as the number of inputs, found 2"),
        (Operator::MatMul, &[product], &[product], "expected 2 or 3 as the number of inputs, found 1"),
        (Operator::MatMul, &[product; 4], &[product], "expected 2 or 3 as the number of inputs, found 4"),
        (Operator::Softmax { dim: 0 }, &[a, a], &[a], "expected 1 as the number of inputs, found 2"),
        (Operator::Gather { dim: 0 }, &[a], &[a], "expected 2 as the number of inputs, found 1"),
        (Operator::Conv2d(Conv2d::default()), &[], &[a], "expected 2 or 3 as the number of inputs, found 0"),
        (
            Operator::MaxPool2d(Pool2d::new([1, 1])),
            &[a],
            &[a; 3],
            "expected 1 or 2 as the number of outputs, found 3",
        ),
        (uniform(0.0, 1.0), &[a], &[a], "expected 0 as the number of inputs, found 1"),
    ]);
}

#[test]
fn scalars_in_the_place_of_arrays() {
    let (a, one, matrix) = (f32(&[2]), scalar(1.0), f32(&[2, 2]));
    all_refused(&[
        (Binary::Add.into(), &[a, a], &[one], "expected an array as an output, found a scalar"),
        (Operator::Softmax { dim: 0 }, &[one], &[a], "expected an array as an input, found a scalar"),
        (
            Operator::MatMul,
            &[matrix, matrix, one],
            &[matrix],
            "expected an array as an input, found a scalar",
        ),
        (
            Compare::Lt.into(),
            &[one, one],
            &[array(DType::Bool, &[2])],
            "expected an array among the inputs, found scalars only",
        ),
    ]);
}

#[test]
fn types() {
    let (a, whole, truth) = (f32(&[2]), i64(&[2]), array(DType::Bool, &[2]));
    let sum = Operator::Reduce { reduction: Reduction::Sum, dims: Dims::from([0]) };
    let largest = Operator::ArgReduce { extremum: Extremum::Max, dim: 0 };
    all_refused(&[
        (Unary::Exp.into(), &[whole], &[whole], "expected a float as the type of the inputs, found i64"),
        (Unary::IsNan.into(), &[a], &[a], "expected bool as the type of the output, found f32"),
        (Binary::Add.into(), &[a, whole], &[a], "expected f32 as the type of each input, found i64"),
        (
            Binary::Add.into(),
            &[truth, truth],
            &[truth],
            "expected a number as the type of the inputs, found bool",
        ),
        (Binary::Shl.into(), &[a, a], &[a], "expected an integer as the type of the inputs, found f32"),
        (Binary::Add.into(), &[a, a], &[whole], "expected f32 as the type of the output, found i64"),
        (Compare::Lt.into(), &[a, a], &[a], "expected bool as the type of the output, found f32"),
        (Operator::Where, &[a, a, a], &[a], "expected bool as the type of the condition, found f32"),
        (
            sum,
            &[truth],
            &[array(DType::Bool, &[1])],
            "expected a number as the type of the input, found bool",
        ),
        (largest, &[a], &[f32(&[1])], "expected i32, i64 or u32 as the type of the output, found f32"),
        (
            Operator::Softmax { dim: 0 },
            &[whole],
            &[whole],
            "expected a float as the type of the input, found i64",
        ),
        (
            Operator::Gather { dim: 0 },
            &[a, a],
            &[a],
            "expected i32, i64 or u32 as the type of the indices, found f32",
        ),
        (
            Operator::Scatter { dim: 0, update: Update::Add },
            &[whole, truth],
            &[truth],
            "expected a number as the type of the output, found bool",
        ),
    ]);
}

#[test]
fn shapes() {
    let (two, three, matrix) = (f32(&[2]), f32(&[3]), f32(&[2, 3]));
    let images = f32(&[1, 4, 5, 5]);
    let sum = |dim| Operator::Reduce { reduction: Reduction::Sum, dims: Dims::from([dim]) };
    let weights = f32(&[2, 3, 3, 3]);
    let conv = Operator::Conv2d(Conv2d::default());
    all_refused(&[
        (Binary::Add.into(), &[two, two], &[three], "the shape [2] cannot be broadcast to [3]"),
        (Binary::Add.into(), &[matrix, two], &[matrix], "the shape [2] cannot be broadcast to [2, 3]"),
        (sum(1), &[matrix], &[matrix], "expected [2, 1] as the shape of the output, found [2, 3]"),
        (sum(2), &[matrix], &[matrix], "dimension 2 is out of range for the shape [2, 3]"),
        (
            Operator::Softmax { dim: 2 },
            &[matrix],
            &[matrix],
            "dimension 2 is out of range for the shape [2, 3]",
        ),
        (
            Operator::MatMul,
            &[two, matrix],
            &[matrix],
            "expected [.., m, k] as the shape of the first input, found [2]",
        ),
        (
            Operator::MatMul,
            &[matrix, matrix],
            &[matrix],
            "expected [.., 3, n] as the shape of the second input, found [2, 3]",
        ),
        (
            Operator::MatMul,
            &[matrix, f32(&[3, 2])],
            &[matrix],
            "expected [.., 2, 2] as the shape of the output, found [2, 3]",
        ),
        (
            Operator::MatMul,
            &[matrix, f32(&[3, 2])],
            &[two],
            "expected [.., m, n] as the shape of the output, found [2]",
        ),
        (
            Operator::MatMul,
            &[matrix, f32(&[3, 2]), three],
            &[f32(&[2, 2])],
            "the shape [3] cannot be broadcast to [2, 2]",
        ),
        (
            Operator::MatMul,
            &[f32(&[5, 2, 3]), f32(&[3, 2])],
            &[f32(&[4, 2, 2])],
            "the shape [5, 2, 3] cannot be broadcast to [4, 2, 3]",
        ),
        (
            Operator::Gather { dim: 0 },
            &[matrix, i64(&[2, 4])],
            &[f32(&[2, 4])],
            "expected at most [2, 3], but for dimension 0, as the shape of the indices, found [2, 4]",
        ),
        (
            Operator::Gather { dim: 0 },
            &[f32(&[0]), i64(&[1])],
            &[f32(&[1])],
            "there are no elements in the dimension, and the operator has no result for none",
        ),
        (
            Operator::IndexSelect { dim: 1 },
            &[matrix, i64(&[2, 2])],
            &[f32(&[2, 2])],
            "expected [n] as the shape of the indices, found [2, 2]",
        ),
        (
            Operator::IndexSelect { dim: 1 },
            &[matrix, i64(&[4])],
            &[f32(&[2, 3])],
            "expected [2, 4] as the shape of the output, found [2, 3]",
        ),
        (
            conv,
            &[images, weights],
            &[images],
            "expected [out, 4, kh, kw] as the shape of the weights, found [2, 3, 3, 3]",
        ),
        (
            conv,
            &[images, f32(&[2, 4, 3, 3])],
            &[images],
            "expected [1, 2, 3, 3] as the shape of the output, found [1, 4, 5, 5]",
        ),
        (
            conv,
            &[images, f32(&[2, 4, 7, 3])],
            &[images],
            "expected [n, c, h, w] that the weights fit into as the shape of the images, found [1, 4, 5, 5]",
        ),
        (
            conv,
            &[images, f32(&[2, 4, 3, 3]), three],
            &[f32(&[1, 2, 3, 3])],
            "expected [2] as the shape of the bias, found [3]",
        ),
        (
            conv,
            &[images, f32(&[0, 4, 3, 3])],
            &[f32(&[1, 0, 3, 3])],
            "there are no elements in the weights, and the operator has no result for none",
        ),
        (
            Operator::Conv2d(Conv2d { padding: [1, 1], ..Conv2d::default() }),
            &[f32(&[1, 1, 0, 0]), f32(&[1, 1, 2, 2])],
            &[f32(&[1, 1, 1, 1])],
            "there are no elements in the images, and the operator has no result for none",
        ),
        (
            Operator::MaxPool2d(Pool2d::new([2, 2])),
            &[images],
            &[images],
            "expected [1, 4, 2, w] as the shape of the output, found [1, 4, 5, 5]",
        ),
        (
            Operator::MaxPool2d(Pool2d::new([6, 6])),
            &[images],
            &[images],
            "expected [n, c, h, w] that a window fits into as the shape of the images, found [1, 4, 5, 5]",
        ),
        // The padding alone would fill the window.
        (
            Operator::MaxPool2d(Pool2d { padding: [1, 1], ..Pool2d::new([2, 2]) }),
            &[f32(&[1, 1, 0, 0])],
            &[f32(&[1, 1, 1, 1])],
            "there are no elements in the images, and the operator has no result for none",
        ),
        (
            Operator::AdaptiveAvgPool2d,
            &[images],
            &[f32(&[1, 3, 2, 2])],
            "expected [1, 4, 2, 2] as the shape of the output, found [1, 3, 2, 2]",
        ),
        (
            Operator::AdaptiveAvgPool2d,
            &[f32(&[1, 3, 0, 2])],
            &[f32(&[1, 3, 2, 2])],
            "there are no elements in the images, and the operator has no result for none",
        ),
    ]);
}

#[test]
fn reductions_of_nothing_that_have_no_result() {
    let nothing = f32(&[0, 2]);
    let largest = Operator::Reduce { reduction: Reduction::Max, dims: Dims::from([0]) };
    let place = Operator::ArgReduce { extremum: Extremum::Min, dim: 0 };
    all_refused(&[
        (
            largest,
            &[nothing],
            &[f32(&[1, 2])],
            "there are no elements in the dimensions, and the operator has no result for none",
        ),
        (
            place,
            &[nothing],
            &[i64(&[1, 2])],
            "there are no elements in the dimension, and the operator has no result for none",
        ),
    ]);
}

#[test]
fn sorts() {
    let (matrix, places) = (f32(&[2, 3]), i64(&[2, 3]));
    let sort = |dim, sorted| Operator::Sort { dim, descending: true, sorted };
    let (values, indices, both) = (sort(1, Sorted::Values), sort(1, Sorted::Indices), sort(1, Sorted::Both));
    all_refused(&[
        (values, &[matrix, matrix], &[matrix], "expected 1 as the number of inputs, found 2"),
        (values, &[matrix], &[matrix, places], "expected 1 as the number of outputs, found 2"),
        (both, &[matrix], &[matrix], "expected 2 as the number of outputs, found 1"),
        (
            values,
            &[array(DType::Bool, &[2, 3])],
            &[array(DType::Bool, &[2, 3])],
            "expected a number as the type of the input, found bool",
        ),
        (values, &[matrix], &[places], "expected f32 as the type of the output, found i64"),
        (indices, &[matrix], &[matrix], "expected i32, i64 or u32 as the type of the indices, found f32"),
        (both, &[matrix], &[places, matrix], "expected f32 as the type of the output, found i64"),
        (sort(2, Sorted::Values), &[matrix], &[matrix], "dimension 2 is out of range for the shape [2, 3]"),
        (sort(0, Sorted::Values), &[f32(&[])], &[f32(&[])], "dimension 0 is out of range for the shape []"),
        (values, &[matrix], &[f32(&[2, 4])], "expected [2, 3] as the shape of the output, found [2, 4]"),
        (values, &[matrix], &[f32(&[1, 2])], "expected [2, 2] as the shape of the output, found [1, 2]"),
        (
            both,
            &[matrix],
            &[f32(&[2, 2]), places],
            "expected [2, 2] as the shape of the indices, found [2, 3]",
        ),
    ]);
    let first = Call::new(both, &[matrix], &[f32(&[2, 2]), i64(&[2, 2])]).expect("the first two of each");
    assert_eq!(first.to_string(), "sort<dim 1, descending, both>(f32 [2, 3]) -> f32 [2, 2], i64 [2, 2]");
    assert!(Call::new(indices, &[matrix], &[i64(&[2, 0])]).expect("none of each").is_empty());
}

fn uniform(low: f64, high: f64) -> Operator {
    random(Distribution::Uniform { low, high })
}

fn random(distribution: Distribution) -> Operator {
    Operator::Random { distribution, seed: 1, offset: 0 }
}

#[test]
fn options() {
    let (a, byte) = (f32(&[2]), array(DType::U8, &[2]));
    let (images, weights) = (f32(&[1, 4, 5, 5]), f32(&[2, 4, 3, 3]));
    let out = f32(&[1, 2, 3, 3]);
    let conv = |conv| Operator::Conv2d(conv);
    let pool = |pool| Operator::MaxPool2d(pool);
    let one = Pool2d::new([1, 1]);
    all_refused(&[
        (
            conv(Conv2d { stride: [0, 1], ..Conv2d::default() }),
            &[images, weights],
            &[out],
            "expected numbers from 1 to isize::MAX / 8 as the stride, found [0, 1]",
        ),
        (
            conv(Conv2d { dilation: [1, 0], ..Conv2d::default() }),
            &[images, weights],
            &[out],
            "expected numbers from 1 to isize::MAX / 8 as the dilation, found [1, 0]",
        ),
        (
            conv(Conv2d { groups: 0, ..Conv2d::default() }),
            &[images, weights],
            &[out],
            "expected a number that divides the channels as the number of groups, found 0",
        ),
        (
            conv(Conv2d { groups: 3, ..Conv2d::default() }),
            &[images, weights],
            &[out],
            "expected a number that divides the channels as the number of groups, found 3",
        ),
        (
            conv(Conv2d { dilation: [MAX_STEP, 1], ..Conv2d::default() }),
            &[images, weights],
            &[out],
            "expected [n, c, h, w] that the weights fit into as the shape of the images, found [1, 4, 5, 5]",
        ),
        (
            pool(Pool2d::new([0, 1])),
            &[images],
            &[images],
            "expected numbers from 1 to isize::MAX / 8 as the window, found [0, 1]",
        ),
        (
            pool(Pool2d { padding: [1, 0], ..one }),
            &[images],
            &[images],
            "expected less than the window reaches as the padding, found 1",
        ),
        (
            pool(Pool2d { stride: [1, 0], ..one }),
            &[images],
            &[images],
            "expected numbers from 1 to isize::MAX / 8 as the stride, found [1, 0]",
        ),
        (
            uniform(1.0, 0.0),
            &[],
            &[a],
            "expected finite numbers in order with a finite difference as the range, found 1.0..0.0",
        ),
        (
            uniform(0.0, f64::NAN),
            &[],
            &[a],
            "expected finite numbers in order with a finite difference as the range, found 0.0..NaN",
        ),
        (
            uniform(-3e38, 3e38),
            &[],
            &[a],
            "expected finite numbers in order with a finite difference as the range, found -3e38..3e38",
        ),
        (
            random(Distribution::Normal { mean: f64::NAN, deviation: 1.0 }),
            &[],
            &[a],
            "expected a finite number as the mean, found NaN",
        ),
        (
            random(Distribution::Normal { mean: 0.0, deviation: -1.0 }),
            &[],
            &[a],
            "expected a finite number from 0 on as the deviation, found -1.0",
        ),
        (
            random(Distribution::Bernoulli { probability: 1.5 }),
            &[],
            &[a],
            "expected a number from 0 to 1 as the probability, found 1.5",
        ),
        (
            random(Distribution::Integers { low: 0, high: 257 }),
            &[],
            &[byte],
            "expected numbers of the type, in order as the range, found 0..257",
        ),
        (
            random(Distribution::Integers { low: 3, high: 3 }),
            &[],
            &[byte],
            "expected numbers of the type, in order as the range, found 3..3",
        ),
        (
            random(Distribution::Integers { low: 0, high: 2 }),
            &[],
            &[a],
            "expected an integer as the type of the output, found f32",
        ),
    ]);
}

/// The operators whose options are the numbers of a convolution or of windows, with arguments of one element
/// each that fit steps of one.
fn with_steps(
    [stride, padding, dilation, kernel]: [[usize; 2]; 4],
) -> Vec<(Operator, Vec<Argument>, Vec<Argument>)> {
    let conv = Conv2d { stride, padding, dilation, groups: 1 };
    let pool = Pool2d { kernel, stride, padding, dilation };
    let (one, place) = (f32(&[1; 4]), i64(&[1; 4]));
    let mut calls = Vec::new();
    if kernel == [1, 1] {
        for operator in
            [Operator::Conv2d(conv), Operator::Conv2dInputGrad(conv), Operator::Conv2dWeightGrad(conv)]
        {
            calls.push((operator, vec![one, one], vec![one]));
        }
    }
    calls.push((Operator::MaxPool2d(pool), vec![one], vec![one]));
    calls.push((Operator::MaxPool2dGrad(pool), vec![one, place], vec![one]));
    for count_padding in [false, true] {
        calls.push((Operator::AvgPool2d { pool, count_padding }, vec![one], vec![one]));
        calls.push((Operator::AvgPool2dGrad { pool, count_padding }, vec![one], vec![one]));
    }
    calls
}

#[test]
fn numbers_of_convolutions_and_windows_that_no_array_has() {
    const LARGEST: usize = isize::MAX as usize;
    for (place, option) in ["stride", "padding", "dilation", "window"].into_iter().enumerate() {
        for axis in [0, 1] {
            for number in [MAX_STEP + 1, LARGEST, LARGEST + 1, usize::MAX - 1, usize::MAX] {
                let mut steps = [[1, 1], [0, 0], [1, 1], [1, 1]];
                steps[place][axis] = number;
                for (operator, inputs, outputs) in with_steps(steps) {
                    let error = Call::new(operator, &inputs, &outputs).unwrap_err();
                    let Problem::Option { option: found, expected, .. } = error.problem() else {
                        panic!("{error}");
                    };
                    assert_eq!(*found, option, "{error}");
                    assert!(expected.ends_with("isize::MAX / 8"), "{error}");
                }
            }
        }
    }
    // With one window, neither its stride nor its dilation makes a step.
    for (operator, inputs, outputs) in with_steps([[MAX_STEP; 2], [0, 0], [MAX_STEP; 2], [1, 1]]) {
        Call::new(operator, &inputs, &outputs).unwrap();
    }
}

/// The number of windows in one direction, or `None` if the numbers are invalid for a convolution or a
/// pooling.
fn windows(size: usize, [kernel, stride, padding, dilation]: [usize; 4], is_pooling: bool) -> Option<usize> {
    let is_step = |number: usize| (1..=MAX_STEP).contains(&number);
    if kernel == 0 || !is_step(stride) || !is_step(dilation) || padding > MAX_STEP {
        return None;
    }
    let wide = |number: usize| number as u128;
    let (reach, padded) = (wide(kernel - 1) * wide(dilation) + 1, wide(size) + 2 * wide(padding));
    if is_pooling && (kernel > MAX_STEP || wide(padding) >= reach) {
        return None;
    }
    let windows = padded.checked_sub(reach)? / wide(stride) + 1;
    Some(usize::try_from(windows).expect("it is below four times the largest step"))
}

#[test]
fn convolutions_and_poolings_of_any_numbers_are_right_or_refused() {
    const SIZE: usize = 3;
    const WORD: usize = i32::MAX as usize;
    const HALF: usize = isize::MAX as usize;
    let numbers = [0, 1, 2, 3, WORD, WORD + 1, MAX_STEP, MAX_STEP + 1, HALF, HALF + 1, usize::MAX];
    let line = |size: usize| Layout::contiguous([1, 1, size, 1]).ok().map(|l| Argument::Array(DType::F32, l));
    let images = line(SIZE).expect("it is small");
    let (mut right, mut refused) = (0, 0);
    for place in 0..numbers.len().pow(4) {
        let number = |digit: u32| numbers[place / numbers.len().pow(digit) % numbers.len()];
        let [kernel, stride, padding, dilation] = [0, 1, 2, 3].map(number);
        for is_pooling in [false, true] {
            let count = windows(SIZE, [kernel, stride, padding, dilation], is_pooling);
            // There may be more windows, or weights, than an array can have.
            let (Some(out), Some(weights)) =
                (line(count.unwrap_or(1)), line(if is_pooling { 1 } else { kernel }))
            else {
                continue;
            };
            let [stride, padding, dilation] = [[stride, 1], [padding, 0], [dilation, 1]];
            let conv = Conv2d { stride, padding, dilation, groups: 1 };
            let pool = Pool2d { kernel: [kernel, 1], stride, padding, dilation };
            let calls = match is_pooling {
                true => [
                    (Operator::MaxPool2d(pool), vec![images], out),
                    (Operator::AvgPool2dGrad { pool, count_padding: true }, vec![out], images),
                ],
                false => [
                    (Operator::Conv2d(conv), vec![images, weights], out),
                    (Operator::Conv2dInputGrad(conv), vec![out, weights], images),
                ],
            };
            for (operator, inputs, output) in calls {
                match Call::new(operator, &inputs, &[output]) {
                    Ok(call) => {
                        assert!(count.is_some(), "{call}");
                        right += 1;
                    }
                    Err(error) => {
                        assert_eq!(count, None, "{error}");
                        let problem = error.problem();
                        let (is_option, is_shape) = (
                            matches!(problem, Problem::Option { .. }),
                            matches!(problem, Problem::Shape { .. }),
                        );
                        assert!(is_option || is_shape || matches!(problem, Problem::Empty { .. }), "{error}");
                        refused += 1;
                    }
                }
            }
        }
    }
    assert!(right > 1000 && refused > 1000, "{right} calls are right, {refused} are refused");
}

#[test]
fn a_dimension_of_one_element_has_no_stride() {
    for stride in [1, -7, 1 << 40, isize::MIN, isize::MAX] {
        let one = Layout::strided([1, 3, 1], [stride, 2, stride], 5).expect("no step is made");
        assert_eq!(one.strides(), [0, 2, 0]);
        assert_eq!(one, Layout::strided([1, 3, 1], [0, 2, 0], 5).unwrap());
        assert_eq!(one.flip(0).unwrap(), one);
        assert_eq!(one.transpose(0, 1).unwrap().strides(), [2, 0, 0]);
        assert_eq!(one.broadcast_to([2, 1, 3, 1]).unwrap().strides(), [0, 0, 2, 0]);
    }
    let matrix = Layout::contiguous([4, 3]).unwrap();
    assert_eq!(matrix.slice(0, 1, 1, 1).unwrap(), Layout::strided([1, 3], [9, 1], 3).unwrap());
    assert_eq!(matrix.slice(0, 1, 0, 1).unwrap().strides(), [0, 1]);
    assert_eq!(matrix.reshape([1, 12, 1]).unwrap().strides(), [0, 1, 0]);
    assert_eq!(Layout::contiguous([2, 1, 0]).unwrap().strides(), [1, 0, 0]);
}

#[test]
fn outputs_that_have_an_element_twice() {
    let a = f32(&[2, 2]);
    for strides in [[0, 1], [1, 1], [-1, 1]] {
        let out = Layout::strided([2, 2], strides, 4).expect("it fits");
        let error = Call::new(Binary::Add, &[a, a], &[Argument::Array(DType::F32, out)]).unwrap_err();
        assert!(matches!(error.problem(), Problem::Repeated { .. }), "{error}");
        assert!(error.to_string().ends_with("for the shape [2, 2]"), "{error}");
    }
}

#[test]
fn layouts_that_no_array_has() {
    let rank = Layout::contiguous([1; MAX_RANK + 1]).unwrap_err();
    assert_eq!(rank.to_string(), "9 dimensions are too many: an array has at most 8");
    let huge = usize::MAX / 2;
    for overflow in [
        Layout::contiguous([huge, 3]),
        // Its elements can be counted, and their bytes cannot.
        Layout::contiguous([1 << 60]),
        // Nothing is in it, and its strides overflow all the same.
        Layout::contiguous([0, huge, 3]),
        Layout::strided([2], [isize::MAX], 1),
        Layout::strided([2], [isize::MIN], 0),
        Layout::strided([2], [-2], 1),
        Layout::strided([1], [1], usize::MAX),
        // Elements fit, their bytes do not.
        Layout::strided([2], [isize::MAX / 4], 0),
    ] {
        assert!(matches!(overflow, Err(LayoutError::Overflow { .. })), "{overflow:?}");
    }
    let layout = Layout::contiguous([2, 3]).expect("it is small");
    assert_eq!(
        layout.transpose(0, 2).unwrap_err().to_string(),
        "dimension 2 is out of range for the shape [2, 3]"
    );
    assert_eq!(
        layout.permute([0, 0]).unwrap_err().to_string(),
        "the shape [2, 3] cannot be permuted by [0, 0]"
    );
    assert_eq!(
        layout.reshape([4]).unwrap_err().to_string(),
        "the shape [2, 3] cannot be seen, without moving elements, as [4]"
    );
    assert_eq!(
        layout.slice(1, 2, 2, 1).unwrap_err().to_string(),
        "the shape [2, 3] cannot be sliced by start, length and step [2, 2, 1]"
    );
    assert_eq!(
        layout.broadcast_to([3, 3]).unwrap_err().to_string(),
        "the shape [2, 3] cannot be broadcast to [3, 3]"
    );
    assert_eq!(
        Layout::strided([2, 3], [1], 0).unwrap_err().to_string(),
        "the shape [2, 3] cannot be given as many strides as [1]"
    );
}

#[test]
fn what_is_kept_with_a_call_is_made_once_and_is_its_clones_too() {
    let array = Argument::Array(DType::F32, Layout::contiguous([2]).unwrap());
    let call = || Call::new(Binary::Add, &[array, array], &[array]).unwrap();
    let (one, other) = (call(), call());
    assert_eq!(one.kept(|of| of.to_string()).unwrap(), "add(f32 [2], f32 [2]) -> f32 [2]");
    assert_eq!(one.clone().kept(|_| String::from("new")), one.kept(|_| String::new()));
    assert_eq!(one.kept(|_| 5_u8), None, "of another type");
    assert_eq!(other.kept(|_| 5_u8), Some(&5));
    assert_eq!(one, other, "equal calls may keep what they like");
}
