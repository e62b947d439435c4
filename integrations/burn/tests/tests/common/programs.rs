//! Random programs of burn's operations, on a registered device and on burn's own CPU engine.
//!
//! A program is a list of steps on a pool of tensors: views, arithmetic, reductions, indexing, casts. Shapes
//! have dimensions of zero and one, so that operands broadcast. A failing program is shrunk to its shortest
//! form.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::ops::PadMode;
use burn::tensor::{
    Bool, Device, ExecutionError, FloatDType, IndexingUpdateOp, Int, IntDType, Tensor, TensorData, activation,
};
use proptest::prelude::*;

/// Tensors of one rank, so that a step can take any of them.
type Floats = Tensor<3>;
type Ints = Tensor<3, Int>;
type Bools = Tensor<3, Bool>;

#[derive(Clone)]
enum Value {
    Float(Floats),
    Int(Ints),
    Bool(Bools),
}

impl Value {
    fn shape(&self) -> [usize; 3] {
        match self {
            Self::Float(tensor) => tensor.dims(),
            Self::Int(tensor) => tensor.dims(),
            Self::Bool(tensor) => tensor.dims(),
        }
    }

    fn read(self) -> Result<TensorData, ExecutionError> {
        match self {
            Self::Float(tensor) => tensor.try_into_data(),
            Self::Int(tensor) => tensor.try_into_data(),
            Self::Bool(tensor) => tensor.try_into_data(),
        }
    }
}

/// A step: which operation, on which tensors, with which numbers.
#[derive(Clone, Debug)]
struct Step {
    operation: usize,
    a: usize,
    b: usize,
    n: usize,
    m: usize,
    x: i8,
}

struct Pool {
    values: Vec<Value>,
}

impl Pool {
    fn pick<T>(&self, start: usize, kind: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let len = self.values.len();
        (0..len).find_map(|offset| kind(&self.values[(start + offset) % len]))
    }

    fn float(&self, start: usize) -> Option<Floats> {
        self.pick(start, |value| if let Value::Float(tensor) = value { Some(tensor.clone()) } else { None })
    }

    fn int(&self, start: usize) -> Option<Ints> {
        self.pick(start, |value| if let Value::Int(tensor) = value { Some(tensor.clone()) } else { None })
    }

    fn bool(&self, start: usize) -> Option<Bools> {
        self.pick(start, |value| if let Value::Bool(tensor) = value { Some(tensor.clone()) } else { None })
    }

    /// Two floats that can be broadcast to one shape, of one type.
    fn floats(&self, step: &Step) -> Option<(Floats, Floats)> {
        let a = self.float(step.a)?;
        let fits = |value: &Value| match value {
            Value::Float(b) if broadcast(a.dims(), b.dims()) && a.dtype() == b.dtype() => Some(b.clone()),
            _ => None,
        };
        let b = self.pick(step.b, fits)?;
        Some((a, b))
    }

    fn ints(&self, step: &Step) -> Option<(Ints, Ints)> {
        let a = self.int(step.a)?;
        let fits = |value: &Value| match value {
            Value::Int(b) if broadcast(a.dims(), b.dims()) && a.dtype() == b.dtype() => Some(b.clone()),
            _ => None,
        };
        let b = self.pick(step.b, fits)?;
        Some((a, b))
    }

    fn bools(&self, step: &Step) -> Option<(Bools, Bools)> {
        let a = self.bool(step.a)?;
        let fits = |value: &Value| match value {
            Value::Bool(b) if b.dims() == a.dims() => Some(b.clone()),
            _ => None,
        };
        let b = self.pick(step.b, fits)?;
        Some((a, b))
    }
}

fn broadcast(a: [usize; 3], b: [usize; 3]) -> bool {
    a.iter().zip(b).all(|(&a, b)| a == b || a == 1 || b == 1)
}

type Apply = fn(&Pool, &Step) -> Option<Value>;

macro_rules! operations {
    ($($name:literal => |$pool:ident, $step:ident| $result:expr,)*) => {
        &[$(($name, |$pool: &Pool, $step: &Step| Some($result))),*]
    };
}

