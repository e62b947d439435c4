//! A correct kernel set for host memory, which may have one defect.

use std::mem::discriminant;
use std::sync::atomic::{AtomicUsize, Ordering};

use device_kernels::{
    Argument, Binary, Call, Compare, Conv2d, Coverage, DType, Expression, Extremum, KernelSet, Operator,
    Pool2d, Reduction, Scalar, Unary, Update,
};
use device_kernels_conformance::element::{self, Value};
use device_kernels_conformance::expect::Expect;
use device_kernels_conformance::reference::{self, Array, Input, for_each_index};
use device_registry::Device;
use device_registry::backend::{BackendError, HostMemory, Launch};
use parking_lot::Mutex;

use crate::expression;
use crate::sort;
use crate::wrong::Wrong;

/// A kernel set that computes by the suite's reference.
#[derive(Default)]
pub(crate) struct Set {
    wrong: Option<Wrong>,
    /// The first call of each operator.
    first: Mutex<Vec<Call>>,
    calls: AtomicUsize,
    questions: AtomicUsize,
}

/// Where the elements of an array are in its buffer.
#[derive(Clone, Debug)]
struct Places {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: isize,
}

impl Places {
    fn new((dtype, layout): (DType, &device_kernels::Layout)) -> Self {
        let (shape, strides) = (layout.shape().to_vec(), layout.strides().to_vec());
        Self { dtype, shape, strides, offset: layout.offset() as isize }
    }

    /// The strides of a plain array.
    fn plain(&self) -> Vec<isize> {
        let sizes = |dim: usize| self.shape[dim + 1..].iter().product::<usize>() as isize;
        (0..self.shape.len()).map(sizes).collect()
    }

    /// Where an element begins, in bytes. `None` outside the buffer, for wrong sets.
    fn of(&self, index: &[usize], len: usize) -> Option<usize> {
        let steps: isize =
            index.iter().zip(&self.strides).map(|(&index, &stride)| index as isize * stride).sum();
        let size = self.dtype.size();
        let start = usize::try_from(self.offset + steps).ok()? * size;
        (start + size <= len).then_some(start)
    }

    fn read(&self, bytes: &[u8], only_one_is_true: bool) -> Array {
        let mut values = Vec::new();
        for_each_index(&self.shape, |index| {
            let place = self.of(index, bytes.len());
            let value = place.map_or(Value::Int(0), |place| match self.dtype {
                DType::Bool if only_one_is_true => Value::Int(i128::from(bytes[place] == 1)),
                dtype => element::read(dtype, &bytes[place..]),
            });
            values.push(value);
        });
        Array { dtype: self.dtype, shape: self.shape.clone(), values }
    }
}

impl KernelSet for Set {
    fn coverage(&self, _device: Device) -> Vec<Coverage> {
        let mut coverage = Coverage::of_all();
        match self.wrong {
            Some(Wrong::DeclaresTooLittle) => coverage.retain(|one| one.operator() != "tanh"),
            Some(Wrong::DeclaresTooMuch) => coverage.push(Coverage::of("no_such_operator")),
            _ => {}
        }
        coverage
    }

