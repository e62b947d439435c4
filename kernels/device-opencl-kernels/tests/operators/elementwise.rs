use device_kernels::{Binary, Compare, DType, Layout, Operand, Operator, Unary};

use super::support::{
    Array, FLOATS, NUMBERS, assert_close, bytes, compute, device, indices, noise, numbers, place, rounded,
    those_of, values,
};

/// The error function, by its series and its continued fraction.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut sum, mut term) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn unary(operator: Unary, a: f64) -> f64 {
    match operator {
        Unary::Neg => -a,
        Unary::Abs => a.abs(),
        Unary::Sign => {
            if a == 0.0 || a.is_nan() {
                0.0
            } else {
                a.signum()
            }
        }
        Unary::Recip => a.recip(),
        Unary::Sqrt => a.sqrt(),
        Unary::Exp => a.exp(),
        Unary::Log => a.ln(),
        Unary::Log1p => a.ln_1p(),
        Unary::Sin => a.sin(),
        Unary::Cos => a.cos(),
        Unary::Tan => a.tan(),
        Unary::Asin => a.asin(),
        Unary::Acos => a.acos(),
        Unary::Atan => a.atan(),
        Unary::Sinh => a.sinh(),
        Unary::Cosh => a.cosh(),
        Unary::Tanh => a.tanh(),
        Unary::Asinh => a.asinh(),
        Unary::Acosh => a.acosh(),
        Unary::Atanh => a.atanh(),
        Unary::Erf => erf(a),
        Unary::Floor => a.floor(),
        Unary::Ceil => a.ceil(),
        Unary::Round => a.round_ties_even(),
        Unary::Trunc => a.trunc(),
        Unary::Relu => {
            if a < 0.0 {
                0.0
            } else {
                a
            }
        }
        Unary::Sigmoid => 1.0 / (1.0 + (-a).exp()),
        Unary::LogSigmoid => -(-a).exp().ln_1p(),
        Unary::Gelu => a / 2.0 * (1.0 + erf(a / 2.0_f64.sqrt())),
        Unary::IsNan => a.is_nan().into(),
        Unary::IsInf => a.is_infinite().into(),
        Unary::Not => 1.0 - a,
        _ => unreachable!("an unknown operator"),
    }
}

#[test]
fn unary_operators_of_floats() {
    let Some(device) = device() else { return };
    for dtype in those_of(FLOATS) {
        for &operator in Unary::ALL.iter().filter(|operator| **operator != Unary::Not) {
            let mut a: Vec<f64> = noise(300, 1).iter().map(|x| x * 3.0).collect();
            a.extend([0.0, 0.5, 1.5, 2.5, -0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0]);
            if operator == Unary::Tan {
                a.retain(|x| x.cos().abs() > 0.1);
            }
            if matches!(operator, Unary::Gelu | Unary::Erf) {
                a.retain(|x| !x.is_infinite());
            }
            let a: Vec<f64> = a.into_iter().map(|a| rounded(dtype, a)).collect();
            let bools = matches!(operator, Unary::IsNan | Unary::IsInf);
            let input = Array::new(device, dtype, &[a.len()], &a);
            let out = Array::sevens(device, if bools { DType::Bool } else { dtype }, &[a.len()]);
            let found = compute(device, operator, &[input.operand()], &[&out]);
            let expected: Vec<f64> = a.iter().map(|&a| rounded(dtype, unary(operator, a))).collect();
            println!("{operator} {dtype}");
            // The series of the error function is not exact itself.
            let series = matches!(operator, Unary::Erf | Unary::Gelu) && dtype == DType::F64;
            assert_close(dtype, &found, &expected, if series { 1e5 } else { 16.0 });
        }
    }
}

