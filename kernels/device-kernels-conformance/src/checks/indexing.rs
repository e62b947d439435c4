//! The group `index`: gather, scatter, selections and assignments.

use device_kernels::{DType, Operator, Update};

use super::{INDICES, drawn, for_each};
use crate::case::{Case, Kind};
use crate::check::{Check, Drawn};
use crate::draw::Draw;
use crate::element::{self, Value};
use crate::values::Domain;

/// Which operator.
#[derive(Clone, Copy, PartialEq)]
enum Indexing {
    Gather,
    Scatter(Update),
    Select,
    Assign(Update),
}

const ALL: [(Indexing, &str, &str); 6] = [
    (Indexing::Gather, "gather", "elements are read at the indices of one dimension"),
    (
        Indexing::Scatter(Update::Replace),
        "scatter_replace",
        "values replace the elements at their indices, and no others",
    ),
    (
        Indexing::Scatter(Update::Add),
        "scatter_add",
        "values are added to the elements at their indices, each as often as it is there",
    ),
    (Indexing::Select, "select", "slices are read at the indices of one dimension"),
    (
        Indexing::Assign(Update::Replace),
        "assign_replace",
        "values replace the slices at their indices, and no others",
    ),
    (
        Indexing::Assign(Update::Add),
        "assign_add",
        "values are added to the slices at their indices, each as often as it is there",
    ),
];

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for (indexing, name, proves) in ALL {
        let dtypes: Vec<DType> =
            DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool || !indexing.adds()).collect();
        let kinds = for_each(&dtypes, move |dtype, case, draw| {
            let index = draw.one_of(&INDICES);
            call(case, draw, indexing, dtype, index, false);
        });
        checks.push(Check::random(format!("index::{name}"), proves, kinds));
    }
    let indices = INDICES.into_iter().flat_map(|index| ALL.map(|(indexing, ..)| (indexing, index)));
    let kinds = indices.map(|(indexing, index)| {
        drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
            call(case, draw, indexing, DType::F32, index, false)
        })
    });
    checks.push(Check::random("index::dtypes", "indices are i32, i64 or u32", kinds.collect()));
    for (name, proves, reads) in [
        ("out_of_range_reads", "an index that is out of range reads 0, or is an error of the stream", true),
        (
            "out_of_range_writes",
            "an index that is out of range writes nothing, or is an error of the stream",
            false,
        ),
    ] {
        let of = ALL.into_iter().filter(move |(indexing, ..)| indexing.reads() == reads);
        let kinds = of.flat_map(|(indexing, ..)| {
            INDICES.map(|index| {
                drawn(move |case: &mut Case, draw: &mut Draw<'_>| {
                    call(case, draw, indexing, DType::F32, index, true);
                    case.may_fail = true;
                })
            })
        });
        checks.push(Check::random(format!("index::{name}"), proves, kinds.collect()));
    }
    checks.push(Check::fixed(
        "index::repeated",
        "values for one element are all added, in any order",
        repeated,
    ));
    checks.push(Check::fixed(
        "index::halves",
        "sums of halves are f32 until the end: of 3,000 ones, each is there",
        halves,
    ));
    checks.push(Check::fixed("index::large", "many indices are all used", large));
    checks
}

impl Indexing {
    fn adds(self) -> bool {
        matches!(self, Self::Scatter(Update::Add) | Self::Assign(Update::Add))
    }

    fn reads(self) -> bool {
        matches!(self, Self::Gather | Self::Select)
    }

    fn operator(self, dim: usize) -> Operator {
        match self {
            Self::Gather => Operator::Gather { dim },
            Self::Scatter(update) => Operator::Scatter { dim, update },
            Self::Select => Operator::IndexSelect { dim },
            Self::Assign(update) => Operator::IndexAssign { dim, update },
        }
    }
}

