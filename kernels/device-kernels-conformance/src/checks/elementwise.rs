//! The groups `unary`, `binary`, `compare`, `select` and `copy`: what each element-wise operator computes.

use device_kernels::{Binary, Compare, DType, Operator, Scalar, Unary};

use super::{FLOATS, INTEGERS, NUMBERS, drawn, for_each};
use crate::case::{Case, Kind, Operand, View, repeated};
use crate::check::{Check, Drawn};
use crate::draw::Draw;
use crate::element::{self, Value};
use crate::values::Domain;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for &unary in Unary::ALL {
        let proves = format!("`{unary}` computes what the vocabulary says, of all values and layouts");
        let kinds = for_each(&dtypes_of_unary(unary), move |dtype, case, draw| {
            random(case, draw, unary.into(), dtype, Kind::Any);
        });
        checks.push(Check::random(format!("unary::{unary}"), proves, kinds));
    }
    for &binary in Binary::ALL {
        let proves = format!("`{binary}` computes what the vocabulary says, of all values and layouts");
        let kinds = for_each(&dtypes_of_binary(binary), move |dtype, case, draw| {
            random(case, draw, binary.into(), dtype, Kind::Any);
        });
        checks.push(Check::random(format!("binary::{binary}"), proves, kinds));
    }
    for &compare in Compare::ALL {
        let proves = format!("`{compare}` compares all values in all layouts");
        let dtypes: Vec<DType> = match compare {
            Compare::Eq | Compare::Ne => DType::ALL.into(),
            _ => NUMBERS.into(),
        };
        let kinds = for_each(&dtypes, move |dtype, case, draw| {
            random(case, draw, compare.into(), dtype, Kind::Any);
        });
        checks.push(Check::random(format!("compare::{compare}"), proves, kinds));
    }
    checks.push(Check::random(
        "select::where",
        "a choice moves the bits of the operand that the condition says",
        for_each(&DType::ALL, |dtype, case, draw| random(case, draw, Operator::Where, dtype, Kind::Any)),
    ));
    checks.push(Check::random(
        "select::clamp",
        "`clamp` limits numbers, and keeps each NaN",
        for_each(&NUMBERS, |dtype, case, draw| random(case, draw, Operator::Clamp, dtype, Kind::Any)),
    ));
    for to in DType::ALL {
        let kinds = for_each(&DType::ALL, move |from, case, draw| copy(case, draw, from, to, Kind::Any));
        let proves = format!("every type is converted to {to} as `as` of Rust converts it");
        checks.push(Check::random(format!("copy::to_{to}"), proves, kinds));
    }
    checks.extend(rules());
    checks
}

/// The types that an operator has.
fn dtypes_of_unary(unary: Unary) -> Vec<DType> {
    match unary {
        Unary::Neg | Unary::Abs | Unary::Sign => NUMBERS.into(),
        Unary::Not => [&INTEGERS[..], &[DType::Bool]].concat(),
        _ => FLOATS.into(),
    }
}

fn dtypes_of_binary(binary: Binary) -> Vec<DType> {
    match binary {
        Binary::Atan2 | Binary::ReluGrad | Binary::SigmoidGrad => FLOATS.into(),
        Binary::And | Binary::Or | Binary::Xor => [&INTEGERS[..], &[DType::Bool]].concat(),
        Binary::Shl | Binary::Shr => INTEGERS.into(),
        _ => NUMBERS.into(),
    }
}

/// What the inputs are drawn from.
fn domains(operator: Operator) -> [Domain; 3] {
    match operator {
        Operator::Unary(Unary::Sin | Unary::Cos | Unary::Tan) => [Domain::Angles; 3],
        Operator::Binary(Binary::SigmoidGrad) => [Domain::Unit, Domain::Small, Domain::Small],
        Operator::Binary(Binary::Rem | Binary::Pow) => [Domain::All, Domain::All, Domain::Small],
        _ => [Domain::All; 3],
    }
}

