//! The group `sort`.

use device_kernels::{DType, Operator, Sorted};

use super::{FLOATS, INDICES, NUMBERS, drawn, elementwise};
use crate::case::{Case, Kind};
use crate::check::{Check, Drawn};
use crate::draw::{Draw, TAILS};
use crate::values::Domain;

/// More elements than a group of threads sorts at a time.
const LONG: usize = (1 << 16) + 3;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::random(
            "sort::values",
            "the elements are in order, in any dimension of any layout",
            of_types(Sorted::Values),
        ),
        Check::random(
            "sort::indices",
            "the indices are those of the elements in order, of equal ones the first first",
            of_types(Sorted::Indices),
        ),
        Check::random(
            "sort::both",
            "the indices are those of the elements beside them",
            of_types(Sorted::Both),
        ),
        Check::random("sort::broadcast", "an input may repeat its elements", broadcast()),
        Check::fixed("sort::tails", "rows of every length are complete, in either direction", tails),
        Check::fixed("sort::long", "rows of more elements than a group of threads sorts are in order", long),
        Check::fixed("sort::equals", "equal elements keep their order, also where there are many", equals),
        Check::fixed("sort::signs", "a NaN is sorted by its sign, and so are the two zeros", signs),
        Check::fixed(
            "sort::ends",
            "the smallest and the largest number of each type are at the ends, also as the last element",
            ends,
        ),
        Check::fixed("sort::first", "an output may have the first elements alone", first),
        Check::fixed(
            "sort::sizes_of_0_and_1",
            "rows of one element are copied, and of none there is none",
            tiny,
        ),
    ]
}

/// A sort of an array, into outputs with the first `count` elements of each row.
#[derive(Clone, Copy)]
struct Sort {
    dim: usize,
    descending: bool,
    sorted: Sorted,
    count: usize,
    index: DType,
}

impl Sort {
    fn add(self, case: &mut Case, draw: &mut Draw<'_>, input: crate::case::View, kind: Kind) {
        let Self { dim, descending, sorted, count, index } = self;
        let mut shape = input.layout.shape().to_vec();
        shape[dim] = count;
        let types = match sorted {
            Sorted::Values => vec![input.dtype],
            Sorted::Indices => vec![index],
            _ => vec![input.dtype, index],
        };
        let outputs: Vec<_> = types.into_iter().map(|dtype| case.output(draw, dtype, &shape, kind)).collect();
        case.step(Operator::Sort { dim, descending, sorted }, [input.into()], outputs);
    }
}

/// Any dimension and direction; most often of all elements.
fn any(draw: &mut Draw<'_>, sorted: Sorted, index: DType, shape: &[usize]) -> Sort {
    let dim = draw.below(shape.len());
    let descending = draw.one_in(2);
    let count = if draw.one_in(4) { draw.within(1, shape[dim]) } else { shape[dim] };
    Sort { dim, descending, sorted, count, index }
}

fn of_types(sorted: Sorted) -> Vec<Drawn> {
    let of = |(dtype, index)| {
        drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
            let shape = draw.shape_of(1, 5);
            let sort = any(draw, sorted, index, &shape);
            let domain = draw.one_of(&[Domain::Few, Domain::All, Domain::Integers]);
            let input = case.array(draw, dtype, &shape, Kind::Any, domain);
            sort.add(case, draw, input, Kind::Any);
        })
    };
    NUMBERS.into_iter().zip(INDICES.into_iter().cycle()).map(of).collect()
}

fn broadcast() -> Vec<Drawn> {
    let of = |dtype| {
        drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
            let shape = draw.shape_of(2, 4);
            let sort = any(draw, Sorted::Both, DType::I32, &shape);
            let input = elementwise::broadcast(case, draw, dtype, &shape, Domain::Few);
            let layout = input.layout.broadcast_to(&shape).expect("it is broadcast to this shape");
            sort.add(case, draw, input.with_layout(layout), Kind::Any);
        })
    };
    [DType::F32, DType::I64, DType::F16].into_iter().map(of).collect()
}