    fn supports(&self, _device: Device, call: &Call) -> bool {
        match self.wrong {
            Some(Wrong::DeclaresAndRefuses) => call.operator().name() != "tanh",
            Some(Wrong::ClaimsNothing) => false,
            Some(Wrong::SupportsFlips) => self.questions.fetch_add(1, Ordering::Relaxed).is_multiple_of(2),
            _ => true,
        }
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.wrong {
            Some(Wrong::ClaimsAndFails) => return Err(BackendError::unsupported("the kernel")),
            Some(Wrong::Panics) => panic!("in a kernel"),
            Some(Wrong::WritesNothing) => return Ok(()),
            Some(Wrong::SkipsCalls) if number % 7 == 6 => return Ok(()),
            _ => {}
        }
        let first = self.first_of(call);
        let mut places: Vec<Places> = call.arrays().map(Places::new).collect();
        let inputs = places.len() - call.outputs().len();
        self.misplace(call, &first, &mut places, inputs);
        if self.is(Wrong::WritesBeforeReading) {
            write(launch, &places[inputs], inputs, |_| Some(Value::Int(0)))?;
        }
        let mut buffers = Vec::new();
        for span in launch.spans() {
            let span = span.as_ref().ok_or_else(|| BackendError::invalid("a buffer is empty"))?;
            let start = if self.is(Wrong::IgnoresBufferStart) { 0 } else { span.offset() };
            buffers.push(span.memory_as::<HostMemory>()?.read(start..span.range().end)?.to_vec());
        }
        let mut arrays = places.iter().zip(&buffers);
        let read = |(places, bytes): (&Places, &Vec<u8>)| places.read(bytes, self.is(Wrong::OnlyOneIsTrue));
        let operands: Vec<Input> = (call.inputs().iter().zip(first.inputs()))
            .map(|(input, first)| match (input, first) {
                (Argument::Scalar(_), Argument::Scalar(first)) if self.is(Wrong::StaleScalar) => {
                    Input::Scalar(*first)
                }
                (Argument::Scalar(scalar), _) if self.is(Wrong::ScalarsAreIntegers) => {
                    Input::Scalar(Scalar::Int(scalar.as_i64()))
                }
                (Argument::Scalar(scalar), _) => Input::Scalar(*scalar),
                (Argument::Array(..), _) => Input::Array(read(arrays.next().expect("it has a buffer"))),
            })
            .collect();
        let outputs: Vec<Array> = arrays.map(read).collect();
        let results = match (self.wrong, self.expression(call, &first)) {
            (Some(wrong), Some(expression)) => {
                let in_place = in_place(call, launch, &places)?;
                expression::results(wrong, expression, &operands, &outputs, &in_place)
            }
            _ => self.compute(call, &first, operands, &outputs, number),
        };
        for (number, values) in results.iter().enumerate() {
            let place = inputs + number;
            let len = values.len();
            let skipped = |at: usize| {
                (self.is(Wrong::MissesTheLast) && at + 1 == len && len % 8 != 0)
                    || (self.is(Wrong::OneGroup) && at >= 1 << 16)
            };
            write(launch, &places[place], place, |at| values[at].filter(|_| !skipped(at)))?;
            self.write_elsewhere(launch, &places, place)?;
        }
        Ok(())
    }
}

/// Writes the elements of an array, except for elements without a value.
fn write(
    launch: &Launch<'_>,
    places: &Places,
    span: usize,
    value: impl Fn(usize) -> Option<Value>,
) -> Result<(), BackendError> {
    let span = launch.spans()[span].as_ref().ok_or_else(|| BackendError::invalid("a buffer is empty"))?;
    let mut bytes = span.memory_as::<HostMemory>()?.write(span.range())?;
    let mut at = 0;
    for_each_index(&places.shape, |index| {
        if let (Some(value), Some(place)) = (value(at), places.of(index, bytes.len())) {
            element::write(places.dtype, value, &mut bytes[place..]);
        }
        at += 1;
    });
    Ok(())
}

impl Set {
    pub(crate) fn new(wrong: Option<Wrong>) -> Self {
        Self { wrong, ..Self::default() }
    }

    fn is(&self, wrong: Wrong) -> bool {
        self.wrong == Some(wrong)
    }

    /// The first call of the operator, with any options.
    fn first_of(&self, call: &Call) -> Call {
        let mut first = self.first.lock();
        let same = |other: &&Call| match (other.operator(), call.operator()) {
            (Operator::Unary(a), Operator::Unary(b)) => a == b,
            (Operator::Binary(a), Operator::Binary(b)) => a == b,
            (Operator::Compare(a), Operator::Compare(b)) => a == b,
            (Operator::Expression(a), Operator::Expression(b)) => {
                a.name() == b.name() && a.inputs() == b.inputs() && a.outputs() == b.outputs()
            }
            (a, b) => discriminant(&a) == discriminant(&b) && other.inputs().len() == call.inputs().len(),
        };
        if let Some(first) = first.iter().find(same) {
            return first.clone();
        }
        first.push(call.clone());
        call.clone()
    }

    /// The expression of a call, as a set with a defect of expressions believes it to be.
    fn expression(&self, call: &Call, first: &Call) -> Option<Expression> {
        let Operator::Expression(expression) = call.operator() else { return None };
        match (self.wrong?, first.operator()) {
            (Wrong::ExpressionStaleLiteral, Operator::Expression(stale)) => Some(stale),
            (
                Wrong::ExpressionKeepsPrecision
                | Wrong::ExpressionFuses
                | Wrong::ExpressionWritesEarly
                | Wrong::ExpressionLosesOutput
                | Wrong::ExpressionRepeatsOutput
                | Wrong::ExpressionCountsOnce
                | Wrong::ExpressionFirstChunk
                | Wrong::ExpressionReducesOneDim,
                _,
            ) => Some(expression),
            _ => None,
        }
    }