/// Every operation that a step can be. `None` if the pool has no operands for it.
const OPERATIONS: &[(&str, Apply)] = operations! {
    "add" => |p, s| { let (a, b) = p.floats(s)?; Value::Float(a + b) },
    "add in place" => |p, s| { let a = p.float(s.a)?; Value::Float(a.clone() + a) },
    "sub" => |p, s| { let (a, b) = p.floats(s)?; Value::Float(a - b) },
    "mul" => |p, s| { let (a, b) = p.floats(s)?; Value::Float(a * b) },
    "div" => |p, s| { let (a, b) = p.floats(s)?; Value::Float(a / b) },
    // Whether a rest of zero is negative is the engine's, and would decide the sign of an angle: adding zero
    // makes it positive.
    "remainder" => |p, s| { let (a, b) = p.floats(s)?; Value::Float(a.remainder(b) + 0.0) },
    "powf" => |p, s| { let (a, b) = p.floats(s)?; Value::Float(a.powf(b)) },
    "hypot" => |p, s| { let (a, b) = p.floats(s)?; Value::Float(a.hypot(b)) },
    "atan2" => |p, s| { let (a, b) = p.floats(s)?; Value::Float(a.atan2(b)) },
    "add scalar" => |p, s| Value::Float(p.float(s.a)? + f64::from(s.x)),
    "sub scalar" => |p, s| Value::Float(p.float(s.a)? - f64::from(s.x)),
    "mul scalar" => |p, s| Value::Float(p.float(s.a)? * f64::from(s.x)),
    "div scalar" => |p, s| Value::Float(p.float(s.a)? / f64::from(s.x)),
    "remainder scalar" => |p, s| Value::Float(p.float(s.a)?.remainder_scalar(f64::from(s.x) + 0.5) + 0.0),
    "powi scalar" => |p, s| Value::Float(p.float(s.a)?.powi_scalar(i32::from(s.x % 4))),
    "powf scalar" => |p, s| Value::Float(p.float(s.a)?.powf_scalar(f64::from(s.x % 4))),
    "neg" => |p, s| Value::Float(-p.float(s.a)?),
    "abs" => |p, s| Value::Float(p.float(s.a)?.abs()),
    "sign" => |p, s| Value::Float(p.float(s.a)?.sign()),
    "exp" => |p, s| Value::Float(p.float(s.a)?.exp()),
    "log" => |p, s| Value::Float(p.float(s.a)?.log()),
    "log1p" => |p, s| Value::Float(p.float(s.a)?.log1p()),
    "sqrt" => |p, s| Value::Float(p.float(s.a)?.sqrt()),
    "recip" => |p, s| Value::Float(p.float(s.a)?.recip()),
    "square" => |p, s| Value::Float(p.float(s.a)?.square()),
    "erf" => |p, s| Value::Float(p.float(s.a)?.erf()),
    "sin" => |p, s| Value::Float(p.float(s.a)?.sin()),
    "cos" => |p, s| Value::Float(p.float(s.a)?.cos()),
    "tan" => |p, s| Value::Float(p.float(s.a)?.tan()),
    "sinh" => |p, s| Value::Float(p.float(s.a)?.sinh()),
    "cosh" => |p, s| Value::Float(p.float(s.a)?.cosh()),
    "tanh" => |p, s| Value::Float(p.float(s.a)?.tanh()),
    "asin" => |p, s| Value::Float(p.float(s.a)?.asin()),
    "acos" => |p, s| Value::Float(p.float(s.a)?.acos()),
    "atan" => |p, s| Value::Float(p.float(s.a)?.atan()),
    "asinh" => |p, s| Value::Float(p.float(s.a)?.asinh()),
    "acosh" => |p, s| Value::Float(p.float(s.a)?.acosh()),
    "atanh" => |p, s| Value::Float(p.float(s.a)?.atanh()),
    "round" => |p, s| Value::Float(p.float(s.a)?.round()),
    "floor" => |p, s| Value::Float(p.float(s.a)?.floor()),
    "ceil" => |p, s| Value::Float(p.float(s.a)?.ceil()),
    "clamp" => |p, s| Value::Float(p.float(s.a)?.clamp(-1.0, f64::from(s.x).abs())),
    "clamp min" => |p, s| Value::Float(p.float(s.a)?.clamp_min(f64::from(s.x))),
    "clamp max" => |p, s| Value::Float(p.float(s.a)?.clamp_max(f64::from(s.x))),
    "relu" => |p, s| Value::Float(activation::relu(p.float(s.a)?)),
    "leaky relu" => |p, s| Value::Float(activation::leaky_relu(p.float(s.a)?, 0.1)),
    "gelu" => |p, s| Value::Float(activation::gelu(p.float(s.a)?)),
    "sigmoid" => |p, s| Value::Float(activation::sigmoid(p.float(s.a)?)),
    "log sigmoid" => |p, s| Value::Float(activation::log_sigmoid(p.float(s.a)?)),
    "softmax" => |p, s| Value::Float(activation::softmax(p.float(s.a)?, s.n % 3)),
    "log softmax" => |p, s| Value::Float(activation::log_softmax(p.float(s.a)?, s.n % 3)),
    "sum" => |p, s| Value::Float(p.float(s.a)?.sum().reshape([1, 1, 1])),
    "mean" => |p, s| Value::Float(p.float(s.a)?.mean().reshape([1, 1, 1])),
    "prod" => |p, s| Value::Float(p.float(s.a)?.prod().reshape([1, 1, 1])),
    "max" => |p, s| Value::Float(p.float(s.a)?.max().reshape([1, 1, 1])),
    "min" => |p, s| Value::Float(p.float(s.a)?.min().reshape([1, 1, 1])),
    "max abs" => |p, s| Value::Float(p.float(s.a)?.max_abs().reshape([1, 1, 1])),
    "sum dim" => |p, s| Value::Float(p.float(s.a)?.sum_dim(s.n % 3)),
    "mean dim" => |p, s| Value::Float(p.float(s.a)?.mean_dim(s.n % 3)),
    "prod dim" => |p, s| Value::Float(p.float(s.a)?.prod_dim(s.n % 3)),
    "max dim" => |p, s| Value::Float(p.float(s.a)?.max_dim(s.n % 3)),
    "min dim" => |p, s| Value::Float(p.float(s.a)?.min_dim(s.n % 3)),
    "max dim with indices" => |p, s| Value::Int(p.float(s.a)?.max_dim_with_indices(s.n % 3).1),
    "arg max" => |p, s| Value::Int(p.float(s.a)?.argmax(s.n % 3)),
    "arg min" => |p, s| Value::Int(p.float(s.a)?.argmin(s.n % 3)),
    "cumsum" => |p, s| Value::Float(p.float(s.a)?.cumsum(s.n % 3)),
    "cumprod" => |p, s| Value::Float(p.float(s.a)?.cumprod(s.n % 3)),
    "sort" => |p, s| Value::Float(p.float(s.a)?.sort(s.n % 3)),
    "arg sort" => |p, s| Value::Int(p.float(s.a)?.argsort(s.n % 3)),
    "matmul" => |p, s| {
        let a = p.float(s.a)?;
        Value::Float(a.clone().matmul(a.swap_dims(1, 2)))
    },
    "matmul of a view" => |p, s| {
        let a = p.float(s.a)?;
        Value::Float(a.clone().swap_dims(1, 2).matmul(a))
    },
    "swap dims" => |p, s| Value::Float(p.float(s.a)?.swap_dims(s.n % 3, s.m % 3)),
    "permute" => |p, s| Value::Float(p.float(s.a)?.permute([[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]][s.n % 4])),
    "flip" => |p, s| Value::Float(p.float(s.a)?.flip([s.n % 3])),
    "reshape" => |p, s| {
        let a = p.float(s.a)?;
        let [x, y, z] = a.dims();
        Value::Float(a.reshape([z, x, y]))
    },
    "narrow" => |p, s| {
        let a = p.float(s.a)?;
        let len = a.dims()[s.n % 3];
        if len == 0 { return None; }
        let start = s.m % len;
        Value::Float(a.narrow(s.n % 3, start, len - start))
    },
    "slice with a step" => |p, s| Value::Float(p.float(s.a)?.slice_dim(s.n % 3, burn::tensor::s![..;2])),
    "slice backwards" => |p, s| Value::Float(p.float(s.a)?.slice_dim(s.n % 3, burn::tensor::s![..;-1])),
    "expand" => |p, s| {
        let a = p.float(s.a)?;
        let mut shape = a.dims();
        if shape[s.n % 3] != 1 { return None; }
        shape[s.n % 3] = s.m % 4;
        Value::Float(a.expand(shape))
    },
    "cat" => |p, s| { let a = p.float(s.a)?; Value::Float(Tensor::cat(vec![a.clone(), a], s.n % 3)) },
    "pad" => |p, s| {
        let (before, after) = (s.n % 3, s.m % 2);
        Value::Float(p.float(s.a)?.pad((before, after, after, before), PadMode::Constant(0.5)))
    },
    "repeat dim" => |p, s| Value::Float(p.float(s.a)?.repeat_dim(s.n % 3, 2)),
    "unfold" => |p, s| {
        let a = p.float(s.a)?;
        if a.dims()[s.n % 3] == 0 { return None; }
        Value::Float(a.unfold::<4, _>(s.n % 3, 1, 1).squeeze_dim::<3>(3))
    },
    "slice assign" => |p, s| {
        let a = p.float(s.a)?;
        let shape = a.dims();
        if shape.contains(&0) { return None; }
        let value = a.clone().narrow(0, 0, 1) * 2.0;
        Value::Float(a.slice_assign([0..1, 0..shape[1], 0..shape[2]], value))
    },
    "select" => |p, s| {
        let a = p.float(s.a)?;
        if a.dims()[s.n % 3] == 0 { return None; }
        let indices = Tensor::<1, Int>::zeros([s.m % 4], &a.device());
        Value::Float(a.select(s.n % 3, indices))
    },
    "select assign" => |p, s| {
        let a = p.float(s.a)?;
        if a.dims()[s.n % 3] == 0 { return None; }
        let indices = Tensor::<1, Int>::zeros([1], &a.device());
        let values = a.clone().narrow(s.n % 3, 0, 1);
        Value::Float(a.select_assign(s.n % 3, indices, values, IndexingUpdateOp::Add))
    },
    "gather" => |p, s| {
        let a = p.float(s.a)?;
        let indices = a.clone().argmax(s.n % 3);
        Value::Float(a.gather(s.n % 3, indices))
    },
    "scatter" => |p, s| {
        let a = p.float(s.a)?;
        let indices = a.clone().argmax(s.n % 3);
        let values = a.clone().max_dim(s.n % 3);
        Value::Float(a.scatter(s.n % 3, indices, values, IndexingUpdateOp::Add))
    },
    "mask fill" => |p, s| {
        let a = p.float(s.a)?;
        Value::Float(a.clone().mask_fill(a.greater_elem(0.0), f64::from(s.x)))
    },
    "mask where" => |p, s| {
        let a = p.float(s.a)?;
        Value::Float(a.clone().mask_where(a.clone().lower_elem(f64::from(s.x)), -a))
    },
    "equal" => |p, s| { let (a, b) = p.floats(s)?; Value::Bool(a.equal(b)) },
    "greater" => |p, s| { let (a, b) = p.floats(s)?; Value::Bool(a.greater(b)) },
    "lower equal" => |p, s| { let (a, b) = p.floats(s)?; Value::Bool(a.lower_equal(b)) },
    "equal scalar" => |p, s| Value::Bool(p.float(s.a)?.equal_scalar(f32::from(s.x))),
    "greater scalar" => |p, s| Value::Bool(p.float(s.a)?.greater_elem(f64::from(s.x))),
    "is nan" => |p, s| Value::Bool(p.float(s.a)?.is_nan()),
    "is inf" => |p, s| Value::Bool(p.float(s.a)?.is_inf()),
    "any dim" => |p, s| Value::Bool(p.bool(s.a)?.any_dim(s.n % 3)),
    "all dim" => |p, s| Value::Bool(p.bool(s.a)?.all_dim(s.n % 3)),
    "any" => |p, s| Value::Bool(p.bool(s.a)?.any().reshape([1, 1, 1])),
    "all" => |p, s| Value::Bool(p.bool(s.a)?.all().reshape([1, 1, 1])),
    "not" => |p, s| Value::Bool(p.bool(s.a)?.bool_not()),
    "and" => |p, s| { let (a, b) = p.bools(s)?; Value::Bool(a.bool_and(b)) },
    "or" => |p, s| { let (a, b) = p.bools(s)?; Value::Bool(a.bool_or(b)) },
    "xor" => |p, s| { let (a, b) = p.bools(s)?; Value::Bool(a.bool_xor(b)) },
    "bool swap dims" => |p, s| Value::Bool(p.bool(s.a)?.swap_dims(s.n % 3, s.m % 3)),
    "bool to float" => |p, s| Value::Float(p.bool(s.a)?.float()),
    "bool to int" => |p, s| Value::Int(p.bool(s.a)?.int()),
    "float to int" => |p, s| Value::Int(p.float(s.a)?.clamp(-100.0, 100.0).int()),
    "int to float" => |p, s| Value::Float(p.int(s.a)?.float()),
    "cast float" => |p, s| Value::Float(p.float(s.a)?.cast(
        [FloatDType::F64, FloatDType::F32, FloatDType::F16, FloatDType::BF16][s.n % 4])),
    "cast int" => |p, s| Value::Int(p.int(s.a)?.cast(INTEGERS[s.n % INTEGERS.len()])),
    "int add" => |p, s| { let (a, b) = p.ints(s)?; Value::Int(a.clamp(-9, 9) + b.clamp(-9, 9)) },
    "int mul" => |p, s| { let (a, b) = p.ints(s)?; Value::Int(a.clamp(-9, 9) * b.clamp(-9, 9)) },
    "int sum dim" => |p, s| Value::Int(p.int(s.a)?.clamp(0, 9).sum_dim(s.n % 3)),
    "int max dim" => |p, s| Value::Int(p.int(s.a)?.max_dim(s.n % 3)),
    "int and" => |p, s| { let (a, b) = p.ints(s)?; Value::Int(a.bitwise_and(b)) },
    "int xor" => |p, s| { let (a, b) = p.ints(s)?; Value::Int(a.bitwise_xor(b)) },
    "int not" => |p, s| Value::Int(p.int(s.a)?.bitwise_not()),
    "int shift" => |p, s| Value::Int(p.int(s.a)?.clamp(0, 9).bitwise_left_shift_scalar(i32::from(s.x.unsigned_abs() % 3))),
    "int greater" => |p, s| { let (a, b) = p.ints(s)?; Value::Bool(a.greater(b)) },
    "int swap dims" => |p, s| Value::Int(p.int(s.a)?.swap_dims(s.n % 3, s.m % 3)),
    "int expand" => |p, s| Value::Int(p.int(s.a)?.sum_dim(0).expand([2, p.int(s.a)?.dims()[1], p.int(s.a)?.dims()[2]])),
    "zeros like" => |p, s| Value::Float(p.float(s.a)?.zeros_like()),
    "ones like" => |p, s| Value::Float(p.float(s.a)?.ones_like()),
    "full like" => |p, s| Value::Float(p.float(s.a)?.full_like(f64::from(s.x))),
    "triu" => |p, s| Value::Float(p.float(s.a)?.triu(i64::from(s.x % 3))),
    "var" => |p, s| Value::Float(p.float(s.a)?.var(s.n % 3)),
    "top k" => |p, s| {
        let a = p.float(s.a)?;
        if a.dims()[s.n % 3] == 0 { return None; }
        Value::Float(a.topk(1, s.n % 3))
    },
};

