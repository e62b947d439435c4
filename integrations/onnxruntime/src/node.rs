//! What an operator knows of its node before shapes and values are known: from the graph, when ONNX Runtime
//! asks which nodes a provider takes, and from a kernel's description, when it makes the kernel.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::ptr;

use device_kernels::{DType, MAX_RANK};
use half::{bf16, f16};
use ort_sys::{
    ONNXTensorElementDataType as Element, OrtKernelInfo, OrtNode, OrtOpAttr, OrtOpAttrType, OrtTypeInfo,
    OrtValue, OrtValueInfo,
};

use crate::abi::{TypeNumber, as_type};
use crate::api::{Api, borrowed, text};
use crate::failure::Failure;

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Text(String),
    Texts(Vec<String>),
    /// A tensor with one element or more, as numbers.
    Tensor(DType, Vec<f64>),
    /// One that no operator here has.
    Other,
}

/// What is known of an input or output before shapes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    /// The type as which kernels move its elements, `u8` for `int8`; `None` if they do not have it.
    pub(crate) dtype: Option<DType>,
    is_int8: bool,
    /// How many dimensions it has; `None` if that is not known.
    rank: Option<usize>,
}

/// A node, as an operator sees it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) operator: String,
    pub(crate) since: i32,
    /// What is known of each input; `None` for one that is left out.
    pub(crate) inputs: Vec<Option<Value>>,
    pub(crate) outputs: Vec<Option<Value>>,
    attributes: BTreeMap<String, Attribute>,
}

