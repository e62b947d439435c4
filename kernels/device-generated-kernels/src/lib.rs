#![doc = include_str!("../README.md")]

mod convolution;
mod cuda;
mod custom;
mod disk;
mod element;
mod elementwise;
mod expression;
mod form;
mod fused;
mod indexing;
mod made;
mod matmul;
mod opencl_c;
mod place;
mod pooling;
mod quick_hash;
mod random;
mod reduce;
mod rows;
mod sort;
mod space;

use std::fmt;

use device_kernels::{Call, Layout, Operator};
use smallvec::{SmallVec, smallvec};

pub use crate::cuda::{CudaText, GroupAxes};
pub use crate::custom::CustomKernel;
#[doc(hidden)]
pub use crate::disk::replace_program;
pub use crate::disk::{Disk, Key};
pub use crate::element::Value;
pub use crate::made::Kernels;
pub use crate::matmul::Matrices;

/// What a device is like, as far as kernels depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Whether it computes with `f64`.
    pub doubles: bool,
    /// Whether items of a group run side by side, as on a GPU. Otherwise each item is a loop that is
    /// vectorised.
    pub groups: bool,
    /// How many groups run at once.
    pub units: i64,
}

/// What a text is generated from. Equal recipes have one text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Recipe(Kind);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Elementwise(elementwise::Recipe),
    Fused(fused::Recipe),
    Reduce(reduce::Recipe),
    Simple(matmul::Simple),
    Tiled(matmul::Tiled),
    Pack(matmul::Pack),
    Packed(matmul::Packed),
    Rows(rows::Recipe),
    Sort(sort::Recipe),
    Indexing(indexing::Recipe),
    Random(random::Recipe),
    Convolution(convolution::Recipe),
    Windows(convolution::Windows),
    Pooling(pooling::Recipe),
    Custom(custom::Recipe),
}

impl Recipe {
    /// The program in OpenCL C 1.2, whose kernel has the name `run`.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.0 {
            Kind::Elementwise(recipe) => recipe.text(),
            Kind::Fused(recipe) => recipe.text(),
            Kind::Reduce(recipe) => recipe.text(),
            Kind::Simple(recipe) => recipe.text(),
            Kind::Tiled(recipe) => recipe.text(),
            Kind::Pack(recipe) => recipe.text(),
            Kind::Packed(recipe) => recipe.text(),
            Kind::Rows(recipe) => recipe.text(),
            Kind::Sort(recipe) => recipe.text(),
            Kind::Indexing(recipe) => recipe.text(),
            Kind::Random(recipe) => recipe.text(),
            Kind::Convolution(recipe) => recipe.text(),
            Kind::Windows(recipe) => recipe.text(),
            Kind::Pooling(recipe) => recipe.text(),
            Kind::Custom(recipe) => recipe.text(),
        }
    }
}

impl From<Kind> for Recipe {
    fn from(kind: Kind) -> Self {
        Self(kind)
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kernels of a call, in their order.
#[derive(Debug, Default)]
pub struct Plan {
    /// Whether the type `Index` of the texts, in which arguments for places are, has 64 bits, and not 32.
    pub wide: bool,
    /// The sizes in bytes of intermediate results.
    pub scratch: SmallVec<[usize; 2]>,
    /// One after the other.
    pub steps: SmallVec<[Step; 3]>,
}

/// One kernel with its arguments. They have this order: each array with the place of its first element, the
/// values, the indices.
#[derive(Debug)]
pub struct Step {
    /// What its text is generated from.
    pub recipe: Recipe,
    /// The arrays, and the place of the first element of each.
    pub arrays: SmallVec<[(Place, i64); 4]>,
    /// The numbers that it computes with.
    pub values: SmallVec<[Value; 3]>,
    /// Sizes, strides and options, each an `Index`.
    pub indices: SmallVec<[i64; 24]>,
    /// How many items there are: a multiple of `group`.
    pub items: [usize; 3],
    /// How many items one group has.
    pub group: [usize; 3],
}

/// Where an array is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// In the buffer of the call's array with this number, as [`Call::arrays`] counts.
    Array(usize),
    /// In the intermediate result with this number.
    Scratch(usize),
}

/// Where a kernel is planned for: the device, and whether its indices need more than 32 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) traits: Traits,
    pub(crate) wide: bool,
}

