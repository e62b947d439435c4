//! What is generated for a call: the texts of kernels, and the arguments to enqueue them with. No interface
//! of OpenCL is in here.

mod convolution;
pub(crate) mod custom;
pub(crate) mod element;
mod elementwise;
mod expression;
mod form;
mod fused;
mod indexing;
mod matmul;
pub(crate) mod opencl_c;
mod pooling;
mod random;
mod reduce;
mod rows;
mod sort;
mod space;

use device_kernels::{Call, Operator};
use smallvec::{SmallVec, smallvec};

use self::element::Value;

/// What a device is like, as far as kernels depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    /// Whether it computes with `f64`.
    pub(crate) doubles: bool,
    /// Whether items of a group run side by side, as on a GPU. Otherwise each item is a loop that is
    /// vectorised.
    pub(crate) groups: bool,
    /// How many groups run at once.
    pub(crate) units: i64,
}

/// What a text is generated from. Equal recipes have one text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Recipe {
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
    /// The program, whose kernel has the name `run`.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Elementwise(recipe) => recipe.text(),
            Self::Fused(recipe) => recipe.text(),
            Self::Reduce(recipe) => recipe.text(),
            Self::Simple(recipe) => recipe.text(),
            Self::Tiled(recipe) => recipe.text(),
            Self::Pack(recipe) => recipe.text(),
            Self::Packed(recipe) => recipe.text(),
            Self::Rows(recipe) => recipe.text(),
            Self::Sort(recipe) => recipe.text(),
            Self::Indexing(recipe) => recipe.text(),
            Self::Random(recipe) => recipe.text(),
            Self::Convolution(recipe) => recipe.text(),
            Self::Windows(recipe) => recipe.text(),
            Self::Pooling(recipe) => recipe.text(),
            Self::Custom(recipe) => recipe.text(),
        }
    }
}

/// The kernels of a call, in their order.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The sizes in bytes of intermediate results.
    pub(crate) scratch: SmallVec<[usize; 2]>,
    pub(crate) steps: SmallVec<[Step; 3]>,
}

/// One kernel with its arguments.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) recipe: Recipe,
    /// The arrays, and the place of the first element of each.
    pub(crate) arrays: SmallVec<[(Place, i64); 4]>,
    pub(crate) values: SmallVec<[Value; 3]>,
    pub(crate) indices: SmallVec<[i64; 24]>,
    /// How many items there are: a multiple of `group`.
    pub(crate) items: [usize; 3],
    pub(crate) group: [usize; 3],
}

/// Where an array is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
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

/// What to enqueue for a call, or `None` if there is no kernel for it.
pub(crate) fn plan(call: &Call, target: Target) -> Option<Plan> {
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

impl From<Step> for Plan {
    fn from(step: Step) -> Self {
        Self { scratch: SmallVec::new(), steps: smallvec![step] }
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