/// The types of inputs and output.
fn signature(operator: Operator, dtype: DType) -> (Vec<DType>, DType) {
    match operator {
        Operator::Unary(Unary::IsNan | Unary::IsInf) => (vec![dtype], DType::Bool),
        Operator::Unary(_) | Operator::Copy => (vec![dtype], dtype),
        Operator::Compare(_) => (vec![dtype; 2], DType::Bool),
        Operator::Where => (vec![DType::Bool, dtype, dtype], dtype),
        Operator::Clamp => (vec![dtype; 3], dtype),
        _ => (vec![dtype; 2], dtype),
    }
}

/// A call of an element-wise operator, with arrays of any layout: repeated ones, scalars, and outputs in
/// place.
pub(crate) fn random(case: &mut Case, draw: &mut Draw<'_>, operator: Operator, dtype: DType, kind: Kind) {
    let rank = if draw.one_in(6) { 8 } else { 4 };
    let shape = draw.shape(rank);
    call(case, draw, operator, dtype, &shape, kind, domains(operator));
}

/// Like [`random`], of a shape and of domains.
pub(crate) fn call(
    case: &mut Case,
    draw: &mut Draw<'_>,
    operator: Operator,
    dtype: DType,
    shape: &[usize],
    kind: Kind,
    domains: [Domain; 3],
) {
    case.one_memory |= kind == Kind::Any && draw.one_in(5);
    let (types, out) = signature(operator, dtype);
    let out = case.output(draw, out, shape, kind);
    let mut inputs: Vec<Operand> = Vec::new();
    let mut has_array = false;
    for (place, &dtype) in types.iter().enumerate() {
        let last = place + 1 == types.len();
        let needs_array = last && !has_array;
        let way = if kind == Kind::Any { draw.below(10) } else { 0 };
        let alike = place > 0 || !matches!(operator, Operator::Where);
        let operand = match way {
            4 if !needs_array => domains[place].scalar(dtype, draw).into(),
            5 | 6 => broadcast(case, draw, dtype, shape, domains[place]).into(),
            7 if dtype.size() == out.dtype.size() => {
                let mut stream = draw.stream();
                let view = View { dtype, ..out.clone() };
                case.fill(&view, |bytes| domains[place].element(dtype, &mut stream, bytes));
                view.into()
            }
            8 if place > 0 && types[place - 1] == dtype && !needs_array => inputs[place - 1].clone(),
            _ => case.array(draw, dtype, shape, kind, domains[place]).into(),
        };
        has_array |= alike && matches!(operand, Operand::Array(_));
        inputs.push(operand);
    }
    case.step(operator, inputs, [out]);
}

/// An array that is broadcast to a shape: with dimensions of one element, without the first ones, or with
/// strides of zero.
pub(crate) fn broadcast(
    case: &mut Case,
    draw: &mut Draw<'_>,
    dtype: DType,
    shape: &[usize],
    domain: Domain,
) -> View {
    let (once, repeats) = repeated(draw, shape);
    let view = case.array(draw, dtype, &once, Kind::Any, domain);
    if draw.one_in(2) {
        // The layout of a caller that repeats elements itself.
        let layout = view.layout.broadcast_to(shape).expect("the dimensions have one element");
        return view.with_layout(layout);
    }
    let missing = repeats.iter().take_while(|&&repeats| repeats).count();
    let short = view.layout.reshape(&once[draw.below(missing + 1)..]);
    match short {
        Ok(layout) => view.with_layout(layout),
        Err(_) => view,
    }
}

/// A conversion, or a fill.
pub(crate) fn copy(case: &mut Case, draw: &mut Draw<'_>, from: DType, to: DType, kind: Kind) {
    case.one_memory |= kind == Kind::Any && draw.one_in(5);
    let rank = if draw.one_in(6) { 8 } else { 4 };
    let shape = draw.shape(rank);
    let out = case.output(draw, to, &shape, kind);
    let way = if kind == Kind::Any { draw.below(6) } else { 0 };
    let input = match way {
        3 => Domain::All.scalar(from, draw).into(),
        4 => broadcast(case, draw, from, &shape, Domain::All).into(),
        5 if from.size() == to.size() => {
            let mut stream = draw.stream();
            let view = View { dtype: from, ..out.clone() };
            case.fill(&view, |bytes| Domain::All.element(from, &mut stream, bytes));
            view.into()
        }
        _ => case.array(draw, from, &shape, kind, Domain::All).into(),
    };
    case.step(Operator::Copy, [input], [out]);
}

