//! The groups `reduce`, `arg_reduce` and `softmax`.

use device_kernels::{DType, Dims, Extremum, Operator, Reduction};

use super::{FLOATS, INDICES, NUMBERS, drawn, for_each};
use crate::case::{Case, Kind};
use crate::check::{Check, Drawn};
use crate::draw::{Draw, TAILS};
use crate::reference::reduce::reduced;
use crate::values::Domain;

const LONG: usize = (1 << 16) + 3;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for &reduction in Reduction::ALL {
        let proves = format!("`{reduction}` reduces any dimensions of any layout");
        let kinds = for_each(&dtypes(reduction), move |dtype, case, draw| {
            let domain = match reduction {
                Reduction::Prod => Domain::NearOne,
                Reduction::Max | Reduction::Min => Domain::All,
                _ => draw.one_of(&[Domain::Integers, Domain::Small, Domain::Moderate, Domain::Few]),
            };
            reduce(case, draw, reduction, dtype, Kind::Any, domain);
        });
        checks.push(Check::random(format!("reduce::{reduction}"), proves, kinds));
    }
    for &extremum in Extremum::ALL {
        let proves = format!("`arg_{extremum}` finds the first of equal elements, and the first NaN");
        let kinds = NUMBERS.into_iter().flat_map(|dtype| INDICES.map(|index| (dtype, index))).map(
            |(dtype, index)| {
                drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
                    arg_reduce(case, draw, extremum, dtype, index)
                })
            },
        );
        checks.push(Check::random(format!("arg_reduce::{extremum}"), proves, kinds.collect()));
    }
    let mut fixed = |name: &str, proves: &str, cases: fn() -> Vec<Case>| {
        checks.push(Check::fixed(name, proves, cases));
    };
    fixed(
        "reduce::sum_tail",
        "every length is summed to its last element, in the first and in the last dimension",
        || tails(Reduction::Sum),
    );
    fixed("reduce::max_tail", "the maximum of every length may be its last element", || {
        last(Reduction::Max, false)
    });
    fixed("reduce::long_sum", "sums of more elements than a group of threads has lose none", long_sums);
    fixed("reduce::long_max", "the maximum of many elements may be any of them", || {
        last(Reduction::Max, true)
    });
    fixed("reduce::of_nothing", "the sum of nothing is 0, the product 1, and the mean NaN", of_nothing);
    fixed("reduce::f16_sums_are_f32", "sums of f16 and bf16 are f32 until the end", || {
        [Reduction::Sum, Reduction::Mean].into_iter().flat_map(narrow_sums).collect()
    });
    fixed(
        "reduce::nan_of_max",
        "the maximum and the minimum of elements with a NaN are NaN, wherever it is",
        nans,
    );
    fixed("reduce::integers_wrap", "sums and products of integers wrap", wraps);
    fixed(
        "arg_reduce::first_of_equals",
        "of equal elements the first is found, also among many",
        first_of_equals,
    );
    fixed("arg_reduce::nan", "a NaN is larger and smaller than any number", arg_nans);
    fixed("arg_reduce::long", "the largest of many elements may be any of them", long_args);
    for (name, logarithm) in [("softmax", false), ("log_softmax", true)] {
        let proves = format!("`{name}` is computed in any dimension of any layout");
        let kinds = for_each(&FLOATS, move |dtype, case, draw| {
            let domain = draw.one_of(&[Domain::Small, Domain::Few, Domain::Integers]);
            softmax(case, draw, logarithm, dtype, domain);
        });
        checks.push(Check::random(format!("softmax::{name}"), proves, kinds));
    }
    checks.push(Check::fixed(
        "softmax::large_numbers",
        "exponentials of large numbers do not overflow",
        large_numbers,
    ));
    checks.push(Check::fixed("softmax::tails", "rows of every length are complete", softmax_tails));
    checks
}

fn dtypes(reduction: Reduction) -> Vec<DType> {
    match reduction {
        Reduction::Any | Reduction::All => vec![DType::Bool],
        Reduction::Mean => FLOATS.into(),
        _ => NUMBERS.into(),
    }
}

/// Some of the dimensions, at least one where there is one.
pub(super) fn dims(draw: &mut Draw<'_>, rank: usize) -> Dims {
    let last = rank.saturating_sub(1 + draw.below(rank.max(1)));
    let more: Vec<usize> = (0..rank).filter(|&dim| dim == last || draw.one_in(3)).collect();
    more.into_iter().collect()
}

