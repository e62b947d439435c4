//! The table of expressions: what each operator computes of `a`, `b` and `c`.
//!
//! In an expression, `$T` is the type that is computed with, and `$U` the type in which its integers wrap.
//! `@name` is a function of C's mathematics, `#1.5` a literal number, and `$name` one of [`FUNCTIONS`].

use device_kernels::{Binary, Compare, Operator, Reduction, Unary};

use super::element::{Element, Number};
use super::opencl_c;

/// An element-wise operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Unary(Unary),
    Binary(Binary),
    Compare(Compare),
    Where,
    Clamp,
    Copy,
}

const MAX: &str = "(a > b || a != a) ? a : b";
const MIN: &str = "(a < b || a != a) ? a : b";

impl Function {
    /// The function of an element-wise operator.
    pub(crate) fn of(operator: Operator) -> Option<Self> {
        Some(match operator {
            Operator::Unary(unary) => Self::Unary(unary),
            Operator::Binary(binary) => Self::Binary(binary),
            Operator::Compare(compare) => Self::Compare(compare),
            Operator::Where => Self::Where,
            Operator::Clamp => Self::Clamp,
            Operator::Copy => Self::Copy,
            _ => return None,
        })
    }

    /// The expression for inputs of this element, or `None` if there is none for it.
    pub(crate) fn expression(self, of: Element, to: Element) -> Option<&'static str> {
        let number = of.number();
        let float = number.is_float();
        let signed = number.is_signed();
        let boolean = of == Element::Bool;
        let integer = !float && !boolean;
        let only = |fits: bool, expression| fits.then_some(expression);
        match self {
            Self::Unary(unary) => match unary {
                Unary::Neg => Some(if float { "-a" } else { "($T)(($U)0 - ($U)a)" }),
                Unary::Abs if float => Some("@fabs(a)"),
                Unary::Abs => Some(if signed { "a < 0 ? ($T)(($U)0 - ($U)a) : a" } else { "a" }),
                Unary::Sign if number == Number::Uint => Some("a > 0 ? 1 : 0"),
                Unary::Sign => Some("a > 0 ? ($T)1 : (a < 0 ? ($T)-1 : ($T)0)"),
                Unary::Not => only(!float, if boolean { "a ^ 1" } else { "~a" }),
                // The drivers' own are loops over the lanes of a vector on processors. `f64` keeps them.
                Unary::Erf if number == Number::Float => Some("$erf(a)"),
                Unary::Log1p if number == Number::Float => Some("$log1p(a)"),
                Unary::LogSigmoid if number == Number::Float => {
                    Some("(a < 0 ? a : ($T)0) - $log1p(@exp(-@fabs(a)))")
                }
                Unary::Gelu if number == Number::Float => Some("#0.5 * a * $erfc(a * #-0.70710678118654752)"),
                _ => only(float, Self::of_float(unary)?),
            },
            Self::Binary(binary) => match binary {
                Binary::Add => Some(if float { "a + b" } else { "($T)(($U)a + ($U)b)" }),
                Binary::Sub => Some(if float { "a - b" } else { "($T)(($U)a - ($U)b)" }),
                Binary::Mul => Some(if float { "a * b" } else { "($T)(($U)a * ($U)b)" }),
                Binary::Div if float => Some("a / b"),
                Binary::Div if signed => {
                    Some("b == 0 ? ($T)0 : (b == -1 ? ($T)(($U)0 - ($U)a) : a / (b == 0 ? 1 : b))")
                }
                Binary::Div => Some("b == 0 ? 0 : a / (b == 0 ? 1 : b)"),
                Binary::Rem if float => Some("$rem_float(a, b)"),
                Binary::Rem if signed => Some("$rem_signed(a, b)"),
                Binary::Rem => Some("b == 0 ? 0 : a % (b == 0 ? 1 : b)"),
                Binary::Pow if float => Some("@pow(a, b)"),
                Binary::Pow if signed => Some("$pow_signed(a, b)"),
                Binary::Pow => Some("$pow_unsigned(a, b)"),
                Binary::Max => Some(MAX),
                Binary::Min => Some(MIN),
                Binary::Atan2 => only(float, "@atan2(a, b)"),
                Binary::And => only(!float, "a & b"),
                Binary::Or => only(!float, "a | b"),
                Binary::Xor => only(!float, "a ^ b"),
                Binary::Shl | Binary::Shr => only(integer, Self::shift(binary, of)),
                Binary::ReluGrad => only(float, "a <= 0 ? ($T)0 : b"),
                Binary::SigmoidGrad => only(float, "b * a * (1 - a)"),
                _ => None,
            },
            Self::Compare(compare) => match compare {
                Compare::Eq => Some("a == b"),
                Compare::Ne => Some("a != b"),
                Compare::Lt => Some("a < b"),
                Compare::Le => Some("a <= b"),
                Compare::Gt => Some("a > b"),
                Compare::Ge => Some("a >= b"),
                _ => None,
            },
            Self::Where => Some("a != 0 ? b : c"),
            Self::Clamp => Some("$min($max(a, b), c)"),
            Self::Copy => Some(conversion(of, to)),
        }
    }

    fn of_float(unary: Unary) -> Option<&'static str> {
        Some(match unary {
            Unary::Recip => "1 / a",
            Unary::Sqrt => "@sqrt(a)",
            Unary::Exp => "@exp(a)",
            Unary::Log => "@log(a)",
            Unary::Log1p => "@log1p(a)",
            Unary::Sin => "@sin(a)",
            Unary::Cos => "@cos(a)",
            Unary::Tan => "@tan(a)",
            Unary::Asin => "@asin(a)",
            Unary::Acos => "@acos(a)",
            Unary::Atan => "@atan(a)",
            Unary::Sinh => "@sinh(a)",
            Unary::Cosh => "@cosh(a)",
            Unary::Tanh => "@tanh(a)",
            Unary::Asinh => "@asinh(a)",
            Unary::Acosh => "@acosh(a)",
            Unary::Atanh => "@atanh(a)",
            Unary::Erf => "@erf(a)",
            Unary::Floor => "@floor(a)",
            Unary::Ceil => "@ceil(a)",
            Unary::Round => "@rint(a)",
            Unary::Trunc => "@trunc(a)",
            Unary::Relu => "(a > 0 || a != a) ? a : ($T)0",
            Unary::Sigmoid => "1 / (1 + @exp(-a))",
            Unary::LogSigmoid => "(a < 0 ? a : ($T)0) - @log1p(@exp(-@fabs(a)))",
            Unary::Gelu => "#0.5 * a * @erfc(a * #-0.70710678118654752)",
            Unary::IsNan => "a != a",
            Unary::IsInf => "@fabs(a) == INFINITY",
            _ => return None,
        })
    }

    fn shift(binary: Binary, of: Element) -> &'static str {
        match (binary, of) {
            (Binary::Shl, Element::U8) => "a << (b & 7)",
            (Binary::Shl, Element::I64) => "($T)(($U)a << (b & 63))",
            (Binary::Shl, _) => "($T)(($U)a << (b & 31))",
            (_, Element::U8) => "a >> (b & 7)",
            (_, Element::I64) => "a >> (b & 63)",
            _ => "a >> (b & 31)",
        }
    }
}

