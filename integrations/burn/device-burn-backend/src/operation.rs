//! Names of operations, for people.
//!
//! burn's `OperationIr` has a variant for each of its two hundred operations, and no names. Its serialization
//! has them: a serializer that stops at the first struct learns the variants, so that no table here grows
//! with burn.

use std::fmt;
use std::sync::Arc;

use burn_backend::{DType, Shape};
use burn_ir::{IrVisitorMut, OperationIr, TensorId, TensorIr, TensorStatus};
use device_kernels::operators;
use serde::Serialize;
use serde::ser::{Impossible, Serializer};
use smallvec::SmallVec;

/// The name of an operation, such as `NumericFloat.Add`, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperationName {
    pub(crate) group: &'static str,
    pub(crate) member: &'static str,
    group_number: u32,
    member_number: u32,
}

impl OperationName {
    pub(crate) fn of(operation: &OperationIr) -> Self {
        if let OperationIr::Custom(custom) = operation {
            return Self::of_custom(&custom.id);
        }
        let mut name = Self::pseudo(0, "Operation", "");
        // The serializer always stops with its error.
        let _ = operation.serialize(&mut Names { name: &mut name, depth: 0 });
        name
    }

    /// An operator that a crate declares: `Custom.acme__swiglu`. An unknown one is `Custom`.
    fn of_custom(id: &str) -> Self {
        let entry = operators().iter().enumerate().find(|(_, entry)| entry.name() == id);
        let (number, member) =
            entry.map_or((Self::MEMBERS - 1, ""), |(place, entry)| (place as u32, entry.name()));
        Self { group: "Custom", member, group_number: Self::GROUPS - 2, member_number: number }
    }

    /// Anything that is not a burn operation, such as reading a tensor.
    pub(crate) const fn pseudo(number: u32, group: &'static str, member: &'static str) -> Self {
        Self { group, member, group_number: u32::MAX, member_number: number }
    }

    /// The two numbers as one, below [`Self::COUNT`].
    pub(crate) fn index(self) -> usize {
        let group = (self.group_number.min(Self::GROUPS - 1)) as usize;
        let member = (self.member_number.min(Self::MEMBERS - 1)) as usize;
        group * Self::MEMBERS as usize + member
    }

    const GROUPS: u32 = 32;
    const MEMBERS: u32 = 128;

    /// How many numbers there are.
    pub(crate) const COUNT: usize = (Self::GROUPS * Self::MEMBERS) as usize;
}

impl fmt::Display for OperationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.group)?;
        if self.member.is_empty() { Ok(()) } else { write!(f, ".{}", self.member) }
    }
}

/// What kernels are for, in messages: one operation, or several that run together.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Operation(OperationName),
    Fused {
        /// The name of the expression.
        expression: &'static str,
        operations: Arc<[OperationName]>,
    },
}

impl From<OperationName> for Work {
    fn from(name: OperationName) -> Self {
        Self::Operation(name)
    }
}

/// For example `Fused.mul·add<NumericFloat.Mul, NumericFloat.AddScalar>`.
impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(name) => name.fmt(f),
            Self::Fused { expression, operations } => {
                write!(f, "Fused.{expression}<")?;
                for (place, name) in operations.iter().enumerate() {
                    write!(f, "{}{name}", if place == 0 { "" } else { ", " })?;
                }
                f.write_str(">")
            }
        }
    }
}

/// The tensors of an operation, with burn's identifiers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operands {
    /// One for each use: a tensor that is used twice is listed twice.
    pub(crate) inputs: SmallVec<[TensorIr; 4]>,
    pub(crate) outputs: SmallVec<[TensorIr; 2]>,
}

impl Operands {
    /// Takes the tensors out of `operation`, and leaves local identifiers: one for each use, so that each use
    /// is the last. The order in which an interpreter takes them then does not matter.
    pub(crate) fn take(operation: &mut OperationIr) -> Self {
        let mut operands = Self::default();
        operation.visit_mut(&mut operands);
        operands
    }

    pub(crate) fn input_id(place: usize) -> TensorId {
        TensorId::new(place as u64)
    }

    pub(crate) fn output_id(place: usize) -> TensorId {
        TensorId::new(u64::MAX - place as u64)
    }

