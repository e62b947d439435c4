//! Calls as they cross the border.

use std::ptr;

use device_kernels::{Argument, Call, DType, Layout, MAX_RANK, Operator, Scalar};
use device_plugin::interface::{Span, Str, Table, take};
use device_registry::backend::BackendError;
use smallvec::SmallVec;

use crate::abi::{self, Number};

/// The most options, values, arguments and dimensions that this side reads of a call. An expression has an
/// option for each of its steps.
const MOST: usize = 256;

fn number(scalar: Scalar) -> Number {
    let dtype = match scalar {
        Scalar::Float(_) => DType::F64,
        Scalar::Int(_) => DType::I64,
        Scalar::Bool(_) => DType::Bool,
    };
    Number { integer: scalar.as_i64(), real: scalar.as_f64(), dtype: abi::number_of(dtype), reserved: 0 }
}

fn scalar(number: &Number) -> Option<Scalar> {
    match abi::dtype_of(number.dtype)? {
        DType::F64 => Some(Scalar::Float(number.real)),
        DType::I64 => Some(Scalar::Int(number.integer)),
        DType::Bool => Some(Scalar::Bool(number.integer != 0)),
        _ => None,
    }
}

const NOWHERE: Span = Span { memory: ptr::null_mut(), offset: 0, len: 0 };

fn array(dtype: DType, layout: &Layout, span: Span) -> abi::Argument {
    abi::Argument {
        span,
        shape: layout.shape().as_ptr(),
        strides: layout.strides().as_ptr(),
        offset: layout.offset(),
        dtype: abi::number_of(dtype),
        rank: layout.rank() as u32,
        number: Number::default(),
    }
}

/// Runs a function with a call as the interface has it. There is a span for each array, or none.
pub(crate) fn with<R>(call: &Call, spans: &[Span], run: impl FnOnce(&abi::Call) -> R) -> R {
    let mut spans = spans.iter().copied();
    let mut next = || spans.next().unwrap_or(NOWHERE);
    let inputs: SmallVec<[abi::Argument; 3]> = call
        .inputs()
        .iter()
        .map(|input| match input {
            Argument::Array(dtype, layout) => array(*dtype, layout, next()),
            Argument::Scalar(scalar) => abi::Argument {
                span: NOWHERE,
                shape: ptr::null(),
                strides: ptr::null(),
                offset: 0,
                dtype: 0,
                rank: 0,
                number: number(*scalar),
            },
        })
        .collect();
    let outputs: SmallVec<[abi::Argument; 2]> =
        call.outputs().iter().map(|(dtype, layout)| array(*dtype, layout, next())).collect();
    let options = call.operator().options();
    let values: SmallVec<[SmallVec<[Number; 2]>; 5]> =
        options.iter().map(|option| option.values.iter().copied().map(number).collect()).collect();
    let options: SmallVec<[abi::CallOption; 5]> = options
        .iter()
        .zip(&values)
        .map(|(option, values)| abi::CallOption {
            name: Str::of(option.name),
            values: values.as_ptr(),
            count: values.len(),
        })
        .collect();
    run(&abi::Call {
        name: Str::of(call.operator().name()),
        options: options.as_ptr(),
        option_count: options.len(),
        inputs: inputs.as_ptr(),
        input_count: inputs.len(),
        outputs: outputs.as_ptr(),
        output_count: outputs.len(),
        ..abi::Call::ZEROED
    })
}