/// The kernels for a call on a target, or `None` if there are none.
fn plan(call: &Call, target: Target) -> Option<Plan> {
    match call.operator() {
        operator if operator.is_elementwise() => elementwise::plan(call, target),
        Operator::Expression(expression) => fused::plan(call, expression, target),
        Operator::Reduce { reduction, dims } => reduce::plan(call, reduction, dims, target),
        Operator::MatMul => matmul::plan(call, target),
        Operator::Softmax { dim } => rows::plan(call, rows::Function::Softmax, dim, target),
        Operator::LogSoftmax { dim } => rows::plan(call, rows::Function::LogSoftmax, dim, target),
        Operator::ArgReduce { extremum, dim } => rows::plan(call, rows::Function::Arg(extremum), dim, target),
        Operator::Sort { dim, descending, sorted } => sort::plan(call, dim, descending, sorted, target),
        Operator::Gather { .. }
        | Operator::IndexSelect { .. }
        | Operator::Scatter { .. }
        | Operator::IndexAssign { .. } => indexing::plan(call, target),
        Operator::Random { distribution, seed, offset } => {
            random::plan(call, distribution, [seed, offset], target)
        }
        Operator::Conv2d(options) => convolution::plan(call, convolution::Function::Images, options, target),
        Operator::Conv2dInputGrad(options) => {
            convolution::plan(call, convolution::Function::ImageGradient, options, target)
        }
        Operator::Conv2dWeightGrad(options) => {
            convolution::plan(call, convolution::Function::WeightGradient, options, target)
        }
        Operator::Custom(_) => None,
        _ => pooling::plan(call, target),
    }
}

/// A place from which on indices need more than 32 bits. Numbers of items and places in panels are rounded
/// up, to less than four times of it.
const WIDE: usize = 1 << 29;

impl Plan {
    /// What to enqueue for a call on a device, or `None` if there is no kernel for it.
    ///
    /// `begins` has, for each [array of the call](Call::arrays), how many elements its memory has before the
    /// layout's first place: 0 where there is no number.
    #[must_use]
    pub fn of(call: &Call, traits: Traits, begins: &[usize]) -> Option<Self> {
        let wide = are_far(call, begins);
        let plan = plan(call, Target { traits, wide })?;
        // Options may be large where arrays are not.
        let large = |index: &i64| index.unsigned_abs() >= WIDE as u64;
        if !wide && plan.steps.iter().any(|step| step.indices.iter().any(large)) {
            return Some(Self { wide: true, ..self::plan(call, Target { traits, wide: true })? });
        }
        Some(Self { wide, ..plan })
    }
}

/// The plan of a call on a device, [kept](Call::kept) with the call.
struct Kept {
    traits: Traits,
    /// The most elements that an array's memory may have before the layout's first place.
    most: usize,
    plan: Option<Plan>,
}

impl Kept {
    fn new(call: &Call, traits: Traits) -> Self {
        let plan = Plan::of(call, traits, &[]);
        let is_wide = plan.as_ref().is_some_and(|plan| plan.wide);
        let room = |(_, layout): (_, &Layout)| (WIDE - 1).saturating_sub(layout.range().end);
        let most = if is_wide { usize::MAX } else { call.arrays().map(room).min().unwrap_or(usize::MAX) };
        Self { traits, most, plan }
    }
}

/// Does `work` with the plan of a call, as [`Plan::of`] makes it. The plan is kept with the call for the next
/// time.
pub fn with_plan<R>(
    call: &Call,
    traits: Traits,
    begins: &[usize],
    work: impl FnOnce(Option<&Plan>) -> R,
) -> R {
    match call.kept(|call| Kept::new(call, traits)) {
        Some(kept) if kept.traits == traits && begins.iter().all(|&begin| begin <= kept.most) => {
            work(kept.plan.as_ref())
        }
        // For another device, or far away in memory.
        _ => work(Plan::of(call, traits, begins).as_ref()),
    }
}

/// Whether there is a kernel for a call on such a device.
#[must_use]
pub fn has_kernel(call: &Call, traits: Traits) -> bool {
    plan(call, Target { traits, wide: false }).is_some()
}

