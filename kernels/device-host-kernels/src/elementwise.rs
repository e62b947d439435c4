//! Element-wise operators: each is a function of blocks.

use std::convert::identity;

use device_kernels::{Argument, Binary, Call, Compare, DType, Operator, Unary};
use device_registry::backend::BackendError;

use crate::arrays::{Array, Input, write_blocks};
use crate::element::{Bool, Compute, Element, with_element};
use crate::functions::{BinaryBlock, Number, UnaryBlock, map, of_bools, zip};

/// The bytes of inputs: each array's range, and none for scalars.
pub(crate) type Inputs<'a> = [Option<&'a [u8]>];

pub(crate) fn run(call: &Call, inputs: &Inputs<'_>, out: &mut [u8]) -> Result<(), BackendError> {
    let &(to, ref layout) = &call.outputs()[0];
    let dtype = call.inputs().iter().skip(usize::from(call.operator() == Operator::Where));
    let dtype = dtype.filter_map(Argument::array).next().map_or(to, |(dtype, _)| dtype);
    let output = &mut Output { bytes: out, layout };
    match call.operator() {
        Operator::Copy => copy(call, inputs, output),
        Operator::Unary(unary) => match dtype {
            DType::Bool => output.map::<Bool, Bool>(&input(call, inputs, 0), |a, out| map(a, out, |a| !a)),
            _ => with_element!(numbers dtype, E => run_unary::<E>(unary, call, inputs, output)),
        },
        Operator::Binary(binary) => match dtype {
            DType::Bool => {
                let compute = of_bools(binary).ok_or_else(|| crate::unsupported(binary))?;
                let [a, b] = [0, 1].map(|place| input(call, inputs, place));
                output.zip::<Bool, Bool>([&a, &b], compute)
            }
            _ => with_element!(numbers dtype, E => run_binary::<E>(binary, call, inputs, output)),
        },
        Operator::Compare(compare) => match dtype {
            DType::Bool => run_compare::<Bool>(compare, call, inputs, output),
            _ => with_element!(numbers dtype, E => run_compare::<E>(compare, call, inputs, output)),
        },
        Operator::Where => with_element!(to, E => choose::<E>(call, inputs, output)),
        Operator::Clamp => with_element!(numbers to, E => clamp::<E>(call, inputs, output)),
        other => Err(crate::unsupported(other)),
    }
}

/// The array to write.
struct Output<'a> {
    bytes: &'a mut [u8],
    layout: &'a device_kernels::Layout,
}

impl Output<'_> {
    /// Writes a function of one input.
    fn map<E: Element, A: Element>(
        &mut self,
        a: &Input<'_, A>,
        compute: UnaryBlock<A::Compute, E::Compute>,
    ) -> Result<(), BackendError> {
        self.write::<E, _>(|| {
            let mut temporary = Vec::new();
            move |start, out: &mut [_]| compute(a.block(start, out.len(), &mut temporary), out)
        })
    }

    /// Writes a function of two inputs.
    fn zip<E: Element, A: Element>(
        &mut self,
        [a, b]: [&Input<'_, A>; 2],
        compute: BinaryBlock<A::Compute, E::Compute>,
    ) -> Result<(), BackendError> {
        self.write::<E, _>(|| {
            let mut of_a = Vec::new();
            let mut of_b = Vec::new();
            move |start, out: &mut [_]| {
                let len = out.len();
                compute(a.block(start, len, &mut of_a), b.block(start, len, &mut of_b), out);
            }
        })
    }

    fn write<E: Element, W: FnMut(usize, &mut [E::Compute])>(
        &mut self,
        worker: impl Fn() -> W + Sync,
    ) -> Result<(), BackendError> {
        write_blocks::<E, W>(self.bytes, self.layout, worker);
        Ok(())
    }
}

/// The input at a place, whose elements are of the type `E` if it is an array.
fn input<'a, E: Element>(call: &Call, inputs: &Inputs<'a>, place: usize) -> Input<'a, E> {
    match (&call.inputs()[place], inputs[place]) {
        (Argument::Array(_, layout), Some(bytes)) => Input::Array(Array::new(bytes, layout)),
        (Argument::Array(..), None) => unreachable!("an array has bytes"),
        (Argument::Scalar(scalar), _) => Input::repeated(*scalar),
    }
}

fn run_unary<E: Element<Compute: Number>>(
    unary: Unary,
    call: &Call,
    inputs: &Inputs<'_>,
    output: &mut Output<'_>,
) -> Result<(), BackendError> {
    let a = &input::<E>(call, inputs, 0);
    if let Unary::IsNan | Unary::IsInf = unary {
        let test = E::Compute::test(unary).ok_or_else(|| crate::unsupported(unary))?;
        return output.map::<Bool, E>(a, test);
    }
    let compute = E::Compute::unary(unary).ok_or_else(|| crate::unsupported(unary))?;
    output.map::<E, E>(a, compute)
}