pub(crate) fn reduce(
    case: &mut Case,
    draw: &mut Draw<'_>,
    reduction: Reduction,
    dtype: DType,
    kind: Kind,
    domain: Domain,
) {
    let shape = draw.shape_of(1, 5);
    let dims = dims(draw, shape.len());
    let input = case.array(draw, dtype, &shape, kind, domain);
    let out = case.output(draw, dtype, &reduced(&shape, dims), kind);
    case.step(Operator::Reduce { reduction, dims }, [input.into()], [out]);
}

fn arg_reduce(case: &mut Case, draw: &mut Draw<'_>, extremum: Extremum, dtype: DType, index: DType) {
    let shape = draw.shape_of(1, 4);
    let dim = draw.below(shape.len());
    let input = case.array(draw, dtype, &shape, Kind::Any, Domain::Few);
    let out = case.output(draw, index, &reduced(&shape, Dims::from([dim])), Kind::Any);
    case.step(Operator::ArgReduce { extremum, dim }, [input.into()], [out]);
}

fn softmax(case: &mut Case, draw: &mut Draw<'_>, logarithm: bool, dtype: DType, domain: Domain) {
    let shape = draw.shape_of(1, 4);
    let dim = draw.below(shape.len());
    let input = case.array(draw, dtype, &shape, Kind::Any, domain);
    let out = case.output(draw, dtype, &shape, Kind::Any);
    let operator = if logarithm { Operator::LogSoftmax { dim } } else { Operator::Softmax { dim } };
    case.step(operator, [input.into()], [out]);
}

/// A reduction of given values, cycled, in one dimension.
fn reduction(reduction: Reduction, dtype: DType, shape: &[usize], dims: Dims, values: &[f64]) -> Case {
    let mut case = Case::default();
    let input = case.values(dtype, shape, values);
    let out = case.output(&mut Draw::new(&[]), dtype, &reduced(shape, dims), Kind::Plain);
    case.step(Operator::Reduce { reduction, dims }, [input.into()], [out]);
    case
}

fn tails(of: Reduction) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::I32, DType::F16] {
        for size in TAILS {
            for (shape, dim) in [(vec![size], 0), (vec![2, size], 1), (vec![size, 3], 0)] {
                cases.push(reduction(of, dtype, &shape, Dims::from([dim]), &[1.0, 2.0, 3.0]));
            }
        }
    }
    cases
}

fn long_sums() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::I32, DType::F64, DType::I64] {
        // Some are lost only sometimes.
        for _ in 0..3 {
            cases.push(reduction(
                Reduction::Sum,
                dtype,
                &[LONG],
                Dims::from([0]),
                &[1.0, 2.0, 3.0, 1.0, 5.0],
            ));
        }
    }
    cases.push(reduction(
        Reduction::Sum,
        DType::F32,
        &[3, LONG / 3],
        Dims::from([1]),
        &[1.0, 2.0, 3.0, 1.0, 5.0],
    ));
    cases.push(reduction(
        Reduction::Sum,
        DType::F32,
        &[LONG / 3, 3],
        Dims::from([0]),
        &[1.0, 2.0, 3.0, 1.0, 5.0],
    ));
    cases
}

/// The extremum is the last element, and then the first.
fn last(of: Reduction, long: bool) -> Vec<Case> {
    let sizes: Vec<usize> = if long { vec![LONG, 4099] } else { TAILS.into() };
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::I32] {
        for &size in &sizes {
            let mut values: Vec<f64> = (0..size).map(|at| (at % 7) as f64).collect();
            for place in [size - 1, 0, size / 2] {
                values[place] += 100.0;
                cases.push(reduction(of, dtype, &[size], Dims::from([0]), &values));
                values[place] -= 100.0;
            }
        }
    }
    cases
}

fn of_nothing() -> Vec<Case> {
    let mut cases = Vec::new();
    for (of, dtype) in [
        (Reduction::Sum, DType::F32),
        (Reduction::Sum, DType::I32),
        (Reduction::Prod, DType::F32),
        (Reduction::Prod, DType::I64),
        (Reduction::Mean, DType::F32),
        (Reduction::Any, DType::Bool),
        (Reduction::All, DType::Bool),
    ] {
        for (shape, dims) in
            [(&[0][..], Dims::from([0])), (&[3, 0, 2], Dims::from([1])), (&[0, 4], Dims::from([0]))]
        {
            cases.push(reduction(of, dtype, shape, dims, &[0.0]));
        }
    }
    cases
}