    /// Moves the arrays to where a wrong set believes that they are.
    fn misplace(&self, call: &Call, first: &Call, places: &mut [Places], inputs: usize) {
        let Some(wrong) = self.wrong else { return };
        let is_product = call.operator() == Operator::MatMul;
        let is_expression = matches!(call.operator(), Operator::Expression(_));
        let strides_of_first = places[0].strides.clone();
        for (at, array) in places.iter_mut().enumerate() {
            let (is_input, rank) = (at < inputs, array.shape.len());
            match wrong {
                Wrong::OffByAStride if at == 0 && is_input && rank > 0 => {
                    array.offset += array.strides[rank - 1]
                }
                Wrong::IgnoresOffset if is_input => array.offset = 0,
                Wrong::NoBroadcast if is_input && array.strides.contains(&0) => array.strides = array.plain(),
                Wrong::NegativeForward => {
                    array.strides.iter_mut().for_each(|stride| *stride = stride.abs());
                }
                Wrong::IgnoresInputStrides if is_input => array.strides = array.plain(),
                Wrong::IgnoresOutputStrides if !is_input => array.strides = array.plain(),
                Wrong::FourDimensions if rank > 4 => array.strides[..rank - 4].fill(0),
                Wrong::MatmulIgnoresTransposition if is_product && at == 1 => {
                    let columns = array.shape[rank - 1] as isize;
                    array.strides[rank - 2..].copy_from_slice(&[columns, 1]);
                }
                Wrong::ExpressionSharesStrides if is_expression && at == 1 && is_input => {
                    array.strides.clone_from(&strides_of_first);
                }
                Wrong::MatmulIgnoresBatch if is_product && at == 1 => array.strides[..rank - 2].fill(0),
                Wrong::StaleLayout => {
                    if let Some((_, layout)) =
                        first.arrays().nth(at).filter(|(_, layout)| layout.rank() == rank)
                    {
                        array.strides = layout.strides().to_vec();
                        array.offset = layout.offset() as isize;
                    }
                }
                _ => {}
            }
        }
    }

    fn write_elsewhere(
        &self,
        launch: &Launch<'_>,
        places: &[Places],
        output: usize,
    ) -> Result<(), BackendError> {
        let mut array = places[output].clone();
        match self.wrong {
            Some(Wrong::OneTooMany) => {
                // The memory behind the last element, in or behind the buffer.
                let Some(span) = &launch.spans()[output] else { return Ok(()) };
                let last = array.shape.iter().zip(&array.strides);
                let last: isize = last.map(|(&size, &stride)| (size as isize - 1) * stride.max(0)).sum();
                let start = span.offset() + (array.offset + last + 1) as usize * array.dtype.size();
                let memory = span.memory_as::<HostMemory>()?;
                memory.write(start..start + array.dtype.size())?.fill(0x5a);
                Ok(())
            }
            Some(Wrong::RawBools) if array.dtype == DType::Bool => {
                let Some(span) = &launch.spans()[output] else { return Ok(()) };
                let mut bytes = span.memory_as::<HostMemory>()?.write(span.range())?;
                for_each_index(&array.shape, |index| {
                    if let Some(place) = array.of(index, bytes.len()) {
                        bytes[place] *= 255;
                    }
                });
                Ok(())
            }
            Some(Wrong::WritesGaps) if array.strides.iter().all(|&stride| stride > 0) => {
                let last = array.shape.iter().zip(&array.strides);
                let count: isize = last.map(|(&size, &stride)| (size as isize - 1) * stride).sum();
                let written = array.clone();
                let mut taken = vec![false; count as usize + 1];
                for_each_index(&written.shape, |index| {
                    let steps = index.iter().zip(&written.strides);
                    let at: isize = steps.map(|(&index, &stride)| index as isize * stride).sum();
                    taken[at as usize] = true;
                });
                (array.shape, array.strides) = (vec![taken.len()], vec![1]);
                write(launch, &array, output, |at| (!taken[at]).then_some(Value::Int(0)))
            }
            Some(Wrong::WritesToInput) if output > 0 => {
                write(launch, &places[0], 0, |at| (at == 0).then_some(Value::Int(99)))
            }
            _ => Ok(()),
        }
    }