fn run_binary<E: Element<Compute: Number>>(
    binary: Binary,
    call: &Call,
    inputs: &Inputs<'_>,
    output: &mut Output<'_>,
) -> Result<(), BackendError> {
    let compute = E::Compute::binary(binary).ok_or_else(|| crate::unsupported(binary))?;
    // Not an array that is mapped: they are large, and would be copied.
    let a = input::<E>(call, inputs, 0);
    let b = input::<E>(call, inputs, 1);
    output.zip::<E, E>([&a, &b], compute)
}

fn run_compare<E: Element<Compute: PartialOrd>>(
    compare: Compare,
    call: &Call,
    inputs: &Inputs<'_>,
    output: &mut Output<'_>,
) -> Result<(), BackendError> {
    let compute: BinaryBlock<E::Compute, bool> = match compare {
        Compare::Eq => |a, b, out| zip(a, b, out, |a, b| a == b),
        Compare::Ne => |a, b, out| zip(a, b, out, |a, b| a != b),
        Compare::Lt => |a, b, out| zip(a, b, out, |a, b| a < b),
        Compare::Le => |a, b, out| zip(a, b, out, |a, b| a <= b),
        Compare::Gt => |a, b, out| zip(a, b, out, |a, b| a > b),
        Compare::Ge => |a, b, out| zip(a, b, out, |a, b| a >= b),
        other => return Err(crate::unsupported(other)),
    };
    let [a, b] = [0, 1].map(|place| input::<E>(call, inputs, place));
    output.zip::<Bool, E>([&a, &b], compute)
}

fn choose<E: Element>(call: &Call, inputs: &Inputs<'_>, output: &mut Output<'_>) -> Result<(), BackendError> {
    let condition = &input::<Bool>(call, inputs, 0);
    let a = &input::<E>(call, inputs, 1);
    let b = &input::<E>(call, inputs, 2);
    output.write::<E, _>(|| {
        let mut of_condition = Vec::new();
        let mut of_a = Vec::new();
        let mut of_b = Vec::new();
        move |start, out: &mut [E::Compute]| {
            let len = out.len();
            let condition = condition.block(start, len, &mut of_condition);
            let a = a.block(start, len, &mut of_a);
            let b = b.block(start, len, &mut of_b);
            for (((out, condition), a), b) in out.iter_mut().zip(condition).zip(a).zip(b) {
                *out = if *condition { *a } else { *b };
            }
        }
    })
}

fn clamp<E: Element<Compute: Number>>(
    call: &Call,
    inputs: &Inputs<'_>,
    output: &mut Output<'_>,
) -> Result<(), BackendError> {
    let [a, low, high] = [0, 1, 2].map(|place| input::<E>(call, inputs, place));
    let a = &a;
    let low = &low;
    let high = &high;
    output.write::<E, _>(|| {
        let mut of_a = Vec::new();
        let mut of_low = Vec::new();
        let mut of_high = Vec::new();
        move |start, out: &mut [E::Compute]| {
            let len = out.len();
            let a = a.block(start, len, &mut of_a);
            let low = low.block(start, len, &mut of_low);
            let high = high.block(start, len, &mut of_high);
            for (((out, a), low), high) in out.iter_mut().zip(a).zip(low).zip(high) {
                *out = a.larger(*low).smaller(*high);
            }
        }
    })
}

/// A copy, a fill or a conversion.
fn copy(call: &Call, inputs: &Inputs<'_>, output: &mut Output<'_>) -> Result<(), BackendError> {
    let to = call.outputs()[0].0;
    match call.inputs()[0] {
        // The bits of numbers are copied as they are.
        Argument::Array(from, _) if from == to && to != DType::Bool => match to.size() {
            1 => output.map::<u8, u8>(&input(call, inputs, 0), |a, out| out.copy_from_slice(a)),
            2 => output.map::<u16, u16>(&input(call, inputs, 0), |a, out| out.copy_from_slice(a)),
            4 => output.map::<u32, u32>(&input(call, inputs, 0), |a, out| out.copy_from_slice(a)),
            _ => output.map::<u64, u64>(&input(call, inputs, 0), |a, out| out.copy_from_slice(a)),
        },
        Argument::Array(DType::Bool, _) => {
            with_element!(to, E => output.map::<E, Bool>(&input(call, inputs, 0), |a, out| {
                map(a, out, <E as Element>::Compute::from_bool);
            }))
        }
        Argument::Array(from, _) => with_element!(numbers from, F => {
            let a = &input::<F>(call, inputs, 0);
            with_element!(to, E => output.map::<E, F>(a, <<F as Element>::Compute as Number>::convert::<<E as Element>::Compute>()))
        }),
        Argument::Scalar(_) => with_element!(to, E => {
            output.map::<E, E>(&input(call, inputs, 0), |a, out| map(a, out, identity))
        }),
    }
}
