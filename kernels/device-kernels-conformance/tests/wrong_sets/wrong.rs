//! The defects, one line for each.

macro_rules! wrongs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One defect of a kernel set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Wrong {
            $($(#[$doc])* $name,)*
        }

        impl Wrong {
            pub(crate) const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

wrongs! {
    /// The first input begins one stride later.
    OffByAStride,
    /// Offsets of inputs count as zero.
    IgnoresOffset,
    /// Buffers begin at the start of their memory.
    IgnoresBufferStart,
    /// A stride of zero counts as a plain array's.
    NoBroadcast,
    /// Negative strides go forward.
    NegativeForward,
    /// Inputs are read as plain arrays.
    IgnoresInputStrides,
    /// Outputs are written as plain arrays.
    IgnoresOutputStrides,
    /// Dimensions before the last four do not count.
    FourDimensions,
    /// The last element is not written, if their number is no multiple of eight.
    MissesTheLast,
    /// One element more is written.
    OneTooMany,
    /// The gaps of a strided output are written to.
    WritesGaps,
    /// Elements from 2^16 on are not written.
    OneGroup,
    /// The output is written to before the inputs are read.
    WritesBeforeReading,
    /// The first input is written to.
    WritesToInput,
    /// No call does anything.
    WritesNothing,
    /// Each seventh call does nothing.
    SkipsCalls,
    /// The larger of NaN and a number is the number.
    NanLostInMax,
    /// The same of the smaller.
    NanLostInMin,
    /// Quotients of integers are rounded down.
    DivRoundsDown,
    /// What is left of a quotient has the sign of the dividend.
    RemHasSignOfDividend,
    /// Integers saturate where they wrap.
    Saturates,
    /// Floats are converted to integers by their lowest bits.
    ConversionWraps,
    /// Any byte but 1 is false.
    OnlyOneIsTrue,
    /// True is written as 255.
    RawBools,
    /// Subnormal numbers are flushed where they are only moved.
    FlushesCopies,
    /// Halves are rounded away from zero.
    RoundsHalfAway,
    /// Shifts by more than the width give 0.
    ShiftsByAll,
    /// Comparisons with NaN are true.
    NanIsLess,
    /// A clamp of NaN gives the lower limit.
    ClampLosesNan,
    /// Exponentials have 18 bits.
    RoughExp,
    /// `f64` is computed in `f32`.
    DoublesAreSingle,
    /// Scalars are truncated to integers.
    ScalarsAreIntegers,
    /// `f16` and `bf16` are summed in their type.
    NarrowSums,
    /// Reductions are of the next dimension, if it has the same size.
    ReducesOtherDim,
    /// Only the first 1024 elements of a long reduction count.
    FirstChunk,
    /// A long reduction loses an element every other time.
    RacingReduction,
    /// A mean divides by the number of all elements.
    MeanOfAll,
    /// A maximum of elements with NaN is the largest number.
    NanLostInReduction,
    /// The last of equal elements is found.
    ArgFindsLast,
    /// A NaN is no extremum.
    ArgSkipsNan,
    /// Every sort begins with the smallest element.
    SortsUpward,
    /// A sort is of the next dimension, if it has the same size.
    SortsOtherDim,
    /// Equal elements are in the opposite order.
    SortReversesEquals,
    /// NaN is the smallest number.
    SortsNanFirst,
    /// The two zeros are equal.
    SortsZerosAlike,
    /// Each 1024 elements of a row are sorted by themselves.
    SortsBlocks,
    /// An output with only the first elements has the last ones.
    SortKeepsTheLast,
    /// The largest number of a type counts as zero in a sort.
    SortLosesTheLargest,
    /// Exponentials are not scaled by the largest.
    SoftmaxOverflows,
    /// An expression does not round numbers of 16 bits before its outputs.
    ExpressionKeepsPrecision,
    /// An expression fuses products with sums.
    ExpressionFuses,
    /// The second input of an expression has the strides of the first.
    ExpressionSharesStrides,
    /// Outputs of an expression are written before later nodes read the input in that place.
    ExpressionWritesEarly,
    /// Only the first output of an expression is written.
    ExpressionLosesOutput,
    /// All outputs of an expression with the type of the first have its elements.
    ExpressionRepeatsOutput,
    /// The first expression with a name is used for all later ones, whatever their literals.
    ExpressionStaleLiteral,
    /// Elements that an expression repeats along a reduced dimension count once.
    ExpressionCountsOnce,
    /// Only the first 1024 elements of a dimension that an expression reduces count.
    ExpressionFirstChunk,
    /// An expression reduces the first of its dimensions alone.
    ExpressionReducesOneDim,
    /// The second matrix is read as a plain one.
    MatmulIgnoresTransposition,
    /// All products of a batch have the first matrix of the second input.
    MatmulIgnoresBatch,
    /// There is no bias.
    MatmulIgnoresBias,
    /// Products with zero are left out.
    MatmulSkipsZeros,
    /// Indices are for the first dimension.
    GathersFirstDim,
    /// Values replace elements in place of being added.
    ScatterOverwrites,
    /// The last of several values for one element is added.
    ScatterLosesUpdates,
    /// Halves are added to elements in memory, so that a sum of ones stops.
    HalvesAreAddedInMemory,
    /// An index that is out of range reads the last element.
    ClampsReads,
    /// An index that is out of range writes to the last element.
    ClampsWrites,
    /// A convolution without dilation.
    ConvIgnoresDilation,
    /// A convolution without padding.
    ConvIgnoresPadding,
    /// A convolution that leaves out the padding, so that infinite weights give no NaN there.
    ConvSkipsPadding,
    /// A convolution whose groups all have the first channels.
    ConvIgnoresGroups,
    /// A convolution whose strides are exchanged.
    ConvSwapsStrides,
    /// A convolution without bias.
    ConvIgnoresBias,
    /// Numbers of convolutions and poolings have 31 bits.
    ShortOptions,
    /// A mean of no elements is NaN.
    MeanOfNothing,
    /// The padding counts as zeros where the largest is looked for.
    MaxOfPadding,
    /// A mean counts the padding if it must not, and does not if it must.
    PoolCountsPadding,
    /// Places count from the start of their window.
    PlacesOfWindows,
    /// A NaN in a window is no maximum.
    PoolSkipsNan,
    /// The first scalar of each operator is used for all later calls.
    StaleScalar,
    /// The first layout of each operator is used for all later calls of the rank.
    StaleLayout,
    /// The first options of each operator are used for all later calls.
    StaleOptions,
    /// Random numbers depend on how many there are.
    RandomByLength,
    /// Random numbers begin anew after each 256.
    RandomRestarts,
    /// Random numbers begin at 0.
    RandomIgnoresOffset,
    /// Half of a seed does not count.
    RandomHalfSeed,
    /// A call is claimed every other time.
    SupportsFlips,
    /// An operator is supported that the coverage does not have.
    DeclaresTooLittle,
    /// The coverage has an operator that does not exist.
    DeclaresTooMuch,
    /// The coverage has an operator for which no call is supported.
    DeclaresAndRefuses,
    /// Nothing is claimed.
    ClaimsNothing,
    /// A call is claimed that fails.
    ClaimsAndFails,
    /// A kernel panics.
    Panics,
}