/// Both outputs of a sort of given values, cycled.
fn sorted(dtype: DType, shape: &[usize], dim: usize, descending: bool, count: usize, values: &[f64]) -> Case {
    let mut case = Case::default();
    let input = case.values(dtype, shape, values);
    let sort = Sort { dim, descending, sorted: Sorted::Both, count, index: DType::I32 };
    sort.add(&mut case, &mut Draw::new(&[]), input, Kind::Plain);
    case
}

/// Numbers without an order, each twice.
fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|at| ((at * 7919 + 13) % count.div_ceil(2)) as f64).collect()
}

fn tails() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dtype, descending) in
        [(DType::F32, false), (DType::I32, true), (DType::F16, true), (DType::I64, false)]
    {
        for size in TAILS {
            let values = numbers(2 * size);
            for (shape, dim) in [(vec![size], 0), (vec![2, size], 1), (vec![size, 2], 0)] {
                cases.push(sorted(dtype, &shape, dim, descending, size, &values));
            }
        }
    }
    cases
}

fn long() -> Vec<Case> {
    let mut cases = Vec::new();
    for (dtype, descending) in
        [(DType::F32, true), (DType::I64, false), (DType::U8, false), (DType::BF16, true)]
    {
        let values: Vec<f64> = numbers(LONG).iter().map(|value| value % 251.0).collect();
        for (shape, dim, count) in
            [(vec![LONG], 0, LONG), (vec![4099, 9], 0, 4099), (vec![3, 2049], 1, 2000), (vec![LONG], 0, 9)]
        {
            cases.push(sorted(dtype, &shape, dim, descending, count, &values));
        }
    }
    cases
}

fn equals() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::I32, DType::F16, DType::U8, DType::F64] {
        for size in [2, 3, 17, 33, 64, 257, 1031, 5000] {
            for descending in [false, true] {
                cases.push(sorted(dtype, &[size], 0, descending, size, &[1.0]));
                cases.push(sorted(dtype, &[size], 0, descending, size, &[1.0, 2.0, 0.0, 2.0, 0.0]));
            }
        }
    }
    cases
}

fn signs() -> Vec<Case> {
    let nan = f64::NAN;
    let inf = f64::INFINITY;
    let values = [0.0, nan, -1.0, -0.0, -nan, inf, 1.0, -inf, 0.0, -nan, -0.0, nan, 2.5];
    let mut cases = Vec::new();
    for dtype in FLOATS {
        for size in [values.len(), 100, 1500] {
            for descending in [false, true] {
                cases.push(sorted(dtype, &[size], 0, descending, size, &values));
            }
        }
    }
    cases
}

fn ends() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in NUMBERS {
        let (low, high) = if dtype.is_float() {
            (f64::NEG_INFINITY, f64::INFINITY)
        } else {
            let (low, high) = crate::element::range(dtype);
            // The nearest `f64` that the type has, as the largest `i64` is none.
            (low as f64, if high as f64 as i128 > high { (high - 1023) as f64 } else { high as f64 })
        };
        for size in [5, 40, 700, 3000] {
            let mut values: Vec<f64> = (0..size).map(|at| (at % 5) as f64).collect();
            (values[0], values[1], values[size - 1], values[size / 2]) = (high, low, low, high);
            for descending in [false, true] {
                cases.push(sorted(dtype, &[size], 0, descending, size, &values));
            }
        }
    }
    cases
}

fn first() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::I64, DType::F16] {
        for (shape, dim) in [(vec![20], 0), (vec![3, 100], 1), (vec![1100, 2], 0), (vec![2, 3000], 1)] {
            for count in [1, 2, 17] {
                for descending in [false, true] {
                    cases.push(sorted(dtype, &shape, dim, descending, count, &numbers(6000)));
                }
            }
        }
    }
    cases
}

fn tiny() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::U8] {
        for (shape, dim) in [(vec![1], 0), (vec![4, 1], 1), (vec![1, 3, 2], 0)] {
            cases.push(sorted(dtype, &shape, dim, true, 1, &[3.0, 1.0, 2.0]));
        }
        for (shape, dim) in [(vec![0], 0), (vec![3, 0, 2], 1), (vec![0, 4], 1)] {
            cases.push(sorted(dtype, &shape, dim, false, shape[dim], &[0.0]));
        }
        cases.push(sorted(dtype, &[2, 5], 1, false, 0, &[1.0]));
    }
    cases
}
