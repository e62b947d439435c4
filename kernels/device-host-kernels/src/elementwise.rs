//! Element-wise operators: each is a function of blocks.

use std::convert::identity;

use device_kernels::{Argument, Binary, Call, Compare, DType, Layout, Operator, Unary};
use device_registry::ErrorChain;
use device_registry::backend::BackendError;
use rayon::prelude::*;
use smallvec::SmallVec;

use crate::arrays::{Array, BLOCK, CHUNK, Input, PARALLEL, write_blocks};
use crate::call_bytes::Source;
use crate::element::{Bool, Compute, Element, with_element};
use crate::functions::{BinaryBlock, Number, UnaryBlock, map, of_bools, vectorized, zip};
use crate::threads::on_all;

/// The bytes of inputs: each array's range, and none for scalars.
pub(crate) type Inputs<'a> = [Option<&'a [u8]>];

pub(crate) fn run(call: &Call, inputs: &Inputs<'_>, out: &mut [u8]) -> Result<(), BackendError> {
    let layout = &call.outputs()[0].1;
    run_on(call, &Operands { call, bytes: inputs, part: None }, &mut Output { bytes: out, layout })
}

/// Whether the call can read inputs out of its output part by part.
pub(crate) fn can_be_in_place(call: &Call) -> bool {
    call.outputs()[0].1.is_contiguous()
}

/// Computes a call of which some inputs are the output. A thread copies a part of them, which stays in the
/// fastest cache, and then writes that part.
pub(crate) fn run_in_place(call: &Call, inputs: &[Source<'_>], out: &mut [u8]) -> Result<(), BackendError> {
    const PART: usize = 4 * BLOCK;
    let size = call.outputs()[0].0.size();
    let run_chunk = |(chunk, out): (usize, &mut [u8])| {
        let mut before = Vec::new();
        out.chunks_mut(PART * size).enumerate().try_for_each(|(part, out)| {
            before.clear();
            before.extend_from_slice(out);
            let bytes: SmallVec<[_; 4]> = inputs.iter().map(|input| input.bytes(&before)).collect();
            let layout = Layout::contiguous([out.len() / size])
                .map_err(|error| BackendError::invalid(ErrorChain::new(&error)))?;
            let part = Part { start: chunk * CHUNK + part * PART, inputs, layout };
            let operands = Operands { call, bytes: &bytes, part: Some(&part) };
            run_on(call, &operands, &mut Output { bytes: out, layout: &layout })
        })
    };
    if out.len() < PARALLEL * size {
        return out.chunks_mut(CHUNK * size).enumerate().try_for_each(run_chunk);
    }
    on_all(|| out.par_chunks_mut(CHUNK * size).enumerate().try_for_each(run_chunk))
}

/// The inputs of a call, or of a part of it.
struct Operands<'a> {
    call: &'a Call,
    bytes: &'a Inputs<'a>,
    part: Option<&'a Part<'a>>,
}

/// A part of a call's elements: those from `start` on, as many as the layout has. Of an input that is the
/// output there are the bytes of the part alone.
struct Part<'a> {
    start: usize,
    inputs: &'a [Source<'a>],
    layout: Layout,
}

impl<'a> Operands<'a> {
    /// The input at a place, whose elements are of the type `E` if it is an array.
    fn get<E: Element>(&self, place: usize) -> Input<'a, E> {
        match (&self.call.inputs()[place], self.bytes[place], self.part) {
            (Argument::Scalar(scalar), ..) => Input::repeated(*scalar),
            (Argument::Array(..), None, _) => unreachable!("an array has bytes"),
            (Argument::Array(..), Some(bytes), Some(part))
                if matches!(part.inputs[place], Source::Output(_)) =>
            {
                Input::Array(Array::new(bytes, &part.layout))
            }
            (Argument::Array(_, layout), Some(bytes), part) => {
                Input::Array(Array::new(bytes, layout).from(part.map_or(0, |part| part.start)))
            }
        }
    }
}