    /// The elements of the outputs. Those without a value are not written.
    fn compute(
        &self,
        call: &Call,
        first: &Call,
        mut inputs: Vec<Input>,
        outputs: &[Array],
        number: usize,
    ) -> Vec<Vec<Option<Value>>> {
        let operator = self.misread(call.operator(), first, outputs, &mut inputs);
        self.change_inputs(operator, &mut inputs, outputs, number);
        let expected = reference::expected(operator, &inputs, outputs);
        let mut results: Vec<Vec<Option<Value>>> =
            expected.iter().map(|output| output.iter().map(Expect::likely).collect()).collect();
        for (values, output) in results.iter_mut().zip(outputs) {
            for (at, value) in values.iter_mut().enumerate() {
                *value = value.map(|value| self.change(operator, &inputs, output.dtype, at, value));
            }
        }
        self.change_outputs(operator, &inputs, outputs, &mut results);
        results
    }

    /// The operator with the options that a wrong set believes it to have.
    fn misread(
        &self,
        operator: Operator,
        first: &Call,
        outputs: &[Array],
        inputs: &mut Vec<Input>,
    ) -> Operator {
        let Some(wrong) = self.wrong else { return operator };
        let conv = |conv: Conv2d| match wrong {
            Wrong::ConvIgnoresDilation => Conv2d { dilation: [1, 1], ..conv },
            Wrong::ConvIgnoresPadding => Conv2d { padding: [0, 0], ..conv },
            Wrong::ConvIgnoresGroups => Conv2d { groups: 1, ..conv },
            Wrong::ConvSwapsStrides => Conv2d { stride: [conv.stride[1], conv.stride[0]], ..conv },
            Wrong::ShortOptions => Conv2d {
                stride: short(conv.stride, 1),
                padding: short(conv.padding, 0),
                dilation: short(conv.dilation, 1),
                ..conv
            },
            _ => conv,
        };
        let pool = |pool: Pool2d| match wrong {
            Wrong::ShortOptions => Pool2d {
                kernel: short(pool.kernel, 1),
                stride: short(pool.stride, 1),
                padding: short(pool.padding, 0),
                dilation: short(pool.dilation, 1),
            },
            _ => pool,
        };
        match operator {
            Operator::Conv2d(options) => {
                if wrong == Wrong::ConvIgnoresBias {
                    inputs.truncate(2);
                }
                Operator::Conv2d(if wrong == Wrong::StaleOptions {
                    stale_conv(first, options)
                } else {
                    conv(options)
                })
            }
            Operator::Conv2dInputGrad(options) => Operator::Conv2dInputGrad(conv(options)),
            Operator::Conv2dWeightGrad(options) => Operator::Conv2dWeightGrad(conv(options)),
            Operator::MatMul if wrong == Wrong::MatmulIgnoresBias => {
                inputs.truncate(2);
                operator
            }
            Operator::Reduce { reduction, dims } if wrong == Wrong::ReducesOtherDim => {
                let shape = shape(&inputs[0]);
                let dim = dims.iter().next().unwrap_or(0);
                let other = if shape.is_empty() { 0 } else { (dim + 1) % shape.len() };
                let one = dims.iter().count() == 1 && shape[dim] == shape[other];
                let of = Operator::Reduce { reduction, dims: device_kernels::Dims::from([other]) };
                if one { of } else { operator }
            }
            Operator::Sort { dim, descending, sorted } => {
                let shape = shape(&inputs[0]);
                let next = (dim + 1) % shape.len();
                match (wrong, first.operator()) {
                    (Wrong::SortsUpward, _) => Operator::Sort { dim, descending: false, sorted },
                    (Wrong::SortsOtherDim, _) if outputs[0].shape[dim] == outputs[0].shape[next] => {
                        Operator::Sort { dim: next, descending, sorted }
                    }
                    (Wrong::StaleOptions, Operator::Sort { dim: stale, descending, .. })
                        if shape.get(stale) == shape.get(dim) =>
                    {
                        Operator::Sort { dim: stale, descending, sorted }
                    }
                    _ => operator,
                }
            }
            Operator::Gather { .. } if wrong == Wrong::GathersFirstDim => Operator::Gather { dim: 0 },
            Operator::Scatter { dim, .. } if wrong == Wrong::ScatterOverwrites => {
                Operator::Scatter { dim, update: Update::Replace }
            }
            Operator::MaxPool2d(options) => Operator::MaxPool2d(pool(options)),
            Operator::MaxPool2dGrad(options) => Operator::MaxPool2dGrad(pool(options)),
            Operator::AvgPool2d { pool, count_padding } if wrong == Wrong::PoolCountsPadding => {
                Operator::AvgPool2d { pool, count_padding: !count_padding }
            }
            Operator::AvgPool2d { pool: options, count_padding } => {
                Operator::AvgPool2d { pool: pool(options), count_padding }
            }
            Operator::AvgPool2dGrad { pool: options, count_padding } => {
                Operator::AvgPool2dGrad { pool: pool(options), count_padding }
            }
            Operator::Random { distribution, seed, offset } => {
                let (seed, offset) = match wrong {
                    Wrong::RandomByLength => (seed + outputs[0].values.len() as u64, offset),
                    Wrong::RandomIgnoresOffset => (seed, 0),
                    Wrong::RandomHalfSeed => (seed as u32 as u64, offset),
                    _ => (seed, offset),
                };
                match (wrong, first.operator()) {
                    (Wrong::StaleOptions, stale @ Operator::Random { .. }) => stale_random(stale, operator),
                    _ => Operator::Random { distribution, seed, offset },
                }
            }
            Operator::Softmax { dim } if wrong == Wrong::StaleOptions => match first.operator() {
                Operator::Softmax { dim: stale } if stale < shape(&inputs[0]).len() => {
                    Operator::Softmax { dim: stale }
                }
                _ => Operator::Softmax { dim },
            },
            _ => operator,
        }
    }

