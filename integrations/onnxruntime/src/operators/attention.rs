//! Attention, and the rotations that tell it of places.

use device_kernels::{Binary, Compare, DType, Dims, Operator, Reduction, Scalar, Unary};

use super::{Plan, Row, declined};
use crate::context::{Array, Context, Input, Shape};
use crate::failure::Failure;
use crate::node::Kind::{Float, Int};
use crate::node::Node;

pub(super) const ROWS: &[Row] = &[
    Row::new("Attention", attention).since(23).attributes(&[
        ("is_causal", Int),
        ("kv_num_heads", Int),
        ("q_num_heads", Int),
        ("scale", Float),
        ("softcap", Float),
    ]),
    Row::new("RotaryEmbedding", rotary_embedding).since(23).attributes(&[
        ("interleaved", Int),
        ("num_heads", Int),
        ("rotary_embedding_dim", Int),
    ]),
];

/// What a node asks for.
struct Attention {
    dtype: DType,
    /// The type that scores are computed in.
    wide: DType,
    is_causal: bool,
    heads: Option<usize>,
    key_heads: Option<usize>,
    scale: Option<f32>,
    softcap: f64,
    /// A mask of one key is for all of them, and not for the first.
    repeats_masks: bool,
    has_past: bool,
    has_present: bool,
}

fn heads(node: &Node, name: &str) -> Option<usize> {
    node.int(name).and_then(|heads| usize::try_from(heads).ok()).filter(|&heads| heads > 0)
}

fn attention(node: &Node) -> Result<Plan, Failure> {
    if node.has_input(6) {
        return declined("sequences that are padded");
    }
    if node.has_output(3) {
        return declined("its products are an output");
    }
    for window in ["left_window_size", "right_window_size"] {
        super::expect_int(node, window, -1)?;
    }
    let dtype = node.input(0)?;
    if node.has_input(3) && node.input(3)? != DType::Bool && node.input(3)? != dtype {
        return declined("a mask of another type");
    }
    if node.has_input(4) != node.has_input(5) || node.has_output(1) != node.has_output(2) {
        return declined("one half of a cache");
    }
    let wide = if dtype.size() == 2 { DType::F32 } else { dtype };
    let attention = Attention {
        dtype,
        wide,
        is_causal: node.int_or("is_causal", 0) != 0,
        heads: heads(node, "q_num_heads"),
        key_heads: heads(node, "kv_num_heads"),
        scale: node.float("scale"),
        softcap: node.float_or("softcap", 0.0).into(),
        repeats_masks: node.since < 24,
        has_past: node.has_input(4),
        has_present: node.has_output(1),
    };
    let names = ["add", "copy", "div", "eq", "matmul", "mul", "reduce_max", "softmax", "tanh", "where"];
    let needs = names.map(|name| (name, wide)).into_iter().chain([("copy", dtype), ("le", DType::I64)]);
    Plan::new(needs, move |context| attention.run(context))
}

