//! Parts of an expression, for kernel sets that do not have the whole.

use smallvec::SmallVec;

use super::builder::{ExpressionBuilder, ExpressionValue};
use crate::operator::{Expression, ExpressionError, NodeKind, Operator};

/// A part of an expression: what computes some of its nodes, by others that are there.
pub(crate) struct Extract {
    pub(crate) expression: Expression,
    /// What each input of the part is.
    pub(crate) sources: SmallVec<[Source; 8]>,
}

/// An input of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The input of the whole with this number.
    Input(usize),
    /// The value of this node, which an earlier part has computed.
    Node(usize),
}

impl Expression {
    /// The part that computes the nodes `targets`. Nodes that `is_there` are inputs of it, and those that
    /// they are computed from are left out.
    ///
    /// # Errors
    ///
    /// If it would have too many inputs.
    pub(crate) fn extract(
        &self,
        targets: &[usize],
        is_there: impl Fn(usize) -> bool,
    ) -> Result<Extract, ExpressionError> {
        let nodes = self.nodes();
        let mut needs = vec![false; nodes.len()];
        targets.iter().for_each(|&target| needs[target] = true);
        for place in (0..nodes.len()).rev() {
            if let (true, false, NodeKind::Result { operands, .. }) =
                (needs[place], is_there(place), &nodes[place].kind)
            {
                operands.iter().for_each(|&operand| needs[operand] = true);
            }
        }
        let mut sources = SmallVec::new();
        let expression = Self::build(|builder| {
            if self.keeps_precision() {
                builder.keep_precision();
            }
            let mut values: Vec<Option<ExpressionValue<'_>>> = vec![None; nodes.len()];
            for place in (0..nodes.len()).filter(|&place| needs[place]) {
                let source = if is_there(place) { Some(Source::Node(place)) } else { None };
                values[place] = self.value(builder, place, source, &values, &mut sources);
            }
            targets.iter().filter_map(|&target| values[target]).for_each(|value| builder.output(value));
        })?;
        Ok(Extract { expression, sources })
    }

    fn value<'e>(
        &self,
        builder: &'e ExpressionBuilder,
        place: usize,
        source: Option<Source>,
        values: &[Option<ExpressionValue<'e>>],
        sources: &mut SmallVec<[Source; 8]>,
    ) -> Option<ExpressionValue<'e>> {
        let node = &self.nodes()[place];
        let source = match (&node.kind, source) {
            (_, Some(source)) => source,
            (NodeKind::Input(input), None) => Source::Input(*input),
            (NodeKind::Literal(value), None) => return Some(builder.literal(node.dtype, *value)),
            (NodeKind::Result { operator, operands }, None) => {
                let operands: Option<SmallVec<[ExpressionValue<'e>; 3]>> =
                    operands.iter().map(|&operand| values[operand]).collect();
                let to = matches!(operator, Operator::Copy).then_some(node.dtype);
                return Some(builder.result(*operator, &operands?, to));
            }
        };
        sources.push(source);
        Some(builder.input(node.dtype))
    }
}