    /// Changes what the operator computes with.
    fn change_inputs(&self, operator: Operator, inputs: &mut [Input], outputs: &[Array], number: usize) {
        let Some(wrong) = self.wrong else { return };
        let reduces = matches!(operator, Operator::Reduce { reduction: Reduction::Sum, .. });
        match (wrong, operator, inputs) {
            (Wrong::FirstChunk, Operator::Reduce { .. }, [Input::Array(array)])
                if outputs[0].values.len() == 1 && array.values.len() > 1024 =>
            {
                array.shape.fill(1);
                *array.shape.last_mut().expect("it has dimensions") = 1024;
                array.values.truncate(1024);
            }
            (Wrong::RacingReduction, _, [Input::Array(array)])
                if reduces && array.values.len() > 1024 && number % 2 == 1 =>
            {
                array.values[777] = element::convert(Value::Int(0), array.dtype);
            }
            (Wrong::NanLostInReduction, Operator::Reduce { .. }, [Input::Array(array)])
            | (Wrong::PoolSkipsNan, Operator::MaxPool2d(_), [Input::Array(array)])
            | (Wrong::ArgSkipsNan, Operator::ArgReduce { .. }, [Input::Array(array)]) => {
                let smallest = !matches!(
                    operator,
                    Operator::Reduce { reduction: Reduction::Min, .. }
                        | Operator::ArgReduce { extremum: Extremum::Min, .. }
                );
                let instead = if smallest { f64::NEG_INFINITY } else { f64::INFINITY };
                for value in array.values.iter_mut().filter(|value| value.is_nan()) {
                    *value = Value::Float(instead);
                }
            }
            (Wrong::SortsNanFirst, Operator::Sort { .. }, [Input::Array(array)]) => {
                for value in array.values.iter_mut().filter(|value| value.is_nan()) {
                    *value = Value::Float(-f64::NAN);
                }
            }
            (Wrong::SortsZerosAlike, Operator::Sort { .. }, [Input::Array(array)]) => {
                let zeros = array.values.iter_mut().filter(|value| **value == Value::Float(0.0));
                zeros.for_each(|value| *value = Value::Float(0.0));
            }
            (Wrong::SortLosesTheLargest, Operator::Sort { .. }, [Input::Array(array)]) => {
                let largest = match array.dtype {
                    dtype if dtype.is_float() => Value::Float(f64::INFINITY),
                    dtype => Value::Int(element::range(dtype).1),
                };
                let lost = array.values.iter_mut().filter(|value| **value == largest);
                lost.for_each(|value| *value = element::convert(Value::Int(0), array.dtype));
            }
            (Wrong::MatmulSkipsZeros, Operator::MatMul, [Input::Array(a), Input::Array(b), ..]) => {
                let zero = |value: &Value| !value.is_true();
                if a.values.iter().any(zero) || b.values.iter().any(zero) {
                    let special = |value: &&mut Value| !value.as_f64().is_finite();
                    let all = a.values.iter_mut().chain(&mut b.values);
                    all.filter(special).for_each(|value| *value = Value::Float(0.0));
                }
            }
            (Wrong::ClampsReads, Operator::Gather { dim }, [Input::Array(array), Input::Array(indices)])
            | (
                Wrong::ClampsReads,
                Operator::IndexSelect { dim },
                [Input::Array(array), Input::Array(indices)],
            ) => {
                clamp(indices, array.shape[dim]);
            }
            (Wrong::ClampsWrites, Operator::Scatter { dim, .. }, [Input::Array(indices), _])
            | (Wrong::ClampsWrites, Operator::IndexAssign { dim, .. }, [Input::Array(indices), _]) => {
                clamp(indices, outputs[0].shape[dim]);
            }
            (
                Wrong::ScatterLosesUpdates,
                Operator::Scatter { update: Update::Add, .. },
                [Input::Array(indices), Input::Array(values)],
            ) if indices.shape.len() == 2 && indices.shape[1] == 2 => {
                // All but the last of the values for one element are zero.
                for at in 0..indices.values.len() {
                    let again = (at + 2..indices.values.len()).step_by(2);
                    if again.into_iter().any(|later| indices.values[later] == indices.values[at]) {
                        values.values[at] = element::convert(Value::Int(0), values.dtype);
                    }
                }
            }
            _ => {}
        }
    }

