//! Texts that other crates bring, for operators that this one does not have.

use std::sync::Arc;

use device_kernels::Call;
use smallvec::SmallVec;

use super::element::Value;
use super::{Place, Plan, Step, Target, line};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recipe {
    text: Arc<str>,
    wide: bool,
}

impl Recipe {
    pub(crate) fn text(&self) -> String {
        let index = if self.wide { "long" } else { "int" };
        format!("typedef {index} index_t;\n{}", self.text)
    }
}

/// One kernel for all arrays of a call, which begin at the first element of their buffers.
pub(crate) fn plan(
    call: &Call,
    text: &Arc<str>,
    values: &[Value],
    indices: &[i64],
    items: usize,
    target: Target,
) -> Plan {
    let (items, group) = line(items, target.traits);
    Plan::from(Step {
        recipe: super::Recipe::Custom(Recipe { text: Arc::clone(text), wide: target.wide }),
        arrays: (0..call.arrays().count()).map(|place| (Place::Array(place), 0)).collect(),
        values: SmallVec::from(values),
        indices: SmallVec::from(indices),
        items,
        group,
    })
}