fn binary(operator: Binary, a: f64, b: f64, dtype: DType) -> f64 {
    let integer = dtype.is_integer();
    match operator {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div if integer => (a / b).trunc(),
        Binary::Div => a / b,
        Binary::Rem => a - b * (a / b).floor(),
        Binary::Pow if integer && b < 0.0 => match a as i64 {
            1 => 1.0,
            -1 => a.powf(b.abs() % 2.0),
            _ => 0.0,
        },
        Binary::Pow => a.powf(b),
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::Atan2 => a.atan2(b),
        Binary::And => (a as i64 & b as i64) as f64,
        Binary::Or => (a as i64 | b as i64) as f64,
        Binary::Xor => (a as i64 ^ b as i64) as f64,
        Binary::Shl => ((a as i64) << (b as i64)) as f64,
        Binary::Shr => (a as i64 >> b as i64) as f64,
        Binary::ReluGrad => f64::from(u8::from(a > 0.0)) * b,
        Binary::SigmoidGrad => b * a * (1.0 - a),
        _ => unreachable!("an unknown operator"),
    }
}

/// The low bits of an integer, as it wraps.
fn wrapped(dtype: DType, value: f64) -> f64 {
    let bits = value as i64;
    match dtype {
        DType::I32 => f64::from(bits as i32),
        DType::U32 => f64::from(bits as u32),
        DType::U8 => f64::from(bits as u8),
        DType::I64 => bits as f64,
        _ => rounded(dtype, value),
    }
}

#[test]
fn binary_operators_of_numbers() {
    let Some(device) = device() else { return };
    for dtype in those_of(NUMBERS) {
        for &operator in Binary::ALL {
            let bits = matches!(operator, Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr);
            let float =
                matches!(operator, Binary::Atan2 | Binary::ReluGrad | Binary::SigmoidGrad | Binary::Pow);
            if (bits && dtype.is_float()) || (float && operator != Binary::Pow && !dtype.is_float()) {
                continue;
            }
            let mut a = values(dtype, 500, 2);
            let mut b = values(dtype, 500, 3);
            if matches!(operator, Binary::Shl | Binary::Shr) {
                b.iter_mut().for_each(|b| *b = b.abs() % 7.0);
            }
            if matches!(operator, Binary::Div | Binary::Rem) {
                b.iter_mut().filter(|b| b.abs() < 0.5).for_each(|b| *b = 1.0);
            }
            if operator == Binary::Pow {
                a.iter_mut().for_each(|a| *a = if dtype.is_float() { a.abs() + 0.5 } else { *a % 4.0 });
                a.iter_mut().for_each(|a| *a = rounded(dtype, *a));
                b.iter_mut().for_each(|b| *b %= 6.0);
            }
            let (left, right) =
                (Array::new(device, dtype, &[500], &a), Array::new(device, dtype, &[500], &b));
            let out = Array::sevens(device, dtype, &[500]);
            let found = compute(device, operator, &[left.operand(), right.operand()], &[&out]);
            let expected: Vec<f64> =
                a.iter().zip(&b).map(|(&a, &b)| wrapped(dtype, binary(operator, a, b, dtype))).collect();
            println!("{operator} {dtype}");
            if operator == Binary::Rem && dtype.is_float() {
                // Near a multiple of `b`, the remainder in `f64` may be on the other side.
                for (found, (expected, b)) in found.iter().zip(expected.iter().zip(&b)) {
                    let error = (found - expected).abs();
                    assert!(error < 1e-2 || (error - b.abs()).abs() < 1e-2, "{found} {expected} {b}");
                }
            } else {
                assert_close(dtype, &found, &expected, 32.0);
            }
        }
    }
}

