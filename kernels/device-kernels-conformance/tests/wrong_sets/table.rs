//! Which checks catch each defect, and what the defect is about.

use crate::wrong::Wrong::{self, *};

/// One defect.
pub(crate) struct Row {
    pub(crate) wrong: Wrong,
    /// The checks that have to fail.
    pub(crate) caught_by: &'static [&'static str],
    /// The groups that may fail. All others have to pass.
    pub(crate) groups: &'static [&'static str],
}

/// All groups, for defects that are about layouts or calls.
const ALL: &[&str] = &[""];
const ELEMENTWISE: &[&str] = &["unary", "binary", "compare", "select", "copy", "layout", "cache", "streams"];

const EXPRESSIONS: &[&str] = &["expressions", "streams"];

const fn row(wrong: Wrong, caught_by: &'static [&'static str], groups: &'static [&'static str]) -> Row {
    Row { wrong, caught_by, groups }
}

pub(crate) const TABLE: &[Row] = &[
    row(OffByAStride, &["binary::sub", "layout::guards", "reduce::sum", "matmul::plain"], ALL),
    row(IgnoresOffset, &["layout::offsets", "layout::negative_strides"], ALL),
    row(IgnoresBufferStart, &["layout::one_memory", "layout::offsets"], ALL),
    row(NoBroadcast, &["layout::broadcast", "matmul::bias"], ALL),
    row(NegativeForward, &["layout::negative_strides"], ALL),
    row(IgnoresInputStrides, &["layout::transposed", "layout::gaps", "matmul::transposed"], ALL),
    row(IgnoresOutputStrides, &["layout::gaps", "layout::transposed"], ALL),
    row(FourDimensions, &["layout::eight_dimensions"], ALL),
    row(MissesTheLast, &["layout::tails", "layout::guards", "matmul::tails"], ALL),
    row(OneTooMany, &["layout::guards", "layout::offsets", "layout::tails"], ALL),
    row(WritesGaps, &["layout::gaps"], ALL),
    row(OneGroup, &["layout::large"], &["layout"]),
    row(WritesBeforeReading, &["layout::in_place"], ALL),
    row(WritesToInput, &["layout::guards"], ALL),
    // Every check has to notice that: see `main.rs`.
    row(WritesNothing, &["layout::nothing", "reduce::of_nothing"], ALL),
    row(SkipsCalls, &["streams::calls_without_waiting", "streams::one_after_another"], ALL),
    row(NanLostInMax, &["binary::nan_of_max", "binary::max"], ELEMENTWISE),
    row(NanLostInMin, &["binary::nan_of_min", "binary::min"], ELEMENTWISE),
    row(DivRoundsDown, &["binary::div_toward_zero"], &["binary"]),
    row(RemHasSignOfDividend, &["binary::sign_of_rem", "binary::rem"], &["binary"]),
    row(Saturates, &["binary::integers_wrap"], ELEMENTWISE),
    row(ConversionWraps, &["copy::f32_to_i32_saturates"], ELEMENTWISE),
    row(OnlyOneIsTrue, &["select::bools_are_0_or_1", "select::where", "reduce::any"], ALL),
    row(RawBools, &["select::bools_are_0_or_1", "compare::lt", "copy::to_bool"], ALL),
    row(FlushesCopies, &["copy::moves_every_bit"], ELEMENTWISE),
    row(RoundsHalfAway, &["unary::round_to_even"], &["unary"]),
    row(ShiftsByAll, &["binary::shifts_by_the_lowest_bits"], &["binary"]),
    row(NanIsLess, &["compare::nan"], ELEMENTWISE),
    row(ClampLosesNan, &["select::clamp"], ELEMENTWISE),
    row(RoughExp, &["unary::exp"], ELEMENTWISE),
    row(DoublesAreSingle, &["unary::exp", "binary::add", "copy::to_f64", "matmul::rounding"], ALL),
    row(ScalarsAreIntegers, &["copy::fills", "binary::scalars_are_converted"], ELEMENTWISE),
    row(
        NarrowSums,
        &["reduce::f16_sums_are_f32", "matmul::f16_sums_are_f32"],
        &["reduce", "matmul", "cache", "streams"],
    ),
    row(ReducesOtherDim, &["reduce::sum", "cache::two_dims"], &["reduce", "cache", "streams"]),
    row(FirstChunk, &["reduce::long_sum"], &["reduce"]),
    row(RacingReduction, &["reduce::long_sum"], &["reduce"]),
    row(MeanOfAll, &["reduce::mean"], &["reduce", "cache", "streams"]),
    row(NanLostInReduction, &["reduce::nan_of_max"], &["reduce", "streams"]),
    row(ArgFindsLast, &["arg_reduce::first_of_equals"], &["arg_reduce"]),
    row(ArgSkipsNan, &["arg_reduce::nan"], &["arg_reduce"]),
    row(SortsUpward, &["sort::values", "sort::tails", "cache::two_options"], &["sort", "cache"]),
    row(SortsOtherDim, &["sort::both", "cache::two_dims"], &["sort", "cache"]),
    row(SortReversesEquals, &["sort::equals", "sort::indices"], &["sort", "cache"]),
    row(SortsNanFirst, &["sort::signs"], &["sort"]),
    row(SortsZerosAlike, &["sort::signs"], &["sort"]),
    row(SortsBlocks, &["sort::long", "sort::equals"], &["sort"]),
    row(SortKeepsTheLast, &["sort::first"], &["sort"]),
    row(SortLosesTheLargest, &["sort::ends"], &["sort"]),
    row(SoftmaxOverflows, &["softmax::large_numbers"], &["softmax"]),
    row(
        ExpressionKeepsPrecision,
        &["expressions::rounding", "expressions::elementwise", "expressions::casts"],
        EXPRESSIONS,
    ),
    row(ExpressionFuses, &["expressions::rounding", "expressions::elementwise"], EXPRESSIONS),
    row(ExpressionSharesStrides, &["expressions::layouts", "expressions::repeated_elements"], EXPRESSIONS),
    row(ExpressionWritesEarly, &["expressions::in_place"], EXPRESSIONS),
    row(ExpressionLosesOutput, &["expressions::many_arrays", "expressions::elementwise"], EXPRESSIONS),
    row(ExpressionRepeatsOutput, &["expressions::many_arrays", "expressions::elementwise"], EXPRESSIONS),
    row(ExpressionStaleLiteral, &["expressions::literals"], EXPRESSIONS),
    row(ExpressionCountsOnce, &["expressions::repeated_elements"], EXPRESSIONS),
    row(ExpressionFirstChunk, &["expressions::long"], EXPRESSIONS),
    row(ExpressionReducesOneDim, &["expressions::reductions"], EXPRESSIONS),
    row(MatmulIgnoresTransposition, &["matmul::transposed"], &["matmul", "streams"]),
    row(MatmulIgnoresBatch, &["matmul::batch"], &["matmul", "streams"]),
    row(MatmulIgnoresBias, &["matmul::bias"], &["matmul", "streams"]),
    row(MatmulSkipsZeros, &["matmul::nan_times_zero"], &["matmul"]),
    row(GathersFirstDim, &["index::gather", "cache::two_dims"], &["index", "cache", "streams"]),
    row(ScatterOverwrites, &["index::scatter_add", "index::repeated"], &["index"]),
    row(ScatterLosesUpdates, &["index::repeated"], &["index"]),
    row(HalvesAreAddedInMemory, &["index::halves"], &["index"]),
    row(ClampsReads, &["index::out_of_range_reads"], &["index"]),
    row(ClampsWrites, &["index::out_of_range_writes"], &["index"]),
    row(
        ConvIgnoresDilation,
        &["conv::dilation", "conv::forward", "conv::weight_grad"],
        &["conv", "cache", "streams"],
    ),
    row(ConvIgnoresPadding, &["conv::padding", "conv::input_grad"], &["conv", "cache", "streams"]),
    row(ConvSkipsPadding, &["conv::padding_is_multiplied"], &["conv"]),
    row(ConvIgnoresGroups, &["conv::groups"], &["conv", "cache", "streams"]),
    row(ConvSwapsStrides, &["conv::stride", "cache::two_options"], &["conv", "cache", "streams"]),
    row(ConvIgnoresBias, &["conv::bias"], &["conv", "streams"]),
    row(ShortOptions, &["conv::extreme_options", "pooling::extreme_options"], &["conv", "pooling"]),
    row(MeanOfNothing, &["pooling::windows_of_padding"], &["pooling"]),
    row(MaxOfPadding, &["pooling::windows_of_padding"], &["pooling"]),
    row(
        PoolCountsPadding,
        &["pooling::avg", "pooling::avg_counts_padding"],
        &["pooling", "cache", "streams"],
    ),
    row(PlacesOfWindows, &["pooling::max_places"], &["pooling"]),
    row(PoolSkipsNan, &["pooling::max"], &["pooling"]),
    row(StaleScalar, &["cache::two_scalars"], ELEMENTWISE),
    row(StaleLayout, &["cache::two_layouts_of_one_shape", "cache::two_shapes_of_one_kernel"], ALL),
    row(
        StaleOptions,
        &["cache::two_options", "cache::two_seeds", "cache::two_dims"],
        &["conv", "random", "softmax", "sort", "cache", "streams"],
    ),
    row(RandomByLength, &["random::same_numbers_for_any_length"], &["random", "cache"]),
    row(RandomRestarts, &["random::same_numbers_for_any_length"], &["random"]),
    row(RandomIgnoresOffset, &["random::same_numbers_from_any_offset"], &["random", "cache"]),
    row(RandomHalfSeed, &["random::seeds", "cache::two_seeds"], &["random", "cache"]),
    row(SupportsFlips, &["claims::supports_is_constant"], ALL),
    row(DeclaresTooLittle, &["claims::coverage"], &["claims"]),
    row(DeclaresTooMuch, &["claims::coverage"], &["claims"]),
    row(DeclaresAndRefuses, &["claims::coverage"], &["claims", "unary"]),
    row(ClaimsNothing, &["claims::something"], ALL),
    row(ClaimsAndFails, &["binary::add", "matmul::plain", "layout::guards"], ALL),
    row(Panics, &["binary::add", "matmul::plain", "layout::guards"], ALL),
];