/// The checks of one rule each, with values that show it.
fn rules() -> Vec<Check> {
    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;
    let mut checks = Vec::new();
    let mut rule = |name: &str, proves: &str, cases: fn() -> Vec<Case>| {
        checks.push(Check::fixed(name, proves, cases));
    };
    rule("unary::nan", "a NaN in the input is a NaN in the output", || {
        let functions =
            Unary::ALL.iter().filter(|unary| !matches!(unary, Unary::IsNan | Unary::IsInf | Unary::Not));
        let of = |function: &Unary| FLOATS.map(|dtype| pointwise(*function, dtype, &[&[NAN, 1.0, NAN, 0.5]]));
        functions.flat_map(of).collect()
    });
    rule("unary::round_to_even", "halves are rounded to the even integer", || {
        let halves = [0.5, 1.5, 2.5, 3.5, -0.5, -1.5, -2.5, 0.49999997, 8388609.0, 1e30];
        FLOATS.map(|dtype| pointwise(Unary::Round, dtype, &[&halves])).into()
    });
    rule("unary::infinities", "infinities give the limits of each function", || {
        let of =
            |function: &Unary| FLOATS.map(|dtype| pointwise(*function, dtype, &[&[INF, -INF, 0.0, -0.0]]));
        let angle = |unary: &&Unary| matches!(unary, Unary::Sin | Unary::Cos | Unary::Tan | Unary::Not);
        Unary::ALL.iter().filter(|unary| !angle(unary)).flat_map(of).collect()
    });
    rule("unary::integers_wrap", "the smallest integer has no opposite, and wraps", || {
        let functions = [Unary::Neg, Unary::Abs, Unary::Sign];
        let all = |function| INTEGERS.map(|dtype| extremes(Operator::Unary(function), dtype));
        functions.into_iter().flat_map(all).collect()
    });
    rule("binary::nan_of_max", "the larger of a number and a NaN is NaN, in both orders", || {
        let operands: [&[f64]; 2] = [&[NAN, 1.0, NAN, 2.0, -INF], &[1.0, NAN, NAN, 3.0, NAN]];
        FLOATS.map(|dtype| pointwise(Binary::Max, dtype, &operands)).into()
    });
    rule("binary::nan_of_min", "the smaller of a number and a NaN is NaN, in both orders", || {
        let operands: [&[f64]; 2] = [&[NAN, 1.0, NAN, 2.0, INF], &[1.0, NAN, NAN, 3.0, NAN]];
        FLOATS.map(|dtype| pointwise(Binary::Min, dtype, &operands)).into()
    });
    rule("binary::integers_wrap", "sums, differences and products of integers wrap", || {
        let operators = [Binary::Add, Binary::Sub, Binary::Mul];
        let all = |operator| INTEGERS.map(|dtype| extremes(Operator::Binary(operator), dtype));
        operators.into_iter().flat_map(all).collect()
    });
    rule(
        "binary::div_toward_zero",
        "quotients of integers are rounded toward zero, and the smallest by -1 wraps",
        || {
            let operands: [&[f64]; 2] =
                [&[7.0, -7.0, 7.0, -7.0, -1.0, 6.0], &[2.0, 2.0, -2.0, -2.0, 2.0, 3.0]];
            let mut cases: Vec<Case> =
                [DType::I32, DType::I64].map(|dtype| pointwise(Binary::Div, dtype, &operands)).into();
            cases.extend(INTEGERS.map(|dtype| extremes(Binary::Div.into(), dtype)));
            cases
        },
    );
    rule("binary::sign_of_rem", "what is left of a quotient has the sign of the divisor", || {
        let operands: [&[f64]; 2] = [&[7.0, -7.0, 7.0, -7.0, 6.0, -6.0], &[3.0, 3.0, -3.0, -3.0, -3.0, 3.0]];
        let dtypes = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I64];
        let mut cases: Vec<Case> = dtypes.map(|dtype| pointwise(Binary::Rem, dtype, &operands)).into();
        cases.extend(INTEGERS.map(|dtype| extremes(Binary::Rem.into(), dtype)));
        cases
    });
    rule(
        "binary::pow_of_integers",
        "a power of integers wraps, and a negative one is 0 but for 1 and -1",
        || {
            let operands: [&[f64]; 2] = [
                &[1.0, -1.0, -1.0, 2.0, 0.0, 0.0, 3.0, -3.0, 7.0],
                &[-3.0, -3.0, -2.0, -1.0, -1.0, 0.0, 21.0, 43.0, 1.0],
            ];
            [DType::I32, DType::I64].map(|dtype| pointwise(Binary::Pow, dtype, &operands)).into()
        },
    );
    rule(
        "binary::shifts_by_the_lowest_bits",
        "shifts count the lowest bits, and a right shift keeps the sign",
        || {
            let operators = [Binary::Shl, Binary::Shr];
            let all = |operator| INTEGERS.map(|dtype| extremes(Operator::Binary(operator), dtype));
            operators.into_iter().flat_map(all).collect()
        },
    );
    rule("compare::nan", "all comparisons with NaN are false but for `ne`", || {
        let operands: [&[f64]; 2] = [&[NAN, 1.0, NAN, 0.0], &[1.0, NAN, NAN, -0.0]];
        let all = |&compare: &Compare| FLOATS.map(|dtype| pointwise(compare, dtype, &operands));
        Compare::ALL.iter().flat_map(all).collect()
    });
    rule("compare::integers_are_exact", "integers that no float distinguishes are compared exactly", || {
        let all = |&compare: &Compare| INTEGERS.map(|dtype| extremes(Operator::Compare(compare), dtype));
        Compare::ALL.iter().flat_map(all).collect()
    });
    rule(
        "copy::f32_to_i32_saturates",
        "a float becomes the nearest integer of the range toward zero, and NaN becomes 0",
        || {
            let values =
                [NAN, INF, -INF, 1e10, -1e10, -1.5, 1.5, 255.5, 256.0, 4e9, 2147483648.0, -0.9, 1e20, -1e20];
            let pairs = FLOATS.into_iter().flat_map(|from| INTEGERS.map(|to| (from, to)));
            pairs.map(|(from, to)| conversion(from, to, &values)).collect()
        },
    );
    rule("copy::integers_wrap", "an integer of more bits keeps the lowest ones", || {
        let pairs = INTEGERS.into_iter().flat_map(|from| INTEGERS.map(|to| (from, to)));
        pairs.map(|(from, to)| integers(from, to)).collect()
    });
    rule(
        "copy::what_is_not_zero_is_true",
        "all numbers but zero are true, also those below 1 and NaN",
        || {
            let values = [0.0, -0.0, 0.25, -0.25, NAN, INF, 1.0, 256.0];
            NUMBERS.map(|from| conversion(from, DType::Bool, &values)).into()
        },
    );
    rule(
        "copy::moves_every_bit",
        "a copy without a conversion keeps signs of zeros and subnormal numbers",
        || {
            let tiny = |dtype| element::smallest_normal(dtype) / 4.0;
            FLOATS
                .map(|dtype| conversion(dtype, dtype, &[-0.0, 0.0, tiny(dtype), -tiny(dtype), INF, 1.0]))
                .into()
        },
    );
    rule(
        "copy::rounds_to_even",
        "a conversion to fewer bits rounds to the nearest number, and ties to the even one",
        || {
            let values = [
                1.0 + 1.0 / 2048.0,
                1.0 + 3.0 / 2048.0,
                1.0 + 1.0 / 256.0,
                1.0 + 3.0 / 256.0,
                65520.0,
                65519.0,
            ];
            [DType::F16, DType::BF16].map(|to| conversion(DType::F32, to, &values)).into()
        },
    );
    rule("copy::fills", "a scalar is converted to the type of the output", || {
        let mut cases = Vec::new();
        for to in DType::ALL {
            for scalar in [
                Scalar::Int(-1),
                Scalar::Int(300),
                Scalar::Int(1 << 40),
                Scalar::Float(-2.75),
                Scalar::Float(1e12),
                Scalar::Float(NAN),
                Scalar::Float(0.5),
                Scalar::Bool(true),
            ] {
                let mut case = Case::default();
                let out = case.output(&mut Draw::new(&[3, 2, 1]), to, &[3, 5], Kind::Any);
                case.step(Operator::Copy, [scalar.into()], [out]);
                cases.push(case);
            }
        }
        cases
    });
    rule("binary::scalars_are_converted", "a scalar becomes an element of the type of the arrays", || {
        let mut cases = Vec::new();
        for dtype in NUMBERS {
            for scalar in [
                Scalar::Float(2.75),
                Scalar::Float(-1.5),
                Scalar::Int(259),
                Scalar::Int(-2),
                Scalar::Bool(true),
            ] {
                for (operator, first) in [(Binary::Add, false), (Binary::Sub, true)] {
                    let mut case = Case::default();
                    let array = case.values(dtype, &[5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
                    let out = case.output(&mut Draw::new(&[]), dtype, &[5], Kind::Plain);
                    let mut inputs: [Operand; 2] = [array.into(), scalar.into()];
                    if first {
                        inputs.reverse();
                    }
                    case.step(operator, inputs, [out]);
                    cases.push(case);
                }
            }
        }
        cases
    });
    checks.push(Check::random(
        "select::bools_are_0_or_1",
        "a bool is true whatever its byte, and an output has the bytes 0 and 1 only",
        bools(),
    ));
    checks
}

/// Operators that read bools and write them.
fn bools() -> Vec<Drawn> {
    let operators: [Operator; 7] = [
        Unary::Not.into(),
        Binary::And.into(),
        Binary::Or.into(),
        Binary::Xor.into(),
        Compare::Eq.into(),
        Operator::Where,
        Operator::Copy,
    ];
    let of = |operator| drawn(move |case, draw| random(case, draw, operator, DType::Bool, Kind::Any));
    operators.into_iter().map(of).collect()
}

/// A call of given values, one array for each operand.
fn pointwise(operator: impl Into<Operator>, dtype: DType, operands: &[&[f64]]) -> Case {
    let operator = operator.into();
    let mut case = Case::default();
    let shape = [operands[0].len()];
    let inputs: Vec<Operand> =
        operands.iter().map(|values| case.values(dtype, &shape, values).into()).collect();
    let out = case.output(&mut Draw::new(&[]), signature(operator, dtype).1, &shape, Kind::Plain);
    case.step(operator, inputs, [out]);
    case
}

fn conversion(from: DType, to: DType, values: &[f64]) -> Case {
    let mut case = Case::default();
    let input = case.values(from, &[values.len()], values);
    let out = case.output(&mut Draw::new(&[]), to, &[values.len()], Kind::Plain);
    case.step(Operator::Copy, [input.into()], [out]);
    case
}

/// The ends of an integer type, and numbers near zero.
fn ends(dtype: DType) -> Vec<i128> {
    let (low, high) = element::range(dtype);
    let mut ends = vec![low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 100, 31, 63, 64, 200];
    ends.extend([-1, -2, -8].into_iter().filter(|_| low < 0));
    ends
}

fn integer_array(case: &mut Case, dtype: DType, shape: &[usize], values: &[i128]) -> View {
    let view = case.output(&mut Draw::new(&[]), dtype, shape, Kind::Plain);
    let mut values = values.iter().cycle();
    let mut next = || Value::Int(*values.next().expect("there are values"));
    case.fill(&view, |bytes| element::write(dtype, next(), bytes));
    view
}

/// A call of all pairs of [`ends`].
fn extremes(operator: Operator, dtype: DType) -> Case {
    let mut case = Case::default();
    let ends = ends(dtype);
    let n = ends.len();
    let (types, out) = signature(operator, dtype);
    let shapes = [[n, 1], [1, n]];
    let inputs: Vec<Operand> =
        (0..types.len()).map(|place| integer_array(&mut case, dtype, &shapes[place], &ends).into()).collect();
    let shape = if inputs.len() == 1 { [n, 1] } else { [n, n] };
    let out = case.output(&mut Draw::new(&[]), out, &shape, Kind::Plain);
    case.step(operator, inputs, [out]);
    case
}

fn integers(from: DType, to: DType) -> Case {
    let mut case = Case::default();
    let ends = ends(from);
    let input = integer_array(&mut case, from, &[ends.len()], &ends);
    let out = case.output(&mut Draw::new(&[]), to, &[ends.len()], Kind::Plain);
    case.step(Operator::Copy, [input.into()], [out]);
    case
}