impl Attention {
    fn run(&self, context: &Context) -> Result<(), Failure> {
        let given = context.array(0)?;
        let has_heads = given.rank() == 4;
        let queries = by_heads(&given, self.heads)?;
        let mut keys = by_heads(&context.array(1)?, self.key_heads)?;
        let mut values = by_heads(&context.array(2)?, self.key_heads)?;
        let mut past = 0;
        if self.has_past || self.has_present {
            let before = |at| if self.has_past { context.optional(at) } else { Ok(None) };
            let [past_keys, past_values] = [before(4)?, before(5)?];
            past = past_keys.as_ref().map_or(0, |keys| keys.shape()[2]);
            keys = self.joined(context, past_keys, keys, 1)?;
            values = self.joined(context, past_values, values, 2)?;
        }
        let &[batch, heads, steps, size] = queries.shape() else { return declined("no heads") };
        let &[_, key_heads, all, _] = keys.shape() else { return declined("no heads") };
        let width = values.shape()[3];
        if key_heads == 0 || !heads.is_multiple_of(key_heads) {
            return declined(format_args!("{heads} heads of queries for {key_heads} of keys"));
        }
        let out = if has_heads {
            context.output(0, &[batch, heads, steps, width])?
        } else {
            let out = context.output(0, &[batch, steps, heads * width])?;
            let apart = out.reshaped([batch, steps, heads, width])?;
            apart.with_layout(apart.layout.transpose(1, 2)?)
        };

        // The queries of the heads that share keys are one matrix.
        let group = heads / key_heads * steps;
        let scale = self.scale.map_or_else(|| 1.0 / (size as f64).sqrt(), f64::from);
        let scaled = context.scratch(self.wide, queries.shape())?;
        context.copy(&queries, &scaled)?;
        context.run(Binary::Mul, &[(&scaled).into(), scale.into()], &[&scaled])?;
        let scaled = scaled.reshaped([batch, key_heads, group, size])?;
        let keys = context.converted(keys, self.wide)?;
        let turned = keys.with_layout(keys.layout.transpose(2, 3)?);
        let scores = context.scratch(self.wide, &[batch, key_heads, group, all])?;
        context.run(Operator::MatMul, &[scaled.into(), turned.into()], &[&scores])?;
        let scores = scores.reshaped([batch, heads, steps, all])?;
        if self.softcap > 0.0 {
            context.run(Binary::Div, &[(&scores).into(), self.softcap.into()], &[&scores])?;
            context.run(Unary::Tanh, &[(&scores).into()], &[&scores])?;
            context.run(Binary::Mul, &[(&scores).into(), self.softcap.into()], &[&scores])?;
        }
        let parts = self.weights(context, &scores, past)?;
        let parts = parts.reshaped([batch, key_heads, group, all])?;
        let values = context.converted(values, self.wide)?;
        let found = context.scratch(self.wide, &[batch, key_heads, group, width])?;
        context.run(Operator::MatMul, &[parts.into(), values.into()], &[&found])?;
        context.copy(&found.reshaped([batch, heads, steps, width])?, &out)
    }

    /// The keys or values before, and the new ones. They are an output, if that is asked for.
    fn joined(
        &self,
        context: &Context,
        before: Option<Array>,
        new: Array,
        output: usize,
    ) -> Result<Array, Failure> {
        let past = before.as_ref().map_or(0, |before| before.shape()[2]);
        let mut shape = Shape::from_slice(new.shape());
        shape[2] += past;
        let all = if self.has_present {
            context.output(output, &shape)?
        } else {
            context.scratch(self.dtype, &shape)?
        };
        let part = |start, len| Ok::<_, Failure>(all.with_layout(all.layout.slice(2, start, len, 1)?));
        if let Some(before) = before {
            context.copy(&before, &part(0, past)?)?;
        }
        context.copy(&new, &part(past, new.shape()[2])?)?;
        Ok(all)
    }

    /// The softmax of scores behind masks. A query that may see no key has zeros.
    fn weights(&self, context: &Context, scores: &Array, past: usize) -> Result<Array, Failure> {
        let never = || Input::Scalar(Scalar::Float(f64::NEG_INFINITY));
        let &[.., steps, all] = scores.shape() else { return declined("no scores") };
        let mask = context.optional(3)?;
        let is_masked = mask.is_some() || self.is_causal;
        if let Some(mask) = mask {
            // What a mask has not is masked, and what it has beyond the keys is not looked at.
            let len = mask.shape().last().copied().unwrap_or(1);
            let is_repeated = len == 1 && (self.repeats_masks || mask.rank() == 0);
            let seen = if is_repeated { all } else { len.min(all) };
            let mask = match mask.rank() {
                0 => mask,
                rank if len > all => mask.with_layout(mask.layout.slice(rank - 1, 0, all, 1)?),
                _ => mask,
            };
            let part = scores.with_layout(scores.layout.slice(3, 0, seen, 1)?);
            if mask.dtype == DType::Bool {
                let mask = mask.broadcast_to(part.shape())?;
                context.run(Operator::Where, &[mask.into(), (&part).into(), never()], &[&part])?;
            } else {
                let mask = context.converted(mask, self.wide)?.broadcast_to(part.shape())?;
                context.run(Binary::Add, &[(&part).into(), mask.into()], &[&part])?;
            }
            if seen < all {
                let rest = scores.with_layout(scores.layout.slice(3, seen, all - seen, 1)?);
                context.run(Operator::Copy, &[never()], &[&rest])?;
            }
        }
        if self.is_causal {
            let rows: Vec<i64> = (past as i64..(past + steps) as i64).collect();
            let columns: Vec<i64> = (0..all as i64).collect();
            let rows = context.uploaded_integers(&rows)?.reshaped([steps, 1])?.broadcast_to([steps, all])?;
            let columns = context.uploaded_integers(&columns)?.broadcast_to([steps, all])?;
            let seen = context.scratch(DType::Bool, &[steps, all])?;
            context.run(Compare::Le, &[columns.into(), rows.into()], &[&seen])?;
            let seen = seen.broadcast_to(scores.shape())?;
            context.run(Operator::Where, &[seen.into(), scores.into(), never()], &[scores])?;
        }
        let weights = context.scratch(self.wide, scores.shape())?;
        context.run(Operator::Softmax { dim: 3 }, &[scores.into()], &[&weights])?;
        if is_masked && all > 0 {
            let mut rows = Shape::from_slice(scores.shape());
            rows[3] = 1;
            let largest = context.scratch(self.wide, &rows)?;
            let reduce = Operator::Reduce { reduction: Reduction::Max, dims: Dims::from([3]) };
            context.run(reduce, &[scores.into()], &[&largest])?;
            let is_blind = context.scratch(DType::Bool, &rows)?;
            context.run(Compare::Eq, &[largest.into(), never()], &[&is_blind])?;
            let is_blind = is_blind.broadcast_to(scores.shape())?;
            let zero = Input::Scalar(Scalar::Float(0.0));
            context.run(Operator::Where, &[is_blind.into(), zero, (&weights).into()], &[&weights])?;
        }
        Ok(weights)
    }
}