#[test]
fn rules_of_special_numbers() {
    let Some(device) = device() else { return };
    let nan = f64::NAN;
    let check = |operator: Binary, dtype: DType, a: &[f64], b: &[f64], expected: &[f64]| {
        let (left, right) =
            (Array::new(device, dtype, &[a.len()], a), Array::new(device, dtype, &[b.len()], b));
        let out = Array::sevens(device, dtype, &[a.len()]);
        let found = compute(device, operator, &[left.operand(), right.operand()], &[&out]);
        println!("{operator} {dtype}");
        assert_close(dtype, &found, expected, 1.0);
    };
    check(Binary::Max, DType::F32, &[nan, 1.0, nan, -1.0], &[1.0, nan, nan, -2.0], &[nan, nan, nan, -1.0]);
    check(Binary::Min, DType::BF16, &[nan, 1.0, nan, -1.0], &[1.0, nan, nan, -2.0], &[nan, nan, nan, -2.0]);
    let (a, b) = (&[7.0, -7.0, 7.0, -7.0, 6.0][..], &[3.0, 3.0, -3.0, -3.0, 3.0][..]);
    for dtype in [DType::F32, DType::F16, DType::I32, DType::I64] {
        check(Binary::Rem, dtype, a, b, &[1.0, 2.0, -2.0, -1.0, 0.0]);
    }
    let (low, high) = (f64::from(i32::MIN), f64::from(i32::MAX));
    check(Binary::Div, DType::I32, &[low, low, 7.0], &[-1.0, 1.0, -2.0], &[low, low, -3.0]);
    check(Binary::Rem, DType::I32, &[low, 5.0], &[-1.0, 1.0], &[0.0, 0.0]);
    check(Binary::Add, DType::I32, &[high], &[1.0], &[low]);
    check(Binary::Mul, DType::U8, &[200.0, 16.0], &[2.0, 16.0], &[144.0, 0.0]);
    check(Binary::Shl, DType::I32, &[1.0, 1.0], &[33.0, 31.0], &[2.0, low]);
    check(Binary::Shr, DType::I32, &[-8.0], &[1.0], &[-4.0]);
    check(
        Binary::Pow,
        DType::I32,
        &[-1.0, 2.0, 1.0, -3.0],
        &[-3.0, -1.0, -9.0, 3.0],
        &[-1.0, 0.0, 1.0, -27.0],
    );

    // Which integer it is, is not said; that the device lives on, is.
    for dtype in [DType::I32, DType::I64, DType::U8, DType::U32] {
        let zeros = Array::new(device, dtype, &[64], &[0.0; 64]);
        let out = Array::sevens(device, dtype, &[64]);
        for operator in [Binary::Div, Binary::Rem] {
            compute(device, operator, &[out.operand(), zeros.operand()], &[&out]);
        }
    }
}