/// What integers are cast to. A group of burn 0.23 has its default type only, as burn's interpreter casts
/// none: burn-router, interpreter.rs:593.
const INTEGERS: &[IntDType] = if cfg!(feature = "burn-0-23") {
    &[IntDType::I32]
} else {
    &[IntDType::I64, IntDType::I32, IntDType::I16, IntDType::I8, IntDType::U8, IntDType::U32]
};

/// What a program leaves: the tensors of its pool, or why they have no data, and the step that panicked.
struct Outcome {
    tensors: Vec<Result<TensorData, String>>,
    panicked: Option<usize>,
}

/// Runs a program up to the first step that panics.
fn run(device: &Device, shape: [usize; 3], steps: &[Step]) -> Outcome {
    let len = shape.iter().product::<usize>();
    let floats: Vec<f32> = (0..len).map(|i| ((i * 37 % 23) as f32 - 11.0) / 4.0).collect();
    let ints: Vec<i32> = (0..len).map(|i| (i * 29 % 17) as i32 - 8).collect();
    let bools: Vec<bool> = (0..len).map(|i| i % 3 == 0).collect();
    let first = [1, shape[1], 1];
    let mut pool = Pool {
        values: vec![
            Value::Float(Tensor::from_data(TensorData::new(floats.clone(), shape), device)),
            Value::Float(Tensor::from_data(
                TensorData::new(floats[..shape[1].min(len)].to_vec(), [1, shape[1].min(len), 1]),
                device,
            )),
            Value::Int(Tensor::from_data(TensorData::new(ints, shape), device)),
            Value::Bool(Tensor::from_data(TensorData::new(bools, shape), device)),
            Value::Float(Tensor::ones(first, device)),
        ],
    };
    let mut panicked = None;
    for (place, step) in steps.iter().enumerate() {
        let (_, apply) = OPERATIONS[step.operation % OPERATIONS.len()];
        match catch_unwind(AssertUnwindSafe(|| apply(&pool, step))) {
            Ok(None) => {}
            Ok(Some(value)) if value.shape().iter().product::<usize>() >= 4096 => {}
            // A tensor that is replaced is often at its last use, so that the engine works in place.
            Ok(Some(value)) => match pool.values.get_mut(5 + step.m % 3) {
                Some(place) => *place = value,
                None => pool.values.push(value),
            },
            Err(_) => {
                panicked = Some(place);
                break;
            }
        }
    }
    Outcome { tensors: pool.values.into_iter().map(read).collect(), panicked }
}