/// `a` as an element of another type.
fn conversion(of: Element, to: Element) -> &'static str {
    let float = of.number().is_float();
    let small = matches!(of, Element::U8 | Element::Bool);
    match to {
        _ if of == to => "a",
        Element::Bool => "a != 0",
        Element::F32 => "(float)a",
        // A number that is rounded twice may end on the wrong side. Rounded to an odd number first, it does
        // not.
        Element::F16 | Element::BF16 if of.number() == Number::Float || small => "(float)a",
        Element::F16 | Element::BF16 => "$odd(a)",
        Element::F64 => "(double)a",
        // Not by comparisons: Rusticl of Mesa 22 and 25 has made 0 of a half of 255 or more that was compared
        // with both limits. What these functions make of NaN is up to the driver.
        Element::I32 if float => "convert_int_sat_rtz(a != a ? #0.0 : a)",
        Element::I64 if float => "convert_long_sat_rtz(a != a ? #0.0 : a)",
        Element::U32 if float => "convert_uint_sat_rtz(@fmax(a, #0.0))",
        Element::U8 if float => "convert_uchar_sat_rtz(@fmax(a, #0.0))",
        Element::I32 => "(int)a",
        Element::I64 => "(long)a",
        Element::U32 => "(uint)a",
        Element::U8 => "(uint)(a & 255)",
        Element::Bits16 | Element::Bits64 => "a",
    }
}

