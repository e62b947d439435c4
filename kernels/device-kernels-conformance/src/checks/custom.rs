//! The group `custom`: the operators that linked crates declare, each beside the reference of its author.

use device_kernels::{CustomOperator, Example, Operator, OperatorDefinition, operator, operators};
use entry_points::{Entry, LoadError};

use super::drawn;
use crate::case::{Case, Kind, Operand};
use crate::check::{Check, Drawn};
use crate::draw::Draw;
use crate::failure::Failure;
use crate::values::Domain;

/// A check for each operator that is not switched off.
pub(super) fn checks() -> Vec<Check> {
    operators().iter().filter_map(check).collect()
}

fn check(entry: Entry<dyn OperatorDefinition>) -> Option<Check> {
    let name = format!("custom::{}", entry.name());
    let proves =
        "an operator that another crate declares is what its reference computes, whatever its layouts";
    let failed = |name, message: String| {
        Some(Check::new(name, proves, move |_, _| Err(Failure::Failed(message.clone()))))
    };
    match operator(entry.name()) {
        Err(LoadError::Disabled { .. }) => None,
        Err(error) => failed(name, error.to_string()),
        Ok(custom) => match kinds(custom) {
            none if none.is_empty() => {
                failed(name, format!("the operator {custom} has no examples to test it with"))
            }
            kinds => Some(Check::random(name, proves, kinds)),
        },
    }
}

/// Cases of each example of each operator.
pub(super) fn families() -> Vec<Drawn> {
    operators().iter().filter_map(|entry| operator(entry.name()).ok()).flat_map(kinds).collect()
}

fn kinds(custom: CustomOperator) -> Vec<Drawn> {
    let kind = |example: Example| {
        let operator = custom.with_options(example.options().iter().copied()).into();
        drawn(move |case, draw| add(operator, &example, case, draw))
    };
    custom.definition().examples().into_iter().map(kind).collect()
}

fn add(operator: Operator, example: &Example, case: &mut Case, draw: &mut Draw<'_>) {
    let inputs: Vec<Operand> = example
        .inputs()
        .iter()
        .map(|input| {
            let domain = Domain::Within(*input.range.start(), *input.range.end());
            case.array(draw, input.dtype, &input.shape, Kind::Any, domain).into()
        })
        .collect();
    let outputs = example.outputs().iter();
    let outputs: Vec<_> = outputs.map(|(dtype, shape)| case.output(draw, *dtype, shape, Kind::Any)).collect();
    case.step(operator, inputs, outputs);
}