/// A call of the other side, checked again, and the spans of its arrays.
///
/// # Errors
///
/// If it is no call of an operator that this side has.
///
/// # Safety
///
/// The pointer is valid, as far as the size of the table says, and so are the pointers in it.
pub(crate) unsafe fn read(call: *const abi::Call) -> Result<(Call, Vec<Span>), BackendError> {
    // SAFETY: the caller promises that the table is valid.
    let call = unsafe { take(call) }.map_err(|error| invalid(format_args!("the call {error}")))?;
    // SAFETY: the caller promises that the text is valid.
    let name = unsafe { call.name.text() }.map_err(invalid)?;
    // SAFETY: the caller promises that there are as many options.
    let options = unsafe { slice(call.options, call.option_count) }?;
    let mut named: Vec<(String, Vec<Scalar>)> = Vec::with_capacity(options.len());
    for option in options {
        // SAFETY: the caller promises that the text is valid.
        let name = unsafe { option.name.text() }.map_err(invalid)?;
        // SAFETY: the caller promises that there are as many values.
        let values = unsafe { slice(option.values, option.count) }?;
        let values: Option<Vec<Scalar>> = values.iter().map(scalar).collect();
        let values =
            values.ok_or_else(|| invalid(format_args!("the option `{name}` has no valid number")))?;
        named.push((name.into_owned(), values));
    }
    let named: Vec<(&str, &[Scalar])> = named.iter().map(|(name, values)| (&**name, &**values)).collect();
    let operator = Operator::from_description(&name, &named).map_err(invalid)?;
    // One that this side does not know changes what is computed.
    let known = operator.options();
    if let Some((unknown, _)) = named.iter().find(|(name, _)| known.iter().all(|option| option.name != *name))
    {
        return Err(invalid(format_args!("the operator `{name}` has no option `{unknown}` on this side")));
    }
    let mut spans = Vec::new();
    // SAFETY: the caller promises that there are as many arguments.
    let inputs = unsafe { arguments(call.inputs, call.input_count, &mut spans) }?;
    // SAFETY: the caller promises that there are as many arguments.
    let outputs = unsafe { arguments(call.outputs, call.output_count, &mut spans) }?;
    let call = Call::new(operator, &inputs, &outputs).map_err(invalid)?;
    if call.arrays().count() == spans.len() {
        return Ok((call, spans));
    }
    Err(invalid(format_args!("{call} has other arrays on this side of the interface")))
}

/// # Safety
///
/// There are as many arguments, and their pointers are valid.
unsafe fn arguments(
    start: *const abi::Argument,
    count: usize,
    spans: &mut Vec<Span>,
) -> Result<Vec<Argument>, BackendError> {
    // SAFETY: the caller promises that there are as many.
    let arguments = unsafe { slice(start, count) }?;
    let argument = |argument: &abi::Argument| {
        if argument.dtype == 0 {
            return scalar(&argument.number)
                .map(Argument::Scalar)
                .ok_or_else(|| invalid("an argument has no valid number"));
        }
        let dtype = abi::dtype_of(argument.dtype)
            .ok_or_else(|| invalid(format_args!("no type of elements has the number {}", argument.dtype)))?;
        let rank = argument.rank as usize;
        if rank > MAX_RANK {
            return Err(invalid(format_args!("an array has {rank} dimensions; expected at most {MAX_RANK}")));
        }
        // SAFETY: the caller promises that there are as many sizes as dimensions.
        let shape = unsafe { slice(argument.shape, rank) }?;
        // SAFETY: the caller promises that there are as many strides as dimensions.
        let strides = unsafe { slice(argument.strides, rank) }?;
        spans.push(argument.span);
        let layout = Layout::strided(shape, strides, argument.offset).map_err(invalid)?;
        Ok(Argument::Array(dtype, layout))
    };
    arguments.iter().map(argument).collect()
}

/// # Safety
///
/// The pointer is null or valid for as many values, for as long as the result is used.
unsafe fn slice<'a, T>(start: *const T, count: usize) -> Result<&'a [T], BackendError> {
    if count == 0 {
        return Ok(&[]);
    }
    if start.is_null() || count > MOST {
        return Err(invalid(format_args!("a list of a call is NULL or has {count} values")));
    }
    // SAFETY: it is not null, and the caller promises that there are as many.
    Ok(unsafe { std::slice::from_raw_parts(start, count) })
}

fn invalid(message: impl std::fmt::Display) -> BackendError {
    BackendError::invalid(message)
}