    /// The place among the inputs of a tensor with a local identifier.
    pub(crate) fn place(input: &TensorIr) -> usize {
        usize::try_from(input.id.value()).expect("the identifier is a place")
    }
}

/// A clone of a shape. burn's own goes dimension by dimension, and an operation needs several.
pub(crate) fn copy(shape: &Shape) -> Shape {
    Shape::new_raw(SmallVec::from_slice(shape))
}

impl IrVisitorMut for Operands {
    fn visit_tensor_mut(&mut self, tensor: &mut TensorIr) {
        let original = TensorIr { shape: copy(&tensor.shape), ..*tensor };
        if tensor.status == TensorStatus::NotInit {
            tensor.id = Self::output_id(self.outputs.len());
            self.outputs.push(original);
        } else {
            tensor.id = Self::input_id(self.inputs.len());
            tensor.status = TensorStatus::ReadWrite;
            self.inputs.push(original);
        }
    }
}

/// An operation with the types and shapes of its tensors, for messages.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    work: Work,
    inputs: Vec<(DType, Shape)>,
    outputs: Vec<(DType, Shape)>,
}

impl Signature {
    pub(crate) fn new(name: OperationName, operands: &Operands) -> Self {
        let tensor = |tensor: &TensorIr| (tensor.dtype, tensor.shape.clone());
        Self {
            work: name.into(),
            inputs: operands.inputs.iter().map(tensor).collect(),
            outputs: operands.outputs.iter().map(tensor).collect(),
        }
    }

    /// One tensor, without a burn operation.
    pub(crate) fn of_tensor(name: OperationName, dtype: DType, shape: Shape) -> Self {
        Self { work: name.into(), inputs: vec![(dtype, shape)], outputs: Vec::new() }
    }

    /// Operations that run together.
    pub(crate) fn of_fused(work: Work, inputs: Vec<(DType, Shape)>, outputs: Vec<(DType, Shape)>) -> Self {
        Self { work, inputs, outputs }
    }
}

/// For example `NumericFloat.Add(f32 [2, 3], f32 [2, 3]) -> f32 [2, 3]`.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list(f: &mut fmt::Formatter<'_>, tensors: &[(DType, Shape)]) -> fmt::Result {
            for (place, (dtype, shape)) in tensors.iter().enumerate() {
                let separator = if place == 0 { "" } else { ", " };
                write!(f, "{separator}{} {:?}", dtype.name(), &shape[..])?;
            }
            Ok(())
        }
        write!(f, "{}(", self.work)?;
        list(f, &self.inputs)?;
        f.write_str(")")?;
        if !self.outputs.is_empty() {
            f.write_str(" -> ")?;
            list(f, &self.outputs)?;
        }
        Ok(())
    }
}

/// Learns the names of the two outer variants, and stops.
struct Names<'a> {
    name: &'a mut OperationName,
    depth: u8,
}

/// What ends the serialization.
#[derive(Debug)]
struct Stop;

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name is known")
    }
}

impl std::error::Error for Stop {}

impl serde::ser::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

impl Names<'_> {
    fn learn(&mut self, number: u32, variant: &'static str) {
        if self.depth == 0 {
            (self.name.group, self.name.group_number) = (variant, number);
            (self.name.member, self.name.member_number) = ("", 0);
        } else {
            (self.name.member, self.name.member_number) = (variant, number);
        }
        self.depth += 1;
    }
}

/// The fields of a tuple variant: the type of the data is before the operation in some groups.
struct Fields<'a, 'b>(&'b mut Names<'a>);

impl serde::ser::SerializeTupleVariant for Fields<'_, '_> {
    type Ok = ();
    type Error = Stop;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        // The type of the data is an enum as well. The operation comes after it, and overwrites it.
        let depth = self.0.depth;
        let _ = value.serialize(&mut *self.0);
        self.0.depth = depth;
        Ok(())
    }

    fn end(self) -> Result<(), Stop> {
        Err(Stop)
    }
}

macro_rules! stops {
    ($($function:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $function(self, $($argument: $type),*) -> Result<$result, Stop> {
            $(let _ = $argument;)*
            Err(Stop)
        })*
    };
}

