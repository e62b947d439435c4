//! The group `layout`: where elements are in their buffers, whatever the operator.

use device_kernels::{Binary, Compare, DType, Layout, Operator, Unary};

use super::{drawn, elementwise};
use crate::case::{Case, Kind, Operand};
use crate::check::{Check, Drawn};
use crate::draw::{Draw, TAILS};
use crate::values::Domain;

/// Element-wise operators of all kinds, with types of all sizes.
pub(super) fn probes() -> Vec<(Operator, DType)> {
    vec![
        (Binary::Sub.into(), DType::F32),
        (Operator::Copy, DType::F32),
        (Unary::Neg.into(), DType::I32),
        (Compare::Lt.into(), DType::F32),
        (Operator::Where, DType::F32),
        (Operator::Clamp, DType::F32),
        (Binary::Add.into(), DType::U8),
        (Binary::Mul.into(), DType::F16),
        (Binary::Xor.into(), DType::I64),
        (Operator::Copy, DType::Bool),
    ]
}

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    let mut of_kind = |name: &str, proves: &str, kind: Kind| {
        checks.push(Check::random(format!("layout::{name}"), proves, with_kind(kind)));
    };
    of_kind(
        "offsets",
        "an array begins at its offset in its buffer, and the buffer anywhere in its memory",
        Kind::Offset,
    );
    of_kind("transposed", "the dimensions of arrays may be in any order in memory", Kind::Transposed);
    of_kind("negative_strides", "a negative stride goes backward", Kind::Negative);
    of_kind("gaps", "strides that leave gaps skip those, and an output leaves them as they are", Kind::Gaps);
    checks.push(Check::random("layout::broadcast", "inputs are repeated by the rules of NumPy", broadcast()));
    checks.push(Check::random(
        "layout::in_place",
        "an output may be the same elements as an input",
        in_place(),
    ));
    checks.push(Check::random(
        "layout::one_memory",
        "all arrays of a call may be in one memory",
        one_memory(),
    ));
    checks.push(Check::random(
        "layout::eight_dimensions",
        "arrays have up to eight dimensions",
        eight_dimensions(),
    ));
    checks.push(Check::random(
        "layout::guards",
        "nothing is written but the elements of outputs, and nothing is read but those of inputs",
        guards(),
    ));
    checks.push(Check::fixed("layout::tails", "every length is computed to its last element", tails));
    checks.push(Check::fixed(
        "layout::large",
        "arrays of more elements than a group of threads has are complete",
        large,
    ));
    checks.push(Check::fixed(
        "layout::nothing",
        "arrays without elements are no error, and change nothing",
        nothing,
    ));
    checks
}

fn with_kind(kind: Kind) -> Vec<Drawn> {
    let of = |(operator, dtype)| {
        drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
            let shape = draw.shape_of(1, 5);
            elementwise::call(case, draw, operator, dtype, &shape, kind, [Domain::Moderate; 3]);
        })
    };
    probes().into_iter().map(of).collect()
}

fn inputs_of(operator: Operator, dtype: DType) -> (Vec<DType>, DType) {
    match operator {
        Operator::Unary(_) | Operator::Copy => (vec![dtype], dtype),
        Operator::Compare(_) => (vec![dtype; 2], DType::Bool),
        Operator::Where => (vec![DType::Bool, dtype, dtype], dtype),
        Operator::Clamp => (vec![dtype; 3], dtype),
        _ => (vec![dtype; 2], dtype),
    }
}

fn broadcast() -> Vec<Drawn> {
    let of = |(operator, dtype)| {
        drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
            let shape = draw.shape_of(2, 5);
            let (inputs, out) = inputs_of(operator, dtype);
            let out = case.output(draw, out, &shape, Kind::Any);
            let inputs: Vec<Operand> = inputs
                .into_iter()
                .map(|dtype| elementwise::broadcast(case, draw, dtype, &shape, Domain::Moderate).into())
                .collect();
            case.step(operator, inputs, [out]);
        })
    };
    probes().into_iter().map(of).collect()
}