fn run_on(call: &Call, inputs: &Operands<'_>, output: &mut Output<'_>) -> Result<(), BackendError> {
    let to = call.outputs()[0].0;
    let dtype = call.inputs().iter().skip(usize::from(call.operator() == Operator::Where));
    let dtype = dtype.filter_map(Argument::array).next().map_or(to, |(dtype, _)| dtype);
    match call.operator() {
        Operator::Copy => copy(call, inputs, output),
        Operator::Unary(unary) => match dtype {
            DType::Bool => output.map::<Bool, Bool>(&inputs.get(0), |a, out| map(a, out, |a| !a)),
            _ => with_element!(numbers dtype, E => run_unary::<E>(unary, inputs, output)),
        },
        Operator::Binary(binary) => match dtype {
            DType::Bool => {
                let compute = of_bools(binary).ok_or_else(|| crate::unsupported(binary))?;
                let [a, b] = [0, 1].map(|place| inputs.get(place));
                output.zip::<Bool, Bool>([&a, &b], compute)
            }
            _ => with_element!(numbers dtype, E => run_binary::<E>(binary, inputs, output)),
        },
        Operator::Compare(compare) => match dtype {
            DType::Bool => run_compare::<Bool>(compare, inputs, output),
            _ => with_element!(numbers dtype, E => run_compare::<E>(compare, inputs, output)),
        },
        Operator::Where => with_element!(to, E => run_where::<E>(inputs, output)),
        Operator::Clamp => with_element!(numbers to, E => run_clamp::<E>(inputs, output)),
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

fn run_unary<E: Element<Compute: Number>>(
    unary: Unary,
    inputs: &Operands<'_>,
    output: &mut Output<'_>,
) -> Result<(), BackendError> {
    let a = &inputs.get::<E>(0);
    if let Unary::IsNan | Unary::IsInf = unary {
        let test = E::Compute::test(unary).ok_or_else(|| crate::unsupported(unary))?;
        return output.map::<Bool, E>(a, test);
    }
    let compute = E::Compute::unary(unary).ok_or_else(|| crate::unsupported(unary))?;
    output.map::<E, E>(a, compute)
}

fn run_binary<E: Element<Compute: Number>>(
    binary: Binary,
    inputs: &Operands<'_>,
    output: &mut Output<'_>,
) -> Result<(), BackendError> {
    let compute = E::Compute::binary(binary).ok_or_else(|| crate::unsupported(binary))?;
    // Not an array that is mapped: they are large, and would be copied.
    let a = inputs.get::<E>(0);
    let b = inputs.get::<E>(1);
    output.zip::<E, E>([&a, &b], compute)
}

fn run_compare<E: Element<Compute: PartialOrd>>(
    compare: Compare,
    inputs: &Operands<'_>,
    output: &mut Output<'_>,
) -> Result<(), BackendError> {
    let compute = comparison(compare).ok_or_else(|| crate::unsupported(compare))?;
    let [a, b] = [0, 1].map(|place| inputs.get::<E>(place));
    output.zip::<Bool, E>([&a, &b], compute)
}

/// What compares blocks.
pub(crate) fn comparison<C: Copy + PartialOrd>(compare: Compare) -> Option<BinaryBlock<C, bool>> {
    Some(match compare {
        Compare::Eq => |a, b, out| zip(a, b, out, |a, b| a == b),
        Compare::Ne => |a, b, out| zip(a, b, out, |a, b| a != b),
        Compare::Lt => |a, b, out| zip(a, b, out, |a, b| a < b),
        Compare::Le => |a, b, out| zip(a, b, out, |a, b| a <= b),
        Compare::Gt => |a, b, out| zip(a, b, out, |a, b| a > b),
        Compare::Ge => |a, b, out| zip(a, b, out, |a, b| a >= b),
        _ => return None,
    })
}

/// Takes each element from `a` where the condition is true, and else from `b`.
pub(crate) fn choose<C: Copy>(condition: &[bool], a: &[C], b: &[C], out: &mut [C]) {
    vectorized(|| {
        for (((out, condition), a), b) in out.iter_mut().zip(condition).zip(a).zip(b) {
            *out = if *condition { *a } else { *b };
        }
    });
}

/// Brings each element of `a` between `low` and `high`.
pub(crate) fn clamp<C: Number>(a: &[C], low: &[C], high: &[C], out: &mut [C]) {
    vectorized(|| {
        for (((out, a), low), high) in out.iter_mut().zip(a).zip(low).zip(high) {
            *out = a.larger(*low).smaller(*high);
        }
    });
}

fn run_where<E: Element>(inputs: &Operands<'_>, output: &mut Output<'_>) -> Result<(), BackendError> {
    let condition = &inputs.get::<Bool>(0);
    let a = &inputs.get::<E>(1);
    let b = &inputs.get::<E>(2);
    output.write::<E, _>(|| {
        let mut of_condition = Vec::new();
        let mut of_a = Vec::new();
        let mut of_b = Vec::new();
        move |start, out: &mut [E::Compute]| {
            let len = out.len();
            let condition = condition.block(start, len, &mut of_condition);
            let a = a.block(start, len, &mut of_a);
            choose(condition, a, b.block(start, len, &mut of_b), out);
        }
    })
}

fn run_clamp<E: Element<Compute: Number>>(
    inputs: &Operands<'_>,
    output: &mut Output<'_>,
) -> Result<(), BackendError> {
    let [a, low, high] = [0, 1, 2].map(|place| inputs.get::<E>(place));
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
            clamp(a, low, high.block(start, len, &mut of_high), out);
        }
    })
}

