//! The group `cache`: calls that differ in one thing, one right after the other. A set that keeps compiled
//! kernels, and finds them by too little of the call, uses one for another.

use device_kernels::{
    Binary, Conv2d, DType, Dims, Distribution, Operator, Pool2d, Reduction, Scalar, Sorted, Unary, Update,
};

use super::{drawn, layout};
use crate::case::{Case, Kind, Operand};
use crate::check::{Check, Drawn};
use crate::draw::Draw;
use crate::reference::reduce::reduced;
use crate::values::Domain;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::random(
            "cache::two_shapes_of_one_kernel",
            "a call with another shape than the one before is computed with its own",
            each_probe(|case, draw, operator, dtype| {
                for _ in 0..3 {
                    let shape = draw.shape_of(1, 3);
                    super::elementwise::call(
                        case,
                        draw,
                        operator,
                        dtype,
                        &shape,
                        Kind::Plain,
                        [Domain::Small; 3],
                    );
                }
            }),
        ),
        Check::random(
            "cache::two_layouts_of_one_shape",
            "a call with other strides than the one before is computed with its own",
            each_probe(|case, draw, operator, dtype| {
                let shape = draw.shape_of(2, 3);
                for kind in [Kind::Plain, Kind::Transposed, Kind::Offset, Kind::Gaps, Kind::Negative] {
                    super::elementwise::call(case, draw, operator, dtype, &shape, kind, [Domain::Small; 3]);
                }
            }),
        ),
        Check::fixed(
            "cache::two_scalars",
            "a call with another scalar than the one before is computed with its own",
            || vec![scalars(DType::F32), scalars(DType::I32), scalars_in_each_place()],
        ),
        Check::fixed(
            "cache::two_dtypes",
            "a call with another type than the one before is computed with its own",
            || vec![dtypes(Binary::Add.into()), dtypes(Binary::Max.into()), conversions()],
        ),
        Check::fixed(
            "cache::two_operators",
            "a call of another operator than the one before is computed with its own",
            || vec![operators()],
        ),
        Check::fixed(
            "cache::two_dims",
            "a call with other dimensions than the one before is computed with its own",
            || vec![reductions(), softmaxes(), sorts(), gathers()],
        ),
        Check::fixed(
            "cache::two_options",
            "a call with other options than the one before is computed with its own",
            || vec![convolutions(), pools(), sorts(), updates()],
        ),
        Check::fixed(
            "cache::two_seeds",
            "random numbers with another seed, offset or distribution than those before are their own",
            || vec![randoms()],
        ),
    ]
}

