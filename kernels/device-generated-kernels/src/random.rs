//! Random numbers: Philox 4x32 with ten rounds.
//!
//! The key is the seed, its low word first. The counter is a number of 64 bits in two words, the low one
//! first, and two zeros. With `at` for the offset plus the element's number:
//!
//! - Normal numbers: the counter is `at`; the first two words are the radius and the angle of a Box-Muller
//!   transform.
//! - Types of 64 bits: the counter is `at`; the first two words are the bits, the low one first. Where 32
//!   bits are enough, they are the first word.
//! - All others: the counter is `at / 4`, and the bits are its word `at % 4`.

use std::fmt::Write;

use device_kernels::{Call, DType, Distribution};
use half::{bf16, f16};
use smallvec::{SmallVec, smallvec};

use super::element::{Element, Number, Value, element};
use super::expression;
use super::opencl_c::{self, Parameters};
use super::space::{self, Space};
use super::{Place, Plan, Step, Target};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    form: Form,
    output: Element,
    rank: usize,
    wide: bool,
}

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// Values: the lowest, the range, and the largest, which rounding may not exceed.
    Uniform,
    /// Values: mean and deviation.
    Normal,
    /// Values: how many of the 2^32 words are true.
    Bernoulli,
    /// Values: the lowest, and the range, which is below 2^32.
    Integers,
    /// The same with a range of 64 bits.
    LongIntegers,
}

pub(crate) fn plan(
    call: &Call,
    distribution: Distribution,
    [seed, offset]: [u64; 2],
    target: Target,
) -> Option<Plan> {
    let &[(dtype, layout)] = call.outputs() else { return None };
    let output = element(dtype)?;
    let value = |value: f64| output.number().value(value);
    let (form, values): (Form, SmallVec<[Value; 3]>) = match distribution {
        Distribution::Uniform { low, high } => {
            (Form::Uniform, smallvec![value(low), value(high - low), value(below(dtype, low, high))])
        }
        Distribution::Normal { mean, deviation } => (Form::Normal, smallvec![value(mean), value(deviation)]),
        Distribution::Bernoulli { probability } => {
            let words = (probability * 2.0_f64.powi(32)).ceil() as u64;
            (Form::Bernoulli, smallvec![Value::Ulong(words)])
        }
        Distribution::Integers { low, high } => {
            let range = high.wrapping_sub(low).cast_unsigned();
            let form = if range < 1 << 32 { Form::Integers } else { Form::LongIntegers };
            (form, smallvec![Value::Ulong(low.cast_unsigned()), Value::Ulong(range)])
        }
        _ => return None,
    };
    let strides: [(&[isize], usize); 1] = [(layout.strides(), layout.offset())];
    let space = Space::new(layout.shape(), &strides)?.merge();
    let mut indices: SmallVec<[i64; 24]> = smallvec![space.len()];
    indices.extend(space.indices(&[0]));
    let (items, group) = super::line(super::product([space.len()])?, target.traits);
    Some(Plan::from(Step {
        recipe: super::Kind::Random(Recipe { form, output, rank: space.rank(), wide: target.wide }).into(),
        arrays: smallvec![(Place::Array(0), space.offsets[0])],
        values: [Value::Ulong(seed), Value::Ulong(offset)].into_iter().chain(values).collect(),
        indices,
        items,
        group,
    }))
}

/// The largest number of the type below `high`, or `low` if there is none from `low` on.
fn below(dtype: DType, low: f64, high: f64) -> f64 {
    // The number that rounding gives, and its neighbours in both directions of the bits.
    let numbers: SmallVec<[f64; 3]> = match dtype {
        DType::F64 => smallvec![high.next_down()],
        DType::F32 => smallvec![f64::from(high as f32), f64::from((high as f32).next_down())],
        _ => {
            let (bits, number): (u16, fn(u16) -> f64) = match dtype {
                DType::F16 => (f16::from_f64(high).to_bits(), |bits| f16::from_bits(bits).to_f64()),
                _ => (bf16::from_f64(high).to_bits(), |bits| bf16::from_bits(bits).to_f64()),
            };
            // Below zero is the smallest negative number, whose bits are no neighbour's.
            [bits, bits.wrapping_sub(1), bits.wrapping_add(1), 0x8001].map(number).into_iter().collect()
        }
    };
    let below = numbers.into_iter().filter(|&number| number < high).fold(f64::NEG_INFINITY, f64::max);
    below.max(low)
}

