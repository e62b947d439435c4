//! The group `matmul`.

use device_kernels::{DType, Operator};

use super::{NUMBERS, drawn, for_each};
use crate::case::{Case, Kind, Operand, View};
use crate::check::{Check, Drawn};
use crate::draw::Draw;
use crate::values::Domain;

pub(super) fn checks() -> Vec<Check> {
    let random = |name: &str, proves: &str, kind: Kind, bias: bool, batch: bool, domain: Domain| {
        let kinds = for_each(&NUMBERS, move |dtype, case, draw| {
            let shape = Shape::draw(draw, batch);
            matmul(case, draw, dtype, &shape, kind, bias, domain);
        });
        Check::random(format!("matmul::{name}"), proves, kinds)
    };
    vec![
        random("plain", "matrices are multiplied", Kind::Plain, false, false, Domain::Integers),
        random(
            "rounding",
            "the error of a product is that of sums in the type, or in f32",
            Kind::Plain,
            false,
            false,
            Domain::Small,
        ),
        random(
            "any_layout",
            "matrices of any layout are multiplied",
            Kind::Any,
            false,
            true,
            Domain::Integers,
        ),
        random(
            "transposed",
            "a transposed matrix is one with other strides",
            Kind::Transposed,
            false,
            false,
            Domain::Integers,
        ),
        random(
            "batch",
            "batches are multiplied one by one, and broadcast",
            Kind::Plain,
            false,
            true,
            Domain::Integers,
        ),
        random("bias", "a bias is broadcast and added", Kind::Any, true, true, Domain::Integers),
        Check::fixed("matmul::tails", "all sizes next to those of tiles are complete", tails),
        Check::fixed(
            "matmul::large",
            "products of more elements than a group of threads has are complete",
            large,
        ),
        Check::fixed("matmul::f16_sums_are_f32", "sums of f16 and bf16 are f32 until the end", narrow_sums),
        Check::fixed(
            "matmul::nan_times_zero",
            "a product of NaN or infinity and zero is NaN",
            nan_times_zero,
        ),
        Check::fixed("matmul::of_nothing", "a product over no elements is 0, or the bias", of_nothing),
    ]
}

/// The shapes of a product.
struct Shape {
    batch: Vec<usize>,
    m: usize,
    k: usize,
    n: usize,
}

impl Shape {
    fn draw(draw: &mut Draw<'_>, batch: bool) -> Self {
        let sizes = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33];
        let batch = if batch { (0..draw.below(3)).map(|_| draw.within(1, 3)).collect() } else { Vec::new() };
        let few = if batch.is_empty() { sizes.len() } else { 8 };
        let mut size = || draw.one_of(&sizes[..few]);
        let m = size();
        let k = size();
        let n = size();
        Self { batch, m, k, n }
    }

    fn of(&self, rows: usize, columns: usize) -> Vec<usize> {
        [&self.batch[..], &[rows, columns]].concat()
    }
}

/// A matrix whose batch dimensions may be broadcast.
fn matrix(
    case: &mut Case,
    draw: &mut Draw<'_>,
    dtype: DType,
    shape: &[usize],
    kind: Kind,
    domain: Domain,
) -> View {
    let batch = shape.len() - 2;
    let mut own = shape.to_vec();
    own[..batch].iter_mut().for_each(|size| *size = if draw.one_in(3) { 1 } else { *size });
    let missing = own[..batch].iter().take_while(|size| **size == 1).count();
    let from = draw.below(missing + 1);
    case.array(draw, dtype, &own[from..], kind, domain)
}

fn matmul(
    case: &mut Case,
    draw: &mut Draw<'_>,
    dtype: DType,
    shape: &Shape,
    kind: Kind,
    bias: bool,
    domain: Domain,
) {
    let out_shape = shape.of(shape.m, shape.n);
    let a = matrix(case, draw, dtype, &shape.of(shape.m, shape.k), kind, domain);
    let b = matrix(case, draw, dtype, &shape.of(shape.k, shape.n), kind, domain);
    let mut inputs: Vec<Operand> = vec![a.into(), b.into()];
    if bias {
        let shape = draw.one_of(&[vec![shape.n], vec![1, shape.n], vec![shape.m, 1], out_shape.clone()]);
        inputs.push(case.array(draw, dtype, &shape, kind, domain).into());
    }
    let kind = if kind == Kind::Transposed { Kind::Plain } else { kind };
    let out = case.output(draw, dtype, &out_shape, kind);
    case.step(Operator::MatMul, inputs, [out]);
}

/// A product of given values.
fn product(dtype: DType, [m, k, n]: [usize; 3], a: &[f64], b: &[f64], bias: Option<&[f64]>) -> Case {
    let mut case = Case::default();
    let mut inputs: Vec<Operand> =
        vec![case.values(dtype, &[m, k], a).into(), case.values(dtype, &[k, n], b).into()];
    inputs.extend(bias.map(|bias| Operand::from(case.values(dtype, &[n], bias))));
    let out = case.output(&mut Draw::new(&[]), dtype, &[m, n], Kind::Plain);
    case.step(Operator::MatMul, inputs, [out]);
    case
}

const A: [f64; 5] = [1.0, 2.0, -3.0, 4.0, 0.0];
const B: [f64; 7] = [2.0, -1.0, 1.0, 3.0, 0.0, -2.0, 1.0];

fn tails() -> Vec<Case> {
    let mut cases = Vec::new();
    for size in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129] {
        for sizes in [[size, 3, 2], [3, size, 2], [2, 3, size], [size, 2, size]] {
            cases.push(product(DType::F32, sizes, &A, &B, None));
        }
    }
    cases
}

fn large() -> Vec<Case> {
    vec![
        product(DType::F32, [67, 131, 65], &A, &B, None),
        product(DType::F16, [33, 65, 34], &A, &B, Some(&A)),
        product(DType::F32, [2, 4099, 3], &A, &B, None),
        product(DType::I32, [65, 33, 67], &A, &B, None),
    ]
}

fn narrow_sums() -> Vec<Case> {
    [DType::F16, DType::BF16].map(|dtype| product(dtype, [2, 4096, 3], &[1.0], &[1.0], None)).into()
}

fn nan_times_zero() -> Vec<Case> {
    let mut cases = Vec::new();
    for special in [f64::NAN, f64::INFINITY] {
        for k in [1, 5, 16, 17] {
            let mut b = vec![1.0; k];
            b[k - 1] = special;
            cases.push(product(DType::F32, [1, k, 1], &[0.0], &b, None));
            cases.push(product(DType::F32, [1, k, 1], &b, &[0.0], None));
        }
    }
    cases
}

fn of_nothing() -> Vec<Case> {
    [None, Some(&A[..])].map(|bias| product(DType::F32, [3, 0, 5], &A, &B, bias)).into()
}

/// A product, for the checks of other groups.
pub(super) fn probe() -> Drawn {
    drawn(|case, draw| {
        let shape = Shape::draw(draw, true);
        let bias = draw.one_in(2);
        matmul(case, draw, DType::F32, &shape, Kind::Any, bias, Domain::Integers);
    })
}