    /// One element of an output, as a wrong set computes it.
    fn change(&self, operator: Operator, inputs: &[Input], dtype: DType, at: usize, right: Value) -> Value {
        let Some(wrong) = self.wrong else { return right };
        let alike = inputs.iter().rev().find_map(|input| match input {
            Input::Array(array) => Some(array.dtype),
            Input::Scalar(_) => None,
        });
        let of = |place: usize| match &inputs[place] {
            Input::Array(array) => array.values[at.min(array.values.len() - 1)],
            Input::Scalar(scalar) => element::of_scalar(*scalar, alike.unwrap_or(dtype)),
        };
        let float = Value::Float;
        let saturated = |exact: i128| {
            let (low, high) = element::range(dtype);
            Value::Int(exact.clamp(low, high))
        };
        match (wrong, operator) {
            (Wrong::NanLostInMax, Operator::Binary(Binary::Max)) if dtype.is_float() => {
                float(of(0).as_f64().max(of(1).as_f64()))
            }
            (Wrong::NanLostInMin, Operator::Binary(Binary::Min)) if dtype.is_float() => {
                float(of(0).as_f64().min(of(1).as_f64()))
            }
            (Wrong::DivRoundsDown, Operator::Binary(Binary::Div))
                if dtype.is_integer() && of(1).as_int() != 0 =>
            {
                let (a, b) = (of(0).as_int(), of(1).as_int());
                Value::Int((a - (a % b + b) % b) / b)
            }
            (Wrong::RemHasSignOfDividend, Operator::Binary(Binary::Rem)) => match (of(0), of(1)) {
                (Value::Float(a), Value::Float(b)) => float(a % b),
                (_, Value::Int(0)) => right,
                (a, b) => Value::Int(a.as_int() % b.as_int()),
            },
            (Wrong::Saturates, Operator::Binary(Binary::Add)) if dtype.is_integer() => {
                saturated(of(0).as_int() + of(1).as_int())
            }
            (Wrong::ConversionWraps, Operator::Copy) if dtype.is_integer() => match of(0) {
                Value::Float(value) => Value::Int(element::wrap(dtype, value as i128)),
                Value::Int(_) => right,
            },
            (Wrong::FlushesCopies, Operator::Copy) if dtype.is_float() => {
                if element::is_subnormal(dtype, right.as_f64()) { float(0.0) } else { right }
            }
            (Wrong::RoundsHalfAway, Operator::Unary(Unary::Round)) => float(of(0).as_f64().round()),
            (Wrong::ShiftsByAll, Operator::Binary(Binary::Shl | Binary::Shr)) => {
                let is_wide = !(0..8 * dtype.size() as i128).contains(&of(1).as_int());
                if is_wide { Value::Int(0) } else { right }
            }
            (Wrong::NanIsLess, Operator::Compare(Compare::Lt)) if of(0).is_nan() => Value::Int(1),
            (Wrong::ClampLosesNan, Operator::Clamp) if of(0).is_nan() => of(1),
            (Wrong::RoughExp, Operator::Unary(Unary::Exp)) => float(right.as_f64() * (1.0 + 2_f64.powi(-18))),
            (Wrong::DoublesAreSingle, _) if dtype == DType::F64 => {
                float(element::round(DType::F32, right.as_f64()))
            }
            (
                Wrong::HalvesAreAddedInMemory,
                Operator::Scatter { update: Update::Add, .. }
                | Operator::IndexAssign { update: Update::Add, .. },
            ) if matches!(dtype, DType::F16 | DType::BF16) => {
                float(right.as_f64().min(if dtype == DType::F16 { 2048.0 } else { 256.0 }))
            }
            (Wrong::ConvSkipsPadding, Operator::Conv2d(_) | Operator::Conv2dWeightGrad(_))
                if right.is_nan() =>
            {
                float(9.0)
            }
            (Wrong::ArgFindsLast, Operator::ArgReduce { dim, .. }) => {
                last_of_equals(&inputs[0], dim, at, right)
            }
            (Wrong::PlacesOfWindows, Operator::MaxPool2d(_)) if dtype.is_index() => match &inputs[0] {
                Input::Array(array) if array.shape[2] * array.shape[3] > 1 => Value::Int(right.as_int() % 2),
                _ => right,
            },
            (Wrong::MeanOfAll, Operator::Reduce { reduction: Reduction::Mean, .. }) => match &inputs[0] {
                Input::Array(array) => {
                    let groups = array.values.len() / group_len(operator, array);
                    float(right.as_f64() / groups as f64)
                }
                Input::Scalar(_) => right,
            },
            _ => right,
        }
    }