impl Node {
    fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.get(name)
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        match self.attribute(name) {
            Some(Attribute::Int(value)) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn int_or(&self, name: &str, otherwise: i64) -> i64 {
        self.int(name).unwrap_or(otherwise)
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.attribute(name) {
            Some(Attribute::Ints(values)) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        match self.attribute(name) {
            Some(Attribute::Float(value)) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn float_or(&self, name: &str, otherwise: f32) -> f32 {
        self.float(name).unwrap_or(otherwise)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.attribute(name) {
            Some(Attribute::Text(value)) => Some(value),
            _ => None,
        }
    }

    /// Only the node of a graph has such attributes: a kernel's description has no way to them.
    pub(crate) fn texts(&self, name: &str) -> Option<&[String]> {
        match self.attribute(name) {
            Some(Attribute::Texts(values)) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn has_attribute(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<(DType, &[f64])> {
        match self.attribute(name) {
            Some(Attribute::Tensor(dtype, values)) => Some((*dtype, values)),
            _ => None,
        }
    }

    /// The type of an input that has to be there.
    pub(crate) fn input(&self, at: usize) -> Result<DType, Failure> {
        type_of(&self.inputs, at)
    }

    /// The type as which kernels move an input's elements, which is `u8` for `int8` too.
    pub(crate) fn moved(&self, at: usize) -> Result<DType, Failure> {
        let value = self.inputs.get(at).copied().flatten();
        value.and_then(|value| value.dtype).ok_or_else(|| Failure::new("no kernel has its type"))
    }

    /// Whether an input is of `int8`.
    pub(crate) fn is_int8(&self, at: usize) -> bool {
        self.inputs.get(at).copied().flatten().is_some_and(|value| value.is_int8)
    }

    /// Whether an output is of `int8`.
    pub(crate) fn makes_int8(&self, at: usize) -> bool {
        self.outputs.get(at).copied().flatten().is_some_and(|value| value.is_int8)
    }

    /// How many dimensions an input has.
    pub(crate) fn rank(&self, at: usize) -> Result<usize, Failure> {
        let value = self.inputs.get(at).copied().flatten();
        let rank = value.and_then(|value| value.rank);
        rank.ok_or_else(|| Failure::new("how many dimensions it has is not known"))
    }

    /// Whether an input is given.
    pub(crate) fn has_input(&self, at: usize) -> bool {
        self.inputs.get(at).is_some_and(Option::is_some)
    }

    /// Declines arrays of more dimensions than kernels have.
    pub(crate) fn check_ranks(&self) -> Result<(), Failure> {
        let values = self.inputs.iter().chain(&self.outputs).flatten();
        match values.filter_map(|value| value.rank).find(|&rank| rank > MAX_RANK) {
            Some(rank) => Err(Failure::new(format_args!("{rank} dimensions"))),
            None => Ok(()),
        }
    }

    /// Whether an output is asked for.
    pub(crate) fn has_output(&self, at: usize) -> bool {
        self.outputs.get(at).is_some_and(Option::is_some)
    }

    pub(crate) fn output(&self, at: usize) -> Result<DType, Failure> {
        type_of(&self.outputs, at)
    }

    /// A node of a graph.
    ///
    /// # Safety
    ///
    /// `node` is alive.
    pub(crate) unsafe fn of_graph(api: Api, node: *const OrtNode) -> Result<Self, Failure> {
        let ort = api.ort;
        let mut operator = ptr::null();
        let mut since = 0;
        // SAFETY: the node is alive, and there is room for what is asked, here and below.
        unsafe {
            api.check((ort.Node_GetOperatorType)(node, &raw mut operator))?;
            api.check((ort.Node_GetSinceVersion)(node, &raw mut since))?;
            let values =
                |count: unsafe extern "system" fn(*const OrtNode, *mut usize) -> _,
                 get: unsafe extern "system" fn(*const OrtNode, *mut *const OrtValueInfo, usize) -> _|
                 -> Result<Vec<Option<Value>>, Failure> {
                    let mut len = 0;
                    api.check(count(node, &raw mut len))?;
                    let mut infos = vec![ptr::null(); len];
                    api.check(get(node, infos.as_mut_ptr(), len))?;
                    infos.into_iter().map(|info| type_of_value(api, info)).collect()
                };
            let inputs = values(ort.Node_GetNumInputs, ort.Node_GetInputs)?;
            let outputs = values(ort.Node_GetNumOutputs, ort.Node_GetOutputs)?;
            let mut len = 0;
            api.check((ort.Node_GetNumAttributes)(node, &raw mut len))?;
            let mut listed = vec![ptr::null(); len];
            api.check((ort.Node_GetAttributes)(node, listed.as_mut_ptr(), len))?;
            let mut attributes = BTreeMap::new();
            for attribute in listed {
                let mut name = ptr::null();
                api.check((ort.OpAttr_GetName)(attribute, &raw mut name))?;
                attributes.insert(borrowed(name).to_owned(), attribute_of(api, attribute)?);
            }
            Ok(Self { operator: borrowed(operator).to_owned(), since, inputs, outputs, attributes })
        }
    }

    /// The node of a kernel. It has the attributes with these names; a kernel's description has no list.
    ///
    /// # Safety
    ///
    /// `info` is alive.
    pub(crate) unsafe fn of_kernel(
        api: Api,
        info: *const OrtKernelInfo,
        names: &[(&str, Kind)],
    ) -> Result<Self, Failure> {
        let ort = api.ort;
        let mut since = 0;
        // SAFETY: the description is alive, and there is room for what is asked, here and below.
        unsafe {
            let operator = text_of(api, |room, len| (ort.KernelInfo_GetOperatorType)(info, room, len))?;
            api.check((ort.KernelInfo_GetOperatorSinceVersion)(info, &raw mut since))?;
            let values =
                |count: unsafe extern "system" fn(*const OrtKernelInfo, *mut usize) -> _,
                 get: unsafe extern "system" fn(*const OrtKernelInfo, usize, *mut *mut OrtTypeInfo) -> _|
                 -> Result<Vec<Option<Value>>, Failure> {
                    let mut len = 0;
                    api.check(count(info, &raw mut len))?;
                    let value = |at| {
                        let mut found = ptr::null_mut();
                        // One that is left out has no type.
                        if api.check(get(info, at, &raw mut found)).is_err() || found.is_null() {
                            return Ok(None);
                        }
                        let value = type_of_info(api, found);
                        (ort.ReleaseTypeInfo)(found);
                        value
                    };
                    (0..len).map(value).collect()
                };
            let inputs = values(ort.KernelInfo_GetInputCount, ort.KernelInfo_GetInputTypeInfo)?;
            let outputs = values(ort.KernelInfo_GetOutputCount, ort.KernelInfo_GetOutputTypeInfo)?;
            let mut attributes = BTreeMap::new();
            for &(name, kind) in names {
                if let Some(value) = attribute_of_kernel(api, info, &text(name), kind) {
                    attributes.insert(name.to_owned(), value);
                }
            }
            Ok(Self { operator, since, inputs, outputs, attributes })
        }
    }
}

/// The name of a kernel's node, or its operator if it has none.
///
/// # Safety
///
/// `info` is alive.
pub(crate) unsafe fn name_of_kernel(api: Api, info: *const OrtKernelInfo) -> Result<String, Failure> {
    // SAFETY: see above; there is room for what is asked.
    unsafe {
        let name = text_of(api, |room, len| (api.ort.KernelInfo_GetNodeName)(info, room, len))?;
        if name.is_empty() {
            return text_of(api, |room, len| (api.ort.KernelInfo_GetOperatorType)(info, room, len));
        }
        Ok(name)
    }
}

/// The type of a value that kernels compute with.
fn type_of(values: &[Option<Value>], at: usize) -> Result<DType, Failure> {
    let value = values.get(at).copied().flatten().filter(|value| !value.is_int8);
    value.and_then(|value| value.dtype).ok_or_else(|| Failure::new("no kernel has its type"))
}

/// What kind of value an attribute has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Int,
    Ints,
    Float,
    Text,
    Tensor,
}

/// # Safety
///
/// `info` is null or alive.
unsafe fn type_of_value(api: Api, info: *const OrtValueInfo) -> Result<Option<Value>, Failure> {
    if info.is_null() {
        return Ok(None);
    }
    let mut found: *const OrtTypeInfo = ptr::null();
    // SAFETY: see above. The type belongs to the value.
    unsafe {
        api.check((api.ort.GetValueInfoTypeInfo)(info, &raw mut found))?;
        type_of_info(api, found)
    }
}

/// What is known of a value, which may be no tensor; `None` if it is left out.
///
/// # Safety
///
/// `info` is null or alive.
unsafe fn type_of_info(api: Api, info: *const OrtTypeInfo) -> Result<Option<Value>, Failure> {
    if info.is_null() {
        return Ok(None);
    }
    let mut tensor = ptr::null();
    let mut number: TypeNumber = 0;
    // SAFETY: see above.
    unsafe {
        api.check((api.ort.CastTypeInfoToTensorInfo)(info, &raw mut tensor))?;
        if tensor.is_null() {
            return Ok(Some(Value { dtype: None, is_int8: false, rank: None }));
        }
        api.check((api.ort.GetTensorElementType)(tensor, as_type(&mut number)))?;
        let mut rank = None;
        if (api.ort.TensorTypeAndShape_HasShape)(tensor) {
            api.check((api.ort.GetDimensionsCount)(tensor, rank.insert(0)))?;
        }
        let is_int8 = number == Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 as TypeNumber;
        Ok(Some(Value { dtype: moved_as(number), is_int8, rank }))
    }
}

/// The types that ONNX and kernels both have, by ONNX's numbers.
const TYPES: [(Element, DType); 9] = [
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, DType::F32),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, DType::U8),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, DType::I32),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, DType::I64),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, DType::Bool),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, DType::F16),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, DType::F64),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, DType::U32),
    (Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, DType::BF16),
];

