//! The types of `include/device_kernels.h`, which documents them. A test compares the two.

use std::ffi::c_void;

use device_kernels::DType;
use device_plugin::interface::{Object, Report, Span, Status, Str};

/// The group of the entries.
pub(crate) const GROUP: &str = "device.kernels";

pub(crate) const MAJOR: u32 = 0;
pub(crate) const MINOR: u32 = 1;

pub(crate) const CONTIGUOUS: u32 = 1;
pub(crate) const ARRAYS_ONLY: u32 = 2;

/// The types of elements, each with its number.
pub(crate) const DTYPES: [(DType, u32); DType::ALL.len()] = [
    (DType::F32, 1),
    (DType::F16, 2),
    (DType::BF16, 3),
    (DType::F64, 4),
    (DType::I32, 5),
    (DType::I64, 6),
    (DType::U8, 7),
    (DType::U32, 8),
    (DType::Bool, 9),
];

/// The number of a type.
pub(crate) fn number_of(dtype: DType) -> u32 {
    DTYPES.iter().find(|(known, _)| *known == dtype).map_or(0, |(_, number)| *number)
}

/// The type with a number. `None` for a number of the other side that has none.
pub(crate) fn dtype_of(number: u32) -> Option<DType> {
    DTYPES.iter().find(|(_, known)| *known == number).map(|(dtype, _)| *dtype)
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Number {
    pub(crate) integer: i64,
    pub(crate) real: f64,
    pub(crate) dtype: u32,
    pub(crate) reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOption {
    pub(crate) name: Str,
    pub(crate) values: *const Number,
    pub(crate) count: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    pub(crate) span: Span,
    pub(crate) shape: *const usize,
    pub(crate) strides: *const isize,
    pub(crate) offset: usize,
    pub(crate) dtype: u32,
    pub(crate) rank: u32,
    pub(crate) number: Number,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) struct_size: usize,
    pub(crate) name: Str,
    pub(crate) options: *const CallOption,
    pub(crate) option_count: usize,
    pub(crate) inputs: *const Argument,
    pub(crate) input_count: usize,
    pub(crate) outputs: *const Argument,
    pub(crate) output_count: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) struct_size: usize,
    pub(crate) name: Str,
    pub(crate) max_rank: usize,
    pub(crate) max_elements: usize,
    pub(crate) dtypes: u32,
    pub(crate) flags: u32,
}

pub(crate) type Supports = unsafe extern "C" fn(set: Object, ordinal: usize, call: *const Call) -> u32;
pub(crate) type IsShort = unsafe extern "C" fn(set: Object, call: *const Call) -> u32;
pub(crate) type Launch = unsafe extern "C" fn(
    set: Object,
    device: Object,
    stream: Object,
    call: *const Call,
    report: *const Report,
) -> Status;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetApi {
    pub(crate) struct_size: usize,
    pub(crate) kernels: *const *const Kernel,
    pub(crate) kernel_count: usize,
    pub(crate) supports: Option<Supports>,
    pub(crate) is_short: Option<IsShort>,
    pub(crate) launch: Option<Launch>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernels {
    pub(crate) struct_size: usize,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) set: *mut c_void,
    pub(crate) api: *const SetApi,
}

device_plugin::__tables! { Call Kernel SetApi Kernels }