fn read(value: Value) -> Result<TensorData, String> {
    catch_unwind(AssertUnwindSafe(|| value.read()))
        .unwrap_or_else(|_| Err(ExecutionError::with_context("a panic")))
        .map_err(|error| error.to_string())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..OPERATIONS.len(), 0..8usize, 0..8usize, 0..12usize, 0..12usize, -5..6i8);
    let step = step.prop_map(|(operation, a, b, n, m, x)| Step { operation, a, b, n, m, x });
    prop::collection::vec(step, 1..12)
}

fn shapes() -> impl Strategy<Value = [usize; 3]> {
    [0..4usize, 0..4, 0..4]
}

/// How far numbers may differ from the results of burn's engine.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tolerance {
    /// Not at all: the engine computes them.
    None,
    /// By this part of the larger one, or this much: a kernel adds up in another order, and has other
    /// functions.
    Of(f64),
}

pub(crate) fn same(
    ours: &[Result<TensorData, String>],
    flex: &[Result<TensorData, String>],
    tolerance: Tolerance,
) -> Result<(), String> {
    if ours.len() != flex.len() {
        return Err(format!("{} tensors instead of {}", ours.len(), flex.len()));
    }
    for (place, (ours, flex)) in ours.iter().zip(flex).enumerate() {
        let same = match (ours, flex) {
            (Ok(a), Ok(b)) => a.dtype() == b.dtype() && a.shape() == b.shape() && equal(a, b, tolerance),
            _ => false,
        };
        if !same {
            return Err(format!("tensor {place}: {ours:?} instead of {flex:?}"));
        }
    }
    Ok(())
}