fn each_probe(
    draw: impl Fn(&mut Case, &mut Draw<'_>, Operator, DType) + Send + Sync + Clone + 'static,
) -> Vec<Drawn> {
    let of = |(operator, dtype)| {
        let draw = draw.clone();
        drawn(move |case: &mut Case, numbers: &mut Draw<'_>| draw(case, numbers, operator, dtype))
    };
    layout::probes().into_iter().map(of).collect()
}

/// The numbers of an array.
const VALUES: [f64; 7] = [3.0, -1.0, 2.0, 0.0, 4.0, -2.0, 1.0];

/// A call with arrays of [`VALUES`] and an output.
fn add(case: &mut Case, operator: Operator, inputs: &[(DType, &[usize])], out: (DType, &[usize])) {
    let inputs: Vec<Operand> = inputs
        .iter()
        .map(|(dtype, shape)| {
            let values = if dtype.is_float() || *dtype == DType::I32 { VALUES } else { VALUES.map(f64::abs) };
            case.values(*dtype, shape, &values).into()
        })
        .collect();
    let out = case.output(&mut Draw::new(&[]), out.0, out.1, Kind::Plain);
    case.step(operator, inputs, [out]);
}

fn scalars(dtype: DType) -> Case {
    let mut case = Case::default();
    for scalar in [Scalar::Int(1), Scalar::Int(2), Scalar::Float(3.0), Scalar::Int(-1)] {
        let array = case.values(dtype, &[7], &VALUES);
        let out = case.output(&mut Draw::new(&[]), dtype, &[7], Kind::Plain);
        case.step(Binary::Add, [array.into(), scalar.into()], [out]);
        let out = case.output(&mut Draw::new(&[]), dtype, &[7], Kind::Plain);
        case.step(Operator::Copy, [scalar.into()], [out]);
    }
    case
}

fn scalars_in_each_place() -> Case {
    let mut case = Case::default();
    for (low, high) in [(-1, 1), (-2, 1), (-1, 3), (0, 2)] {
        let array = case.values(DType::F32, &[7], &VALUES);
        let out = case.output(&mut Draw::new(&[]), DType::F32, &[7], Kind::Plain);
        let inputs: [Operand; 3] = [array.into(), Scalar::Int(low).into(), Scalar::Int(high).into()];
        case.step(Operator::Clamp, inputs, [out]);
        let array = case.values(DType::F32, &[7], &VALUES);
        let out = case.output(&mut Draw::new(&[]), DType::F32, &[7], Kind::Plain);
        case.step(Binary::Sub, [Scalar::Int(low).into(), array.into()], [out]);
        let array = case.values(DType::F32, &[7], &VALUES);
        let out = case.output(&mut Draw::new(&[]), DType::F32, &[7], Kind::Plain);
        case.step(Binary::Sub, [array.into(), Scalar::Int(low).into()], [out]);
    }
    case
}

fn dtypes(operator: Operator) -> Case {
    let mut case = Case::default();
    for dtype in super::NUMBERS {
        add(&mut case, operator, &[(dtype, &[7]), (dtype, &[7])], (dtype, &[7]));
    }
    case
}

fn conversions() -> Case {
    let mut case = Case::default();
    for from in DType::ALL {
        for to in DType::ALL {
            add(&mut case, Operator::Copy, &[(from, &[7])], (to, &[7]));
        }
    }
    case
}

fn operators() -> Case {
    let mut case = Case::default();
    for binary in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min, Binary::Pow]
    {
        add(&mut case, binary.into(), &[(DType::F32, &[7]), (DType::F32, &[7])], (DType::F32, &[7]));
    }
    for unary in [Unary::Neg, Unary::Abs, Unary::Exp, Unary::Floor, Unary::Relu, Unary::Tanh] {
        add(&mut case, unary.into(), &[(DType::F32, &[7])], (DType::F32, &[7]));
    }
    for &reduction in &[Reduction::Sum, Reduction::Prod, Reduction::Mean, Reduction::Max, Reduction::Min] {
        let operator = Operator::Reduce { reduction, dims: Dims::from([0]) };
        add(&mut case, operator, &[(DType::F32, &[7])], (DType::F32, &[1]));
    }
    case
}

fn reductions() -> Case {
    let mut case = Case::default();
    for dims in [Dims::from([0]), Dims::from([1]), Dims::from([2]), Dims::from([0, 1]), Dims::all(3)] {
        let operator = Operator::Reduce { reduction: Reduction::Sum, dims };
        add(&mut case, operator, &[(DType::F32, &[3, 3, 3])], (DType::F32, &reduced(&[3, 3, 3], dims)));
    }
    case
}

fn softmaxes() -> Case {
    let mut case = Case::default();
    for dim in 0..3 {
        add(&mut case, Operator::Softmax { dim }, &[(DType::F32, &[3, 3, 3])], (DType::F32, &[3, 3, 3]));
        add(&mut case, Operator::LogSoftmax { dim }, &[(DType::F32, &[3, 3, 3])], (DType::F32, &[3, 3, 3]));
    }
    case
}

fn sorts() -> Case {
    let mut case = Case::default();
    for dim in 0..3 {
        for descending in [false, true] {
            for (sorted, out) in [(Sorted::Values, DType::F32), (Sorted::Indices, DType::I32)] {
                let operator = Operator::Sort { dim, descending, sorted };
                add(&mut case, operator, &[(DType::F32, &[3, 3, 3])], (out, &[3, 3, 3]));
            }
        }
    }
    case
}

fn indices(case: &mut Case, shape: &[usize]) -> Operand {
    case.values(DType::I32, shape, &[2.0, 0.0, 1.0, 1.0]).into()
}

fn gathers() -> Case {
    let mut case = Case::default();
    for dim in 0..3 {
        let array = case.values(DType::F32, &[3, 3, 3], &VALUES);
        let index = indices(&mut case, &[3, 3, 3]);
        let out = case.output(&mut Draw::new(&[]), DType::F32, &[3, 3, 3], Kind::Plain);
        case.step(Operator::Gather { dim }, [array.clone().into(), index], [out]);
        let index = indices(&mut case, &[3]);
        let out = case.output(&mut Draw::new(&[]), DType::F32, &[3, 3, 3], Kind::Plain);
        case.step(Operator::IndexSelect { dim }, [array.into(), index], [out]);
    }
    case
}

fn updates() -> Case {
    let mut case = Case::default();
    for &update in Update::ALL {
        let out = case.values(DType::F32, &[5], &VALUES);
        let values = case.values(DType::F32, &[3], &VALUES);
        let index = case.values(DType::I32, &[3], &[2.0, 0.0, 4.0]);
        case.step(Operator::Scatter { dim: 0, update }, [index.into(), values.into()], [out]);
    }
    case
}

fn convolutions() -> Case {
    let mut case = Case::default();
    let plain = Conv2d::default();
    for conv in [
        plain,
        Conv2d { stride: [2, 1], ..plain },
        Conv2d { stride: [1, 2], ..plain },
        Conv2d { padding: [1, 0], ..plain },
        Conv2d { padding: [0, 1], ..plain },
        Conv2d { dilation: [2, 1], ..plain },
        Conv2d { dilation: [1, 2], ..plain },
    ] {
        let size =
            |axis: usize| (5 + 2 * conv.padding[axis] - (conv.dilation[axis] + 1)) / conv.stride[axis] + 1;
        let out = [1, 2, size(0), size(1)];
        add(
            &mut case,
            Operator::Conv2d(conv),
            &[(DType::F32, &[1, 2, 5, 5]), (DType::F32, &[2, 2, 2, 2])],
            (DType::F32, &out),
        );
    }
    case
}

fn pools() -> Case {
    let mut case = Case::default();
    let padded = Pool2d { kernel: [2, 2], stride: [1, 1], padding: [1, 1], dilation: [1, 1] };
    for count_padding in [false, true] {
        let operator = Operator::AvgPool2d { pool: padded, count_padding };
        add(&mut case, operator, &[(DType::F32, &[1, 1, 4, 4])], (DType::F32, &[1, 1, 5, 5]));
    }
    for pool in [Pool2d::new([2, 2]), Pool2d { stride: [2, 2], ..Pool2d::new([1, 1]) }] {
        add(
            &mut case,
            Operator::MaxPool2d(pool),
            &[(DType::F32, &[1, 1, 4, 4])],
            (DType::F32, &[1, 1, 2, 2]),
        );
    }
    case
}

fn randoms() -> Case {
    let mut case = Case::default();
    for (seed, offset) in [(1, 0), (2, 0), (1, 5), (1 << 32, 0)] {
        for distribution in
            [Distribution::Uniform { low: 0.0, high: 1.0 }, Distribution::Uniform { low: -1.0, high: 3.0 }]
        {
            let operator = Operator::Random { distribution, seed, offset };
            add(&mut case, operator, &[], (DType::F32, &[9]));
        }
    }
    case
}
