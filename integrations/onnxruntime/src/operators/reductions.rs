//! Reductions of dimensions, and the largest and smallest of them.

use device_kernels::{Binary, Compare, DType, Dims, Extremum, Operator, Reduction, Scalar, Unary};

use super::{Plan, Row, declined};
use crate::context::{Array, Context, Input, Shape, dim};
use crate::failure::Failure;
use crate::node::Kind::{Int, Ints};
use crate::node::Node;

macro_rules! reduction {
    ($name:literal, $reduce:expr, $new:literal) => {
        [
            Row::new($name, |node| by_attributes(node, $reduce))
                .until($new - 1)
                .attributes(&[("axes", Ints), ("keepdims", Int)]),
            Row::new($name, |node| by_input(node, $reduce))
                .since($new)
                .attributes(&[("keepdims", Int), ("noop_with_empty_axes", Int)])
                .host(&[1]),
        ]
    };
}

const TABLES: [[Row; 2]; 10] = [
    reduction!("ReduceL1", &[Step::Unary(Unary::Abs), Step::Reduce(Reduction::Sum)], 18),
    reduction!("ReduceL2", &[Step::Square, Step::Reduce(Reduction::Sum), Step::Unary(Unary::Sqrt)], 18),
    reduction!("ReduceLogSum", &[Step::Reduce(Reduction::Sum), Step::Unary(Unary::Log)], 18),
    reduction!("ReduceLogSumExp", &[Step::LogSumExp], 18),
    reduction!("ReduceMax", &[Step::Reduce(Reduction::Max)], 18),
    reduction!("ReduceMean", &[Step::Reduce(Reduction::Mean)], 18),
    reduction!("ReduceMin", &[Step::Reduce(Reduction::Min)], 18),
    reduction!("ReduceProd", &[Step::Reduce(Reduction::Prod)], 18),
    reduction!("ReduceSum", &[Step::Reduce(Reduction::Sum)], 13),
    reduction!("ReduceSumSquare", &[Step::Square, Step::Reduce(Reduction::Sum)], 18),
];

const OTHERS: [Row; 2] = [
    Row::new("ArgMax", |node| arg(node, Extremum::Max)).attributes(&[
        ("axis", Int),
        ("keepdims", Int),
        ("select_last_index", Int),
    ]),
    Row::new("ArgMin", |node| arg(node, Extremum::Min)).attributes(&[
        ("axis", Int),
        ("keepdims", Int),
        ("select_last_index", Int),
    ]),
];

pub(super) const ROWS: &[Row] = &{
    let mut rows = [const { Row::new("", never) }; 22];
    let mut at = 0;
    while at < 20 {
        rows[at] = TABLES[at / 2][at % 2];
        at += 1;
    }
    rows[20] = OTHERS[0];
    rows[21] = OTHERS[1];
    rows
};

fn never(_: &Node) -> Result<Plan, Failure> {
    declined("it is no operator")
}

/// What a reduction does, one after the other.
#[derive(Clone, Copy)]
enum Step {
    Unary(Unary),
    Square,
    Reduce(Reduction),
    /// The logarithm of the sum of e^x, which is far from infinity: the largest is subtracted before.
    LogSumExp,
}

impl Step {
    fn name(self, dtype: DType) -> (&'static str, DType) {
        let name = match self {
            Self::Unary(unary) => unary.name(),
            Self::Square => "mul",
            Self::LogSumExp => "exp",
            Self::Reduce(Reduction::Max) if dtype == DType::Bool => "reduce_any",
            Self::Reduce(Reduction::Min) if dtype == DType::Bool => "reduce_all",
            Self::Reduce(reduction) => Operator::Reduce { reduction, dims: Dims::default() }.name(),
        };
        (name, dtype)
    }
}

/// The largest or smallest of no elements.
fn of_nothing(reduction: Reduction, dtype: DType) -> Option<Scalar> {
    let (least, greatest) = match (dtype.integers(), dtype) {
        (Some((least, greatest)), _) => (Scalar::Int(least as i64), Scalar::Int(greatest as i64)),
        (None, DType::Bool) => (Scalar::Bool(false), Scalar::Bool(true)),
        (None, _) => (Scalar::Float(f64::NEG_INFINITY), Scalar::Float(f64::INFINITY)),
    };
    match reduction {
        Reduction::Max => Some(least),
        Reduction::Min => Some(greatest),
        _ => None,
    }
}

fn by_attributes(node: &Node, steps: &'static [Step]) -> Result<Plan, Failure> {
    let axes = node.ints("axes").map(<[i64]>::to_vec);
    let keep = node.int_or("keepdims", 1) != 0;
    plan(node, steps, keep, move |_| Ok((axes.clone(), false)))
}

fn by_input(node: &Node, steps: &'static [Step]) -> Result<Plan, Failure> {
    let keep = node.int_or("keepdims", 1) != 0;
    let nothing = node.int_or("noop_with_empty_axes", 0) != 0;
    plan(node, steps, keep, move |context| Ok((context.integers(1)?, nothing)))
}