#[test]
fn comparisons_choices_and_limits() {
    let Some(device) = device() else { return };
    let nan = f64::NAN;
    let (a, b) = ([1.0, 2.0, nan, nan, 0.0], [1.0, 3.0, 1.0, nan, -0.0]);
    let left = Array::new(device, DType::F32, &[5], &a);
    let right = Array::new(device, DType::F32, &[5], &b);
    for &operator in Compare::ALL {
        let out = Array::sevens(device, DType::Bool, &[5]);
        let found = compute(device, operator, &[left.operand(), right.operand()], &[&out]);
        let expected: Vec<f64> = a
            .iter()
            .zip(&b)
            .map(|(a, b)| {
                f64::from(u8::from(match operator {
                    Compare::Eq => a == b,
                    Compare::Ne => a != b,
                    Compare::Lt => a < b,
                    Compare::Le => a <= b,
                    Compare::Gt => a > b,
                    _ => a >= b,
                }))
            })
            .collect();
        assert_eq!(found, expected, "{operator}");
    }
    // Any byte but 0 is true.
    let condition = Array::new(device, DType::Bool, &[5], &[0.0, 1.0, 2.0, 255.0, 0.0]);
    for dtype in those_of(NUMBERS) {
        let values = Array::new(device, dtype, &[5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
        let out = Array::sevens(device, dtype, &[5]);
        let inputs = [condition.operand(), values.operand(), 9.0.into()];
        assert_eq!(compute(device, Operator::Where, &inputs, &[&out]), [9.0, 2.0, 3.0, 4.0, 9.0], "{dtype}");
        let found = compute(device, Operator::Clamp, &[values.operand(), 2.0.into(), 4.0.into()], &[&out]);
        assert_eq!(found, [2.0, 2.0, 3.0, 4.0, 4.0], "{dtype}");
    }
    let clamped = compute(device, Operator::Clamp, &[left.operand(), 0.5.into(), 1.5.into()], &[&right]);
    assert_close(DType::F32, &clamped, &[1.0, 1.5, nan, nan, 0.5], 0.0);
    let not = compute(device, Unary::Not, &[condition.operand()], &[&condition]);
    assert_eq!(not, [1.0, 0.0, 0.0, 0.0, 1.0]);
}

/// Converts like Rust's `as`.
fn converted(value: f64, from: DType, to: DType) -> f64 {
    match to {
        DType::Bool => f64::from(u8::from(value != 0.0)),
        _ if from.is_float() || from == DType::Bool || to.is_float() => rounded(to, value),
        _ => wrapped(to, value),
    }
}

#[test]
fn each_type_is_converted_to_each() {
    let Some(device) = device() else { return };
    for from in those_of(DType::ALL) {
        let mut a = values(from, 40, 4);
        if from.is_float() {
            let large = [1e10, -1e10, 1e19, 65520.0, 300.7, -0.9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
            a.extend(large.map(|a| rounded(from, a)));
        }
        if from == DType::F64 {
            // Rounded to `f32` first, these are between two of `f16` or of `bf16`.
            a.extend([1.0 + 1.0 / 2048.0 + 1e-12, 1.0 + 1.0 / 256.0 + 1e-12, 1.0 + 1.0 / 2048.0 - 1e-12]);
        }
        if from == DType::I64 {
            a.extend([1e12, -1e12, 4_294_967_297.0]);
        }
        if from == DType::U32 {
            a.extend([4_294_967_295.0, 2_147_483_648.0]);
        }
        let input = Array::new(device, from, &[a.len()], &a);
        for to in those_of(DType::ALL) {
            let out = Array::sevens(device, to, &[a.len()]);
            let found = compute(device, Operator::Copy, &[input.operand()], &[&out]);
            let expected: Vec<f64> = a.iter().map(|&a| converted(a, from, to)).collect();
            println!("{from} -> {to}");
            assert_close(to, &found, &expected, 0.0);
        }
    }
}

#[test]
fn bf16_and_f16_round_to_the_nearest_even() {
    let Some(device) = device() else { return };
    for dtype in [DType::BF16, DType::F16] {
        let mut a: Vec<f64> = (0..2000).map(|i| 1.0 + f64::from(i) / 4096.0 / 8.0).collect();
        a.extend((0..2000).map(|i| f64::from(i) * 2.0_f64.powi(-26)));
        a.extend([65519.0, 65520.0, 3.4e38]);
        let a: Vec<f64> = a.into_iter().map(|a| rounded(DType::F32, a)).collect();
        let input = Array::new(device, DType::F32, &[a.len()], &a);
        let out = Array::sevens(device, dtype, &[a.len()]);
        let found = compute(device, Operator::Copy, &[input.operand()], &[&out]);
        let expected: Vec<f64> = a.iter().map(|&a| rounded(dtype, a)).collect();
        assert_close(dtype, &found, &expected, 0.0);
    }
}

#[test]
fn scalars_fill_and_are_converted_to_the_type_of_the_arrays() {
    let Some(device) = device() else { return };
    for dtype in those_of(DType::ALL) {
        let out = Array::sevens(device, dtype, &[3, 5]);
        let filled = compute(device, Operator::Copy, &[1.0.into()], &[&out]);
        assert_eq!(filled, [1.0; 15], "{dtype}");
    }
    let bytes = Array::new(device, DType::U8, &[3], &[1.0, 2.0, 255.0]);
    // 257 wraps to 1, and 300.0 is limited to 255.
    assert_eq!(compute(device, Binary::Add, &[bytes.operand(), 257.into()], &[&bytes]), [2.0, 3.0, 0.0]);
    assert_eq!(compute(device, Binary::Max, &[bytes.operand(), 300.0.into()], &[&bytes]), [255.0; 3]);
    let halves = Array::new(device, DType::BF16, &[2], &[1.0, 2.0]);
    assert_eq!(
        compute(
            device,
            Compare::Eq,
            &[halves.operand(), 1.001.into()],
            &[&Array::sevens(device, DType::Bool, &[2])]
        ),
        [1.0, 0.0]
    );
}

#[test]
fn arrays_of_any_strides_are_read_and_written_in_place() {
    let Some(device) = device() else { return };
    let whole = Layout::contiguous([4, 6, 50]).unwrap();
    let views = [
        whole,
        whole.transpose(0, 2).unwrap(),
        whole.flip(0).unwrap().flip(2).unwrap(),
        whole.slice(2, 1, 24, 2).unwrap().slice(0, 1, 3, 1).unwrap(),
        whole.permute([1, 2, 0]).unwrap().flip(1).unwrap(),
        whole.slice(1, 5, 1, 1).unwrap(),
    ];
    let elements = values(DType::F32, whole.len(), 5);
    for left in views {
        let shape = left.shape().to_vec();
        let other = Layout::contiguous([1, shape[1], 1]).unwrap();
        let row = values(DType::F32, shape[1], 6);
        let (a, b) = (
            Array::with_layout(device, DType::F32, left, &elements),
            Array::with_layout(device, DType::F32, other, &row),
        );
        let expected: Vec<f64> = indices(&shape)
            .iter()
            .map(|index| f64::from(elements[place(&left, index)] as f32 - row[index[1]] as f32))
            .collect();
        let out = Array::sevens(device, DType::F32, &shape);
        assert_eq!(compute(device, Binary::Sub, &[a.operand(), b.operand()], &[&out]), expected, "{left:?}");

        // In place; nothing outside of the view is written.
        let stream = device.create_stream().unwrap();
        assert_eq!(compute(device, Binary::Sub, &[a.operand(), b.operand()], &[&a]), expected, "{left:?}");
        let mut buffer = elements.clone();
        for (index, value) in indices(&shape).iter().zip(&expected) {
            buffer[place(&left, index)] = *value;
        }
        assert_eq!(a.read_buffer(&stream), buffer, "{left:?}");
    }
}

#[test]
fn eight_dimensions_and_none() {
    let Some(device) = device() else { return };
    let shape = [2, 3, 1, 2, 3, 2, 2, 2];
    let layout = Layout::contiguous(shape).unwrap().permute([7, 1, 5, 3, 4, 0, 6, 2]).unwrap();
    let elements = values(DType::I32, layout.len(), 7);
    let a = Array::with_layout(device, DType::I32, layout, &elements);
    let shape = layout.shape().to_vec();
    let out = Array::sevens(device, DType::I32, &shape);
    let expected: Vec<f64> = indices(&shape).iter().map(|index| -elements[place(&layout, index)]).collect();
    assert_eq!(compute(device, Unary::Neg, &[a.operand()], &[&out]), expected);

    let one = Array::new(device, DType::I32, &[], &[5.0]);
    assert_eq!(compute(device, Unary::Neg, &[one.operand()], &[&one]), [-5.0]);
}

#[test]
fn a_part_of_a_buffer_is_an_array() {
    let Some(device) = device() else { return };
    let stream = device.create_stream().unwrap();
    let buffer = device.allocate(400).unwrap();
    buffer.write(0, &bytes(DType::F32, &(0..100).map(f64::from).collect::<Vec<_>>())).unwrap();
    let part = buffer.slice(40..80).unwrap();
    let operand = Operand::new(&part, DType::F32, [10]).unwrap();
    device_kernels::run(&stream, Binary::Mul, &[operand, (-1.0).into()], &[operand]).unwrap();
    let found = numbers(DType::F32, &stream.read(&buffer, ..).unwrap().wait().unwrap());
    let expected: Vec<f64> =
        (0..100).map(|i| if (10..20).contains(&i) { -f64::from(i) } else { f64::from(i) }).collect();
    assert_eq!(found, expected);

    let odd = buffer.slice(2..42).unwrap();
    let operand = Operand::new(&odd, DType::F32, [10]).unwrap();
    let error = device_kernels::run(&stream, Unary::Neg, &[operand], &[operand]).unwrap_err();
    assert!(matches!(error, device_kernels::RunError::Buffers { .. }), "{error:?}");
    let text = super::support::chain(&error);
    assert!(text.contains("begins at byte 2 of its memory, expected a multiple of 4"), "{text}");
}
