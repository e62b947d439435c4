//! Expressions as data and as text: a step for each node, in their order, and then one for each output.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::LazyLock;

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};

use super::builder::{ExpressionBuilder, ExpressionValue};
use crate::described::{OperatorOption, OptionValues};
use crate::dtype::DType;
use crate::operator::{Definition, Expression, ExpressionError, ExpressionNode, NodeKind, Operator};
use crate::scalar::Scalar;

const INPUT: &str = "input";
const LITERAL: &str = "literal";
const OUTPUT: &str = "output";
const KEEP_PRECISION: &str = "keep_precision";

/// How many operators a name lists.
const NAMED: usize = 8;

fn steps(nodes: &[ExpressionNode], outputs: &[usize], keeps_precision: bool) -> Vec<OperatorOption> {
    let number = |place: usize| Scalar::Int(place as i64);
    let dtype = |dtype: DType| number(type_number(dtype));
    let mut steps = Vec::new();
    let mut step = |name, values: OptionValues| steps.push(OperatorOption { name, values });
    for node in nodes {
        match &node.kind {
            NodeKind::Input(_) => step(INPUT, smallvec![dtype(node.dtype)]),
            NodeKind::Literal(value) => step(LITERAL, smallvec![dtype(node.dtype), *value]),
            NodeKind::Result { operator, operands } => {
                let mut values: OptionValues = operands.iter().copied().map(number).collect();
                match operator {
                    Operator::Copy => values.push(dtype(node.dtype)),
                    Operator::Reduce { dims, .. } => values.extend(dims.iter().map(number)),
                    _ => {}
                }
                step(operator.name(), values);
            }
        }
    }
    outputs.iter().for_each(|&output| step(OUTPUT, smallvec![number(output)]));
    if keeps_precision {
        step(KEEP_PRECISION, SmallVec::new());
    }
    steps
}

/// The numbers of types are the C interface's.
fn type_number(dtype: DType) -> usize {
    1 + DType::ALL.iter().position(|one| *one == dtype).unwrap_or_default()
}

/// The type with a number.
fn numbered(number: i64) -> Option<DType> {
    DType::ALL.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

/// Which value of a step is a type.
fn type_place(name: &str) -> Option<usize> {
    match name {
        INPUT | LITERAL => Some(0),
        "copy" => Some(1),
        _ => None,
    }
}

/// The text of an expression, which has all that differs from others.
fn description(nodes: &[ExpressionNode], outputs: &[usize], keeps_precision: bool) -> String {
    let mut text = String::new();
    for OperatorOption { name, values } in steps(nodes, outputs, keeps_precision) {
        let separator = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{separator}{name}");
        for (place, value) in values.iter().enumerate() {
            let _ = match (type_place(name), value) {
                (Some(of_type), Scalar::Int(number)) if of_type == place => match numbered(*number) {
                    Some(dtype) => write!(text, " {dtype}"),
                    None => write!(text, " {number}"),
                },
                _ => write!(text, " {value}"),
            };
        }
    }
    text
}

fn name(nodes: &[ExpressionNode]) -> String {
    let names: Vec<&str> = nodes.iter().filter_map(|node| Some(node.operands()?.0.name())).collect();
    match names.len() {
        0 => OUTPUT.to_owned(),
        1..=NAMED => names.join("·"),
        len => format!("{}·{} more", names[..NAMED - 1].join("·"), len + 1 - NAMED),
    }
}

impl Expression {
    /// The expression of these nodes: the one that is there already, or a new one.
    pub(super) fn of(nodes: Vec<ExpressionNode>, outputs: Vec<usize>, keeps_precision: bool) -> Self {
        /// By its description, which has all that differs.
        static ALL: LazyLock<Mutex<HashMap<String, Expression>>> = LazyLock::new(Mutex::default);

        let description = description(&nodes, &outputs, keeps_precision);
        let mut all = ALL.lock();
        if let Some(expression) = all.get(&description) {
            return *expression;
        }
        let inputs = nodes.iter().filter(|node| matches!(node.kind, NodeKind::Input(_)));
        let inputs = inputs.map(|node| node.dtype).collect();
        let dims = nodes.iter().find_map(|node| match &node.kind {
            NodeKind::Result { operator: Operator::Reduce { dims, .. }, .. } => Some(*dims),
            _ => None,
        });
        let name = name(&nodes);
        let definition = Definition { nodes, inputs, outputs, dims, keeps_precision, name };
        let expression = Self::new(Box::leak(Box::new(definition)));
        all.insert(description, expression);
        expression
    }

    /// The expression as data, which crosses the border of a library: a step for each node in their order,
    /// and then one for each output. A step has a name and numbers:
    ///
    /// - `input`: the number of its type, which is 1 for the first of [`DType::ALL`];
    /// - `literal`: the number of its type, and its value;
    /// - the [name](Operator::name) of an operator: the places of its operands among the nodes, and then for
    ///   `copy` the number of the type, and for a reduction its dimensions;
    /// - `output`: the place of the node;
    /// - `keep_precision`, at the end.
    #[must_use]
    pub fn steps(&self) -> Vec<OperatorOption> {
        steps(self.nodes(), self.outputs(), self.keeps_precision())
    }

    /// The expression with these [steps](Self::steps).
    ///
    /// # Errors
    ///
    /// The first step that is none, or the errors of [`build`](Self::build).
    pub fn from_steps<'a>(
        steps: impl IntoIterator<Item = (&'a str, &'a [Scalar])>,
    ) -> Result<Self, ExpressionError> {
        Self::build(|builder| {
            let mut values = Vec::new();
            for (name, numbers) in steps {
                if let Err(error) = add_step(builder, &mut values, name, numbers) {
                    return builder.fail(error);
                }
            }
        })
    }
}