/// Compares a device with burn's engine. Where a step panics in the engine itself, the same step is an error
/// of its tensor on the device, or burn refuses it on both.
fn compare(device: &str, shape: [usize; 3], steps: &[Step], tolerance: Tolerance) -> Result<(), String> {
    let device = device_burn::device(device).unwrap();
    let flex = run(&Device::flex(), shape, steps);
    let before = flex.panicked.unwrap_or(steps.len());
    let ours = run(&device, shape, &steps[..before]);
    if let Some(place) = ours.panicked {
        return Err(format!("step {place} panicked"));
    }
    same(&ours.tensors, &flex.tensors, tolerance)?;
    let Some(step) = steps.get(before) else { return Ok(()) };
    let ours = run(&device, shape, &steps[..=before]);
    let refused = ours.panicked.is_some() || ours.tensors.iter().any(Result::is_err);
    // A kernel may have a result where the engine panics, as it does for some tensors without elements.
    if refused || matches!(tolerance, Tolerance::Of(_)) {
        Ok(())
    } else {
        Err(format!("burn's engine panics at {step:?}, and the device does not fail"))
    }
}

fn equal(a: &TensorData, b: &TensorData, tolerance: Tolerance) -> bool {
    let Tolerance::Of(tolerance) = tolerance else { return a.as_bytes() == b.as_bytes() };
    if !a.dtype().is_float() {
        return a.as_bytes() == b.as_bytes();
    }
    a.iter::<f64>().zip(b.iter::<f64>()).all(|(a, b)| {
        a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
    })
}