/// The type with ONNX's number.
pub(crate) fn dtype_of(number: TypeNumber) -> Option<DType> {
    TYPES.iter().find(|(element, _)| *element as TypeNumber == number).map(|(_, dtype)| *dtype)
}

/// The type as which kernels move elements of ONNX's type.
pub(crate) fn moved_as(number: TypeNumber) -> Option<DType> {
    if number == Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 as TypeNumber {
        return Some(DType::U8);
    }
    dtype_of(number)
}

/// # Safety
///
/// `get` writes a text to the room, and its length with the NUL; without room it writes the length alone.
unsafe fn text_of(
    api: Api,
    get: impl Fn(*mut c_char, *mut usize) -> ort_sys::OrtStatusPtr,
) -> Result<String, Failure> {
    let mut len = 0;
    api.check(get(ptr::null_mut(), &raw mut len))?;
    let mut bytes = vec![0_u8; len.max(1)];
    api.check(get(bytes.as_mut_ptr().cast(), &raw mut len))?;
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// # Safety
///
/// `attribute` is alive.
unsafe fn attribute_of(api: Api, attribute: *const OrtOpAttr) -> Result<Attribute, Failure> {
    let ort = api.ort;
    let mut kind = 0_i32;
    // SAFETY: the attribute is alive, and there is room for what is asked, here and below. A newer runtime
    // may have kinds that the enum has not, so that it is read as a number.
    unsafe {
        api.check((ort.OpAttr_GetType)(attribute, (&raw mut kind).cast()))?;
        let is = |other: OrtOpAttrType| kind == other as i32;
        let bytes = |kind: OrtOpAttrType| {
            let mut len = 0;
            // Without room it is an error that says how long the value is.
            let status = (ort.ReadOpAttr)(attribute, kind, ptr::null_mut(), 0, &raw mut len);
            let _ = api.check(status);
            let mut bytes = vec![0_u8; len];
            api.check((ort.ReadOpAttr)(attribute, kind, bytes.as_mut_ptr().cast(), len, &raw mut len))?;
            Ok::<_, Failure>(bytes)
        };
        Ok(if is(OrtOpAttrType::ORT_OP_ATTR_INT) {
            Attribute::Int(numbers(&bytes(OrtOpAttrType::ORT_OP_ATTR_INT)?, i64::from_ne_bytes)[0])
        } else if is(OrtOpAttrType::ORT_OP_ATTR_INTS) {
            Attribute::Ints(numbers(&bytes(OrtOpAttrType::ORT_OP_ATTR_INTS)?, i64::from_ne_bytes))
        } else if is(OrtOpAttrType::ORT_OP_ATTR_FLOAT) {
            Attribute::Float(numbers(&bytes(OrtOpAttrType::ORT_OP_ATTR_FLOAT)?, f32::from_ne_bytes)[0])
        } else if is(OrtOpAttrType::ORT_OP_ATTR_STRING) {
            let bytes = bytes(OrtOpAttrType::ORT_OP_ATTR_STRING)?;
            let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
            Attribute::Text(String::from_utf8_lossy(&bytes[..end]).into_owned())
        } else if is(OrtOpAttrType::ORT_OP_ATTR_STRINGS) {
            // One after the other, each with its NUL.
            let bytes = bytes(OrtOpAttrType::ORT_OP_ATTR_STRINGS)?;
            let texts = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|&byte| byte == 0);
            Attribute::Texts(texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect())
        } else if is(OrtOpAttrType::ORT_OP_ATTR_TENSOR) {
            let mut value = ptr::null_mut();
            api.check((ort.OpAttr_GetTensorAttributeAsOrtValue)(attribute, &raw mut value))?;
            let values = elements(api, value);
            (ort.ReleaseValue)(value);
            values.map_or(Attribute::Other, |(dtype, values)| Attribute::Tensor(dtype, values))
        } else {
            Attribute::Other
        })
    }
}

