//! Texts that other crates bring, for operators that this one does not have.

use std::sync::Arc;

use device_kernels::Call;
use smallvec::SmallVec;

use super::element::Value;
use super::{Kind, Place, Plan, Step, Target, Traits, WIDE, line};

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

/// A kernel in OpenCL C for your own set, such as one for an [operator that a crate
/// declares](device_kernels::OperatorDefinition), with the arguments of a call.
///
/// Programs are compiled once for each device, and kept on disk, as for a set's own kernels.
#[derive(Clone, Debug)]
pub struct CustomKernel {
    text: Arc<str>,
    values: SmallVec<[Value; 4]>,
    indices: SmallVec<[i64; 16]>,
    items: usize,
}

impl CustomKernel {
    /// A kernel with the name `run`, of this many items in one dimension. There are more of them than that,
    /// as they come in groups: an item beyond the number does nothing.
    ///
    /// The text may use the type `index_t`, which is `int`, or `long` where places in the arrays need it. The
    /// parameters of `run` are, in this order:
    ///
    /// 1. for each array of the call, inputs first, a pointer to `global` elements, and an `index_t`: where
    ///    the array's buffer begins, in elements, to which the layout's offset and strides are added;
    /// 2. the [values](Self::value);
    /// 3. the [indices](Self::index), each an `index_t`.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>, items: usize) -> Self {
        Self { text: text.into(), values: SmallVec::new(), indices: SmallVec::new(), items }
    }

    /// Adds a value to the arguments.
    #[must_use]
    pub fn value(mut self, value: Value) -> Self {
        self.values.push(value);
        self
    }

    /// Adds a size, a stride or an offset to the arguments.
    #[must_use]
    pub fn index(mut self, index: i64) -> Self {
        self.indices.push(index);
        self
    }

    /// One kernel for all arrays of a call, each with the number of elements that its memory has before it.
    #[must_use]
    pub fn plan(&self, call: &Call, traits: Traits, begins: &[usize]) -> Plan {
        let large = |index: &i64| index.unsigned_abs() >= WIDE as u64;
        let wide = super::are_far(call, begins) || self.items >= WIDE || self.indices.iter().any(large);
        let target = Target { traits, wide };
        let (items, group) = line(self.items, target.traits);
        let step = Step {
            recipe: Kind::Custom(Recipe { text: Arc::clone(&self.text), wide }).into(),
            arrays: (0..call.arrays().count()).map(|place| (Place::Array(place), 0)).collect(),
            values: SmallVec::from(&self.values[..]),
            indices: SmallVec::from(&self.indices[..]),
            items,
            group,
        };
        Plan { wide, ..step.into() }
    }
}