impl<'a, 'b> Serializer for &'b mut Names<'a> {
    type Ok = ();
    type Error = Stop;
    type SerializeSeq = Impossible<(), Stop>;
    type SerializeTuple = Impossible<(), Stop>;
    type SerializeTupleStruct = Impossible<(), Stop>;
    type SerializeTupleVariant = Fields<'a, 'b>;
    type SerializeMap = Impossible<(), Stop>;
    type SerializeStruct = Impossible<(), Stop>;
    type SerializeStructVariant = Impossible<(), Stop>;

    fn serialize_unit_variant(self, _: &'static str, number: u32, variant: &'static str) -> Result<(), Stop> {
        self.learn(number, variant);
        Err(Stop)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        number: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        self.learn(number, variant);
        if self.depth == 1 { value.serialize(self) } else { Err(Stop) }
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        number: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields<'a, 'b>, Stop> {
        self.learn(number, variant);
        Ok(Fields(self))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), Stop> {
        Err(Stop)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, _: &T) -> Result<(), Stop> {
        Err(Stop)
    }

    stops! {
        serialize_bool(v: bool) -> ();
        serialize_i8(v: i8) -> ();
        serialize_i16(v: i16) -> ();
        serialize_i32(v: i32) -> ();
        serialize_i64(v: i64) -> ();
        serialize_u8(v: u8) -> ();
        serialize_u16(v: u16) -> ();
        serialize_u32(v: u32) -> ();
        serialize_u64(v: u64) -> ();
        serialize_f32(v: f32) -> ();
        serialize_f64(v: f64) -> ();
        serialize_char(v: char) -> ();
        serialize_str(v: &str) -> ();
        serialize_bytes(v: &[u8]) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(name: &'static str) -> ();
        serialize_seq(len: Option<usize>) -> Impossible<(), Stop>;
        serialize_tuple(len: usize) -> Impossible<(), Stop>;
        serialize_tuple_struct(name: &'static str, len: usize) -> Impossible<(), Stop>;
        serialize_map(len: Option<usize>) -> Impossible<(), Stop>;
        serialize_struct(name: &'static str, len: usize) -> Impossible<(), Stop>;
        serialize_struct_variant(name: &'static str, number: u32, variant: &'static str, len: usize)
            -> Impossible<(), Stop>;
    }
}

#[cfg(test)]
mod tests {
    use burn_ir::{BaseOperationIr, BinaryOpIr, FloatOperationIr, NumericOperationIr, ShapeOpIr, UnaryOpIr};

    use super::*;

    fn tensor(id: u64, status: TensorStatus) -> TensorIr {
        TensorIr { id: TensorId::new(id), shape: [2, 3].into(), status, dtype: DType::F32 }
    }

    #[test]
    fn operations_have_the_names_of_their_variants() {
        let [a, b] = [0, 1].map(|id| tensor(id, TensorStatus::ReadOnly));
        let out = tensor(2, TensorStatus::NotInit);
        let mut add = OperationIr::NumericFloat(
            DType::F32,
            NumericOperationIr::Add(BinaryOpIr { lhs: a.clone(), rhs: b, out: out.clone() }),
        );
        let name = OperationName::of(&add);
        assert_eq!(name.to_string(), "NumericFloat.Add");
        assert_eq!(
            Signature::new(name, &Operands::take(&mut add)).to_string(),
            "NumericFloat.Add(f32 [2, 3], f32 [2, 3]) -> f32 [2, 3]"
        );

        let reshape =
            OperationIr::BaseInt(BaseOperationIr::Reshape(ShapeOpIr { input: a.clone(), out: out.clone() }));
        assert_eq!(OperationName::of(&reshape).to_string(), "BaseInt.Reshape");
        let exp =
            OperationIr::Float(DType::F16, FloatOperationIr::Exp(UnaryOpIr { input: a, out: out.clone() }));
        assert_eq!(OperationName::of(&exp).to_string(), "Float.Exp");
        assert_eq!(OperationName::of(&OperationIr::Drop(out)).to_string(), "Drop");
        let mut indices = [&add, &reshape, &exp].map(|operation| OperationName::of(operation).index());
        indices.sort_unstable();
        assert!(indices.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
