//! Blocks of values whose type is known only at run time, and functions of them.

use std::ops::Range;

use device_kernels::{DType, Layout, Operator, Reduction, Scalar, Unary};

use device_registry::backend::BackendError;

use crate::arrays::{Array, write_part};
use crate::element::{Compute, Element, with_element};
use crate::elementwise::{choose, clamp, comparison};
use crate::functions::{BinaryBlock, Number, UnaryBlock, map, of_bools};
use crate::reduce::{Fold, Wide};

/// Memory for the values of a node, of the type that they are computed in. It grows, and stays.
#[derive(Default)]
pub(crate) struct Block {
    f32: Memory<f32>,
    f64: Memory<f64>,
    i32: Memory<i32>,
    i64: Memory<i64>,
    u8: Memory<u8>,
    u32: Memory<u32>,
    bool: Memory<bool>,
}

/// Values that begin where a line of the cache does, so that no vector is in two of them.
#[derive(Default)]
struct Memory<C> {
    values: Vec<C>,
    start: usize,
}

impl<C: Copy + Default> Memory<C> {
    const LINE: usize = 64;

    fn first(&self, len: usize) -> &[C] {
        &self.values[self.start..self.start + len]
    }

    /// The first values, to write. It grows to them, which forgets what it has.
    fn first_mut(&mut self, len: usize) -> &mut [C] {
        if self.values.len() - self.start < len {
            self.values = vec![C::default(); len + Self::LINE / size_of::<C>()];
            self.start = self.values.as_ptr().align_offset(Self::LINE).min(Self::LINE / size_of::<C>());
        }
        &mut self.values[self.start..self.start + len]
    }
}

/// How many times a value is repeated that stands for any number of equal ones: few enough that such values
/// leave the cache to others.
pub(crate) const REPEATED: usize = 256;

/// Values of one of the types. [`REPEATED`] of them may stand for more, which are all equal.
#[derive(Clone, Copy)]
pub(crate) enum Values<'a> {
    F32(&'a [f32]),
    F64(&'a [f64]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U32(&'a [u32]),
    Bool(&'a [bool]),
}

/// A running result of a reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Running {
    F64(f64),
    I32(i32),
    I64(i64),
    U8(u8),
    U32(u32),
    Bool(bool),
}

/// A type that is computed in.
pub(crate) trait Slot: Compute {
    /// The values, which are of this type.
    fn of(values: Values<'_>) -> &[Self];

    /// This many values of a block, to write.
    fn in_block(block: &mut Block, len: usize) -> &mut [Self];

    /// This many values, to write, of a target that is for this type.
    fn in_target(target: Target<'_>, len: usize) -> &mut [Self];

    fn values(block: &Block, len: usize) -> Values<'_>;

    fn of_slice(slice: &[Self]) -> Values<'_>;
}

/// A type of running results.
pub(crate) trait RunningValue: Copy {
    fn wrap(self) -> Running;
    fn from_running(running: Running) -> Self;
}

macro_rules! slots {
    ($($ty:ident: $variant:ident $(, $target:ident)?;)*) => {$(
        impl Slot for $ty {
            fn of(values: Values<'_>) -> &[Self] {
                match values {
                    Values::$variant(values) => values,
                    _ => unreachable!("each node is compiled for the types of its operands"),
                }
            }

            fn in_block(block: &mut Block, len: usize) -> &mut [Self] {
                block.$ty.first_mut(len)
            }

            fn in_target(target: Target<'_>, len: usize) -> &mut [Self] {
                match target {
                    Target::Block(block) => Self::in_block(block, len),
                    $(Target::$target(values) => values,)?
                    _ => unreachable!("each node is compiled for its type"),
                }
            }

            fn values(block: &Block, len: usize) -> Values<'_> {
                Values::$variant(block.$ty.first(len))
            }

            fn of_slice(slice: &[Self]) -> Values<'_> {
                Values::$variant(slice)
            }
        }
    )*};
}

slots! {
    f32: F32, F32;
    f64: F64, F64;
    i32: I32, I32;
    i64: I64, I64;
    u8: U8, U8;
    u32: U32, U32;
    bool: Bool;
}