fn add_step<'e>(
    builder: &'e ExpressionBuilder,
    values: &mut Vec<ExpressionValue<'e>>,
    name: &str,
    numbers: &[Scalar],
) -> Result<(), ExpressionError> {
    let invalid = |expected| {
        let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
        ExpressionError::Description { step: format!("{name}{numbers}"), expected }
    };
    let place = |number: &Scalar| match number {
        Scalar::Int(place) => usize::try_from(*place).ok(),
        _ => None,
    };
    let dtype = |number: Option<&Scalar>| {
        let dtype = number.and_then(|number| match number {
            Scalar::Int(number) => numbered(*number),
            _ => None,
        });
        dtype.ok_or_else(|| invalid("expected the number of a type"))
    };
    let value = |number: &Scalar, values: &[ExpressionValue<'e>]| {
        let value = place(number).and_then(|place| values.get(place).copied());
        value.ok_or_else(|| invalid("expected the place of an earlier node"))
    };
    let new = match (name, numbers) {
        (INPUT, [of_type]) => builder.input(dtype(Some(of_type))?),
        (LITERAL, [of_type, number]) => builder.literal(dtype(Some(of_type))?, *number),
        (OUTPUT, [node]) => {
            builder.output(value(node, values)?);
            return Ok(());
        }
        (KEEP_PRECISION, []) => {
            builder.keep_precision();
            return Ok(());
        }
        ("copy", [node, to]) => {
            let to = dtype(Some(to))?;
            builder.result(Operator::Copy, &[value(node, values)?], Some(to))
        }
        ("copy", _) => return Err(invalid("expected the place of a node and the number of a type")),
        (name, [node, dims @ ..]) if name.starts_with("reduce_") => {
            let operator = Operator::from_description(name, &[("dims", dims)]);
            builder.apply(operator.map_err(|_| invalid("expected an operator"))?, &[value(node, values)?])
        }
        (name, nodes) => {
            let operator = Operator::from_description(name, &[]);
            let operands = nodes.iter().map(|node| value(node, values)).collect::<Result<Vec<_>, _>>()?;
            builder.apply(operator.map_err(|_| invalid("expected an operator"))?, &operands)
        }
    };
    values.push(new);
    Ok(())
}

