//! The nodes of an expression in OpenCL C: each is a constant, `e0` and on.

use std::fmt::Write;

use device_kernels::{Expression, NodeKind, Operator, Reduction};
use smallvec::SmallVec;

use crate::element::{Element, Number, Value, element};
use crate::expression::{self, Function};
use crate::opencl_c;

/// The nodes with what they are in a kernel.
pub(super) struct Values {
    pub(super) expression: Expression,
    elements: SmallVec<[Element; 32]>,
    /// Whether another node is computed from it.
    used: SmallVec<[bool; 32]>,
    /// Whether `f16` in memory is converted by [`HALVES`].
    halves: bool,
}

/// What an input is in a kernel: the value, or the array, with this number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Value(usize),
    Array(usize),
}

/// A reduction: how it begins and continues.
pub(super) struct Running {
    pub(super) node: usize,
    pub(super) operand: usize,
    pub(super) number: Number,
    pub(super) first: String,
    mean: bool,
    expression: &'static str,
}

/// The nearest `f16` or `bf16`, ties to the even one, as a `float`. Below the smallest normal `f16`, its
/// numbers are evenly apart, and the last bit of a `float` near a half is that distance.
const ROUND: [(Element, &str, &str); 2] = [
    (
        Element::F16,
        "round_f16",
        "float round_f16(float x) {
    const uint bits = as_uint(x), size = bits & 0x7fffffffu;
    const uint normal = (size + 0xfffu + ((size >> 13) & 1u)) & 0xffffe000u;
    const uint limited = normal >= 0x47800000u ? 0x7f800000u : normal;
    const uint small = as_uint((as_float(size) + 0.5f) - 0.5f);
    const uint number = size < 0x38800000u ? small : limited;
    return as_float((size > 0x7f800000u ? 0x7fc00000u : number) | (bits & 0x80000000u));
}
",
    ),
    (
        Element::BF16,
        "round_bf16",
        "float round_bf16(float x) {
    const uint bits = as_uint(x);
    return x != x ? x : as_float((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}
",
    ),
];

/// Conversions of `f16` for processors, whose compilers make vectors of these more often than of
/// `vload_half`.
const HALVES: &str = "float from_f16(ushort half_bits) {
    const uint sign = (uint)(half_bits & 0x8000u) << 16, bits = (uint)(half_bits & 0x7fffu) << 13;
    const uint normal = bits + (bits >= 0x0f800000u ? 0x70000000u : 0x38000000u);
    const uint small = as_uint(as_float(bits + 0x38800000u) - as_float(0x38800000u));
    return as_float((bits < 0x00800000u ? small : normal) | sign);
}
ushort to_f16(float x) {
    const uint bits = as_uint(x), size = bits & 0x7fffffffu;
    const uint normal = (size + 0xfffu + ((size >> 13) & 1u) - 0x38000000u) >> 13;
    const uint limited = normal >= 0x7c00u ? 0x7c00u : normal;
    const uint small = as_uint(as_float(size) + 0.5f) - 0x3f000000u;
    const uint number = size < 0x38800000u ? small : limited;
    return (ushort)((size > 0x7f800000u ? 0x7e00u : number) | ((bits >> 16) & 0x8000u));
}
";

/// What the value of a node is called.
pub(super) fn name(node: usize) -> String {
    format!("e{node}")
}

impl Values {
    /// The nodes, if a kernel can compute each of them.
    pub(super) fn of(expression: Expression, halves: bool) -> Option<Self> {
        let nodes = expression.nodes();
        let elements = nodes.iter().map(|node| element(node.dtype)).collect::<Option<_>>()?;
        let mut used = SmallVec::from_elem(false, nodes.len());
        for (_, operands) in nodes.iter().filter_map(|node| node.operands()) {
            operands.iter().for_each(|&operand| used[operand] = true);
        }
        let values = Self { expression, elements, used, halves };
        for (place, node) in nodes.iter().enumerate() {
            match node.operands() {
                Some((Operator::Reduce { .. }, _)) => drop(values.running(place)?),
                Some(_) => drop(values.text(place)?),
                None => {}
            }
        }
        Some(values)
    }

    pub(super) fn have_doubles(&self) -> bool {
        self.elements.contains(&Element::F64)
    }

    /// What an array of the elements of a node has in memory.
    pub(super) fn stored(&self, node: usize) -> Element {
        match self.elements[node] {
            Element::F16 if self.halves => Element::Bits16,
            element => element,
        }
    }

    /// What a node is computed as.
    pub(super) fn number(&self, node: usize) -> Number {
        self.elements[node].number()
    }