macro_rules! running {
    ($($ty:ident: $variant:ident,)*) => {$(
        impl RunningValue for $ty {
            fn wrap(self) -> Running {
                Running::$variant(self)
            }

            fn from_running(running: Running) -> Self {
                match running {
                    Running::$variant(value) => value,
                    _ => unreachable!("a reduction has one type"),
                }
            }
        }
    )*};
}

running! { f64: F64, i32: I32, i64: I64, u8: U8, u32: U32, bool: Bool, }

/// Writes the values of a node from its operands' values. The last number is how many there are.
pub(crate) type BlockFunction = Box<dyn Fn(&[Values<'_>], Target<'_>, usize) + Send + Sync>;

/// Where the values of a node are written: to its block, or to an output whose elements are as they are
/// computed in.
pub(crate) enum Target<'a> {
    Block(&'a mut Block),
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
    I32(&'a mut [i32]),
    I64(&'a mut [i64]),
    U8(&'a mut [u8]),
    U32(&'a mut [u32]),
}

impl<'a> Target<'a> {
    /// The elements of an output, if they are aligned and of such a type.
    pub(crate) fn of_output(dtype: DType, bytes: &'a mut [u8]) -> Option<Self> {
        match dtype {
            DType::F32 => bytemuck::try_cast_slice_mut(bytes).ok().map(Self::F32),
            DType::F64 => bytemuck::try_cast_slice_mut(bytes).ok().map(Self::F64),
            DType::I32 => bytemuck::try_cast_slice_mut(bytes).ok().map(Self::I32),
            DType::I64 => bytemuck::try_cast_slice_mut(bytes).ok().map(Self::I64),
            DType::U32 => bytemuck::try_cast_slice_mut(bytes).ok().map(Self::U32),
            DType::U8 => Some(Self::U8(bytes)),
            _ => None,
        }
    }
}

/// Runs `$body` with `$E` as the element type of a dtype; `None` where there is none.
macro_rules! for_element {
    (floats $dtype:expr, $E:ident => $body:expr) => {
        some(with_element!(floats $dtype, $E => Ok($body)))
    };
    (numbers $dtype:expr, $E:ident => $body:expr) => {
        some(with_element!(numbers $dtype, $E => Ok($body)))
    };
    ($dtype:expr, $E:ident => $body:expr) => {
        some(with_element!($dtype, $E => Ok($body)))
    };
}

fn some<T>(found: Result<Option<T>, BackendError>) -> Option<T> {
    found.ok().flatten()
}

/// What computes an element-wise operator of operands of these types.
pub(crate) fn function(operator: Operator, operands: &[DType], to: DType) -> Option<BlockFunction> {
    let of = operands[usize::from(operator == Operator::Where)];
    match operator {
        Operator::Unary(test @ (Unary::IsNan | Unary::IsInf)) => {
            for_element!(floats of, E => <E as Element>::Compute::test(test).map(one))
        }
        Operator::Unary(unary) if of == DType::Bool => {
            (unary == Unary::Not).then(|| one::<bool, bool>(|a, out| map(a, out, |a| !a)))
        }
        Operator::Unary(unary) => {
            for_element!(numbers of, E => <E as Element>::Compute::unary(unary).map(one))
        }
        Operator::Binary(binary) if of == DType::Bool => of_bools(binary).map(two),
        Operator::Binary(binary) => {
            for_element!(numbers of, E => <E as Element>::Compute::binary(binary).map(two))
        }
        Operator::Compare(compare) if of == DType::Bool => comparison::<bool>(compare).map(two),
        Operator::Compare(compare) => {
            for_element!(numbers of, E => comparison::<<E as Element>::Compute>(compare).map(two))
        }
        Operator::Where => for_element!(of, E => Some(three(choose::<<E as Element>::Compute>))),
        Operator::Clamp => for_element!(numbers of, E => Some(three(clamp::<<E as Element>::Compute>))),
        Operator::Copy if of == DType::Bool => for_element!(to, E => {
            Some(one::<bool, <E as Element>::Compute>(|a, out| map(a, out, Compute::from_bool)))
        }),
        Operator::Copy => for_element!(numbers of, F => {
            for_element!(to, E => {
                let convert = <<F as Element>::Compute as Number>::convert::<<E as Element>::Compute>();
                Some(one(convert))
            })
        }),
        _ => None,
    }
}

fn one<A: Slot, O: Slot>(compute: UnaryBlock<A, O>) -> BlockFunction {
    Box::new(move |operands, out, len| {
        let a = A::of(operands[0]);
        let out = O::in_target(out, len);
        if a.len() == len {
            return compute(a, out);
        }
        in_parts(out).for_each(|(start, out)| compute(part_of(a, start, out.len(), len), out));
    })
}

fn two<A: Slot, O: Slot>(compute: BinaryBlock<A, O>) -> BlockFunction {
    Box::new(move |operands, out, len| {
        let a = A::of(operands[0]);
        let b = A::of(operands[1]);
        let out = O::in_target(out, len);
        if a.len() == len && b.len() == len {
            return compute(a, b, out);
        }
        for (start, out) in in_parts(out) {
            compute(part_of(a, start, out.len(), len), part_of(b, start, out.len(), len), out);
        }
    })
}

/// A function of blocks of three inputs, the first of which may be of another type.
type TernaryBlock<A, C> = fn(&[A], &[C], &[C], &mut [C]);

fn three<A: Slot, C: Slot>(compute: TernaryBlock<A, C>) -> BlockFunction {
    Box::new(move |operands, out, len| {
        let a = A::of(operands[0]);
        let b = C::of(operands[1]);
        let c = C::of(operands[2]);
        for (start, out) in in_parts(C::in_target(out, len)) {
            let b = part_of(b, start, out.len(), len);
            compute(part_of(a, start, out.len(), len), b, part_of(c, start, out.len(), len), out);
        }
    })
}

/// Parts that repeated values have the length of.
fn in_parts<O>(out: &mut [O]) -> impl Iterator<Item = (usize, &mut [O])> {
    out.chunks_mut(REPEATED).enumerate().map(|(part, out)| (part * REPEATED, out))
}

/// The values from a number on. Fewer than `all` are repeated.
fn part_of<A>(values: &[A], start: usize, len: usize, all: usize) -> &[A] {
    let start = if values.len() == all { start } else { 0 };
    &values[start..start + len]
}

/// Rounds values that are computed in another type to their own.
pub(crate) fn round(dtype: DType, block: &mut Block, len: usize) {
    match dtype {
        DType::F16 => round_to::<half::f16>(f32::in_block(block, len)),
        DType::BF16 => round_to::<half::bf16>(f32::in_block(block, len)),
        _ => {}
    }
}

fn round_to<E: Element>(values: &mut [E::Compute]) {
    values.iter_mut().for_each(|value| *value = E::store(*value).load());
}

/// Fills a part of the first `size` values of a block with one value of another.
pub(crate) fn repeat(values: Values<'_>, place: usize, block: &mut Block, range: Range<usize>, size: usize) {
    fn fill<C: Slot>(value: C, block: &mut Block, range: Range<usize>, size: usize) {
        C::in_block(block, size)[range].fill(value);
    }
    match values {
        Values::F32(values) => fill(values[place], block, range, size),
        Values::F64(values) => fill(values[place], block, range, size),
        Values::I32(values) => fill(values[place], block, range, size),
        Values::I64(values) => fill(values[place], block, range, size),
        Values::U8(values) => fill(values[place], block, range, size),
        Values::U32(values) => fill(values[place], block, range, size),
        Values::Bool(values) => fill(values[place], block, range, size),
    }
}

/// The values of a node of this type in its block.
pub(crate) fn values(dtype: DType, block: &Block, len: usize) -> Values<'_> {
    match dtype {
        DType::F64 => f64::values(block, len),
        DType::I32 => i32::values(block, len),
        DType::I64 => i64::values(block, len),
        DType::U8 => u8::values(block, len),
        DType::U32 => u32::values(block, len),
        DType::Bool => bool::values(block, len),
        _ => f32::values(block, len),
    }
}

/// A part of the values.
pub(crate) fn part(values: Values<'_>, range: Range<usize>) -> Values<'_> {
    match values {
        Values::F32(values) => Values::F32(&values[range]),
        Values::F64(values) => Values::F64(&values[range]),
        Values::I32(values) => Values::I32(&values[range]),
        Values::I64(values) => Values::I64(&values[range]),
        Values::U8(values) => Values::U8(&values[range]),
        Values::U32(values) => Values::U32(&values[range]),
        Values::Bool(values) => Values::Bool(&values[range]),
    }
}

/// A reduction whose type is known at run time only.
pub(crate) trait Reducer: Send + Sync {
    /// The result of no elements.
    fn start(&self) -> Running;

    /// Takes in values.
    fn add(&self, running: Running, values: Values<'_>) -> Running;

    fn combine(&self, a: Running, b: Running) -> Running;

    /// Writes the result of `len` elements at a place in a block of at least `size` values.
    fn finish(&self, running: Running, len: usize, block: &mut Block, place: usize, size: usize);
}

impl<C: Slot, W: RunningValue + Send + Sync> Reducer for Fold<C, W> {
    fn start(&self) -> Running {
        self.of(&[]).wrap()
    }

    fn add(&self, running: Running, values: Values<'_>) -> Running {
        self.go_on(W::from_running(running), C::of(values)).wrap()
    }

    fn combine(&self, a: Running, b: Running) -> Running {
        self.joined(W::from_running(a), W::from_running(b)).wrap()
    }

    fn finish(&self, running: Running, len: usize, block: &mut Block, place: usize, size: usize) {
        C::in_block(block, size)[place] = self.result(W::from_running(running), len);
    }
}

/// What reduces values of a type.
pub(crate) fn reducer(reduction: Reduction, dtype: DType) -> Option<Box<dyn Reducer>> {
    fn boxed<C: Slot, W: RunningValue + Send + Sync + 'static>(fold: Fold<C, W>) -> Box<dyn Reducer> {
        Box::new(fold)
    }
    if dtype == DType::Bool {
        return bool::fold(reduction).map(boxed);
    }
    for_element!(numbers dtype, E => <E as Element>::Compute::fold(reduction).map(boxed))
}

/// An array whose elements are read in blocks.
pub(crate) trait ReadBlock: Send + Sync {
    /// The elements from a number on, if they lie in memory as they are computed in.
    fn in_place(&self, start: usize, len: usize) -> Option<Values<'_>>;

    /// Writes the elements from a number on to a block.
    fn read(&self, start: usize, len: usize, block: &mut Block);
}

impl<E: Element<Compute: Slot>> ReadBlock for Array<'_, E> {
    fn in_place(&self, start: usize, len: usize) -> Option<Values<'_>> {
        self.block_in_place(start, len).map(E::Compute::of_slice)
    }

    fn read(&self, start: usize, len: usize, block: &mut Block) {
        self.read_block(start, E::Compute::in_block(block, len));
    }
}

/// The array of a type in bytes.
pub(crate) fn reader<'a>(dtype: DType, bytes: &'a [u8], layout: &Layout) -> Option<Box<dyn ReadBlock + 'a>> {
    for_element!(dtype, E => {
        let array: Box<dyn ReadBlock + 'a> = Box::new(Array::<E>::new(bytes, layout));
        Some(array)
    })
}

/// Writes values to elements of an array: those from the element `start` on.
pub(crate) fn write(dtype: DType, values: Values<'_>, bytes: &mut [u8], layout: &Layout, start: usize) {
    let _ = for_element!(dtype, E => {
        write_part::<E>(bytes, layout, start, <<E as Element>::Compute as Slot>::of(values));
        Some(())
    });
}

/// Fills a block with a number, rounded to the type.
pub(crate) fn constant(dtype: DType, scalar: Scalar, block: &mut Block, len: usize) {
    let _ = for_element!(dtype, E => {
        let value = E::store(<E as Element>::Compute::from_scalar(scalar)).load();
        <<E as Element>::Compute as Slot>::in_block(block, len).fill(value);
        Some(())
    });
}