/// How a reduction continues, as an operator of two numbers, and where it begins.
pub(crate) fn reduction(reduction: Reduction, of: Element) -> Option<(Function, String)> {
    let number = of.number();
    let text = |text: &str| text.to_owned();
    Some(match reduction {
        Reduction::Sum | Reduction::Mean => (Function::Binary(Binary::Add), text("0")),
        Reduction::Prod => (Function::Binary(Binary::Mul), text("1")),
        Reduction::Any => (Function::Binary(Binary::Or), text("0")),
        Reduction::All => (Function::Binary(Binary::And), text("1")),
        Reduction::Max => (Function::Binary(Binary::Max), text(lowest(number))),
        Reduction::Min => (Function::Binary(Binary::Min), text(highest(number))),
        _ => return None,
    })
}

/// Nothing is less than this.
pub(crate) fn lowest(number: Number) -> &'static str {
    match number {
        Number::Float | Number::Double => "-INFINITY",
        Number::Int => "(-2147483647 - 1)",
        Number::Long => "(-9223372036854775807L - 1L)",
        Number::Uint | Number::Ulong => "0",
    }
}

/// Nothing is larger than this.
pub(crate) fn highest(number: Number) -> &'static str {
    match number {
        Number::Float | Number::Double => "INFINITY",
        Number::Int => "2147483647",
        Number::Long => "9223372036854775807L",
        Number::Uint => "4294967295u",
        Number::Ulong => "18446744073709551615ul",
    }
}

/// Functions of expressions, by name. A function that calls another comes after it.
///
/// `$erf` has the polynomials of `device-host-kernels`: of the function up to 1, and of the logarithm of what
/// is left to one. The polynomial of `$erfc` is the logarithm of `erfc(a) * exp(a * a) / t`, fitted for the
/// least largest error from 0 to 9.6. A square of 12 bits is exact, and what it leaves out is a factor of its
/// own. `$log1p` adds what the sum has lost of `a`, by the derivative of the logarithm.
const FUNCTIONS: &[(&str, &str)] = &[
    (
        "$log1p",
        "$T $log1p($T a) {
#pragma OPENCL FP_CONTRACT OFF
    const $T sum = 1 + a, lost = (a - (sum - 1)) / sum, whole = @log(sum);
    return sum == 0 || sum == INFINITY ? whole : whole + lost;
}
",
    ),
    (
        "$erfc",
        "$T $erfc($T a) {
#pragma OPENCL FP_CONTRACT OFF
    const $T all = @fabs(a), size = all > 12 ? 12 : all, t = 1 / (1 + #0.4 * size);
    $T left = #-0.2061844;
    left = left * t + #0.9178651;
    left = left * t + #-1.4710414;
    left = left * t + #0.98080575;
    left = left * t + #-0.42980048;
    left = left * t + #0.29410812;
    left = left * t + #0.4015031;
    left = left * t + #1.0014391;
    left = left * t + #-1.488695;
    const $T high = as_float(as_uint(size) & 0xfffff000u);
    const $T tail = t * @exp(-high * high) * @exp((high - size) * (high + size) + left);
    return a < 0 ? 2 - tail : tail;
}
",
    ),
    (
        "$erf",
        "$T $erf($T a) {
#pragma OPENCL FP_CONTRACT OFF
    const $T size = @fabs(a), square = a * a;
    $T near = #7.806903e-5;
    near = near * square + #-0.0007997853;
    near = near * square + #0.005187162;
    near = near * square + #-0.026853347;
    near = near * square + #0.11283579;
    near = near * square + #-0.37612626;
    near = near * square + #0.12837917;
    const $T clamped = size > #3.95 ? #3.95 : size;
    $T left = #-0.00018556627;
    left = left * clamped + #0.002939549;
    left = left * clamped + #-0.021805154;
    left = left * clamped + #0.103037156;
    left = left * clamped + #0.6382258;
    left = left * clamped + #1.12704;
    left = left * clamped + #0.0003537093;
    const $T far = 1 - @exp(-left);
    return size < 1 ? near * a + a : (a < 0 ? -far : far);
}
",
    ),
    ("$max", "$T $max($T a, $T b) { return (a > b || a != a) ? a : b; }\n"),
    ("$min", "$T $min($T a, $T b) { return (a < b || a != a) ? a : b; }\n"),
    (
        "$rem_float",
        "$T $rem_float($T a, $T b) { $T rest = @fmod(a, b); if (rest == 0) return @copysign(($T)0, b); return ((rest < 0) != (b < 0)) ? rest + b : rest; }\n",
    ),
    (
        "$rem_signed",
        "$T $rem_signed($T a, $T b) {
    if (b == 0 || b == -1) return 0;
    $T rest = a % b;
    return (rest != 0 && (rest ^ b) < 0) ? rest + b : rest;
}
",
    ),
    (
        "$pow_unsigned",
        "$U $pow_unsigned($U a, $U b) {
    $U power = 1;
    for (; b != 0; b >>= 1) {
        if (b & 1) power *= a;
        a *= a;
    }
    return power;
}
",
    ),
    (
        "$pow_signed",
        "$T $pow_signed($T a, $T b) {
    if (b < 0) return a == 1 ? 1 : (a == -1 ? ((b & 1) ? -1 : 1) : 0);
    $U base = ($U)a, power = 1;
    for (; b != 0; b >>= 1) {
        if (b & 1) power *= base;
        base *= base;
    }
    return ($T)power;
}
",
    ),
    (
        "$odd",
        "float $odd($T a) {
    float x = convert_float_rtz(a);
    return ($T)x != a ? as_float(as_uint(x) | 1u) : x;
}
",
    ),
];