    /// Changes whole outputs.
    fn change_outputs(
        &self,
        operator: Operator,
        inputs: &[Input],
        outputs: &[Array],
        results: &mut [Vec<Option<Value>>],
    ) {
        let dtype = outputs[0].dtype;
        match (self.wrong, operator, inputs) {
            (
                Some(Wrong::NarrowSums),
                Operator::Reduce { reduction: Reduction::Sum, .. },
                [Input::Array(array)],
            ) if outputs[0].values.len() == 1 => {
                let add = |sum: f64, value: &Value| element::round(dtype, sum + value.as_f64());
                results[0][0] = Some(Value::Float(array.values.iter().fold(0.0, add)));
            }
            (Some(Wrong::NarrowSums), Operator::MatMul, [Input::Array(a), Input::Array(b)])
                if a.shape.len() == 2 && dtype.is_float() =>
            {
                let (depth, columns) = (a.shape[1], b.shape[1]);
                for (at, result) in results[0].iter_mut().enumerate() {
                    let (row, column) = (at / columns, at % columns);
                    let add = |sum: f64, k: usize| {
                        let product =
                            a.values[row * depth + k].as_f64() * b.values[k * columns + column].as_f64();
                        element::round(dtype, sum + element::round(dtype, product))
                    };
                    *result = Some(Value::Float((0..depth).fold(0.0, add)));
                }
            }
            (Some(Wrong::SoftmaxOverflows), Operator::Softmax { .. }, [Input::Array(array)]) => {
                let large = |value: &Value| value.as_f64() > 700.0;
                if array.values.iter().any(large) {
                    results[0].fill(Some(Value::Float(f64::NAN)));
                }
            }
            (
                Some(wrong @ (Wrong::MeanOfNothing | Wrong::MaxOfPadding)),
                Operator::AvgPool2d { pool, .. } | Operator::MaxPool2d(pool),
                [Input::Array(array)],
            ) => {
                let of_mean = matches!(operator, Operator::AvgPool2d { .. });
                let instead = match (wrong, of_mean) {
                    (Wrong::MeanOfNothing, true) => Value::Float(f64::NAN),
                    (Wrong::MaxOfPadding, false) => element::convert(Value::Int(0), dtype),
                    _ => return,
                };
                // With ones everywhere, only windows without elements have another mean.
                let ones = Array {
                    dtype: DType::F64,
                    values: vec![Value::Float(1.0); array.values.len()],
                    ..array.clone()
                };
                let mean = Operator::AvgPool2d { pool, count_padding: false };
                let means = &reference::expected(mean, &[Input::Array(ones)], outputs)[0];
                for (result, mean) in results[0].iter_mut().zip(means) {
                    if mean.likely() == Some(Value::Float(0.0)) {
                        *result = Some(instead);
                    }
                }
            }
            (
                Some(wrong @ (Wrong::SortReversesEquals | Wrong::SortsBlocks | Wrong::SortKeepsTheLast)),
                Operator::Sort { .. },
                [Input::Array(array)],
            ) if array.shape.len() == 1 => sort::missort(wrong, operator, array, outputs, results),
            (Some(Wrong::RandomRestarts), Operator::Random { .. }, _) => {
                for at in 256..results[0].len() {
                    results[0][at] = results[0][at % 256];
                }
            }
            _ => {}
        }
    }
}

