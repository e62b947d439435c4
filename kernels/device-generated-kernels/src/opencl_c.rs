//! OpenCL C 1.2: what it calls types, loads, stores and items.

use std::fmt::Write;

use super::element::{Element, Number};

/// The parameters of a kernel. A step's arguments have this order: each array with the place of its first
/// element, the values, the numbers for indices.
#[derive(Default)]
pub(crate) struct Parameters {
    /// `p0` and on, each with its place `o0` and on; and whether it is written.
    pub(crate) arrays: Vec<(Element, bool)>,
    /// `v0` and on.
    pub(crate) values: Vec<Number>,
    /// The names of sizes, strides and options.
    pub(crate) indices: Vec<String>,
    /// Whether indices need more than 32 bits.
    pub(crate) wide: bool,
    /// Functions that the kernel calls.
    pub(crate) functions: String,
    /// The size of a group, if the kernel depends on it.
    pub(crate) group: Option<[usize; 3]>,
}

/// Conversions of elements that have no type in OpenCL C 1.2 without extensions. `bf16` is rounded to the
/// nearest, ties to the even one; a NaN stays a NaN.
const ELEMENTS: &str = "\
float from_bf16(ushort bits) { return as_float((uint)bits << 16); }
ushort to_bf16(float x) {
    uint bits = as_uint(x);
    return (ushort)(x != x ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
";

/// The type of elements in memory.
pub(crate) fn stored_type(element: Element) -> &'static str {
    match element {
        Element::F32 => "float",
        Element::F16 => "half",
        Element::BF16 | Element::Bits16 => "ushort",
        Element::F64 => "double",
        Element::I32 => "int",
        Element::I64 => "long",
        Element::U8 | Element::Bool => "uchar",
        Element::U32 => "uint",
        Element::Bits64 => "ulong",
    }
}

/// The type of what is computed with.
pub(crate) fn number_type(number: Number) -> &'static str {
    match number {
        Number::Float => "float",
        Number::Double => "double",
        Number::Int => "int",
        Number::Long => "long",
        Number::Uint => "uint",
        Number::Ulong => "ulong",
    }
}

/// A literal number.
pub(crate) fn literal(number: Number, text: &str) -> String {
    match number {
        Number::Float => format!("{text}f"),
        Number::Double => text.to_owned(),
        _ => unreachable!("literals with a point are for floats"),
    }
}

/// The element at `index`, as what is computed with.
pub(crate) fn load(element: Element, array: &str, index: &str) -> String {
    match element {
        Element::F16 => format!("vload_half({index}, {array})"),
        Element::BF16 => format!("from_bf16({array}[{index}])"),
        Element::Bool => format!("(uint)({array}[{index}] != 0)"),
        Element::U8 | Element::Bits16 => format!("(uint){array}[{index}]"),
        _ => format!("{array}[{index}]"),
    }
}

/// A statement that writes the element at `index`.
pub(crate) fn store(element: Element, array: &str, index: &str, value: &str) -> String {
    match element {
        Element::F16 => format!("vstore_half_rte({value}, {index}, {array});"),
        Element::BF16 => format!("{array}[{index}] = to_bf16({value});"),
        Element::Bool => format!("{array}[{index}] = (uchar)(({value}) != 0);"),
        _ => format!("{array}[{index}] = ({})({value});", stored_type(element)),
    }
}

/// The number of this item, of all.
pub(crate) fn item(axis: usize) -> &'static str {
    ["get_global_id(0)", "get_global_id(1)", "get_global_id(2)"][axis]
}

/// The number of this item in its group.
pub(crate) fn item_in_group(axis: usize) -> &'static str {
    ["get_local_id(0)", "get_local_id(1)", "get_local_id(2)"][axis]
}

/// The number of this item's group.
pub(crate) fn group(axis: usize) -> &'static str {
    ["get_group_id(0)", "get_group_id(1)", "get_group_id(2)"][axis]
}

/// A declaration of memory that a group shares.
pub(crate) fn shared(number: Number, name: &str, len: usize) -> String {
    format!("__local {} {name}[{len}];", number_type(number))
}

/// A statement that all items of a group wait at.
pub(crate) fn barrier() -> &'static str {
    "barrier(CLK_LOCAL_MEM_FENCE);"
}

/// The declaration of `lanes` numbers as one type, and how one is read and written: the type,
/// `load(address)`.
pub(crate) fn vector(number: Number, lanes: usize) -> String {
    format!("{}{lanes}", number_type(number))
}

/// `lanes` numbers of an intermediate result from `array + index` on.
pub(crate) fn load_vector(lanes: usize, array: &str, index: &str) -> String {
    format!("vload{lanes}(0, {array} + {index})")
}

/// A statement that writes a vector to private memory.
pub(crate) fn store_vector(lanes: usize, array: &str, index: &str, value: &str) -> String {
    format!("vstore{lanes}({value}, 0, {array} + {index});")
}

/// The whole program, of one kernel with the name `run`.
pub(crate) fn program(parameters: &Parameters, body: &str) -> String {
    let mut text =
        String::from("#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#endif\n");
    text += if parameters.wide { "typedef long Index;\n" } else { "typedef int Index;\n" };
    if parameters.arrays.iter().any(|(element, _)| *element == Element::BF16) {
        text += ELEMENTS;
    }
    text += &parameters.functions;
    let group =
        parameters.group.map(|[x, y, z]| format!("__attribute__((reqd_work_group_size({x}, {y}, {z}))) "));
    let arrays = parameters.arrays.iter().enumerate().map(|(place, (element, written))| {
        let constant = if *written { "" } else { "const " };
        format!("__global {constant}{} *p{place}, Index o{place}", stored_type(*element))
    });
    let values = parameters.values.iter().enumerate();
    let values = values.map(|(place, number)| format!("{} v{place}", number_type(*number)));
    let indices = parameters.indices.iter().map(|name| format!("Index {name}"));
    let list: Vec<String> = arrays.chain(values).chain(indices).collect();
    let _ =
        write!(text, "__kernel {}void run({})\n{{\n{body}}}\n", group.unwrap_or_default(), list.join(", "));
    text
}