/// Whether places in the arrays of a call need more than 32 bits.
fn are_far(call: &Call, begins: &[usize]) -> bool {
    let begins = begins.iter().copied().chain(std::iter::repeat(0));
    call.arrays().zip(begins).any(|((_, layout), begin)| {
        let reach = layout.strides().iter().map(|stride| stride.unsigned_abs()).max().unwrap_or(0);
        layout.len() >= WIDE || begin.saturating_add(layout.range().end) >= WIDE || reach >= WIDE
    })
}

impl From<Step> for Plan {
    fn from(step: Step) -> Self {
        Self { steps: smallvec![step], ..Self::default() }
    }
}

/// A size, a stride, an offset or an option as kernels have it. `None` if it does not fit: there is no kernel
/// for it.
pub(crate) fn index(number: impl TryInto<i64>) -> Option<i64> {
    number.try_into().ok()
}

/// Several of them.
pub(crate) fn indices<const N: usize, T: TryInto<i64>>(numbers: [T; N]) -> Option<[i64; N]> {
    let mut indices = [0; N];
    for (index, number) in indices.iter_mut().zip(numbers) {
        *index = self::index(number)?;
    }
    Some(indices)
}

/// How many items or elements a product of sizes is. `None` if it overflows: arrays with strides of zero may
/// have more elements than any memory.
pub(crate) fn product<const N: usize>(sizes: [i64; N]) -> Option<usize> {
    sizes.into_iter().try_fold(1, |product: usize, size| product.checked_mul(size.try_into().ok()?))
}

/// This many items in one direction, in groups of a size that fits. There are few sizes, as some compilers
/// translate a kernel once for each.
pub(crate) fn line(items: usize, traits: Traits) -> ([usize; 3], [usize; 3]) {
    let group = match items {
        _ if traits.groups => 256,
        0..64 => 1,
        64..4096 => 16,
        _ => 256,
    };
    ([items.next_multiple_of(group), 1, 1], [group, 1, 1])
}

/// Heavy items, each of which is worth its own group where groups do not run side by side.
pub(crate) fn heavy_line(items: usize, traits: Traits) -> ([usize; 3], [usize; 3]) {
    let group = match items {
        _ if traits.groups => 64,
        0..4096 => 1,
        _ => 16,
    };
    ([items.next_multiple_of(group), 1, 1], [group, 1, 1])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operator_has_a_kernel() {
        for groups in [true, false] {
            let traits = Traits { doubles: true, groups, units: 1 };
            let calls = device_kernels_conformance::calls();
            let (with, without): (Vec<_>, Vec<_>) = calls.iter().partition(|call| has_kernel(call, traits));
            // Expressions are done in parts where one launch would be slow.
            let in_parts =
                |call: &Call| matches!(call.operator(), Operator::Expression(of) if of.dims().is_some());
            let without = without.iter().find(|call| !in_parts(call));
            assert!(without.is_none(), "no kernel for {}", without.unwrap());
            let planned: BTreeSet<&str> = with.iter().map(|call| call.operator().name()).collect();
            let missing: Vec<_> = Operator::names().filter(|name| !planned.contains(name)).collect();
            assert!(missing.is_empty(), "no call of {missing:?}");
        }
    }

    #[test]
    fn a_plan_is_made_once_for_a_call() {
        let traits = Traits { doubles: true, groups: true, units: 8 };
        let call = &device_kernels_conformance::calls()[0];
        let place = || with_plan(call, traits, &[1], |plan| plan.map(std::ptr::from_ref).unwrap());
        assert_eq!(place(), place());
    }

    #[test]
    fn a_kept_plan_is_the_one_that_is_made_for_each_place_and_device() {
        let traits = |groups, units| Traits { doubles: true, groups, units };
        for call in device_kernels_conformance::calls() {
            for traits in [traits(true, 8), traits(false, 2), traits(true, 8)] {
                for begins in [&[][..], &[7, 7, 7], &[0, WIDE], &[WIDE - 1]] {
                    let kept = with_plan(&call, traits, begins, |plan| format!("{plan:?}"));
                    let made = Plan::of(&call, traits, begins);
                    assert_eq!(kept, format!("{:?}", made.as_ref()), "{call}, from {begins:?}");
                }
            }
        }
    }
}