/// An expression in OpenCL C, for numbers of this type.
pub(crate) fn spell(number: Number, expression: &str) -> String {
    let mut text = String::new();
    let mut rest = expression;
    while let Some(place) = rest.find(['$', '@', '#']) {
        text += &rest[..place];
        let (mark, tail) = rest[place..].split_at(1);
        let is_word = |byte: char| match mark {
            "#" => byte.is_ascii_digit() || matches!(byte, '.' | '-' | 'e'),
            _ => byte.is_ascii_alphanumeric() || byte == '_',
        };
        let end = tail.find(|byte| !is_word(byte)).unwrap_or(tail.len());
        let word = &tail[..end];
        match mark {
            // A directive.
            "#" if word.is_empty() => text += mark,
            "#" => text += &opencl_c::literal(number, word),
            "@" => text += known(word),
            _ if word == "T" => text += opencl_c::number_type(number),
            _ if word == "U" => text += opencl_c::number_type(number.unsigned()),
            _ => text += &format!("{word}_{}", opencl_c::number_type(number)),
        }
        rest = &tail[end..];
    }
    text + rest
}

/// An expression in OpenCL C, of these operands in place of `a`, `b` and `c`.
pub(crate) fn spell_with(number: Number, expression: &str, operands: &[&str]) -> String {
    let spelled = spell(number, expression);
    let mut text = String::new();
    let mut rest = spelled.as_str();
    while let Some(place) = rest.find(|byte: char| byte.is_ascii_alphanumeric() || byte == '_') {
        let (other, tail) = rest.split_at(place);
        let end = tail.find(|byte: char| !byte.is_ascii_alphanumeric() && byte != '_');
        let (word, tail) = tail.split_at(end.unwrap_or(tail.len()));
        let operand = ["a", "b", "c"].iter().position(|name| *name == word);
        text += other;
        text += operand.and_then(|operand| operands.get(operand)).unwrap_or(&word);
        rest = tail;
    }
    text + rest
}

/// The functions that an expression calls, each as a text.
pub(crate) fn functions(number: Number, expression: &str) -> impl Iterator<Item = String> {
    let called = FUNCTIONS.iter().filter(move |(name, _)| expression.contains(&format!("{name}(")));
    called.map(move |(_, text)| spell(number, text))
}

/// The names of C's mathematics that expressions use.
fn known(name: &str) -> &'static str {
    const NAMES: &[&str] = &[
        "fabs", "fmax", "sqrt", "exp", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
        "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "rint", "trunc", "pow",
        "fmod", "atan2", "copysign",
    ];
    NAMES.iter().find(|known| **known == name).unwrap_or_else(|| panic!("`{name}` is not in the list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_take_the_places_of_letters_and_not_of_words() {
        let spelled = |text| spell_with(Number::Float, text, &["e1", "(b)", "x"]);
        assert_eq!(spelled("@fabs(a) == INFINITY"), "fabs(e1) == INFINITY");
        assert_eq!(spelled("(a < b || a != a) ? a : c"), "(e1 < (b) || e1 != e1) ? e1 : x");
        assert_eq!(spelled("$min($max(a, b), c) + #0.5"), "min_float(max_float(e1, (b)), x) + 0.5f");
    }
}