    /// The type of the value.
    pub(super) fn number_type(&self, node: usize) -> &'static str {
        opencl_c::number_type(self.number(node))
    }

    /// The expression of an element-wise node, and what it computes with.
    fn text(&self, node: usize) -> Option<(Number, &'static str)> {
        let (operator, operands) = self.expression.nodes()[node].operands()?;
        let of = self.elements[*operands.last()?];
        Some((of.number(), Function::of(operator)?.expression(of, self.elements[node])?))
    }

    /// The reduction that a node is.
    pub(super) fn running(&self, node: usize) -> Option<Running> {
        let (Operator::Reduce { reduction, .. }, &[operand]) = self.expression.nodes()[node].operands()?
        else {
            return None;
        };
        let of = self.elements[operand];
        let (function, first) = expression::reduction(reduction, of)?;
        let expression = function.expression(of, of)?;
        let mean = reduction == Reduction::Mean;
        Some(Running { node, operand, number: of.number(), first, mean, expression })
    }

    /// The functions that nodes call.
    pub(super) fn functions(&self) -> String {
        let mut functions: Vec<String> = Vec::new();
        let nodes = 0..self.elements.len();
        if nodes.clone().any(|node| self.stored(node) == Element::Bits16) {
            functions.push(HALVES.to_owned());
        }
        for (element, _, text) in ROUND {
            if nodes.clone().any(|node| self.elements[node] == element && self.rounds(node)) {
                functions.push(text.to_owned());
            }
        }
        for (number, text) in nodes.filter_map(|node| self.text(node)) {
            for function in expression::functions(number, text) {
                if !functions.contains(&function) {
                    functions.push(function);
                }
            }
        }
        functions.concat()
    }

    /// A statement that declares the value of a node, which is no reduction. `place` says where an input's
    /// element is.
    pub(super) fn declare(&self, node: usize, inputs: &[Source], place: impl Fn(usize) -> String) -> String {
        let value = match &self.expression.nodes()[node].kind {
            NodeKind::Input(input) => match inputs[*input] {
                Source::Value(value) => format!("v{value}"),
                Source::Array(array) if self.stored(node) == Element::Bits16 => {
                    format!("from_f16(p{array}[{}])", place(array))
                }
                Source::Array(array) => {
                    opencl_c::load(self.elements[node], &format!("p{array}"), &place(array))
                }
            },
            NodeKind::Literal(scalar) => literal(self.elements[node].value(*scalar)),
            NodeKind::Result { operands, .. } => {
                let (number, text) = self.text(node).expect("the plan has looked");
                let operands: SmallVec<[String; 3]> = operands.iter().map(|&node| name(node)).collect();
                let operands: SmallVec<[&str; 3]> = operands.iter().map(String::as_str).collect();
                self.settled(node, &expression::spell_with(number, text, &operands))
            }
            _ => unreachable!("the plan has looked"),
        };
        format!("    const {} {} = {value};\n", self.number_type(node), name(node))
    }

    /// A statement that writes a value of a node to an array.
    pub(super) fn store(&self, node: usize, array: usize, place: &str, value: &str) -> String {
        match self.stored(node) {
            Element::Bits16 => format!("    p{array}[{place}] = to_f16({value});\n"),
            element => format!("    {}\n", opencl_c::store(element, &format!("p{array}"), place, value)),
        }
    }

    /// A statement that declares the value of a node which is a reduction of `len` elements, by its total.
    pub(super) fn declare_total(&self, running: &Running, total: &str) -> String {
        let node = running.node;
        let total = match running.mean {
            true => format!("({total}) / ({})len", self.number_type(node)),
            false => total.to_owned(),
        };
        format!("    const {} {} = {};\n", self.number_type(node), name(node), self.settled(node, &total))
    }

    /// The value of a node as its type has it: numbers of 32 bits are computed for smaller ones.
    fn settled(&self, node: usize, value: &str) -> String {
        let element = self.elements[node];
        match ROUND.iter().find(|(of, ..)| *of == element) {
            Some((_, round, _)) if self.rounds(node) => format!("{round}({value})"),
            _ if element == Element::U8 => format!("({value}) & 255u"),
            _ => value.to_owned(),
        }
    }

    /// Whether a value of 16 bits has to be rounded before it is used. As an output, it is rounded when it is
    /// written.
    fn rounds(&self, node: usize) -> bool {
        let Some((operator, _)) = self.expression.nodes()[node].operands() else { return false };
        self.used[node] && !operator.is_exact() && !self.expression.keeps_precision()
    }
}

impl Running {
    /// The result with one more value.
    pub(super) fn with(&self, a: &str, b: &str) -> String {
        expression::spell_with(self.number, self.expression, &[a, b])
    }

    /// A statement that takes a value into a running result.
    pub(super) fn take(&self, result: &str, value: &str) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "    {result} = {};", self.with(result, value));
        text
    }

    pub(super) fn number_type(&self) -> &'static str {
        opencl_c::number_type(self.number)
    }
}

/// A number by its bits, which no compiler rounds. What `ul` is after a small number depends on the system in
/// C++.
fn literal(value: Value) -> String {
    match value {
        Value::Float(value) => format!("as_float({:#x}u)", value.to_bits()),
        Value::Double(value) => format!("as_double((ulong){:#x}ul)", value.to_bits()),
        Value::Int(value) => format!("as_int({:#x}u)", value.cast_unsigned()),
        Value::Long(value) => format!("as_long((ulong){:#x}ul)", value.cast_unsigned()),
        Value::Uint(value) => format!("{value}u"),
        Value::Ulong(value) => format!("{value}ul"),
    }
}