/// The numbers of bytes.
fn numbers<T, const N: usize>(bytes: &[u8], from: fn([u8; N]) -> T) -> Vec<T> {
    bytes.chunks_exact(N).map(|chunk| from(chunk.try_into().expect("it is of this length"))).collect()
}

/// # Safety
///
/// `info` is alive.
unsafe fn attribute_of_kernel(
    api: Api,
    info: *const OrtKernelInfo,
    name: &CString,
    kind: Kind,
) -> Option<Attribute> {
    let ort = api.ort;
    let name = name.as_ptr();
    // SAFETY: see above; there is room for what is asked. An attribute that is not there is an error.
    unsafe {
        match kind {
            Kind::Int => {
                let mut value = 0;
                api.check((ort.KernelInfoGetAttribute_int64)(info, name, &raw mut value)).ok()?;
                Some(Attribute::Int(value))
            }
            Kind::Float => {
                let mut value = 0.0;
                api.check((ort.KernelInfoGetAttribute_float)(info, name, &raw mut value)).ok()?;
                Some(Attribute::Float(value))
            }
            Kind::Ints => {
                let mut len = 0;
                api.check((ort.KernelInfoGetAttributeArray_int64)(info, name, ptr::null_mut(), &raw mut len))
                    .ok()?;
                let mut values = vec![0; len];
                let get = ort.KernelInfoGetAttributeArray_int64;
                api.check(get(info, name, values.as_mut_ptr(), &raw mut len)).ok()?;
                Some(Attribute::Ints(values))
            }
            Kind::Text => {
                let get = ort.KernelInfoGetAttribute_string;
                text_of(api, |room, len| get(info, name, room, len)).ok().map(Attribute::Text)
            }
            Kind::Tensor => {
                let mut allocator = ptr::null_mut();
                api.check((ort.GetAllocatorWithDefaultOptions)(&raw mut allocator)).ok()?;
                let mut value = ptr::null_mut();
                api.check((ort.KernelInfoGetAttribute_tensor)(info, name, allocator, &raw mut value)).ok()?;
                let values = elements(api, value);
                (ort.ReleaseValue)(value);
                values.map(|(dtype, values)| Attribute::Tensor(dtype, values))
            }
        }
    }
}