fn in_place() -> Vec<Drawn> {
    let mut drawn_cases = Vec::new();
    for (operator, dtype) in probes() {
        let (types, out) = inputs_of(operator, dtype);
        for place in (0..types.len()).filter(|&place| types[place].size() == out.size()) {
            let types = types.clone();
            drawn_cases.push(drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
                let shape = draw.shape(4);
                let mut inputs: Vec<Operand> = types
                    .iter()
                    .map(|&dtype| match draw.one_in(3) {
                        true => elementwise::broadcast(case, draw, dtype, &shape, Domain::Moderate).into(),
                        false => case.array(draw, dtype, &shape, Kind::Any, Domain::Moderate).into(),
                    })
                    .collect();
                let shared = case.array(draw, types[place], &shape, Kind::Any, Domain::Moderate);
                inputs[place] = shared.clone().into();
                case.step(operator, inputs, [crate::case::View { dtype: out, ..shared }]);
            }));
        }
    }
    drawn_cases
}

fn one_memory() -> Vec<Drawn> {
    let of = |(operator, dtype)| {
        drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
            case.one_memory = true;
            let shape = draw.shape(4);
            elementwise::call(case, draw, operator, dtype, &shape, Kind::Any, [Domain::Moderate; 3]);
        })
    };
    probes().into_iter().map(of).collect()
}

fn eight_dimensions() -> Vec<Drawn> {
    let of = |(operator, dtype)| {
        drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
            let rank = draw.within(6, 8);
            let shape: Vec<usize> = (0..rank).map(|_| draw.within(1, 3)).collect();
            let kind = draw.one_of(&[Kind::Any, Kind::Transposed, Kind::Gaps]);
            elementwise::call(case, draw, operator, dtype, &shape, kind, [Domain::Moderate; 3]);
        })
    };
    probes().into_iter().map(of).collect()
}

/// Short arrays among guards of all lengths.
fn guards() -> Vec<Drawn> {
    let of = |(operator, dtype)| {
        drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
            let shape = [draw.one_of(&TAILS)];
            let kind = draw.one_of(&[Kind::Offset, Kind::Plain, Kind::Gaps]);
            elementwise::call(case, draw, operator, dtype, &shape, kind, [Domain::Moderate; 3]);
        })
    };
    probes().into_iter().map(of).collect()
}

fn tails() -> Vec<Case> {
    let mut cases = Vec::new();
    for (operator, dtype) in probes() {
        for size in TAILS {
            for shape in [vec![size], vec![2, size]] {
                let mut case = Case::default();
                let mut draw = Draw::new(&[]);
                elementwise::call(
                    &mut case,
                    &mut draw,
                    operator,
                    dtype,
                    &shape,
                    Kind::Plain,
                    [Domain::Moderate; 3],
                );
                cases.push(case);
            }
        }
    }
    cases
}

fn large() -> Vec<Case> {
    const LARGE: usize = (1 << 16) + 3;
    let mut cases = Vec::new();
    for (operator, dtype, kind, shape) in [
        (Operator::from(Binary::Sub), DType::F32, Kind::Plain, vec![LARGE]),
        (Operator::Copy, DType::F32, Kind::Transposed, vec![257, 256]),
        (Binary::Add.into(), DType::U8, Kind::Plain, vec![LARGE]),
        (Unary::Neg.into(), DType::I32, Kind::Negative, vec![3, LARGE / 3]),
    ] {
        let mut case = Case::default();
        let mut draw = Draw::new(&[]);
        elementwise::call(&mut case, &mut draw, operator, dtype, &shape, kind, [Domain::Small; 3]);
        cases.push(case);
    }
    cases
}

fn nothing() -> Vec<Case> {
    let mut cases = Vec::new();
    for (operator, dtype) in probes() {
        for shape in [&[0][..], &[3, 0], &[0, 4, 2]] {
            let mut case = Case::default();
            let mut draw = Draw::new(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
            elementwise::call(&mut case, &mut draw, operator, dtype, shape, Kind::Offset, [Domain::Small; 3]);
            cases.push(case);
        }
        // A step with elements, so that a set without the operator has none that ran.
        let mut case = Case::default();
        let mut draw = Draw::new(&[]);
        elementwise::call(&mut case, &mut draw, operator, dtype, &[], Kind::Plain, [Domain::Small; 3]);
        cases.push(case);
    }
    let mut case = Case::default();
    let mut draw = Draw::new(&[]);
    let input = case.array(&mut draw, DType::F32, &[2, 3], Kind::Plain, Domain::Small);
    let none = Layout::contiguous([2, 0]).expect("it has two dimensions");
    let out = case.output(&mut draw, DType::F32, &[2, 0], Kind::Plain);
    case.step(Operator::Copy, [input.with_layout(none).into()], [out]);
    cases.push(case);
    cases
}
