//! What burn's operations are here: a view, random numbers, a kernel, or work for the CPU.
//!
//! This is the only file that names operations. A release of burn with new ones changes nothing else: what is not named
//! here runs on burn's CPU engine.

use burn_backend::Shape;
use burn_flex::Layout;
use burn_ir::{
    BaseOperationIr, BinaryOpIr, FloatOperationIr, NumericOperationIr, OperationIr, RandomOpIr, TensorIr,
};

use crate::kernels::{Kernel, Operator};

/// How an operation is done.
pub(crate) enum Plan<'a> {
    /// Another view of the bytes of `input`, or work for the CPU where the layout allows none.
    View { input: &'a TensorIr, out: &'a TensorIr, view: View<'a> },
    /// Random numbers, drawn on the host.
    Random(&'a RandomOpIr),
    /// A cast of integers, which burn's interpreter does not do.
    CastInt(&'a TensorIr),
    /// One of the kernels, if the device has it for these operands.
    Kernel { kernel: Kernel, inputs: [&'a TensorIr; 2] },
    /// burn's CPU engine.
    Fallback,
}

/// A view, by what changes in the layout.
pub(crate) enum View<'a> {
    Reshape,
    Expand,
    SwapDims(usize, usize),
    Permute(&'a [usize]),
    Slice(&'a [burn_backend::Slice]),
}

/// How `operation` is done.
pub(crate) fn describe(operation: &OperationIr) -> Plan<'_> {
    match operation {
        OperationIr::BaseInt(BaseOperationIr::Cast(cast)) => Plan::CastInt(&cast.out),
        OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => view(base),
        OperationIr::Float(_, FloatOperationIr::Random(random))
        | OperationIr::NumericInt(_, NumericOperationIr::IntRandom(random)) => Plan::Random(random),
        OperationIr::NumericFloat(_, numeric) => match numeric {
            NumericOperationIr::Add(operands) => binary(Operator::Add, operands),
            NumericOperationIr::Sub(operands) => binary(Operator::Sub, operands),
            NumericOperationIr::Mul(operands) => binary(Operator::Mul, operands),
            NumericOperationIr::Div(operands) => binary(Operator::Div, operands),
            _ => Plan::Fallback,
        },
        _ => Plan::Fallback,
    }
}

fn view(base: &BaseOperationIr) -> Plan<'_> {
    let (input, out, view) = match base {
        BaseOperationIr::Reshape(shape) => (&shape.input, &shape.out, View::Reshape),
        BaseOperationIr::Expand(shape) => (&shape.input, &shape.out, View::Expand),
        BaseOperationIr::SwapDims(swap) => (&swap.input, &swap.out, View::SwapDims(swap.dim1, swap.dim2)),
        BaseOperationIr::Permute(permute) => (&permute.input, &permute.out, View::Permute(&permute.axes)),
        BaseOperationIr::Slice(slice) => (&slice.tensor, &slice.out, View::Slice(&slice.ranges)),
        _ => return Plan::Fallback,
    };
    Plan::View { input, out, view }
}

fn binary(operator: Operator, BinaryOpIr { lhs, rhs, out }: &BinaryOpIr) -> Plan<'_> {
    let same = lhs.shape == rhs.shape && lhs.dtype == rhs.dtype && lhs.dtype == out.dtype;
    if !same {
        return Plan::Fallback;
    }
    let kernel = Kernel { operator, dtype: out.dtype, len: out.shape.num_elements() };
    Plan::Kernel { kernel, inputs: [lhs, rhs] }
}

impl View<'_> {
    /// The layout of the view with the shape `shape`, or nothing where the bytes have to be rearranged. The engine
    /// reports arguments that make no sense.
    pub(crate) fn layout(&self, layout: &Layout, shape: &Shape) -> Option<Layout> {
        let dims = layout.num_dims();
        match *self {
            Self::Reshape => (layout.num_elements() == shape.num_elements())
                .then(|| layout.reshape(shape.clone()))
                .flatten(),
            Self::Expand => expand(layout, shape),
            Self::SwapDims(a, b) => (a < dims && b < dims).then(|| layout.transpose(a, b)),
            Self::Permute(axes) => {
                let mut seen = vec![false; dims];
                let each_once = axes.len() == dims
                    && axes.iter().all(|&axis| axis < dims && !std::mem::replace(&mut seen[axis], true));
                each_once.then(|| layout.permute(axes))
            }
            Self::Slice(slices) => {
                if slices.len() > dims || slices.iter().any(|slice| slice.step <= 0) {
                    return None;
                }
                let (view, copies) = layout.slice(slices);
                // burn has computed the shape too: where the two differ, the arguments are the engine's to judge.
                (!copies && view.shape() == shape).then_some(view)
            }
        }
    }
}

/// Dimensions of one element are repeated by a stride of zero, and missing ones are put in front.
fn expand(layout: &Layout, shape: &Shape) -> Option<Layout> {
    let new = shape.num_dims().checked_sub(layout.num_dims())?;
    let mut strides = vec![0; new];
    for (place, (&from, &stride)) in layout.shape().iter().zip(layout.strides()).enumerate() {
        match shape[new + place] {
            to if to == from => strides.push(stride),
            _ if from == 1 => strides.push(0),
            _ => return None,
        }
    }
    Some(Layout::new(shape.clone(), strides, layout.start_offset()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize]) -> Layout {
        Layout::contiguous(shape.to_vec().into())
    }

    #[test]
    fn a_view_has_the_strides_of_its_bytes() {
        let matrix = layout(&[2, 3]);
        let transposed = View::SwapDims(0, 1).layout(&matrix, &[3, 2].into()).unwrap();
        assert_eq!(transposed.strides(), [1, 3]);
        assert!(View::Reshape.layout(&transposed, &[6].into()).is_none(), "the bytes are in another order");
        let expanded = View::Expand.layout(&layout(&[3, 1]), &[4, 3, 2].into()).unwrap();
        assert_eq!(expanded.strides(), [0, 1, 0]);
    }

    #[test]
    fn what_makes_no_sense_is_left_to_the_engine() {
        let matrix = layout(&[2, 3]);
        assert!(View::SwapDims(0, 2).layout(&matrix, &[2, 3].into()).is_none());
        assert!(View::Permute(&[0, 0]).layout(&matrix, &[2, 2].into()).is_none());
        assert!(View::Expand.layout(&matrix, &[4, 3].into()).is_none());
        assert!(View::Expand.layout(&matrix, &[3].into()).is_none());
        assert!(View::Reshape.layout(&matrix, &[7].into()).is_none());
    }
}