/// In the type itself, a sum of ones ends at 2048 or 256.
fn narrow_sums(of: Reduction) -> Vec<Case> {
    let narrow = [DType::F16, DType::BF16];
    let cases = narrow.map(|dtype| reduction(of, dtype, &[1, 4096], Dims::from([1]), &[1.0]));
    let columns = narrow.map(|dtype| reduction(of, dtype, &[4096, 2], Dims::from([0]), &[1.0]));
    cases.into_iter().chain(columns).collect()
}

fn nans() -> Vec<Case> {
    let mut cases = Vec::new();
    for of in [Reduction::Max, Reduction::Min] {
        for dtype in FLOATS {
            for size in [1, 5, 64, 300] {
                for place in [0, size / 2, size - 1] {
                    let mut values: Vec<f64> = (0..size).map(|at| at as f64).collect();
                    values[place] = f64::NAN;
                    cases.push(reduction(of, dtype, &[size], Dims::from([0]), &values));
                }
            }
        }
    }
    cases
}

fn wraps() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dtype, value) in
        [(DType::U8, 100.0), (DType::I32, 2e9), (DType::U32, 4e9), (DType::I64, 9e18), (DType::I32, -2e9)]
    {
        for of in [Reduction::Sum, Reduction::Prod] {
            cases.push(reduction(of, dtype, &[7], Dims::from([0]), &[value, 3.0]));
        }
    }
    cases
}

fn arg(extremum: Extremum, dtype: DType, values: &[f64]) -> Case {
    let mut case = Case::default();
    let input = case.values(dtype, &[values.len()], values);
    let out = case.output(&mut Draw::new(&[]), DType::I32, &[1], Kind::Plain);
    case.step(Operator::ArgReduce { extremum, dim: 0 }, [input.into()], [out]);
    case
}

fn first_of_equals() -> Vec<Case> {
    let mut cases = Vec::new();
    for &extremum in Extremum::ALL {
        for dtype in [DType::F32, DType::I32, DType::F16, DType::U8] {
            for size in [2, 3, 17, 64, 257, 1031] {
                cases.push(arg(extremum, dtype, &vec![1.0; size]));
                let values: Vec<f64> = (0..size).map(|at| [1.0, 2.0, 0.0, 2.0, 0.0][at % 5]).collect();
                cases.push(arg(extremum, dtype, &values));
            }
        }
    }
    cases
}

fn arg_nans() -> Vec<Case> {
    let mut cases = Vec::new();
    for &extremum in Extremum::ALL {
        for dtype in FLOATS {
            for (size, places) in [(4, [1, 3]), (65, [64, 64]), (300, [70, 200])] {
                let mut values: Vec<f64> = (0..size).map(|at| at as f64).collect();
                places.into_iter().for_each(|place| values[place] = f64::NAN);
                cases.push(arg(extremum, dtype, &values));
            }
        }
    }
    cases
}

fn long_args() -> Vec<Case> {
    let mut cases = Vec::new();
    for place in [LONG - 1, 0, 40_000] {
        let mut values: Vec<f64> = (0..LONG).map(|at| (at % 7) as f64).collect();
        values[place] = 100.0;
        cases.push(arg(Extremum::Max, DType::F32, &values));
    }
    cases
}

fn softmax_of(dtype: DType, shape: [usize; 2], dim: usize, values: &[f64]) -> [Case; 2] {
    [Operator::Softmax { dim }, Operator::LogSoftmax { dim }].map(|operator| {
        let mut case = Case::default();
        let input = case.values(dtype, &shape, values);
        let out = case.output(&mut Draw::new(&[]), dtype, &shape, Kind::Plain);
        case.step(operator, [input.into()], [out]);
        case
    })
}

fn large_numbers() -> Vec<Case> {
    let of = |dtype| {
        softmax_of(dtype, [2, 4], 1, &[1000.0, 999.0, 998.0, -1000.0, -5000.0, -5001.0, -5002.0, -5000.0])
    };
    FLOATS.into_iter().flat_map(of).collect()
}

fn softmax_tails() -> Vec<Case> {
    let of = |size| {
        let rows = softmax_of(DType::F32, [2, size], 1, &[0.5, 1.5, -2.0, 3.0, 0.0]);
        rows.into_iter().chain(softmax_of(DType::F32, [size, 2], 0, &[0.5, 1.5, -2.0, 3.0, 0.0]))
    };
    TAILS.into_iter().filter(|size| *size < 300).flat_map(of).collect()
}

/// A reduction of a type, for the checks of other groups.
pub(super) fn probe() -> Drawn {
    drawn(|case, draw| reduce(case, draw, Reduction::Sum, DType::F32, Kind::Any, Domain::Integers))
}
