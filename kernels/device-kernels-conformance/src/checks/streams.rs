//! The group `streams`: several calls at a time.

use device_kernels::{Binary, DType, Operator, Unary};

use super::{convolution, drawn, expression, indexing, layout, matmul, pooling, reduce};
use crate::case::{Case, Kind, Operand};
use crate::check::{Check, Drawn};
use crate::draw::Draw;
use crate::values::Domain;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::random(
            "streams::calls_without_waiting",
            "many calls that are enqueued without waiting give what each gives alone",
            vec![drawn(|case, draw| several(case, draw, 12, 1))],
        ),
        Check::random(
            "streams::two_streams",
            "calls in two streams do not disturb each other",
            vec![drawn(|case, draw| several(case, draw, 16, 2))],
        ),
        Check::random(
            "streams::one_after_another",
            "a call sees what the calls before it in its stream have written",
            [DType::I32, DType::F32, DType::U8, DType::I64]
                .map(|dtype| drawn(move |case: &mut Case, draw: &mut Draw<'_>| chain(case, draw, dtype)))
                .into(),
        ),
    ]
}

/// A call of each family.
pub(super) fn families() -> Vec<Drawn> {
    let elementwise = layout::probes().into_iter().map(|(operator, dtype)| {
        drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
            let shape = draw.shape(3);
            super::elementwise::call(case, draw, operator, dtype, &shape, Kind::Any, [Domain::Small; 3]);
        })
    });
    let others = [
        reduce::probe(),
        matmul::probe(),
        indexing::probe(),
        convolution::probe(),
        pooling::probe(),
        expression::probe(),
    ];
    elementwise.chain(others).collect()
}

/// Calls of all families, each with memory of its own.
fn several(case: &mut Case, draw: &mut Draw<'_>, count: usize, streams: usize) {
    let families = families();
    for _ in 0..count {
        let family = draw.below(families.len());
        // Its arrays may be in one memory, which is no memory of the others.
        let mut one = Case::default();
        families[family](&mut one, draw);
        let stream = draw.below(streams);
        case.append(one, stream);
    }
}

/// Calls that read what others wrote, and write what others read. All numbers are small integers, so that
/// they are exact.
fn chain(case: &mut Case, draw: &mut Draw<'_>, dtype: DType) {
    let shape = draw.shape_of(1, 3);
    let arrays: Vec<_> =
        (0..4).map(|_| case.array(draw, dtype, &shape, Kind::Any, Domain::Integers)).collect();
    for _ in 0..draw.within(2, 10) {
        let a = draw.below(4);
        let b = draw.below(4);
        let out = draw.below(4);
        let input = |place: usize| Operand::from(arrays[place].clone());
        let operators: [Operator; 5] =
            [Binary::Add.into(), Binary::Max.into(), Binary::Min.into(), Operator::Copy, Unary::Sign.into()];
        let operator = draw.one_of(&operators);
        let inputs = match operator {
            Operator::Copy | Operator::Unary(_) => vec![input(a)],
            _ => vec![input(a), input(b)],
        };
        case.step(operator, inputs, [arrays[out].clone()]);
    }
}