/// A copy, a fill or a conversion.
fn copy(call: &Call, inputs: &Operands<'_>, output: &mut Output<'_>) -> Result<(), BackendError> {
    let to = call.outputs()[0].0;
    match call.inputs()[0] {
        // The bits of numbers are copied as they are.
        Argument::Array(from, _) if from == to && to != DType::Bool => match to.size() {
            1 => output.map::<u8, u8>(&inputs.get(0), |a, out| out.copy_from_slice(a)),
            2 => output.map::<u16, u16>(&inputs.get(0), |a, out| out.copy_from_slice(a)),
            4 => output.map::<u32, u32>(&inputs.get(0), |a, out| out.copy_from_slice(a)),
            _ => output.map::<u64, u64>(&inputs.get(0), |a, out| out.copy_from_slice(a)),
        },
        Argument::Array(DType::Bool, _) => {
            with_element!(to, E => output.map::<E, Bool>(&inputs.get(0), |a, out| {
                map(a, out, <E as Element>::Compute::from_bool);
            }))
        }
        Argument::Array(from, _) => with_element!(numbers from, F => {
            let a = &inputs.get::<F>(0);
            with_element!(to, E => output.map::<E, F>(a, <<F as Element>::Compute as Number>::convert::<<E as Element>::Compute>()))
        }),
        Argument::Scalar(_) => with_element!(to, E => {
            output.map::<E, E>(&inputs.get(0), |a, out| map(a, out, identity))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute;

    fn array(dtype: DType, shape: &[usize]) -> Argument {
        Argument::Array(dtype, Layout::contiguous(shape).unwrap())
    }

    /// Bytes that are numbers of any type, none of them a NaN of which bits may be lost.
    fn numbers(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 37 % 101) as u8 & 0x3f).collect()
    }

    /// More than threads share, and the last part is shorter than the others.
    const SHAPE: [usize; 2] = [101, 997];

    #[test]
    fn a_call_in_place_writes_what_it_writes_elsewhere() {
        let [f32s, f16s, i32s] = [DType::F32, DType::F16, DType::I32].map(|dtype| array(dtype, &SHAPE));
        let row = array(DType::F32, &[997]);
        let calls = [
            (Operator::from(Unary::Exp), vec![f16s], f16s, 0),
            (Binary::Sub.into(), vec![f32s, row], f32s, 0),
            (Binary::Div.into(), vec![row, f32s], f32s, 1),
            (Binary::Sub.into(), vec![f32s, Argument::Scalar(2.into())], f32s, 0),
            (Operator::Copy, vec![i32s], f32s, 0),
            (Operator::Where, vec![array(DType::Bool, &[997]), f32s, row], f32s, 1),
        ];
        for (operator, inputs, output, place) in calls {
            let call = Call::new(operator, &inputs, &[output]).unwrap();
            let bytes: Vec<Option<Vec<u8>>> = (call.inputs().iter())
                .map(|input| input.array().map(|(dtype, layout)| (dtype, layout.range().len())))
                .map(|array| {
                    array.map(|(dtype, len)| match dtype {
                        DType::Bool => (0..len).map(|at| u8::from(at % 3 == 0)).collect(),
                        _ => numbers(len * dtype.size()),
                    })
                })
                .collect();
            let mut elsewhere = vec![0; bytes[place].as_ref().unwrap().len()];
            let read: Vec<_> = bytes.iter().map(Option::as_deref).collect();
            compute(&call, &read, &mut [&mut elsewhere]).unwrap();
            let mut in_place = bytes[place].clone().unwrap();
            let sources: Vec<_> = (read.iter().enumerate())
                .map(|(at, bytes)| match bytes {
                    Some(_) if at == place => Source::Output(0),
                    Some(bytes) => Source::Bytes(bytes),
                    None => Source::Scalar,
                })
                .collect();
            run_in_place(&call, &sources, &mut in_place).unwrap();
            assert!(in_place == elsewhere, "{call}");
            assert!(in_place != bytes[place].clone().unwrap(), "{call}");
        }
    }

    #[test]
    fn both_inputs_may_be_the_output() {
        let numbers = array(DType::F32, &SHAPE);
        let call = Call::new(Binary::Add, &[numbers, numbers], &[numbers]).unwrap();
        let mut out: Vec<f32> = (0..SHAPE[0] * SHAPE[1]).map(|at| at as f32).collect();
        run_in_place(&call, &[Source::Output(0), Source::Output(0)], bytemuck::cast_slice_mut(&mut out))
            .unwrap();
        assert!(out.iter().enumerate().all(|(at, &value)| value == 2.0 * at as f32));
    }
}