fn call(case: &mut Case, draw: &mut Draw<'_>, indexing: Indexing, dtype: DType, index: DType, outside: bool) {
    let rank = draw.within(1, 4);
    let small = draw.one_in(2);
    let shape: Vec<usize> = (0..rank).map(|_| draw.within(1, if small { 3 } else { 6 })).collect();
    let dim = draw.below(rank);
    let count = draw.one_of(&[1, 2, 3, 4, 7, 17]);
    let domain = if outside { Domain::Around(shape[dim]) } else { Domain::Below(shape[dim]) };
    let values = if indexing.adds() { draw.one_of(&[Domain::Integers, Domain::Small]) } else { Domain::All };
    // The indices have no more elements than the array in other dimensions.
    let mut picked = shape.clone();
    picked[dim] = count;
    let index_shape = match indexing {
        Indexing::Gather | Indexing::Scatter(_) => {
            let fewer = picked
                .iter()
                .enumerate()
                .map(|(at, &size)| if at != dim && draw.one_in(3) { draw.within(1, size) } else { size });
            fewer.collect()
        }
        Indexing::Select | Indexing::Assign(_) => vec![count],
    };
    let indices = case.array(draw, index, &index_shape, Kind::Any, domain);
    let array = case.array(draw, dtype, &shape, Kind::Any, values);
    let operator = indexing.operator(dim);
    let value_shape = if index_shape.len() == rank
        && indexing != Indexing::Select
        && !matches!(indexing, Indexing::Assign(_))
    {
        index_shape
    } else {
        picked
    };
    if indexing.reads() {
        let out = case.output(draw, dtype, &value_shape, Kind::Any);
        case.step(operator, [array.into(), indices.into()], [out]);
    } else {
        let values = case.array(draw, dtype, &value_shape, Kind::Any, values);
        case.step(operator, [indices.into(), values.into()], [array]);
    }
}

/// Values for few elements.
fn many(indexing: Indexing, dtype: DType, size: usize, count: usize) -> Case {
    let mut case = Case::default();
    let mut draw = Draw::new(&[]);
    let array = case.array(&mut draw, dtype, &[size, 2], Kind::Plain, Domain::Integers);
    let shape = if matches!(indexing, Indexing::Gather | Indexing::Scatter(_)) {
        vec![count, 2]
    } else {
        vec![count]
    };
    let indices = case.output(&mut draw, DType::I32, &shape, Kind::Plain);
    let mut at = 0;
    case.fill(&indices, |bytes| {
        at += 1;
        element::write(DType::I32, Value::Int((at * 7 % size) as i128), bytes);
    });
    if indexing.reads() {
        let out = case.output(&mut draw, dtype, &[count, 2], Kind::Plain);
        case.step(indexing.operator(0), [array.into(), indices.into()], [out]);
    } else {
        let values = case.values(dtype, &[count, 2], &[1.0, 2.0, 3.0]);
        case.step(indexing.operator(0), [indices.into(), values.into()], [array]);
    }
    case
}

fn repeated() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::I32, DType::F64, DType::I64, DType::U8, DType::F16] {
        for (indexing, ..) in ALL.into_iter().filter(|(indexing, ..)| indexing.adds()) {
            // One element, and a few; several times, as some are lost only sometimes.
            cases.extend(
                [(1, 9), (3, 300), (5, 300), (1, 300)]
                    .map(|(size, count)| many(indexing, dtype, size, count)),
            );
        }
    }
    cases
}

/// Many ones for an element that has bytes of its own before, and for one beside it.
fn halves() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F16, DType::BF16] {
        for (indexing, ..) in ALL.into_iter().filter(|(indexing, ..)| indexing.adds()) {
            let mut case = Case::default();
            let indices = if indexing == Indexing::Scatter(Update::Add) { vec![3000, 2] } else { vec![3000] };
            let indices = case.values(DType::I32, &indices, &[1.0]);
            let values = case.values(dtype, &[3000, 2], &[1.0, 0.5]);
            let array = case.values(dtype, &[3, 2], &[1.0, -1.0, 24.0, 0.25, f64::INFINITY, 2.0]);
            case.step(indexing.operator(0), [indices.into(), values.into()], [array]);
            cases.push(case);
        }
    }
    cases
}

fn large() -> Vec<Case> {
    ALL.into_iter().map(|(indexing, ..)| many(indexing, DType::F32, 5003, 5001)).collect()
}

/// A gathering, for the checks of other groups.
pub(super) fn probe() -> Drawn {
    drawn(|case, draw| call(case, draw, Indexing::Gather, DType::F32, DType::I32, false))
}
