//! Which function computes which operator.

use device_kernels::{Call, ComputeOnHost, Coverage, DType, KernelSet, Layout, Operator, Reduction, Sorted};
use device_registry::Device;
use device_registry::backend::{BackendError, Launch};
use smallvec::SmallVec;

use crate::call_bytes::Source;
use crate::element::{Bool, with_element};
use crate::elementwise::{self, Inputs};
use crate::index::{Indices, gather, index_assign, index_select, put, put_bool, scatter, with_index};
use crate::pooling::{self, PoolingWindows};
use crate::sort::with_bits;
use crate::{HostKernels, call_bytes, conv, expression, matmul, random, reduce, softmax, sort, unsupported};

impl KernelSet for HostKernels {
    fn coverage(&self, _device: Device) -> Vec<Coverage> {
        self.coverage.clone()
    }

    fn supports(&self, _device: Device, call: &Call) -> bool {
        let is_fast = match call.operator() {
            Operator::Expression(of) => !self.is_own || expression::has_rows(call, of),
            _ => true,
        };
        is_fast && self.coverage.iter().any(|coverage| coverage.covers(call))
    }

    fn on_host(&self) -> Option<ComputeOnHost> {
        self.is_host.then_some(self.compute)
    }

    fn launch(&self, call: &Call, launch: &Launch<'_>) -> Result<(), BackendError> {
        call_bytes::with_bytes(call, launch.spans(), self.memory, |inputs, outputs| {
            let is_own = self.is_own && !call.is_empty();
            if let (true, Operator::Expression(of)) = (is_own, call.operator()) {
                return expression::run(call, of, inputs, outputs);
            }
            let is_in_place = inputs.iter().any(|input| matches!(input, Source::Output(_)));
            if is_in_place && is_own && elementwise::can_be_in_place(call) {
                return elementwise::run_in_place(call, inputs, outputs[0]);
            }
            let mut before = SmallVec::<[Vec<u8>; 2]>::new();
            if is_in_place {
                before.extend(outputs.iter().map(|output| output.to_vec()));
            }
            // A loop and no iterator, whose collecting is a call.
            let mut bytes = SmallVec::<[Option<&[u8]>; 4]>::new();
            for input in inputs {
                bytes.push(match input {
                    Source::Output(output) => Some(&before[*output][..]),
                    input => input.bytes(&[]),
                });
            }
            (self.compute)(call, &bytes, outputs)
        })
    }
}