/// An array by batch, head, step and number. Without a dimension for heads, a step has the numbers of all.
fn by_heads(array: &Array, heads: Option<usize>) -> Result<Array, Failure> {
    match (array.shape(), heads) {
        ([_, _, _, _], _) => Ok(array.clone()),
        (&[batch, steps, width], Some(heads)) => {
            let apart = array.reshaped([batch, steps, heads, width / heads])?;
            Ok(apart.with_layout(apart.layout.transpose(1, 2)?))
        }
        (_, None) => declined("the number of its heads is not given"),
        _ => declined(format_args!("{} dimensions", array.rank())),
    }
}

fn rotary_embedding(node: &Node) -> Result<Plan, Failure> {
    let is_interleaved = node.int_or("interleaved", 0) != 0;
    let heads = heads(node, "num_heads");
    let turned = node.int_or("rotary_embedding_dim", 0).max(0) as usize;
    let has_places = node.has_input(3);
    let dtype = node.input(0)?;
    let names = ["add", "copy", "index_select", "mul", "sub"];
    Plan::new(names.map(|name| (name, dtype)), move |context| {
        let given = context.array(0)?;
        let out = context.output(0, given.shape())?;
        let input = by_heads(&given, heads)?;
        let out = by_heads(&out, heads)?;
        let &[batch, heads, steps, size] = input.shape() else { return declined("no heads") };
        let turned = if turned == 0 { size } else { turned };
        let half = turned / 2;
        // By batch, head, step and angle.
        let angles = |at| {
            let cache = context.array(at)?;
            let angles = if has_places {
                let places = context.array(3)?;
                let list = places.reshaped([batch * steps])?;
                let angles = context.scratch(dtype, &[batch * steps, half])?;
                let select = Operator::IndexSelect { dim: 0 };
                context.run(select, &[cache.into(), list.into()], &[&angles])?;
                angles
            } else {
                cache
            };
            let angles = angles.reshaped([batch, 1, steps, half])?;
            angles.broadcast_to([batch, heads, steps, half])
        };
        let [cosine, sine] = [angles(1)?, angles(2)?];
        let pair = |array: &Array| {
            let part = |start, step| array.layout.slice(3, start, half, step).map(|of| array.with_layout(of));
            Ok::<_, Failure>(if is_interleaved {
                [part(0, 2)?, part(1, 2)?]
            } else {
                [part(0, 1)?, part(half, 1)?]
            })
        };
        let [x, y] = pair(&input)?;
        let [out_x, out_y] = pair(&out)?;
        let product = |a: &Array, b: &Array| context.binary(Binary::Mul, a, b);
        let [x_cosine, y_sine] = [product(&x, &cosine)?, product(&y, &sine)?];
        let [x_sine, y_cosine] = [product(&x, &sine)?, product(&y, &cosine)?];
        context.run(Binary::Sub, &[x_cosine.into(), y_sine.into()], &[&out_x])?;
        context.run(Binary::Add, &[x_sine.into(), y_cosine.into()], &[&out_y])?;
        let rest = |array: &Array| {
            array.layout.slice(3, turned, size - turned, 1).map(|layout| array.with_layout(layout))
        };
        context.copy(&rest(&input)?, &rest(&out)?)
    })
}