/// The [steps](Expression::steps) in a line, with types by their names: `input f32, literal f32 2.0, mul 0 1,
/// output 2`.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&description(self.nodes(), self.outputs(), self.keeps_precision()))
    }
}

/// Reads what `Display` writes.
///
/// ```
/// use device_kernels::Expression;
///
/// let twice: Expression = "input f32, literal f32 2.0, mul 0 1, output 2".parse()?;
/// assert_eq!(twice.name(), "mul");
/// assert_eq!(twice.to_string().parse(), Ok(twice));
/// # Ok::<(), device_kernels::ExpressionError>(())
/// ```
impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        let mut steps = Vec::new();
        for step in text.split(',').map(str::trim).filter(|step| !step.is_empty()) {
            let mut words = step.split_whitespace();
            let name = words.next().unwrap_or_default();
            let numbers = words.enumerate().map(|(place, word)| {
                let number = match type_place(name) {
                    Some(of_type) if of_type == place => {
                        let dtype = DType::ALL.into_iter().find(|dtype| dtype.to_string() == word);
                        dtype.map(|dtype| Scalar::Int(type_number(dtype) as i64))
                    }
                    _ => number(word),
                };
                let expected = "expected a type or a number in the place of a word";
                number.ok_or_else(|| ExpressionError::Description { step: step.to_owned(), expected })
            });
            steps.push((name, numbers.collect::<Result<Vec<_>, _>>()?));
        }
        Self::from_steps(steps.iter().map(|(name, numbers)| (*name, &numbers[..])))
    }
}

fn number(word: &str) -> Option<Scalar> {
    let int = word.parse().map(Scalar::Int).ok();
    let bool = || word.parse().map(Scalar::Bool).ok();
    let float = || word.parse().map(Scalar::Float).ok();
    int.or_else(bool).or_else(float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{Compare, Reduction, Unary};

    #[test]
    fn an_expression_is_read_from_its_text_and_from_its_steps() {
        let expression = Expression::build(|e| {
            e.keep_precision();
            let a = e.input(DType::F16);
            let b = e.input(DType::I64).cast(DType::F16);
            let _ = e.input(DType::Bool);
            let largest = a.apply(Unary::Exp).reduce(Reduction::Max, [0, 2]);
            let nan = e.literal(DType::F16, f64::NAN);
            e.output(a.compare(Compare::Ge, -0.0).select(largest.clamp(b, f64::INFINITY), nan));
            e.output(b);
        })
        .unwrap();
        let text = expression.to_string();
        assert!(text.starts_with("input f16, input i64, copy 1 f16, input bool, exp 0, reduce_max 4 0 2"));
        assert_eq!(text.parse(), Ok(expression), "{text}");
        let steps = expression.steps();
        let given = steps.iter().map(|step| (step.name, &step.values[..]));
        assert_eq!(Expression::from_steps(given), Ok(expression));
        assert_eq!(expression.name(), "copy·exp·reduce_max·ge·clamp·where");
    }

    #[test]
    fn steps_that_are_none_are_errors() {
        for (text, expected) in [
            ("", "an expression without an output"),
            ("input f33, output 0", "`input f33` is no step"),
            (
                "input f32, output 1",
                "`output 1` is no step of an expression: expected the place of an earlier",
            ),
            ("input f32, sqroot 0, output 1", "`sqroot 0` is no step of an expression: expected an operator"),
            ("input f32, matmul 0 0, output 1", "`matmul` cannot be in an expression"),
            ("input f32, softmax 0, output 1", "expected an operator"),
            ("input f32, add 0 -1, output 1", "expected the place of an earlier node"),
            ("input f32, reduce_sum 0 9 63, output 1, input", "`input` is no step"),
            ("input f32, expression 0, output 1", "expected an operator"),
            ("input f32, copy 0, output 1", "expected the place of a node and the number of a type"),
        ] {
            let error = text.parse::<Expression>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