/// Computes a call on this thread and rayon's, with arrays in slices: for a framework whose arrays are on the
/// host.
///
/// There are as many inputs as the call has, `None` for a scalar, and as many outputs. The bytes of an array
/// are its [range](Layout::range): from its first element to its last.
///
/// # Errors
///
/// If an index is out of range, or the slices do not fit the call.
pub fn compute(call: &Call, inputs: &[Option<&[u8]>], outputs: &mut [&mut [u8]]) -> Result<(), BackendError> {
    check(call, inputs, outputs)?;
    if call.is_empty() {
        return Ok(());
    }
    if call.operator().is_elementwise() {
        return elementwise::run(call, inputs, outputs[0]);
    }
    if let Operator::Expression(of) = call.operator() {
        let source = |input: &Option<_>| input.map_or(Source::Scalar, Source::Bytes);
        let inputs: SmallVec<[_; 8]> = inputs.iter().map(source).collect();
        return expression::run(call, of, &inputs, outputs);
    }
    let &(to, ref out_layout) = &call.outputs()[0];
    let array = |place: usize| -> Result<(DType, &Layout, &[u8]), BackendError> {
        let array = call.inputs().get(place).and_then(|input| input.array()).zip(inputs[place]);
        let ((dtype, layout), bytes) =
            array.ok_or_else(|| unsupported("a scalar in the place of an array"))?;
        Ok((dtype, layout, bytes))
    };
    // The first output, to write.
    macro_rules! out {
        () => {
            (&mut *outputs[0], out_layout)
        };
    }
    match call.operator() {
        Operator::Reduce { reduction, dims } => {
            let (dtype, layout, bytes) = array(0)?;
            match reduction {
                Reduction::Any | Reduction::All => {
                    reduce::reduce::<Bool>(reduction, dims, (bytes, layout), out!())
                }
                _ => with_element!(numbers dtype, E => {
                    reduce::reduce::<E>(reduction, dims, (bytes, layout), out!())
                }),
            }
        }
        Operator::ArgReduce { extremum, dim } => {
            let (dtype, layout, bytes) = array(0)?;
            with_element!(numbers dtype, E => with_index!(to, I => {
                reduce::arg_reduce::<E, I>(extremum, dim, (bytes, layout), out!())
            }))
        }
        Operator::Sort { dim, descending, sorted } => {
            let (dtype, layout, bytes) = array(0)?;
            let order = sort::Order { dim, descending, kind: sort::Kind::of(dtype) };
            with_bits!(dtype, B => match (sorted, call.outputs(), &mut *outputs) {
                (Sorted::Values, ..) => sort::values::<B>(order, (bytes, layout), out!()),
                (Sorted::Both, [_, (index, places)], [values, indices]) => {
                    let values = Some((&mut **values, out_layout));
                    let indices = (&mut **indices, places);
                    with_index!(*index, I => {
                        sort::indices::<B, I>(order, (bytes, layout), values, indices)
                    })
                }
                (Sorted::Indices, ..) => with_index!(to, I => {
                    sort::indices::<B, I>(order, (bytes, layout), None, out!())
                }),
                _ => Err(unsupported(sorted)),
            })
        }
        operator @ (Operator::Softmax { dim } | Operator::LogSoftmax { dim }) => {
            let (dtype, layout, bytes) = array(0)?;
            let logarithm = matches!(operator, Operator::LogSoftmax { .. });
            with_element!(floats dtype, E => {
                softmax::softmax::<E>(dim, logarithm, (bytes, layout), out!())
            })
        }
        Operator::MatMul if to.is_float() => {
            with_element!(floats to, E => matmul::matmul::<E>(call, inputs, outputs[0]))
        }
        Operator::MatMul => {
            with_element!(numbers to, E => matmul::matmul_integers::<E>(call, inputs, outputs[0]))
        }
        Operator::Gather { dim } => {
            let (_, layout, bytes) = array(0)?;
            let (index, index_layout) = indices(array(1)?, layout.shape()[dim])?;
            with_element!(to, E => {
                gather::<E>(dim, (bytes, layout), (&index, index_layout), out!())
            })
        }
        Operator::Scatter { dim, update } => {
            let (index, index_layout) = indices(array(0)?, out_layout.shape()[dim])?;
            let (_, layout, bytes) = array(1)?;
            let index = (&index, index_layout);
            if to == DType::Bool {
                return scatter::<Bool>(dim, put_bool(update)?, index, (bytes, layout), out!());
            }
            with_element!(numbers to, E => {
                scatter::<E>(dim, put(update)?, index, (bytes, layout), out!())
            })
        }
        Operator::IndexSelect { dim } => {
            let (_, layout, bytes) = array(0)?;
            let (index, _) = indices(array(1)?, layout.shape()[dim])?;
            with_element!(to, E => {
                index_select::<E>(dim, (bytes, layout), &index, out!())
            })
        }
        Operator::IndexAssign { dim, update } => {
            let (index, _) = indices(array(0)?, out_layout.shape()[dim])?;
            let (_, layout, bytes) = array(1)?;
            if to == DType::Bool {
                return index_assign::<Bool>(dim, put_bool(update)?, &index, (bytes, layout), out!());
            }
            with_element!(numbers to, E => {
                index_assign::<E>(dim, put(update)?, &index, (bytes, layout), out!())
            })
        }
        Operator::Conv2d(conv) => {
            with_element!(floats to, E => conv::conv2d::<E>(conv, call, inputs, outputs[0]))
        }
        Operator::Conv2dInputGrad(conv) => {
            with_element!(floats to, E => conv::input_grad::<E>(conv, call, inputs, outputs[0]))
        }
        Operator::Conv2dWeightGrad(conv) => {
            with_element!(floats to, E => conv::weight_grad::<E>(conv, call, inputs, outputs[0]))
        }
        Operator::MaxPool2d(pool) => {
            let (dtype, layout, bytes) = array(0)?;
            if let Some((index, places)) = call.outputs().get(1) {
                with_element!(numbers dtype, E => with_index!(*index, I => {
                    pooling::max_places::<E, I>(pool, (bytes, layout), (&mut *outputs[1], places))
                }))?;
            }
            with_element!(numbers dtype, E => {
                pooling::max::<E>(pool, (bytes, layout), out!())
            })
        }
        Operator::MaxPool2dGrad(_) => {
            let (_, layout, bytes) = array(0)?;
            let image = out_layout.shape()[2] * out_layout.shape()[3];
            let (places, _) = indices(array(1)?, image)?;
            with_element!(floats to, E => {
                pooling::max_grad::<E>((bytes, layout), places.as_slice(), out!())
            })
        }
        Operator::AvgPool2d { pool, count_padding } => {
            mean(PoolingWindows::Pool { pool, count_padding }, array(0)?, outputs[0], out_layout)
        }
        Operator::AdaptiveAvgPool2d => mean(PoolingWindows::Adaptive, array(0)?, outputs[0], out_layout),
        Operator::AvgPool2dGrad { pool, count_padding } => {
            mean_grad(PoolingWindows::Pool { pool, count_padding }, array(0)?, outputs[0], out_layout)
        }
        Operator::AdaptiveAvgPool2dGrad => {
            mean_grad(PoolingWindows::Adaptive, array(0)?, outputs[0], out_layout)
        }
        Operator::Random { distribution, seed, offset } => {
            random::random(distribution, seed, offset, (outputs[0], to, out_layout))
        }
        other => Err(unsupported(other)),
    }
}