/// For each output, the input whose elements it is.
fn in_place(call: &Call, launch: &Launch<'_>, places: &[Places]) -> Result<Vec<Option<usize>>, BackendError> {
    let mut memories = Vec::new();
    for span in launch.spans() {
        let span = span.as_ref().ok_or_else(|| BackendError::invalid("a buffer is empty"))?;
        memories.push((std::ptr::from_ref(span.memory_as::<HostMemory>()?), span.range()));
    }
    let arrays = call.inputs().iter().enumerate().filter(|(_, input)| input.array().is_some());
    let arrays: Vec<usize> = arrays.map(|(input, _)| input).collect();
    let same = |output: usize, input: usize| {
        let is_same = places[output].offset == places[input].offset
            && places[output].strides == places[input].strides
            && places[output].shape == places[input].shape;
        is_same && memories[output] == memories[input]
    };
    let of_output = |output| (0..arrays.len()).find(|&input| same(output, input)).map(|input| arrays[input]);
    Ok((arrays.len()..places.len()).map(of_output).collect())
}

fn shape(input: &Input) -> &[usize] {
    match input {
        Input::Array(array) => &array.shape,
        Input::Scalar(_) => &[],
    }
}

/// Brings indices into the range of a dimension.
fn clamp(indices: &mut Array, size: usize) {
    for value in &mut indices.values {
        *value = Value::Int(value.as_int().clamp(0, size as i128 - 1));
    }
}

/// The lowest 31 bits, and at least so much.
fn short(numbers: [usize; 2], least: usize) -> [usize; 2] {
    numbers.map(|number| (number & i32::MAX as usize).max(least))
}

/// The dilation, padding and stride of the first call, if they give an output of the same size.
fn stale_conv(first: &Call, conv: Conv2d) -> Conv2d {
    match first.operator() {
        Operator::Conv2d(stale) => Conv2d { groups: conv.groups, ..stale },
        _ => conv,
    }
}

/// The random numbers of the first call, of the distribution of this one.
fn stale_random(first: Operator, operator: Operator) -> Operator {
    match (first, operator) {
        (Operator::Random { seed, offset, .. }, Operator::Random { distribution, .. }) => {
            Operator::Random { distribution, seed, offset }
        }
        _ => operator,
    }
}

/// How many elements each element of a reduction is computed from.
fn group_len(operator: Operator, array: &Array) -> usize {
    match operator {
        Operator::Reduce { dims, .. } => dims.iter().map(|dim| array.shape[dim]).product(),
        _ => 1,
    }
}

/// The last of the elements that are equal to the one that was found.
fn last_of_equals(input: &Input, dim: usize, at: usize, found: Value) -> Value {
    let Input::Array(array) = input else { return found };
    let inner: usize = array.shape[dim + 1..].iter().product();
    let (size, found_at) = (array.shape[dim], found.as_int() as usize);
    let start = at / inner * inner * size + at % inner;
    let best = array.values[start + found_at * inner];
    let last = (0..size).rev().find(|place| array.values[start + place * inner] == best);
    Value::Int(last.unwrap_or(found_at) as i128)
}