const PHILOX: &str = "\
uint4 philox(ulong counter, ulong seed) {
    uint a = (uint)counter, b = (uint)(counter >> 32), c = 0, d = 0;
    uint k = (uint)seed, l = (uint)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const ulong p = (ulong)a * 0xD2511F53u, q = (ulong)c * 0xCD9E8D57u;
        a = (uint)(q >> 32) ^ b ^ k;
        b = (uint)q;
        c = (uint)(p >> 32) ^ d ^ l;
        d = (uint)p;
        k += 0x9E3779B9u;
        l += 0xBB67AE85u;
    }
    const uint4 words = { a, b, c, d };
    return words;
}
";

impl Recipe {
    pub(crate) fn text(&self) -> String {
        let number = self.output.number();
        let long = number.size() == 8;
        let of_form: &[Number] = match self.form {
            Form::Uniform => &[number, number, number],
            Form::Normal => &[number, number],
            Form::Bernoulli => &[Number::Ulong],
            Form::Integers | Form::LongIntegers => &[Number::Ulong, Number::Ulong],
        };
        let names = ["count".to_owned()].into_iter();
        let parameters = Parameters {
            arrays: vec![(self.output, true)],
            values: [&[Number::Ulong; 2], of_form].concat(),
            indices: names.chain(space::names("", self.rank, &[0])).collect(),
            wide: self.wide,
            functions: PHILOX.to_owned(),
            ..Parameters::default()
        };
        let mut body = format!("    const Index i = {};\n    if (i >= count) return;\n", opencl_c::item(0));
        body += &space::decode("", self.rank, "i");
        let _ = writeln!(body, "    const ulong at = v1 + (ulong)i;");
        // Four elements share a counter, unless one needs two words of its own.
        body += if long || matches!(self.form, Form::Normal | Form::LongIntegers) {
            "    const uint4 words = philox(at, v0);\n    const uint bits = words.x;\n    \
             const ulong all = (ulong)words.y << 32 | words.x;\n"
        } else {
            "    const uint4 words = philox(at / 4, v0);\n    const uint place = (uint)(at & 3);\n    \
             const uint bits = place == 0 ? words.x : (place == 1 ? words.y : (place == 2 ? words.z : words.w));\n"
        };
        let value = match self.form {
            Form::Uniform => {
                body += if long {
                    "    const $T unit = ($T)(all >> 11) * #1.1102230246251565e-16;\n"
                } else {
                    "    const $T unit = ($T)(bits >> 8) * #5.9604644775390625e-8;\n"
                };
                body += "    const $T drawn = v2 + v3 * unit;\n";
                "(drawn < v4 ? drawn : v4)"
            }
            Form::Normal => {
                body += "    const $T radius = @sqrt(-2 * @log(($T)((words.x >> 8) + 1) * #5.9604644775390625e-8));
    const $T turn = ($T)(words.y >> 8) * #5.9604644775390625e-8;\n";
                "(v2 + v3 * (radius * @cos(turn * #6.283185307179586)))"
            }
            Form::Bernoulli => "(($T)((ulong)bits < v2 ? 1 : 0))",
            Form::Integers => "(($T)(v2 + ((ulong)bits * v3 >> 32)))",
            Form::LongIntegers => "(($T)(v2 + all % v3))",
        };
        let store =
            opencl_c::store(self.output, "p0", &format!("o0 + {}", space::place("", self.rank, 0)), value);
        let _ = writeln!(body, "    {store}");
        let body = expression::spell(number, &body);
        opencl_c::program(&parameters, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_range_is_never_drawn() {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
            for (low, high) in [(0.0, 1.0), (-1.0, 0.0), (-2.0, -1.0), (0.0, 0.3), (100.0, 1000.0)] {
                let below = below(dtype, low, high);
                assert!(low < below && below < high, "{dtype} {low} {high}: {below}");
                assert!(high - below < 0.01 * (high - low), "{dtype} {low} {high}: {below}");
            }
            assert_eq!(below(dtype, 1.0, 1.0), 1.0);
        }
    }
}