/// Whether each array has the bytes of its range, and scalars have none.
fn check(call: &Call, inputs: &Inputs<'_>, outputs: &[&mut [u8]]) -> Result<(), BackendError> {
    let mut ranges = call.byte_ranges().iter();
    let mut fits = |bytes: &[u8]| ranges.next().is_some_and(|range| range.len() == bytes.len());
    let inputs_fit = call.inputs().len() == inputs.len()
        && call.inputs().iter().zip(inputs).all(|(input, bytes)| match bytes {
            Some(bytes) => input.array().is_some() && fits(bytes),
            None => input.array().is_none(),
        });
    let outputs_fit = call.outputs().len() == outputs.len() && outputs.iter().all(|bytes| fits(bytes));
    if inputs_fit && outputs_fit {
        return Ok(());
    }
    Err(BackendError::invalid(format_args!("expected the bytes of each array's range for {call}")))
}

fn indices<'a>(
    (dtype, layout, bytes): (DType, &'a Layout, &[u8]),
    size: usize,
) -> Result<(Indices, &'a Layout), BackendError> {
    with_index!(dtype, I => Ok((Indices::new::<I>(bytes, layout, size)?, layout)))
}

fn mean(
    windows: PoolingWindows,
    (dtype, layout, bytes): (DType, &Layout, &[u8]),
    out: &mut [u8],
    out_layout: &Layout,
) -> Result<(), BackendError> {
    with_element!(floats dtype, E => {
        pooling::mean::<E>(windows, (bytes, layout), (out, out_layout))
    })
}

fn mean_grad(
    windows: PoolingWindows,
    (dtype, layout, bytes): (DType, &Layout, &[u8]),
    out: &mut [u8],
    out_layout: &Layout,
) -> Result<(), BackendError> {
    with_element!(floats dtype, E => {
        pooling::mean_grad::<E>(windows, (bytes, layout), (out, out_layout))
    })
}