/// The elements of a tensor in memory of the host, as numbers; `None` if kernels do not have their type.
///
/// # Safety
///
/// `value` is a tensor in memory of the host, and alive.
pub(crate) unsafe fn elements(api: Api, value: *const OrtValue) -> Option<(DType, Vec<f64>)> {
    let mut number: TypeNumber = 0;
    let mut sizes = ptr::null();
    let mut rank = 0;
    let mut data = ptr::null();
    let mut len = 0;
    // SAFETY: see above; there is room for what is asked.
    let bytes = unsafe {
        let get = api.ort.GetTensorElementTypeAndShapeDataReference;
        api.check(get(value, as_type(&mut number), &raw mut sizes, &raw mut rank)).ok()?;
        api.check((api.ort.GetTensorSizeInBytes)(value, &raw mut len)).ok()?;
        api.check((api.ort.GetTensorData)(value, &raw mut data)).ok()?;
        if len == 0 { &[] } else { std::slice::from_raw_parts(data.cast::<u8>(), len) }
    };
    let dtype = dtype_of(number)?;
    let values = match dtype {
        DType::F32 => numbers(bytes, f32::from_ne_bytes).into_iter().map(f64::from).collect(),
        DType::F64 => numbers(bytes, f64::from_ne_bytes),
        DType::I32 => numbers(bytes, i32::from_ne_bytes).into_iter().map(f64::from).collect(),
        DType::U32 => numbers(bytes, u32::from_ne_bytes).into_iter().map(f64::from).collect(),
        // An integer beyond 2^53 is rounded: shapes and axes are shorter.
        DType::I64 => numbers(bytes, i64::from_ne_bytes).into_iter().map(|value| value as f64).collect(),
        DType::U8 | DType::Bool => bytes.iter().map(|&byte| f64::from(byte)).collect(),
        DType::F16 => numbers(bytes, f16::from_ne_bytes).into_iter().map(f64::from).collect(),
        DType::BF16 => numbers(bytes, bf16::from_ne_bytes).into_iter().map(f64::from).collect(),
        _ => return None,
    };
    Some((dtype, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_no_int8() {
        let int8 = Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 as TypeNumber;
        assert!(dtype_of(int8).is_none(), "then `moved_as`, `is_int8` and `Int8Inputs` have no purpose");
    }
}
