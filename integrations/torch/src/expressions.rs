//! Expressions: many operators on elements and reductions in one call, which a compiled graph consists of.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use device_kernels::{DType, Dims, Expression};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::failure::{Code, Failure};
use crate::operators::{Array, Call, Input, Shape, broadcast, number_of};

/// An expression with the forms of its results. It stays for the life of the program, as expressions do.
pub(crate) struct Compiled {
    expression: Expression,
    forms: SmallVec<[Form; 2]>,
    calls: AtomicU64,
    nanoseconds: AtomicU64,
}

/// How a result lies in memory.
#[derive(Clone, Debug, PartialEq)]
enum Form {
    /// The shape of the call. The dimensions are listed from the outermost to the innermost one; an empty
    /// list is contiguous.
    Full(SmallVec<[usize; 8]>),
    /// The reduced dimensions have the size 1.
    Reduced,
    /// The result does not have the reduced dimensions.
    Squeezed,
}

/// All of them, by their texts.
static ALL: LazyLock<Mutex<HashMap<String, &'static Compiled>>> = LazyLock::new(Mutex::default);

impl Compiled {
    /// The expression with a text, which is parsed once. Behind the expression's own text, a form for each
    /// result follows a semicolon: `full`, which is the default, `full 0 2 3 1` with the order of the
    /// dimensions in memory, `reduced` or `squeezed`.
    pub(crate) fn of(text: &str) -> Result<&'static Self, Failure> {
        if let Some(known) = ALL.lock().get(text) {
            return Ok(known);
        }
        let invalid = |why: String| Failure::new(format!("no expression is `{text}`: {why}"));
        let (described, forms) = text.split_once(';').unwrap_or((text, ""));
        let expression: Expression = described.parse().map_err(|error| invalid(format!("{error}")))?;
        let count = expression.outputs().len();
        let forms = match forms.trim() {
            "" => SmallVec::from_elem(Form::Full(SmallVec::new()), count),
            forms => forms.split(';').map(Form::of).collect::<Result<_, _>>().map_err(invalid)?,
        };
        if forms.len() != count {
            return Err(invalid(format!("expected {count} forms of results, found {}", forms.len())));
        }
        if expression.dims().is_none() && forms.iter().any(|form| !matches!(form, Form::Full(_))) {
            return Err(invalid("expected results of the form `full`, as it has no reduction".to_owned()));
        }
        let (calls, nanoseconds) = Default::default();
        let compiled = Self { expression, forms, calls, nanoseconds };
        Ok(ALL.lock().entry(text.to_owned()).or_insert_with(|| Box::leak(Box::new(compiled))))
    }

    /// Enqueues the expression. The arguments of the call are the inputs of the expression, and behind them
    /// tensors for its first results. The call makes the other results.
    pub(crate) fn run(&self, call: &Call<'_>) -> Result<(), Failure> {
        let count = self.expression.inputs().len();
        if call.values.len() < count {
            let found = call.values.len();
            return Err(Failure::new(format!(
                "`{}`: expected {count} inputs, found {found}",
                self.expression.name()
            )));
        }
        let inputs =
            (0..count).map(|place| call.input(place)).collect::<Result<SmallVec<[Input; 8]>, _>>()?;
        let arrays = || inputs.iter().filter_map(Input::array);
        let Some(like) = arrays().next() else { return Err(Failure::declined("no input is a tensor")) };
        let shape = broadcast(arrays().map(Array::shape))?;
        let dims = self.expression.dims().unwrap_or_default();
        let mut outputs = SmallVec::<[Array; 4]>::new();
        for (number, (&node, form)) in self.expression.outputs().iter().zip(&self.forms).enumerate() {
            let dtype = self.expression.nodes()[node].dtype;
            outputs.push(if call.values.len() > count + number {
                call.array(count + number)?
            } else {
                form.result(call, like, dtype, &shape, dims)?
            });
        }
        let outputs: SmallVec<[&Array; 4]> = outputs.iter().collect();
        call.run(self.expression, &inputs, &outputs).map_err(|failure| match failure.code {
            Code::Declined => failure,
            // PyTorch names no operator of a compiled graph.
            code => {
                let message = format!("`{}`: {}", self.expression.name(), failure.message);
                Failure { code, message }
            }
        })
    }

    /// Counts a call that was enqueued, and how long that took.
    pub(crate) fn count(&self, nanoseconds: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl Form {
    fn of(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let form = words.next();
        let numbers = words.map(str::parse).collect::<Result<SmallVec<[usize; 8]>, _>>();
        match (form, numbers) {
            (Some("full"), Ok(order)) if (0..order.len()).all(|dim| order.contains(&dim)) => {
                Ok(Self::Full(order))
            }
            (Some("reduced"), Ok(order)) if order.is_empty() => Ok(Self::Reduced),
            (Some("squeezed"), Ok(order)) if order.is_empty() => Ok(Self::Squeezed),
            _ => {
                let text = text.trim();
                Err(format!("`{text}` is no form of a result: expected `full`, `reduced` or `squeezed`"))
            }
        }
    }

    /// A new result. In the array, reduced dimensions have the size 1, also where PyTorch does not see them.
    fn result(
        &self,
        call: &Call<'_>,
        like: &Array,
        dtype: DType,
        shape: &[usize],
        dims: Dims,
    ) -> Result<Array, Failure> {
        let kept: Shape =
            shape.iter().enumerate().map(|(dim, &size)| if dims.contains(dim) { 1 } else { size }).collect();
        match self {
            Self::Full(order) => call.result_in(like, dtype, shape, order),
            Self::Reduced => call.result(like, dtype, &kept),
            Self::Squeezed => {
                let left = shape.iter().enumerate().filter(|(dim, _)| !dims.contains(*dim));
                let left: Shape = left.map(|(_, &size)| size).collect();
                call.result(like, dtype, &left)?.reshaped(kept)
            }
        }
    }
}

/// The counts of all expressions, as lines like `counts::lines` has, and how many operators they have.
pub(crate) fn lines() -> String {
    let mut rows = BTreeMap::<(&str, usize, i32), (u64, u64)>::new();
    for compiled in ALL.lock().values() {
        let expression = compiled.expression;
        let first = expression.outputs().first().map(|&node| expression.nodes()[node].dtype);
        let dtype = first.and_then(|dtype| number_of(dtype).ok()).unwrap_or(-1);
        let row = rows.entry((expression.name(), expression.operator_count(), dtype)).or_default();
        row.0 += compiled.calls.load(Ordering::Relaxed);
        row.1 += compiled.nanoseconds.load(Ordering::Relaxed);
    }
    let mut lines = String::new();
    for ((name, operators, dtype), (calls, nanoseconds)) in rows.into_iter().filter(|(_, row)| row.0 > 0) {
        let _ = writeln!(lines, "{name}\tfused\t{dtype}\t{calls}\t{nanoseconds}\t0\t{operators}");
    }
    lines
}

/// Forgets all counts.
pub(crate) fn reset() {
    for compiled in ALL.lock().values() {
        compiled.calls.store(0, Ordering::Relaxed);
        compiled.nanoseconds.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Compiled::of(text).err().map(|failure| failure.message).unwrap_or_default()
    }

    #[test]
    fn a_text_is_parsed_once() {
        let text = "input f32, reduce_sum 0 1, sub 0 1, output 1, output 2; squeezed; full 1 0";
        let compiled = Compiled::of(text).unwrap();
        assert_eq!(compiled.forms[..], [Form::Squeezed, Form::Full(SmallVec::from_slice(&[1, 0]))]);
        assert!(std::ptr::eq(compiled, Compiled::of(text).unwrap()));
        assert!(!std::ptr::eq(compiled, Compiled::of(&text.replace("squeezed", "reduced")).unwrap()));
    }

    #[test]
    fn mistakes_in_a_text_are_errors_that_quote_it() {
        for (text, expected) in [
            (
                "input f32, wrong 0, output 1",
                "no expression is `input f32, wrong 0, output 1`: `wrong 0` is no step",
            ),
            ("input f32, neg 0, output 1; whole", "`whole` is no form of a result: expected `full`"),
            ("input f32, neg 0, output 1; full 1", "`full 1` is no form of a result"),
            ("input f32, neg 0, output 1; full; full", "expected 1 forms of results, found 2"),
            ("input f32, neg 0, output 1; reduced", "as it has no reduction"),
        ] {
            assert!(error(text).contains(expected), "{}", error(text));
        }
    }
}