/// `axes` gives the dimensions, and whether none of them means that nothing is reduced.
fn plan(
    node: &Node,
    steps: &'static [Step],
    keep: bool,
    axes: impl Fn(&Context) -> Result<(Option<Vec<i64>>, bool), Failure> + Send + Sync + 'static,
) -> Result<Plan, Failure> {
    let dtype = node.input(0)?;
    // Halves are computed as floats, and rounded once: a sum of squares may be beyond the largest half.
    let wide = if dtype.size() == 2 { DType::F32 } else { dtype };
    let mut needs: Vec<_> = steps.iter().map(|step| step.name(wide)).chain([("copy", dtype)]).collect();
    if steps.iter().any(|step| matches!(step, Step::LogSumExp)) {
        needs.extend(
            ["reduce_max", "reduce_sum", "log", "sub", "add", "where", "abs"].map(|name| (name, wide)),
        );
    }
    Plan::new(needs, move |context| {
        let input = context.array(0)?;
        let rank = input.rank();
        let (axes, nothing) = axes(context)?;
        let axes = axes.unwrap_or_default();
        let dims: Dims = match (axes.is_empty(), nothing) {
            (true, true) => Dims::default(),
            (true, false) => Dims::all(rank),
            _ => axes.iter().map(|&axis| dim(axis, rank)).collect::<Result<_, _>>()?,
        };
        let reduced: Shape =
            (0..rank).map(|axis| if dims.contains(axis) { 1 } else { input.shape()[axis] }).collect();
        let kept: Shape = if keep {
            reduced.clone()
        } else {
            (0..rank).filter(|&axis| !dims.contains(axis)).map(|axis| input.shape()[axis]).collect()
        };
        let out = context.output(0, &kept)?;
        let mut value = context.converted(input, wide)?;
        for step in steps {
            value = match *step {
                Step::Unary(unary) => context.unary(unary, &value)?,
                Step::Square => context.binary(Binary::Mul, &value, &value)?,
                Step::LogSumExp if nothing && axes.is_empty() => value,
                Step::LogSumExp => log_sum_exp(context, &value, dims, &reduced)?,
                Step::Reduce(_) if nothing && axes.is_empty() => value,
                Step::Reduce(reduction) => {
                    let out = context.scratch(value.dtype, &reduced)?;
                    // Kernels have no largest of nothing: in ONNX it is the least number.
                    if value.layout.len() == 0
                        && let Some(least) = of_nothing(reduction, value.dtype)
                    {
                        context.run(Operator::Copy, &[Input::Scalar(least)], &[&out])?;
                        value = out;
                        continue;
                    }
                    let reduction = match (reduction, value.dtype) {
                        (Reduction::Max, DType::Bool) => Reduction::Any,
                        (Reduction::Min, DType::Bool) => Reduction::All,
                        _ => reduction,
                    };
                    context.run(Operator::Reduce { reduction, dims }, &[(&value).into()], &[&out])?;
                    out
                }
            };
        }
        context.copy(&value, &out.reshaped(value.shape())?)
    })
}

/// max + log(sum(e^(x - max))), with 0 for a largest that is not finite.
fn log_sum_exp(context: &Context, x: &Array, dims: Dims, reduced: &Shape) -> Result<Array, Failure> {
    let reduce = |reduction, array: &Array| {
        let out = context.scratch(array.dtype, reduced)?;
        context.run(Operator::Reduce { reduction, dims }, &[array.into()], &[&out])?;
        Ok::<_, Failure>(out)
    };
    if x.layout.len() == 0 {
        return context.unary(Unary::Log, &reduce(Reduction::Sum, x)?);
    }
    let largest = reduce(Reduction::Max, x)?;
    let is_finite = context.scratch(DType::Bool, reduced)?;
    let size = context.unary(Unary::Abs, &largest)?;
    context.run(Compare::Lt, &[size.into(), f64::INFINITY.into()], &[&is_finite])?;
    let shift = context.scratch(x.dtype, reduced)?;
    context.run(Operator::Where, &[is_finite.into(), largest.into(), 0.0.into()], &[&shift])?;
    let powers = context.unary(Unary::Exp, &context.binary(Binary::Sub, x, &shift)?)?;
    let log = context.unary(Unary::Log, &reduce(Reduction::Sum, &powers)?)?;
    context.binary(Binary::Add, &log, &shift)
}

fn arg(node: &Node, extremum: Extremum) -> Result<Plan, Failure> {
    if node.int_or("select_last_index", 0) != 0 {
        return declined("the last of equal elements");
    }
    let axis = node.int_or("axis", 0);
    let keep = node.int_or("keepdims", 1) != 0;
    let name = Operator::ArgReduce { extremum, dim: 0 }.name();
    Plan::new([(name, node.input(0)?)], move |context| {
        let input: Array = context.array(0)?;
        let axis = dim(axis, input.rank())?;
        let mut reduced = Shape::from_slice(input.shape());
        reduced[axis] = 1;
        let mut kept = reduced.clone();
        if !keep {
            kept.remove(axis);
        }
        let out = context.output(0, &kept)?.reshaped(reduced)?;
        context.run(Operator::ArgReduce { extremum, dim: axis }, &[input.into()], &[&out])
    })
}