/// Whether a program looks for places among variances: numbers equally far apart have equal variances except
/// for rounding, which then decides the place.
fn has_ties(names: &[&str]) -> bool {
    let mut after = names.iter().skip_while(|name| !name.starts_with("var"));
    after.any(|name| name.starts_with("arg") || name.ends_with("with indices"))
}

/// Compares random programs on a device.
pub(crate) fn random_programs(device: &'static str, tolerance: Tolerance) {
    // Panics of burn's are expected here.
    std::panic::set_hook(Box::new(|_| {}));
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    let result =
        proptest::test_runner::TestRunner::new(config).run(&(shapes(), steps()), |(shape, steps)| {
            let names: Vec<_> = steps.iter().map(|step| OPERATIONS[step.operation].0).collect();
            if matches!(tolerance, Tolerance::Of(_)) && has_ties(&names) {
                return Ok(());
            }
            compare(device, shape, &steps, tolerance)
                .map_err(|difference| TestCaseError::fail(format!("{names:?}: {difference}")))
        });
    let _ = std::panic::take_hook();
    result.unwrap();
}

/// Each operation alone, then again on a view, so that none is left out by chance, and sorted, which shows
/// the signs of NaNs: burn's engine puts negative ones before all numbers, and positive ones behind.
pub(crate) fn each_operation(device: &str, tolerance: Tolerance) {
    std::panic::set_hook(Box::new(|_| {}));
    let mut differences = Vec::new();
    let mut without_result = Vec::new();
    for (operation, (name, _)) in OPERATIONS.iter().enumerate() {
        let step = Step { operation, a: 0, b: 1, n: 1, m: 2, x: 2 };
        let named = |name: &str| OPERATIONS.iter().position(|(other, _)| *other == name).unwrap();
        let view = Step { operation: named("permute"), a: 0, b: 0, n: 1, m: 0, x: 0 };
        let sort = Step { operation: named("sort"), a: 5, b: 0, n: 2, m: 2, x: 0 };
        for steps in [vec![step.clone()], vec![view, Step { a: 5, ..step.clone() }], vec![step.clone(), sort]]
        {
            for shape in [[2, 3, 4], [1, 3, 1], [0, 2, 1]] {
                if let Err(difference) = compare(device, shape, &steps, tolerance) {
                    differences.push(format!("{name} on {shape:?}: {difference}"));
                }
            }
        }
        let ours = run(&device_burn::device(device).unwrap(), [2, 1, 3], &[step]);
        if ours.tensors.len() < 6 && !["narrow"].contains(name) {
            without_result.push(*name);
        }
    }
    let _ = std::panic::take_hook();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(without_result.is_empty(), "these steps do nothing: {without_result:?}");
}
